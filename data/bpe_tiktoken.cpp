#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <unordered_map>

#include "core/base64.h"
#include "core/printable.h"
#include "data/bpe_files.h"
#include "data/data_error.h"

namespace trivet::data {
namespace {

// Facts that a file of ranks lacks: how text is split into words, and special tokens, by distance from the ranks.
struct Encoding {
  std::vector<std::string_view> names;  // parts of file names
  const char* pattern;
  std::vector<std::pair<std::string, int32_t>> special;
};

const std::vector<Encoding>& encodings() {
  static const std::vector<Encoding> all{
      {{"gpt2", "r50k_base", "multilingual"}, kGpt2Pattern, {{std::string(kEndOfText), 0}}},
      {{"cl100k_base"},
       kGpt4Pattern,
       {{std::string(kEndOfText), 1},
        {"<|fim_prefix|>", 2},
        {"<|fim_middle|>", 3},
        {"<|fim_suffix|>", 4},
        {"<|endofprompt|>", 20}}},
      {{"o200k_base"}, kGpt4oPattern, {{std::string(kEndOfText), 1}, {"<|endofprompt|>", 20}}},
      {{"qwen.tiktoken"}, kQwenPattern, {{std::string(kEndOfText), 0}, {"<|im_start|>", 1}, {"<|im_end|>", 2}}},
  };
  return all;
}

// Meta's file of Llama 3 is called tokenizer.model, like a model of sentencepiece. Llama 4's has the same name and other words,
// so the number of ranks must be right, too.
constexpr const char* kLlamaFile = "tokenizer.model";
constexpr int32_t kLlamaRanks = 128'000, kLlamaSpecial = 256;

// Returns names as Meta's program has them since Llama 3.1; earlier, all that are not in this list were reserved.
std::string llama_special(int32_t number) {
  constexpr std::array<std::string_view, 12> kNames{"<|begin_of_text|>",
                                                    "<|end_of_text|>",
                                                    "<|reserved_special_token_0|>",
                                                    "<|reserved_special_token_1|>",
                                                    "<|finetune_right_pad_id|>",
                                                    "<|step_id|>",
                                                    "<|start_header_id|>",
                                                    "<|end_header_id|>",
                                                    "<|eom_id|>",
                                                    "<|eot_id|>",
                                                    "<|python_tag|>",
                                                    "<|image|>"};
  const auto place = static_cast<size_t>(number);
  return place < kNames.size() ? std::string(kNames[place])
                               : fmt::format("<|reserved_special_token_{}|>", place - kNames.size() + 2);
}

Encoding encoding_of_llama() {
  Encoding encoding{{}, kGpt4Pattern, {}};
  for (int32_t number = 0; number < kLlamaSpecial; ++number) encoding.special.emplace_back(llama_special(number), number);
  return encoding;
}

Encoding encoding_of(const std::string& path, size_t ranks) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (name == kLlamaFile) {
    if (ranks == static_cast<size_t>(kLlamaRanks)) return encoding_of_llama();
    bad_file(path,
             fmt::format("holds {} ranks of tiktoken, but Llama 3's, which has this name, holds {}; use the tokenizer.json of "
                         "the same model",
                         ranks, kLlamaRanks));
  }
  std::string accepted;
  for (const Encoding& encoding : encodings())
    for (const std::string_view part : encoding.names) {
      if (name.find(part) != std::string::npos) return encoding;
      accepted += (accepted.empty() ? "" : ", ") + std::string(part);
    }
  bad_file(
      path,
      fmt::format("a .tiktoken file does not say how text is split into words, and the name \"{}\" is none of those for which "
                  "it is known: {}; rename the file, or use the tokenizer.json of the same model",
                  printable(name, 60), accepted));
}

constexpr size_t kLongestToken = 1024;  // the longest token of the vocabularies in use has 128 bytes

std::vector<std::string> read_ranks(std::string_view text, const std::string& source) {
  std::vector<std::string> tokens;
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const bool no_token = line.starts_with("= ");  // whisper's file has a rank for nothing
    std::string token = from_base64(line.substr(0, space)).value_or("");
    int64_t rank = -1;
    if (space != std::string_view::npos) std::from_chars(line.data() + space + 1, line.data() + line.size(), rank);
    if ((token.empty() && !no_token) || rank != static_cast<int64_t>(tokens.size()))
      bad_file(source, fmt::format("line {}: \"{}\" is not a token in base64 followed by its rank, {}", line_number,
                                   printable(line, 60), tokens.size()));
    if (token.size() > kLongestToken)
      bad_file(source, fmt::format("line {}: the token has {} bytes; at most {} are accepted", line_number, token.size(),
                                   kLongestToken));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

using Ranks = std::unordered_map<std::string_view, int32_t>;

struct Halves {
  int32_t left, right;
  bool made_by_earlier_merges;  // merges into tokens with lower ranks
};

// The two tokens that are merged into `token`: the parts that remain of its bytes after all other merges, those of the lowest
// ranks first. None: no merge makes the token, so it is only found as a whole word.
std::optional<Halves> halves(const std::string& token, int32_t token_rank, const Ranks& ranks, const std::string& source) {
  constexpr int32_t kNone = std::numeric_limits<int32_t>::max();
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < token.size(); ++i) parts.push_back(std::string_view(token).substr(i, 1));
  const auto joined = [&](size_t i) -> std::string_view { return {parts[i].data(), parts[i].size() + parts[i + 1].size()}; };
  const auto rank_of = [&](size_t i) {
    const auto found = ranks.find(joined(i));
    return found == ranks.end() ? kNone : found->second;
  };
  std::vector<int32_t> merged;  // [i]: rank of parts i and i + 1 joined
  for (size_t i = 0; i + 1 < parts.size(); ++i) merged.push_back(rank_of(i));
  bool earlier = true;
  while (parts.size() > 2) {
    const auto best = std::min_element(merged.begin(), merged.end());
    if (*best == kNone) return std::nullopt;
    earlier = earlier && *best < token_rank;
    const size_t at = best - merged.begin();
    parts[at] = joined(at);
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    merged.erase(best);
    if (at > 0) merged[at - 1] = rank_of(at - 1);
    if (at < merged.size()) merged[at] = rank_of(at);
  }
  const auto left = ranks.find(parts[0]), right = ranks.find(parts[1]);
  if (left == ranks.end() || right == ranks.end())
    bad_file(source, fmt::format("rank {} needs a byte that has no rank of its own", token_rank));
  return Halves{left->second, right->second, earlier};
}

}  // namespace

std::shared_ptr<BpeTokenizer> bpe_from_tiktoken(std::string_view text, const std::string& source) {
  BpeVocabulary vocabulary;
  vocabulary.tokens = read_ranks(text, source);
  const Encoding encoding = encoding_of(source, vocabulary.tokens.size());
  vocabulary.pattern = encoding.pattern;
  Ranks ranks;
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) ranks.emplace(vocabulary.tokens[i], static_cast<int32_t>(i));
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) {
    if (vocabulary.tokens[i].size() < 2) continue;
    const auto made = halves(vocabulary.tokens[i], static_cast<int32_t>(i), ranks, source);
    if (made) vocabulary.merges.emplace_back(made->left, made->right);
    if (!made || !made->made_by_earlier_merges) vocabulary.whole_words_first = true;
  }
  const auto first = static_cast<int32_t>(vocabulary.tokens.size());
  for (const auto& [token, after_ranks] : encoding.special) {
    vocabulary.special.push_back(first + after_ranks);
    vocabulary.tokens.resize(static_cast<size_t>(first + after_ranks));
    vocabulary.tokens.emplace_back(token);
  }
  return std::make_shared<BpeTokenizer>(std::move(vocabulary), source);
}

}  // namespace trivet::data

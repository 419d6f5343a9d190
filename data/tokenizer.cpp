#include "data/tokenizer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base64.h"
#include "core/bounded_json.h"
#include "core/json_error.h"
#include "core/printable.h"
#include "data/bpe_files.h"
#include "data/byte_alphabet.h"
#include "data/characters.h"
#include "data/data_error.h"
#include "data/text_file.h"
#include "data/text_pieces.h"
#include "data/token_file.h"
#include "data/tokenizers/folder_tokens.h"
#include "data/tokenizers/of_model.h"
#include "data/tokenizers/sentencepiece.h"
#include "data/tokenizers/sentencepiece_file.h"
#include "data/tokenizers/tokenizer_json.h"
#include "data/word_split.h"

namespace trivet::data {
namespace {

// A merge is a list of two tokens, and there may be a million of them.
constexpr JsonLimits kTokenizerLimits{.levels = 16, .values = 16'000'000};
constexpr std::array kFilesInFolder{"tokenizer.json", "tokenizer.model"};

class BytesTokenizer : public Tokenizer {
 public:
  std::string name() const override { return "bytes"; }
  int64_t vocabulary_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override {
    const auto* bytes = reinterpret_cast<const uint8_t*>(text.data());
    return {bytes, bytes + text.size()};
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string text;
    for (int32_t id : ids) {
      if (id < 0 || id > 255) throw DataError(ExitCode::Usage, fmt::format("token {} is not a byte (0 to 255)", id));
      text += static_cast<char>(id);
    }
    return text;
  }
  std::string to_text() const override { return "{\"trivet_tokenizer\":\"bytes\"}\n"; }
  size_t piece_bytes(std::string_view text, size_t limit) const override { return cut_at_characters(text, limit); }
};

// The manifest of a checkpoint has the tokenizer of its run in the state, which is a text of JSON.
std::shared_ptr<Tokenizer> tokenizer_in_manifest(const nlohmann::json& manifest, const std::string& source) {
  const auto state = parse_bounded<nlohmann::json>(manifest.at("state").get_ref<const std::string&>(), kTokenizerLimits);
  if (!state.is_object() || !state.contains("tokenizer"))
    bad_file(source, "is the manifest of a checkpoint without a tokenizer");
  return tokenizer_from_text(state.at("tokenizer").get<std::string>(), source);
}

std::shared_ptr<Tokenizer> tokenizer_in_token_file(const std::string& path) {
  const auto file = open_token_file(path);
  if (file->info().tokenizer_text.empty()) bad_file(path, "is a token file without a tokenizer");
  return tokenizer_from_text(file->info().tokenizer_text, path);
}

std::string file_in_folder(const std::string& folder) {
  if (std::string file = find_tokenizer_in(folder); !file.empty()) return file;
  bad_file(folder, fmt::format("holds no tokenizer; it may be one of these files: {}", fmt::join(kFilesInFolder, ", ")));
}

bool looks_like_json(const std::string& text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string::npos && text[first] == '{';
}

// A file of tiktoken begins with the byte "!" and its rank.
bool looks_like_ranks(const std::string& text) { return text.starts_with("IQ== 0\n"); }

std::shared_ptr<Tokenizer> own_format(const nlohmann::json& json, const std::string& source) {
  const std::string kind = json.at("trivet_tokenizer").get<std::string>();
  if (kind == "bytes") return bytes_tokenizer();
  if (kind == "characters") {
    const std::string all = json.at("characters").get<std::string>();
    return std::make_shared<CharactersTokenizer>(distinct_characters(all));
  }
  if (kind == "sentencepiece") {
    const auto bytes = from_base64(json.at("model").get_ref<const std::string&>());
    if (!bytes) bad_file(source, "model: is not base64");
    return sentencepiece_tokenizer(*bytes, source);
  }
  if (kind == kOfModel)
    return with_roles(tokenizer_from_text(json.at("tokenizer").get<std::string>(), source),
                      {json.at("end_of_text").get<std::string>(), json.at("begin_of_text").get<std::string>()});
  bad_file(source,
           "trivet_tokenizer: \"" + printable(kind) + "\" is not accepted; use \"bytes\", \"characters\" or \"sentencepiece\"");
}

// The text of a tokenizer of a model without its roles; any other text as it is.
std::string without_roles(const std::string& text) {
  if (!text.starts_with(fmt::format("{{\"trivet_tokenizer\":\"{}\"", kOfModel))) return text;
  return nlohmann::json::parse(text).at("tokenizer").get<std::string>();
}

// Programs write one tokenizer.json with different blanks, version, and settings of the last call, and merges as texts, "a b",
// or as pairs, ["a", "b"].
nlohmann::json what_encodes(const std::string& text) {
  if (!json_excess(text, kTokenizerLimits).empty()) return text;
  nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return text;
  for (const char* key : {"version", "truncation", "padding"}) json.erase(key);
  const nlohmann::json::json_pointer merges("/model/merges");
  if (!json.contains(merges) || !json[merges].is_array()) return json;
  for (nlohmann::json& merge : json[merges])
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  return json;
}

// "" if the name is not that of a tokenizer in a model's folder.
std::string folder_of_model(const std::filesystem::path& path) {
  if (std::ranges::find(kFilesInFolder, path.filename().string()) == kFilesInFolder.end()) return "";
  const std::string folder = path.parent_path().string();
  return folder.empty() ? "." : folder;
}

// Merges alone have the ids of GPT-2's rule. A vocab.json beside them may have others.
void refuse_other_ids(const Tokenizer& tokenizer, const std::string& merges) {
  const std::string beside = (std::filesystem::path(merges).parent_path() / "vocab.json").string();
  std::error_code none;
  if (!std::filesystem::exists(beside, none)) return;
  const std::string text = read_text(beside, kMaxTokenizerBytes, "a vocabulary");
  const bool is_bounded = json_excess(text, kTokenizerLimits).empty();
  const nlohmann::json ids = is_bounded ? nlohmann::json::parse(text, nullptr, false) : nlohmann::json();
  const auto is_alike = [&](const std::string& name, const nlohmann::json& id) {
    const bool is_id = id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocabulary_size());
    if (!is_id) return false;
    const std::string token = tokenizer.token_name(id.get<int32_t>());
    return token == name || token == from_byte_alphabet(name);
  };
  bool alike = ids.is_object() && static_cast<int64_t>(ids.size()) == tokenizer.vocabulary_size();
  if (alike)
    for (const auto& [name, id] : ids.items()) alike = alike && is_alike(name, id);
  if (!alike)
    bad_file(merges,
             "the vocab.json beside it has other ids than GPT-2's rule gives these merges; write both as a tokenizer.json, for "
             "example with save_pretrained of transformers' AutoTokenizer");
}

std::shared_ptr<Tokenizer> read_json_tokenizer(const std::string& text, const std::string& source, AddedIds added_ids) try {
  const auto json = parse_bounded<nlohmann::json>(text, kTokenizerLimits);
  if (!json.is_object()) bad_file(source, "is JSON, but not a tokenizer, which is an object ({...}); get the file again");
  if (json.contains("trivet_tokenizer")) return own_format(json, source);
  if (json.contains("state") && json.at("state").is_string()) return tokenizer_in_manifest(json, source);
  if (json.contains("model") && json.at("model").is_object()) return read_tokenizer_json(json, text, source, added_ids);
  bad_file(
      source,
      "is JSON, but not a tokenizer (it has neither \"model\" nor \"trivet_tokenizer\"); name a tokenizer.json, or the merges "
      "(vocab.bpe, merges.txt) that belong to it");
} catch (const JsonExcess& excess) {
  bad_file(source, excess.what());
} catch (const nlohmann::json::exception& error) {
  bad_file(source, "is not a tokenizer: " + json_error_in_words(text, error));
}

std::shared_ptr<Tokenizer> load_alone(const std::string& path) {
  const std::string text = read_text(path, kMaxTokenizerBytes, "a tokenizer");
  if (text.starts_with("version https://git-lfs"))
    bad_file(path, "is a pointer of Git LFS, not the tokenizer; get the file itself: git lfs pull");
  const std::string folder = folder_of_model(path);
  if (looks_like_json(text) || path.ends_with(".json")) {
    const bool has_folder = !folder.empty() && json_excess(text, kTokenizerLimits).empty();
    return read_json_tokenizer(has_folder ? with_folder_tokens(text, folder, path) : text, path, AddedIds::AsInLibrary);
  }
  if (looks_like_sentencepiece(text)) {
    auto tokenizer = sentencepiece_tokenizer(text, path);
    if (!folder.empty()) refuse_folder_tokens(*tokenizer, folder, path);
    return tokenizer;
  }
  if (path.ends_with(".tiktoken") || looks_like_ranks(text)) return bpe_from_tiktoken(text, path);
  auto merges = bpe_from_merges(text, path);
  refuse_other_ids(*merges, path);
  return merges;
}

constexpr std::array<std::string_view, 5> kEndsOfText{kEndOfText, "<|end_of_text|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
                                                      "</s>", "<eos>"};
constexpr std::array<std::string_view, 5> kBeginsOfText{"<|begin_of_text|>", "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>", "<s>",
                                                        "<bos>", kEndOfText};

}  // namespace

std::string find_tokenizer_in(const std::string& folder) {
  std::error_code none;
  for (const char* name : kFilesInFolder) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (std::filesystem::exists(std::filesystem::symlink_status(path, none))) return path.string();  // also what cannot be read
  }
  return "";
}

bool encode_alike(const std::string& text, const std::string& other) {
  const std::string plain = without_roles(text), other_plain = without_roles(other);
  if (plain == other_plain) return true;
  return what_encodes(plain) == what_encodes(other_plain);
}

std::string begin_of_text_of(const Tokenizer& tokenizer) {
  if (std::string stated = tokenizer.begin_of_text(); !stated.empty()) return stated;
  if (const SpecialFrame frame = tokenizer.frame(); !frame.before.empty()) return tokenizer.token_name(frame.before[0]);
  for (const std::string_view name : kBeginsOfText)
    if (tokenizer.special_id(name) >= 0) return std::string(name);
  return "";
}

bool has_special_tokens(const Tokenizer& tokenizer) { return tokenizer.name() != "bytes" && tokenizer.name() != "characters"; }

std::string end_of_text_of(const Tokenizer& tokenizer) {
  if (std::string stated = tokenizer.end_of_text(); !stated.empty()) return stated;
  for (const std::string_view name : kEndsOfText)
    if (tokenizer.special_id(name) >= 0) return std::string(name);
  return "";
}

std::vector<std::string> ends_of_documents(const Tokenizer& tokenizer) {
  std::vector<std::string> names;
  for (const std::string_view name : kEndsOfText)
    if (tokenizer.special_id(name) >= 0) names.emplace_back(name);
  if (const std::string stated = end_of_text_of(tokenizer); names.empty() && !stated.empty()) names.push_back(stated);
  return names;
}

std::optional<TokenizerFile> tokenizer_file_of(const std::string& stored) {
  if (!json_excess(stored, kTokenizerLimits).empty()) return std::nullopt;
  const std::string text = without_roles(stored);
  if (!json_excess(text, kTokenizerLimits).empty()) return std::nullopt;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("model")) return std::nullopt;
  if (!json.contains("trivet_tokenizer")) return TokenizerFile{"tokenizer.json", text};
  return TokenizerFile{"tokenizer.model", from_base64(json.at("model").get<std::string>()).value_or("")};
}

size_t CharactersTokenizer::piece_bytes(std::string_view text, size_t limit) const { return cut_at_characters(text, limit); }

size_t Tokenizer::piece_bytes(std::string_view text, size_t limit) const { return data::piece_bytes(text, limit); }

std::shared_ptr<Tokenizer> bytes_tokenizer() { return std::make_shared<BytesTokenizer>(); }

std::shared_ptr<Tokenizer> characters_tokenizer(std::string_view training_text) {
  return std::make_shared<CharactersTokenizer>(distinct_characters(training_text));
}

std::shared_ptr<Tokenizer> tokenizer_from_text(const std::string& text, const std::string& source) {
  return read_json_tokenizer(text, source, AddedIds::AsWritten);
}

std::string note_on_end_of_text(const std::string& path, const Tokenizer& tokenizer) {
  if (std::filesystem::is_directory(path)) return note_on_end_of_text(file_in_folder(path), tokenizer);
  const std::string folder = folder_of_model(path);
  const std::string ids = folder.empty() ? "" : roles_in_folder(folder, tokenizer, path).unknown_ends,
                    end = end_of_text_of(tokenizer);
  if (ids.empty()) return "";
  return fmt::format("{}/config.json: eos_token_id: the tokenizer has no token for {}; {}", folder, printable(ids),
                     end.empty() ? "nothing ends a text" : "texts end with " + printable(end) + " instead");
}

std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path) {
  if (std::filesystem::is_directory(path)) return load_tokenizer(file_in_folder(path));
  if (token_format_of(path) == TokenFormat::Trivet) return tokenizer_in_token_file(path);
  std::shared_ptr<Tokenizer> tokenizer = load_alone(path);
  const std::string folder = folder_of_model(path);
  if (folder.empty()) return tokenizer;
  const TokenRoles roles = roles_in_folder(folder, *tokenizer, path);
  return with_roles(std::move(tokenizer), roles);
}

}  // namespace trivet::data

#include "data/names_of_files.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <initializer_list>
#include <utility>

#include "data/file_kind.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

// Checks whether what follows the word readme, license or licence in a name without its ending makes a variant of such
// a file: nothing, or a sign and a license or a language: "-MIT", "_apache-2.0", ".zh", "_zh-CN".
bool is_variant(std::string_view rest) {
  constexpr std::array<std::string_view, 40> kKnown{
      "agpl", "apache", "asl", "bsd", "bsl",  "cc",   "cdla",      "code", "epl", "eupl",    "gpl", "isc", "lgpl", "llama",
      "mit",  "model",  "mpl", "odc", "odbl", "pddl", "unlicense", "zlib", "ar",  "chinese", "cn",  "de",  "en",   "english",
      "es",   "fr",     "hi",  "it",  "ja",   "jp",   "ko",        "kr",   "pt",  "ru",      "tw",  "zh"};
  if (rest.empty()) return true;
  if (std::string_view("-_.").find(rest[0]) == std::string_view::npos) return false;
  const std::string_view word = rest.substr(1);
  const auto end = std::ranges::find_if(word, [](unsigned char letter) { return std::isalpha(letter) == 0; });
  return std::ranges::find(kKnown, word.substr(0, static_cast<size_t>(end - word.begin()))) != kKnown.end();
}

bool is_called(const std::set<std::string>& words, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) { return words.contains(name); });
}

}  // namespace

std::string small_letters(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return small;
}

bool has_name_of_text(const std::string& path) {
  const std::string name = name_without_packing(path);
  constexpr std::array<std::string_view, 3> kTexts{".txt", ".text", ".md"};
  return std::ranges::any_of(kTexts, [&](std::string_view end) { return name.ends_with(end); });
}

bool comes_with_data(const std::string& path) {
  constexpr std::array<std::string_view, 12> kFiles{"dataset_infos.json",
                                                    "dataset_info.json",
                                                    "dataset_dict.json",
                                                    "vocab.json",
                                                    "vocab.txt",
                                                    "vocab.bpe",
                                                    "merges.txt",
                                                    "tokenizer.json",
                                                    "tokenizer.model",
                                                    "added_tokens.json",
                                                    "tokenizer_config.json",
                                                    "special_tokens_map.json"};
  constexpr std::array<std::string_view, 9> kNames{"readme",   "license",   "licence",      "copying",     "notice",
                                                   "citation", "changelog", "contributing", "requirements"};
  constexpr size_t kWithVariants = 3;  // the first names have variants
  const fs::path file = fs::path(small_letters(name_without_packing(path))).filename();
  if (std::ranges::find(kFiles, file.string()) != kFiles.end()) return true;
  const std::string name = file.stem().string();
  if (is_called_json(path)) return false;
  if (std::ranges::find(kNames, name) != kNames.end()) return true;
  return std::any_of(kNames.begin(), kNames.begin() + kWithVariants, [&](std::string_view about) {
    return name.starts_with(about) && is_variant(std::string_view(name).substr(about.size()));
  });
}

bool is_draft(const std::string& path) {
  const std::string name = small_letters(fs::path(path).filename().string());
  constexpr std::array<std::string_view, 11> kEndings{"~",     ".bak",        ".tmp",        ".part",       ".partial", ".swp",
                                                      ".orig", ".incomplete", ".crdownload", ".inprogress", ".old"};
  return name.starts_with('#') || std::ranges::any_of(kEndings, [&](std::string_view end) { return name.ends_with(end); });
}

std::set<std::string> words_in(const std::string& path) {
  std::set<std::string> words;
  std::string word, before;
  const auto end_word = [&] {
    if (word.empty()) return;
    if (word == "out" && before == "held") words.insert("heldout");
    words.insert(word);
    before = std::exchange(word, "");
  };
  bool after_small = false;  // where a capital begins a word: "testSet"
  for (const char letter : path) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalpha(byte) == 0 || (after_small && std::isupper(byte) != 0)) end_word();
    if (std::isalpha(byte) != 0) word += static_cast<char>(std::tolower(byte));
    after_small = std::islower(byte) != 0;
  }
  end_word();
  return words;
}

bool is_log_of_rank(const std::string& path) {
  const fs::path file = fs::path(path).filename();
  const std::string name = file.stem().string(), ending = file.extension().string();
  return name.starts_with("rank_") && name.size() > 5 && name.find_first_not_of("0123456789", 5) == std::string::npos &&
         (ending == ".out" || ending == ".err");
}

bool is_for_tests(const std::set<std::string>& words) {
  return is_called(words, {"test", "tests", "testing", "validation", "valid", "val", "dev", "eval", "evaluation", "heldout"});
}

bool is_for_training(const std::set<std::string>& words) { return is_called(words, {"train", "training"}); }

}  // namespace trivet::data

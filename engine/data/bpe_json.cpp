// Reads and writes tokenizer.json.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "engine/data/bpe_files.h"
#include "engine/data/byte_alphabet.h"
#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

using Json = nlohmann::json;

bool is_unset(const Json& object, const char* key) {
  if (!object.contains(key)) return true;
  const Json& value = object.at(key);
  return value.is_null() || value == false || value == "" || value == 0.0;
}

[[noreturn]] void refuse(const std::string& source, const std::string& key, const Json& value, const std::string& accepted) {
  bad_file(source, fmt::format("{}: {} is not accepted; use {}", key, printable(value.dump()), accepted));
}

// Refuses every setting that would make ids differ from GPT-2's.
void check_supported(const Json& json, const std::string& source) {
  const Json& model = json.at("model");
  if (model.value("type", "BPE") != "BPE") refuse(source, "model.type", model.at("type"), "\"BPE\"");
  for (const char* key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                          "byte_fallback", "ignore_merges"})
    if (!is_unset(model, key)) refuse(source, std::string("model.") + key, model.at(key), "null or false");
  if (!is_unset(json, "normalizer")) refuse(source, "normalizer", json.at("normalizer"), "null");
  const Json splitter = json.value("pre_tokenizer", Json());
  const bool byte_level = splitter.is_object() && splitter.value("type", "") == "ByteLevel" &&
                          !splitter.value("add_prefix_space", true) && splitter.value("use_regex", true);
  if (!byte_level)
    refuse(source, "pre_tokenizer", splitter, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}");
}

// Ids have no gaps, so every id is below the number of entries.
size_t count_entries(const Json& json, const std::string& source) {
  const Json& ids = json.at("model").at("vocab");
  if (!ids.is_object()) refuse(source, "model.vocab", ids, "an object of tokens and their ids");
  return ids.size() + json.value("added_tokens", Json::array()).size();
}

void place(BpeVocabulary& vocabulary, const Json& id, size_t entries, std::string token, const std::string& source) {
  const size_t most = std::min<size_t>(entries, 1 << 24);
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= most)
    bad_file(source,
             fmt::format("token id {} is outside 0 to {}, the range of {} entries", printable(id.dump()), most - 1, entries));
  const auto place = id.get<size_t>();
  if (vocabulary.tokens.size() <= place) vocabulary.tokens.resize(place + 1);
  vocabulary.tokens[place] = std::move(token);
}

// "a b" (older files) or ["a", "b"]
std::pair<std::string, std::string> merge_parts(const Json& merge, const std::string& source) {
  if (merge.is_array()) return {merge.at(0).get<std::string>(), merge.at(1).get<std::string>()};
  const std::string text = merge.get<std::string>();
  const size_t space = text.find(' ');
  if (space == std::string::npos)
    bad_file(source, fmt::format("model.merges: \"{}\" is not two tokens separated by a space", printable(text)));
  return {text.substr(0, space), text.substr(space + 1)};
}

void read_merges(BpeVocabulary& vocabulary, const Json& model, const std::string& source) {
  const Json& ids = model.at("vocab");
  const auto id_of = [&](const std::string& token) {
    const auto found = ids.find(token);
    if (found == ids.end()) bad_file(source, fmt::format("model.merges: \"{}\" is not in model.vocab", printable(token)));
    return found->get<int32_t>();
  };
  for (const Json& merge : model.at("merges")) {
    const auto [left, right] = merge_parts(merge, source);
    vocabulary.merges.emplace_back(id_of(left), id_of(right));
  }
}

void read_special(BpeVocabulary& vocabulary, const Json& json, size_t entries, const std::string& source) {
  for (const Json& added : json.value("added_tokens", Json::array())) {
    place(vocabulary, added.at("id"), entries, added.at("content").get<std::string>(), source);
    vocabulary.special.push_back(added.at("id").get<int32_t>());
  }
}

}  // namespace

std::shared_ptr<BpeTokenizer> bpe_from_tokenizer_json(const std::string& text, const std::string& source) try {
  const Json json = Json::parse(text);
  check_supported(json, source);
  const size_t entries = count_entries(json, source);
  BpeVocabulary vocabulary;
  for (const auto& [token, id] : json.at("model").at("vocab").items())
    place(vocabulary, id, entries, from_byte_alphabet(token).value_or(""), source);
  read_merges(vocabulary, json.at("model"), source);
  read_special(vocabulary, json, entries, source);
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id)
    if (vocabulary.tokens[id].empty()) bad_file(source, fmt::format("id {} has no token in GPT-2's byte alphabet", id));
  return std::make_shared<BpeTokenizer>(std::move(vocabulary), source);
} catch (const Json::exception& error) {
  bad_file(source, "is not a tokenizer.json: " + printable(error.what()));
}

std::string BpeTokenizer::to_text() const {
  using Ordered = nlohmann::ordered_json;
  const Ordered byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Ordered vocabulary = Ordered::object(), merges = Ordered::array(), added = Ordered::array();
  const auto& special = vocabulary_.special;
  std::vector<bool> is_special(vocabulary_.tokens.size());
  for (int32_t id : special) is_special[id] = true;
  const auto written = [&](int32_t id) { return to_byte_alphabet(vocabulary_.tokens[id]); };
  std::vector<std::pair<std::string, size_t>> entries;
  for (size_t id = 0; id < vocabulary_.tokens.size(); ++id)
    if (!is_special[id]) entries.emplace_back(written(static_cast<int32_t>(id)), id);
  auto& members = vocabulary.get_ref<Ordered::object_t&>();  // appended: looking each key up would be quadratic
  for (auto& [token, id] : entries) members.push_back({std::move(token), id});
  for (const auto& [left, right] : vocabulary_.merges) merges.push_back(written(left) + " " + written(right));
  for (int32_t id : special)
    added.push_back({{"id", id},
                     {"content", vocabulary_.tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const Ordered model{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}};
  return Ordered{{"version", "1.0"},
                 {"added_tokens", added},
                 {"pre_tokenizer", byte_level},
                 {"decoder", byte_level},
                 {"model", model}}
             .dump() +
         "\n";
}

}  // namespace trivet::data

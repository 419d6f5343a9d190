// Writes tokenizer.json (tokenizers/tokenizer_json.h reads it).
#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/byte_alphabet.h"

namespace trivet::data {

std::string BpeTokenizer::to_text() const {
  using Ordered = nlohmann::ordered_json;
  const bool as_gpt2 = vocabulary_.pattern == kGpt2Pattern;
  const Ordered byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", as_gpt2}};
  const Ordered by_pattern{
      {"type", "Split"}, {"pattern", {{"Regex", vocabulary_.pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  const Ordered splitter =
      as_gpt2 ? byte_level : Ordered{{"type", "Sequence"}, {"pretokenizers", Ordered::array({by_pattern, byte_level})}};
  Ordered vocabulary = Ordered::object(), merges = Ordered::array(), added = Ordered::array();
  const auto& special = vocabulary_.special;
  std::vector<bool> is_special(vocabulary_.tokens.size());
  for (int32_t id : special) is_special[id] = true;
  const auto written = [&](int32_t id) { return to_byte_alphabet(vocabulary_.tokens[id]); };
  std::vector<std::pair<std::string, size_t>> entries;
  for (size_t id = 0; id < vocabulary_.tokens.size(); ++id)
    if (!is_special[id] && !vocabulary_.tokens[id].empty()) entries.emplace_back(written(static_cast<int32_t>(id)), id);
  // The library tokenizers gives added tokens that the vocabulary lacks the ids after its size, whatever the file says.
  size_t next = entries.size();
  if (!std::ranges::all_of(special, [&](int32_t id) { return static_cast<size_t>(id) == next++; }))
    for (const int32_t id : special) entries.emplace_back(vocabulary_.tokens[id], id);
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
  Ordered model{{"type", "BPE"}};
  if (vocabulary_.whole_words_first) model["ignore_merges"] = true;
  model["vocab"] = std::move(vocabulary);
  model["merges"] = std::move(merges);
  return Ordered{{"version", "1.0"},
                 {"added_tokens", added},
                 {"pre_tokenizer", splitter},
                 {"decoder", byte_level},
                 {"model", model}}
             .dump() +
         "\n";
}

}  // namespace trivet::data

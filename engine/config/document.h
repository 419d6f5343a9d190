// A JSON document checked against the key table: the known keys that it sets and their values. Everything else is reported as a
// mistake.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "engine/config/json_node.h"
#include "engine/config/key_table.h"
#include "engine/config/mistakes.h"

namespace trivet::config {

struct GivenEntry {
  const KeyEntry* entry;
  const JsonNode* value;
  Position at;         // position of the key
  bool takes = false;  // the value is "auto", which stands for another one (KeyEntry::take_auto)
  bool valid = true;   // false: the value is among the mistakes
};

struct GivenFeature {
  const Feature* feature;
  const JsonNode* value;
  Position at;
};

bool is_switched_on(const Feature& feature, const JsonNode& value);

class Document {
 public:
  // Keeps references to all three. Unknown keys, wrong types and values out of range go to the mistakes.
  Document(const JsonNode& root, const KeyTable& table, Mistakes& mistakes);

  const std::vector<GivenEntry>& given() const { return given_; }
  const GivenEntry* find(const std::string& path) const;

  // Sections that are accepted as a whole, because they are switched off or change no weight.
  const std::vector<GivenFeature>& features() const { return features_; }
  // Keys that neither DeepSpeed nor Trivet reads: "_comment: not used here: a comment".
  const std::vector<std::string>& not_used() const { return not_used_; }
  // Sections whose value is "auto".
  const std::vector<std::string>& auto_sections() const { return auto_sections_; }
  // Paths of keys and sections whose values are not known, because they are mistaken or seem to be misspelt.
  const std::vector<std::string>& unknown_values() const { return unknown_values_; }

 private:
  void collect(const JsonNode& object, const std::string& prefix);
  bool refuses_type(const JsonNode& object, const std::string& section) const;
  // The value, or what DeepSpeed reads in its place.
  const JsonNode* value_of(const KeyEntry& entry, const JsonNode& value);
  void collect_section(const JsonMember& member, const std::string& path);
  void collect_feature(const JsonMember& member, const Feature& feature);
  bool has_keys_of(const JsonNode& value, const std::vector<std::string>& sections) const;
  std::vector<std::string> sections_named_in(const std::string& name) const;
  bool has_effect_in(const JsonNode& value, const std::string& section) const;
  std::string reason_to_ignore(const JsonMember& member) const;
  std::string reason_to_ignore_section(const JsonMember& member, const std::vector<std::string>& near) const;
  std::string reason_to_ignore_in(const std::string& section, const JsonMember& member) const;
  bool is_on_without_switch(const JsonNode& value, const std::vector<std::string>& near) const;
  std::string section_meant_by(const JsonMember& member) const;
  std::string section_inside(const JsonNode& value) const;
  bool belongs_at_top(const JsonMember& member) const;
  std::string advice_on_place_of(const std::string& name);
  std::vector<std::string> names_continuing(const std::string& name, const std::vector<std::string>& known) const;
  std::string advice_on_unknown(const JsonMember& member, const std::string& section);
  std::string reason_to_ignore_misplaced(const JsonMember& member, const std::string& section) const;
  bool is_ignored(const JsonMember& member, const std::string& path, const std::string& section);
  void check(GivenEntry& given);
  void report_unknown(const JsonMember& member, const std::string& path, const std::string& section);

  const KeyTable& table_;
  Mistakes& mistakes_;
  std::vector<GivenEntry> given_;
  std::vector<GivenFeature> features_;
  std::vector<std::string> not_used_, auto_sections_, unknown_values_;
  std::deque<JsonNode> made_;  // values of keys written in a short form ("zero_optimization": true) or in quotes
};

}  // namespace trivet::config

// A JSON document checked against the key table: the known keys that it sets and their values. Everything else is reported as a
// mistake.
#pragma once

#include <deque>
#include <vector>

#include "engine/config/json_node.h"
#include "engine/config/key_table.h"
#include "engine/config/mistakes.h"

namespace trivet::config {

struct GivenEntry {
  const KeyEntry* entry;
  const JsonNode* value;
  Position at;  // of the key
};

class Document {
 public:
  // Keeps references to all three. Unknown keys, wrong types and values out of range go to the mistakes.
  Document(const JsonNode& root, const KeyTable& table, Mistakes& mistakes);

  const std::vector<GivenEntry>& given() const { return given_; }
  const GivenEntry* find(const std::string& path) const;

  // Whether the key is in the section of a feature that is not implemented and whose "enabled" is not true.
  bool in_disabled_section(const KeyEntry& entry) const;

 private:
  void collect(const JsonNode& object, const std::string& prefix);
  bool refuses_type(const JsonNode& object, const std::string& section) const;
  void collect_section(const JsonMember& member, const std::string& path);
  void check(const GivenEntry& given);
  void report_unknown(const JsonMember& member, const std::string& path, const std::string& section);

  const KeyTable& table_;
  Mistakes& mistakes_;
  std::vector<GivenEntry> given_;
  std::deque<JsonNode> made_;  // values of keys written in a short form ("zero_optimization": true)
};

}  // namespace trivet::config

// Every key of the configuration, once. The parser, the defaults, the JSON Schema, `trivet config explain` and docs/config.md
// are made from this table; the keys themselves are in table_*.cpp, one file a part of the document.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "engine/config/config.h"
#include "engine/config/json_node.h"

namespace trivet::config {

enum class KeyType { Bool, Integer, Number, String, Enum, List, Object, Any };

enum class Effect {
  Works,           // does what it says
  Inert,           // accepted, listed as having no effect; `reason` says why
  NotImplemented,  // a key of DeepSpeed that only its default is accepted for
};

struct Range {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_excluded = false, max_excluded = false;

  bool contains(double value) const;
  bool limited() const;
  std::string text() const;  // "0 to 3", "at least 0", "more than 0"
};

struct KeyEntry {
  std::string path;  // "zero_optimization.reduce_bucket_size"
  KeyType type = KeyType::Any;
  std::string meaning;
  std::string default_json;  // of a config that says nothing; kinds of optimizer and scheduler may have their own
  std::string default_note;  // "Adagrad: 0.01"
  Effect effect = Effect::Works;
  std::string reason;                         // why it is inert
  std::string instead;                        // what to use instead of a key that is not implemented
  std::string alias_of;                       // the key that says the same and that `explain` prints
  bool nullable = false;                      // null says "the default"
  Range range;                                // of numbers
  std::vector<std::string> names;             // of an enum
  bool ignore_case = false;                   // of an enum
  std::vector<std::string> open_names;        // of an enum: "file:PATH" accepts "file:" with anything behind it
  std::vector<std::string> refused_names;     // enum names that DeepSpeed knows and Trivet does not implement
  std::string selector;                       // "optimizer.type": the key that decides whether this one may be given
  std::vector<std::string> selected_by;       // values of the selector it belongs to; empty: all
  bool selects = false;                       // is such a selector: read before all others
  std::function<bool(const Config&)> active;  // false: has no effect in this run, because `active_when` does not hold
  std::string active_when;

  std::function<void(Config&, const JsonNode&)> set;  // throws std::invalid_argument: what is expected
  std::function<std::string(const Config&)> get;      // as JSON

  std::vector<std::string> shown_names() const;  // of an enum, open ones last
  bool is_open_name(const std::string& text) const;
  std::string type_text() const;  // "integer", "one of "a", "b""
  std::string name() const;       // the last part of the path
  std::string section() const;    // the path without it
};

class KeyTable {
 public:
  KeyTable();  // all keys

  const std::vector<KeyEntry>& entries() const { return entries_; }
  const KeyEntry* find(const std::string& path) const;
  bool is_section(const std::string& path) const;
  std::vector<std::string> names_in(const std::string& section) const;  // keys and sections directly in it
  std::vector<std::string> sections_with(const std::string& name) const;
  KeyEntry& add(KeyEntry entry);
  // A section that is not implemented and that DeepSpeed switches on by its presence, even empty.
  void add_switch(const std::string& section) { switches_.push_back(section); }
  bool is_switch(const std::string& section) const {
    return std::find(switches_.begin(), switches_.end(), section) != switches_.end();
  }

 private:
  std::vector<KeyEntry> entries_;
  std::unordered_map<std::string, size_t> places_;  // path -> index in entries_
  std::unordered_set<std::string> sections_;
  std::vector<std::string> switches_;
};

const KeyTable& key_table();

// A value as messages and docs print it.
std::string number_json(double value);
std::string dtype_json(DType dtype);  // as data_types names it: "fp32", "fp16", "bf16"

// The defaults that depend on other keys: kind of model, optimizer and scheduler, ZeRO stage.
void set_dependent_defaults(Config& config);

}  // namespace trivet::config

// The table of all configuration keys. The parser, the defaults, the JSON Schema, `trivet config explain` and docs/config.md
// are derived from it. The keys themselves are in table_*.cpp, one file per part of the document.
#pragma once

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
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
  NotUsed,         // a key of DeepSpeed that changes no weight: listed as not used unless it has its default
  NotImplemented,  // a key of DeepSpeed for which only the default is accepted
};

// The effect of the key in DeepSpeed.
enum class Origin {
  Same,       // the same
  Different,  // something else; `difference` says what
  Own,        // nothing: it is a key of Trivet
};

struct Bounds {
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  bool min_excluded = false, max_excluded = false;

  bool contains(double value) const;
  bool limited() const;
  std::string text() const;  // "0 to 3", "at least 0", "more than 0"
};

// An enum name that Trivet accepted once.
struct RemovedName {
  std::string name, advice;  // "OneBitAdam"; why it was removed, and what to use instead
};

struct KeyEntry {
  std::string path;  // "zero_optimization.reduce_bucket_size"
  KeyType type = KeyType::Any;
  std::string meaning;
  std::string default_json;  // in an empty config; optimizer and scheduler types may have their own
  std::string default_note;  // "Adagrad: 0.01"
  Effect effect = Effect::Works;
  std::string reason;   // why it is inert
  std::string instead;  // the replacement for a key that is not used or not implemented
  Origin origin = Origin::Same;
  std::string difference;                     // "at stage 3 only": what DeepSpeed does
  std::string alias_of;                       // the main name of this key, which `explain` prints
  bool takes_unknown = false;                 // for enums: any other name that is not a misspelt one stands for the default
  bool nullable = false;                      // null means the default
  Bounds bounds;                              // for numbers
  std::vector<std::string> names;             // for enums
  bool ignore_case = false;                   // for enums
  std::vector<std::string> open_names;        // for enums: "file:PATH" accepts "file:" followed by anything
  std::vector<std::string> refused_names;     // enum names that DeepSpeed knows and Trivet does not implement
  std::vector<RemovedName> removed_names;     // enum names that are refused with their own advice
  std::string selector;                       // "optimizer.type": the key that decides whether this one may be given
  std::vector<std::string> selected_by;       // selector values for which this key is accepted; empty: all
  bool selects = false;                       // is a selector, which is read before all other keys
  std::function<bool(const Config&)> active;  // false: has no effect in this run, because `active_when` does not hold
  std::string active_when;

  // Applies "auto". Empty: the default, as in DeepSpeed, which drops such keys. Otherwise sets the value that Hugging
  // Face's Trainer would, and returns a text for the user: "0.00005, the default of ...". Not for keys of Trivet.
  std::function<std::string(Config&)> take_auto;
  std::string auto_refused;  // why "auto" is refused although the key is DeepSpeed's

  std::function<void(Config&, const JsonNode&)> set;  // throws std::invalid_argument saying what is expected
  std::function<std::string(const Config&)> get;      // as JSON

  std::vector<std::string> shown_names() const;  // for enums, open ones last
  bool is_open_name(const std::string& text) const;
  std::string type_text() const;  // `an integer`, `one of "a", "b"`
  std::string_view name() const;  // the last part of the path
  std::string section() const;    // the path without the last part
};

// A section of DeepSpeed that Trivet accepts or refuses as a whole, with one line, whatever is in it; if the feature works,
// only while it is switched off.
struct Feature {
  std::string section;           // "curriculum_learning"
  std::string name;              // "curriculum learning"
  std::string switch_key;        // the key that switches it on; empty: any section that is not empty does
  bool changes_weights = false;  // true: it is refused; otherwise it is listed as not used
  bool on_when_empty = false;    // the presence of the section switches it on
  bool works = false;            // when it is switched on, its keys are read like those of any section
  std::string why_removed;       // why Trivet does not have it any more; empty: it never had it
  std::string instead;           // the replacement
};

class KeyTable {
 public:
  KeyTable();  // adds all keys

  const std::vector<KeyEntry>& entries() const { return entries_; }
  const KeyEntry* find(const std::string& path) const;
  bool is_section(const std::string& path) const;
  const std::vector<std::string>& names_in(const std::string& section) const;  // keys and sections directly in it
  const std::vector<std::string>& sections_with(const std::string& name) const;
  // Where DeepSpeed has a section of this name: "zero_optimization" for "offload_param", "" for one at the top level.
  const std::vector<std::string>& places_of_section(const std::string& name) const;
  // The first key with an effect whose path, with "_" for ".", is this name: fp16.enabled of "fp16_enabled". Null: none.
  const KeyEntry* find_flat(const std::string& name) const;
  bool has_no_effect(const std::string& path) const;  // whether it is the path of a key that is Inert or NotUsed
  bool takes_auto(const std::string& section) const;  // whether it is DeepSpeed's
  KeyEntry& add(KeyEntry entry);

  void add(Feature feature) { features_.push_back(std::move(feature)); }
  const std::vector<Feature>& features() const { return features_; }
  const Feature* find_feature(const std::string& section) const;
  const Feature* feature_around(const std::string& path) const;  // one that does not work, with this key in it

  // DeepSpeed's other name of a key or section: "zero_optimization.max_live_parameters".
  void add_name(const std::string& other_name, const std::string& path) { names_.emplace(other_name, path); }
  const std::map<std::string, std::string>& other_names() const { return names_; }
  std::string canonical(const std::string& path) const;

  // Sets the advice for an unknown name in this section that is not a misspelt one.
  void advise(const std::string& section, const std::string& advice) { advice_.emplace(section, advice); }
  std::string advice_on(const std::string& section) const;

 private:
  using Names = std::vector<std::string>;

  void index_names();
  void index_parts(const KeyEntry& entry);

  std::vector<KeyEntry> entries_;
  std::unordered_map<std::string, size_t> places_;  // path -> index in entries_
  // Made once, because a file may have very many unknown keys.
  std::unordered_map<std::string, Names> names_in_;                           // by section
  std::unordered_map<std::string, Names> sections_with_, places_of_section_;  // by name
  std::unordered_map<std::string, size_t> flat_places_;                       // path with "_" for "." -> index in entries_
  std::unordered_set<std::string> sections_;
  std::vector<Feature> features_;
  std::map<std::string, std::string> names_, advice_;
};

const KeyTable& key_table();

// A value as messages and docs print it.
std::string number_json(double value);
std::string numbers_json(const std::vector<double>& values);
std::string dtype_json(DType dtype);  // as data_types names it: "fp32", "fp16", "bf16"

// Sets the defaults that depend on other keys: the type of model, optimizer and scheduler, and the ZeRO stage.
void set_dependent_defaults(Config& config);

}  // namespace trivet::config

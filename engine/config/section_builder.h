// Lets a table_*.cpp declare its keys, one line per key. The type is taken from the member that stores the value.
//
//   Section<ZeroConfig> zero(table, "zero_optimization", &Config::zero);
//   zero.key("stage", &ZeroConfig::stage, "what is partitioned ...").between(0, 3);
//   zero.unsupported("zero_hpz_partition_size", "1", "secondary partition of ZeRO++");
#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/config/key_table.h"

namespace trivet::config {

// Refines the entry that was just added. It points into the table, so finish with it before adding the next key.
class KeyRefiner {
 public:
  explicit KeyRefiner(KeyEntry& entry) : entry_(entry) {}

  KeyRefiner& at_least(double min) { return entry_.bounds.min = min, *this; }
  KeyRefiner& more_than(double min) { return entry_.bounds.min_excluded = true, at_least(min); }
  KeyRefiner& between(double min, double max) { return entry_.bounds.max = max, at_least(min); }
  KeyRefiner& below(double max) { return entry_.bounds.max_excluded = true, entry_.bounds.max = max, *this; }
  KeyRefiner& nullable() { return entry_.nullable = true, *this; }
  KeyRefiner& selects() { return entry_.selects = true, *this; }
  KeyRefiner& takes_unknown() { return entry_.takes_unknown = true, *this; }
  KeyRefiner& ignores_case() { return entry_.ignore_case = true, *this; }
  KeyRefiner& refuses(std::vector<std::string> names) { return entry_.refused_names = std::move(names), *this; }
  KeyRefiner& removed(std::vector<RemovedName> names) { return entry_.removed_names = std::move(names), *this; }
  KeyRefiner& default_note(std::string note) { return entry_.default_note = std::move(note), *this; }
  KeyRefiner& default_json(std::string json) { return entry_.default_json = std::move(json), *this; }
  KeyRefiner& instead(std::string key) { return entry_.instead = std::move(key), *this; }
  // Say what DeepSpeed does with the key if that differs, or that the key is Trivet's own, unknown to DeepSpeed.
  KeyRefiner& deepspeed(std::string difference) {
    entry_.origin = Origin::Different;
    return entry_.difference = std::move(difference), *this;
  }
  KeyRefiner& own() { return entry_.origin = Origin::Own, *this; }
  KeyRefiner& takes_auto(std::function<std::string(Config&)> take) { return entry_.take_auto = std::move(take), *this; }
  KeyRefiner& refuses_auto(std::string why) { return entry_.auto_refused = std::move(why), *this; }
  // DeepSpeed accepts 0; here it means the default, because it changes no weight.
  KeyRefiner& zero_is_default() {
    entry_.set = [set = entry_.set](Config& config, const JsonNode& node) {
      if (node.number != 0) set(config, node);
    };
    return at_least(0);
  }
  KeyRefiner& alias_of(std::string path) { return entry_.alias_of = std::move(path), *this; }
  KeyRefiner& type(KeyType type) { return entry_.type = type, *this; }
  KeyRefiner& open_names(std::vector<std::string> names) { return entry_.open_names = std::move(names), *this; }
  KeyRefiner& names(std::vector<std::string> names) {
    entry_.names = std::move(names);
    return type(KeyType::Enum);
  }
  KeyRefiner& only_for(std::string selector, std::vector<std::string> values) {
    entry_.selector = std::move(selector);
    entry_.selected_by = std::move(values);
    return *this;
  }
  KeyRefiner& active_when(std::string text, std::function<bool(const Config&)> condition) {
    entry_.active_when = std::move(text);
    entry_.active = std::move(condition);
    return *this;
  }

 private:
  KeyEntry& entry_;
};

// Reads a member from JSON, whose type and range were checked before; as_json writes it back.
template <typename T>
void from_json(T& member, const JsonNode& node) {
  if constexpr (std::is_same_v<T, bool>) {
    member = node.boolean;
  } else if constexpr (std::is_integral_v<T>) {
    member = static_cast<T>(node.integer);
  } else if constexpr (std::is_floating_point_v<T>) {
    member = static_cast<T>(node.number);
  } else if constexpr (std::is_enum_v<T>) {
    const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
    for (const auto& [name, value] : EnumNames<T>::table)
      if (std::equal(name.begin(), name.end(), node.text.begin(), node.text.end(), same)) member = value;
  } else {
    member = node.text;
  }
}

template <typename T>
std::string as_json(const T& member) {
  if constexpr (std::is_same_v<T, bool>) {
    return member ? "true" : "false";
  } else if constexpr (std::is_integral_v<T>) {
    return std::to_string(member);
  } else if constexpr (std::is_floating_point_v<T>) {
    return number_json(member);
  } else if constexpr (std::is_enum_v<T>) {
    return quoted(std::string(name_of(member)));
  } else {
    return quoted(member);
  }
}

template <typename T>
constexpr KeyType type_of() {
  if constexpr (std::is_same_v<T, bool>) return KeyType::Bool;
  if constexpr (std::is_integral_v<T>) return KeyType::Integer;
  if constexpr (std::is_floating_point_v<T>) return KeyType::Number;
  if constexpr (std::is_enum_v<T>) return KeyType::Enum;
  return KeyType::String;
}

template <typename Enum>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& [name, value] : EnumNames<Enum>::table) names.emplace_back(name);
  return names;
}

// Declares keys that are not stored in a member: inert, unused and unsupported ones, whose type is that of the default, and
// custom ones.
class SectionBase {
 public:
  SectionBase(KeyTable& table, std::string prefix) : table_(table), prefix_(std::move(prefix)) {}

  KeyRefiner unsupported(const std::string& name, const std::string& default_json, const std::string& meaning);
  KeyRefiner inert(const std::string& name, const std::string& default_json, const std::string& meaning,
                   const std::string& reason);
  KeyRefiner unused(const std::string& name, const std::string& default_json, const std::string& meaning);
  // The section as a whole (Feature): it is refused, or listed as not used.
  void refused(const std::string& feature, const std::string& switch_key = "enabled") {
    table_.add(Feature{.section = prefix_, .name = feature, .switch_key = switch_key, .changes_weights = true});
  }
  // The section is refused while `enabled` is true: Trivet had the feature once.
  void removed(const std::string& feature, const std::string& why, const std::string& instead) {
    table_.add(Feature{.section = prefix_,
                       .name = feature,
                       .switch_key = "enabled",
                       .changes_weights = true,
                       .why_removed = why,
                       .instead = instead});
  }
  void not_used(const std::string& feature, const std::string& instead, const std::string& switch_key = "enabled") {
    table_.add(Feature{.section = prefix_, .name = feature, .switch_key = switch_key, .instead = instead});
  }
  // The section counts only if `enabled` is true; otherwise it may hold anything.
  void switched(const std::string& feature) {
    table_.add(Feature{.section = prefix_, .name = feature, .switch_key = "enabled", .works = true});
  }
  void own() { own_ = true; }  // the keys declared from now on are Trivet's
  void other_name(const std::string& name, const std::string& of) { table_.add_name(path(name), path(of)); }
  // A key with its own conversion from and to JSON.
  KeyRefiner custom(const std::string& name, KeyType type, const std::string& meaning,
                    std::function<void(Config&, const JsonNode&)> set, std::function<std::string(const Config&)> get);

 protected:
  std::string path(const std::string& name) const { return prefix_.empty() ? name : prefix_ + "." + name; }

  KeyTable& table_;

 private:
  std::string prefix_;
  bool own_ = false;
};

// Declares keys that are stored in one member struct of Config; Section<Config> stores them in Config itself.
template <typename Part>
class Section : public SectionBase {
 public:
  Section(KeyTable& table, std::string prefix, std::function<Part&(Config&)> part)
      : SectionBase(table, std::move(prefix)), part_(std::move(part)) {}

  template <typename T>
  KeyRefiner key(const std::string& name, T Part::*member, const std::string& meaning) {
    KeyRefiner refiner = custom(
        name, type_of<T>(), meaning,
        [part = part_, member](Config& config, const JsonNode& node) { from_json(part(config).*member, node); },
        [part = part_, member](const Config& config) { return as_json(part(const_cast<Config&>(config)).*member); });
    if constexpr (std::is_enum_v<T>) refiner.names(names_of<T>());
    return refiner;
  }

  // A whole number from 1. If it is not given, the member is 0, which JSON writes as null.
  KeyRefiner count(const std::string& name, int64_t Part::*member, const std::string& meaning) {
    return custom(
               name, KeyType::Integer, meaning,
               [part = part_, member](Config& config, const JsonNode& node) { part(config).*member = node.integer; },
               [part = part_, member](const Config& config) {
                 const int64_t value = part(const_cast<Config&>(config)).*member;
                 return value == 0 ? std::string("null") : std::to_string(value);
               })
        .at_least(1)
        .nullable();
  }

 private:
  std::function<Part&(Config&)> part_;
};

}  // namespace trivet::config

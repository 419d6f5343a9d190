#include "engine/config/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/printable.h"
#include "engine/config/json_reader.h"
#include "engine/config/other_programs.h"
#include "engine/config/quoted_value.h"
#include "engine/config/suggest.h"

namespace trivet::config {
namespace {

constexpr size_t kMostSections = 3;  // with a key of the same name that a message lists: "enabled" is in many

std::string shown(const JsonNode& node) { return printable(to_json(node), 80); }

bool same_name(const std::string& a, const std::string& b, bool ignore_case) {
  const auto equal = [&](char x, char y) { return ignore_case ? std::tolower(x) == std::tolower(y) : x == y; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), equal);
}

// Two edits make any name of four letters into many others.
std::vector<std::string> likely_names(const std::string& unknown, const std::vector<std::string>& known) {
  constexpr size_t kShort = 4;
  std::vector<std::string> near = nearest_names(unknown, known);
  if (unknown.size() <= kShort)
    std::erase_if(near, [&](const std::string& name) { return edit_distance(lower_words(unknown), name) > 1; });
  return near;
}

// Checks whether an unknown name must be a misspelt one of a section that decides how weights change, whatever its keys
// are: "zero_optimisation", "optimiser".
bool is_close_to(const std::string& unknown, const std::string& section) {
  constexpr size_t kLettersPerEdit = 8;
  return changes_weights(section + ".") && edit_distance(lower_words(unknown), section) <=
                                               static_cast<int>(std::max<size_t>(1, section.size() / kLettersPerEdit));
}

bool contains(const std::vector<std::string>& names, const std::string& name, bool ignore_case) {
  return std::any_of(names.begin(), names.end(), [&](const auto& known) { return same_name(known, name, ignore_case); });
}

// Returns null if the value is not a name that Trivet accepted once.
const RemovedName* find_removed(const KeyEntry& entry, const JsonNode& value) {
  const auto found = std::ranges::find_if(entry.removed_names, [&](const RemovedName& removed) {
    return value.kind == JsonKind::String && same_name(removed.name, value.text, true);
  });
  return found == entry.removed_names.end() ? nullptr : &*found;
}

bool is_auto(const JsonNode& value) { return value.kind == JsonKind::String && value.text == "auto"; }

// Checks whether "auto" stands for another value: as in DeepSpeed, keys are dropped or filled in by the Trainer.
bool takes_auto(const KeyEntry& entry, const JsonNode& value) {
  return is_auto(value) && entry.origin != Origin::Own && entry.auto_refused.empty() && entry.default_json != "\"auto\"" &&
         !contains(entry.names, "auto", false);
}

bool has_type(const KeyEntry& entry, const JsonNode& value) {
  switch (entry.type) {
    case KeyType::Bool: return value.kind == JsonKind::Bool;
    case KeyType::Integer: return value.kind == JsonKind::Number && value.is_integer;
    case KeyType::Number: return value.kind == JsonKind::Number;
    case KeyType::String: return value.kind == JsonKind::String;
    case KeyType::Enum:
      return value.kind == JsonKind::String &&
             (contains(entry.names, value.text, entry.ignore_case) || entry.is_open_name(value.text) ||
              (entry.takes_unknown && nearest_names(value.text, entry.names).empty()));
    case KeyType::List: return value.kind == JsonKind::List;
    case KeyType::Object: return value.kind == JsonKind::Object;
    case KeyType::Any: return true;
  }
  return false;
}

// Describes what is wrong with the value; empty if nothing is.
std::string problem(const KeyEntry& entry, const JsonNode& value) {
  if (value.kind == JsonKind::Null && entry.nullable) return "";
  const bool is_default = same_value(value, read_json(entry.default_json, entry.path));
  if (is_auto(value) && !is_default && !contains(entry.names, "auto", false)) {
    const std::string why = entry.auto_refused.empty() ? "" : ", because " + entry.auto_refused;
    return fmt::format("\"auto\" is not accepted{}; state a value{}", why,
                       entry.nullable || !why.empty() ? "" : " (the default is " + entry.default_json + ")");
  }
  if (entry.effect == Effect::NotImplemented && is_default) return "";
  if (entry.type == KeyType::Enum && value.kind == JsonKind::String && contains(entry.refused_names, value.text, true))
    return fmt::format("{} is known to DeepSpeed but not implemented by Trivet; use {}", shown(value), entry.type_text());
  if (const RemovedName* removed = find_removed(entry, value))
    return fmt::format("{} was removed: {}", shown(value), removed->advice);
  if (entry.type == KeyType::Integer && value.kind == JsonKind::Number && !value.is_integer &&
      std::trunc(value.number) == value.number)
    return fmt::format("{} is not accepted; an integer of at most 63 bits is expected", shown(value));
  if (entry.path == "data.train" && value.kind == JsonKind::List)
    return fmt::format(
        "{} is not accepted; a string is expected. Several data are named in data.sources, each as "
        "{{\"path\": ...}}",
        shown(value));
  if (!has_type(entry, value))
    return entry.type == KeyType::Enum ? fmt::format("{} is not accepted; use {}", shown(value), entry.type_text())
                                       : fmt::format("{} is not accepted; {} is expected", shown(value), entry.type_text());
  if (value.kind == JsonKind::Number && !entry.bounds.contains(value.number))
    return fmt::format("{} is not accepted; use {}", shown(value), entry.bounds.text());
  return "";
}

// Checks whether a section that has no keys of its own in the table, such as compression_training, says "enabled":
// false in all of its parts.
bool switched_off(const JsonNode& value) {
  if (value.kind != JsonKind::Object) return false;
  if (const JsonNode* enabled = value.find("enabled")) return enabled->kind == JsonKind::Bool && !enabled->boolean;
  if (const JsonNode* shared = value.find("shared_parameters")) return switched_off(*shared);
  return std::all_of(value.members.begin(), value.members.end(),
                     [](const JsonMember& part) { return switched_off(part.value); });
}

// Checks whether an object holds no value, at any depth.
bool is_empty(const JsonNode& value) {
  return value.kind == JsonKind::Object &&
         std::all_of(value.members.begin(), value.members.end(), [](const JsonMember& part) { return is_empty(part.value); });
}

// Sections that DeepSpeed reads key by key, so it never sees unknown ones. `advice` is for such a key.
struct LooseSection {
  std::string_view name, advice;
};
constexpr std::array<LooseSection, 6> kLooseSections{
    {{"activation_checkpointing", "; activation_checkpointing.mode switches recomputation on here"},
     {"aio", ""},
     {"data_types", ""},
     {"flops_profiler", ""},
     {"pipeline", "; parallel.pipeline sets the number of stages here"},
     {"timers", ""}}};

// Keys of the sections that say how weights change. A section of another name that has one of them was meant to be that
// section. Names that many programs use ("enabled", "type", "device") say nothing.
bool tells_a_section(const KeyEntry& entry) {
  constexpr std::array<std::string_view, 5> sections{"zero_optimization.", "optimizer.params.", "scheduler.params.", "fp16.",
                                                     "bf16."};
  constexpr std::array<std::string_view, 9> common{"enabled", "momentum", "device",    "auto_cast", "pin_memory",
                                                   "type",    "ratio",    "fast_init", "dtype"};
  return entry.effect == Effect::Works && entry.origin != Origin::Own &&
         std::any_of(sections.begin(), sections.end(), [&](std::string_view at) { return entry.path.starts_with(at); }) &&
         std::find(common.begin(), common.end(), entry.name()) == common.end();
}

// "_comment", "//", "comments": JSON has no comments, so people write keys.
bool is_comment(const std::string& name) {
  const auto is = [&](const char* word) { return same_name(name, word, true); };
  return name.starts_with("_") || name.starts_with("//") || name.starts_with("#") || is("comment") || is("comments") ||
         is("description") || is("note") || is("notes");
}

// Checks whether a value that a top-level name of another program has must not be left out. Texts may be names of that
// program's files.
bool matters(const std::string& meant, const JsonNode& value) {
  const bool is_of_model = meant.starts_with("model.") && !meant.starts_with("model.lora.") && meant != "model.sequence_length";
  const bool is_of_layout = meant.starts_with("parallel.") && value.number > 1;
  return changes_weights(meant) || (value.kind == JsonKind::Number && (is_of_model || is_of_layout));
}

// "tensorboard.enabled is the key here (true or false ...)"
std::string key_here(const std::string& name, const std::string& meant) {
  const std::string note = difference_in_meaning(name);
  return fmt::format("{} is the key here{}", meant, note.empty() ? "" : fmt::format(" ({})", note));
}

// {"bf16": true} for {"bf16": {"enabled": true}}.
std::string advice_on_switch(const KeyTable& table, const std::string& section, const JsonNode& value) {
  const bool is_switch = value.kind == JsonKind::Bool && table.find(section + ".enabled");
  return is_switch ? fmt::format(": {{\"enabled\": {}}}", value.boolean) : "";
}

JsonNode integer_node(int64_t value, Position at) {
  JsonNode node;
  node.kind = JsonKind::Number;
  node.at = at;
  node.number = static_cast<double>(value);
  node.is_integer = true;
  node.integer = value;
  node.text = std::to_string(value);
  return node;
}

}  // namespace

bool is_switched_on(const Feature& feature, const JsonNode& value) {
  if (value.kind != JsonKind::Object) return value.kind == JsonKind::Bool && value.boolean;
  if (feature.on_when_empty) return true;
  if (feature.switch_key.empty()) return !value.members.empty() && !switched_off(value);
  return std::ranges::any_of(std::initializer_list<std::string>{feature.switch_key, "enabled"}, [&](const std::string& key) {
    const JsonNode* given = value.find(key);
    return given && given->kind == JsonKind::Bool && given->boolean;
  });
}

Document::Document(const JsonNode& root, const KeyTable& table, Mistakes& mistakes) : table_(table), mistakes_(mistakes) {
  if (root.kind == JsonKind::Object)
    collect(root, "");
  else
    mistakes_.add(root.at, "", "a config must be a JSON object, { ... }");
  for (GivenEntry& given : given_) check(given);
}

const GivenEntry* Document::find(const std::string& path) const {
  for (const GivenEntry& given : given_)
    if (given.entry->path == path) return &given;
  return nullptr;
}

// Checks whether the type is refused by name, as in {"type": "RAdam", "params": {...}}. Errors about its parameters
// would then add nothing.
bool Document::refuses_type(const JsonNode& object, const std::string& section) const {
  const KeyEntry* entry = table_.find(section + ".type");
  const JsonNode* type = object.find("type");
  return entry && type && type->kind == JsonKind::String &&
         (contains(entry->refused_names, type->text, true) || find_removed(*entry, *type));
}

void Document::collect(const JsonNode& object, const std::string& section) {
  const bool type_is_refused = refuses_type(object, section);
  for (const JsonMember& member : object.members) {
    if (is_blank(member.key)) {
      mistakes_.add(member.at, section, "a key is empty; name it, or remove it");
      continue;
    }
    const std::string path = table_.canonical(section.empty() ? member.key : section + "." + member.key);
    const Feature* feature = table_.find_feature(path);
    if (feature && !(feature->works && is_switched_on(*feature, member.value))) {
      collect_feature(member, *feature);
    } else if (const KeyEntry* entry = table_.find(path)) {
      if (find(path)) mistakes_.add(member.at, path, "given twice, once under another name; keep one");
      given_.push_back({entry, value_of(*entry, member.value), member.at, takes_auto(*entry, member.value)});
    } else if (table_.is_section(path)) {
      if (!type_is_refused || member.key != "params") collect_section(member, path);
    } else if (!is_ignored(member, path, section)) {
      report_unknown(member, path, section);
    }
  }
}

const JsonNode* Document::value_of(const KeyEntry& entry, const JsonNode& value) {
  const std::optional<JsonNode> read = read_as_deepspeed(entry, value);
  return read ? &made_.emplace_back(*read) : &value;
}

// One line, however many keys the section has.
void Document::collect_feature(const JsonMember& member, const Feature& feature) {
  const JsonNode& value = member.value;
  if (value.kind == JsonKind::Number || value.kind == JsonKind::List || (value.kind == JsonKind::String && !is_auto(value)))
    return mistakes_.add(value.at, feature.section, fmt::format("{} is not accepted; an object is expected", shown(value)));
  const JsonNode* given = value.find(feature.switch_key);
  if (given && given->kind != JsonKind::Bool && given->kind != JsonKind::Null && !is_auto(*given))
    return mistakes_.add(given->at, feature.section + "." + feature.switch_key,
                         fmt::format("{} is not accepted; true or false is expected", shown(*given)));
  const bool may_be_switch = !given && !feature.switch_key.empty() && value.kind == JsonKind::Object;
  for (const JsonMember& inner : value.members)
    if (may_be_switch && !nearest_names(inner.key, {feature.switch_key}).empty())
      return mistakes_.add(inner.at, feature.section + "." + inner.key,
                           fmt::format("unknown key; did you mean {}?", quoted(feature.switch_key)));
  if (!is_switched_on(feature, value) || !feature.changes_weights) {
    for (const JsonMember& inner : value.members)
      if (inner.value.kind == JsonKind::Object && belongs_at_top(inner))
        mistakes_.add(inner.at, feature.section + "." + inner.key, "unknown key; it belongs at the top level");
    return features_.push_back({&feature, &value, member.at});
  }
  const bool has_switch = value.kind == JsonKind::Object && !feature.switch_key.empty();
  const std::string advice = fmt::format(
      "{}remove the section", has_switch ? fmt::format("set {}.{} to false, or ", feature.section, feature.switch_key) : "");
  mistakes_.add(
      member.at, feature.section,
      feature.why_removed.empty()
          ? fmt::format("{} is a feature of DeepSpeed that Trivet does not have; {}", feature.name, advice)
          : fmt::format("{} was removed: {}; {}, and use {}", feature.name, feature.why_removed, advice, feature.instead));
}

// Checks whether a section of another program only sounds like one of those: "trainium" is not a misspelt "training"
// when none of its keys is, either.
bool Document::has_keys_of(const JsonNode& value, const std::vector<std::string>& sections) const {
  return std::any_of(sections.begin(), sections.end(), [&](const std::string& section) {
    const std::vector<std::string>& known = table_.names_in(section);
    return known.empty() || value.members.empty() ||
           std::any_of(value.members.begin(), value.members.end(),
                       [&](const JsonMember& inner) { return !nearest_names(inner.key, known).empty(); });
  });
}

// The section that an unknown one was meant to be, going by its name or by its keys: {"offload_optimizer": {...}} at the top
// level, {"zero": {"stage": 3}}, or {"mine": {"params": {"lr": 1}}}. Empty: none.
std::string Document::section_meant_by(const JsonMember& member) const {
  if (const auto& places = table_.places_of_section(member.key); !places.empty()) return places.front() + "." + member.key;
  const KeyEntry* first = nullptr;
  const auto look_in = [&](const JsonNode& object) {
    for (const JsonMember& inner : object.members)
      for (const std::string& section : table_.sections_with(inner.key)) {
        const KeyEntry* entry = table_.find(section + "." + inner.key);
        if (entry && tells_a_section(*entry) && (!first || entry < first)) first = entry;
      }
  };
  look_in(member.value);
  if (first) return first->section();
  if (const JsonNode* params = member.value.find("params")) look_in(*params);
  return first ? first->section().substr(0, first->section().rfind(".params")) : "";
}

// A section of DeepSpeed that decides how weights change and stands inside of something where no program looks for it:
// "fp16" in {"mine": {"fp16": {"enabled": true}}}. Empty: none has an effect. Deeper ones belong to other programs.
std::string Document::section_inside(const JsonNode& value) const {
  for (const JsonMember& inner : value.members)
    if (inner.value.kind == JsonKind::Object && belongs_at_top(inner)) return inner.key;
  return "";
}

// Checks whether this is a section of the top level that decides how weights change, and would have an effect there.
bool Document::belongs_at_top(const JsonMember& member) const {
  return changes_weights(member.key + ".") && table_.is_section(member.key) && has_effect_in(member.value, member.key);
}

// The sections whose name is part of this one: "optimizer" of "my_optimizer".
std::vector<std::string> Document::sections_named_in(const std::string& name) const {
  std::vector<std::string> sections;
  for (const std::string& known : table_.names_in(""))
    if (known.size() <= name.size() && table_.is_section(known) && has_words_of(name, known)) sections.push_back(known);
  return sections;
}

// Checks whether something in the value would have an effect, if this section were its place.
bool Document::has_effect_in(const JsonNode& value, const std::string& section) const {
  return std::any_of(value.members.begin(), value.members.end(), [&](const JsonMember& inner) {
    const std::string path = table_.canonical(section + "." + inner.key);
    if (const KeyEntry* entry = table_.find(path))
      return entry->effect == Effect::Works && !is_auto(inner.value) && inner.value.kind != JsonKind::Null &&
             !same_value(inner.value, read_json(entry->default_json, entry->path));
    return table_.is_section(path) && has_effect_in(inner.value, path);
  });
}

// Checks whether a section that says "enabled": false sets something of the section that it is a misspelt name of,
// which has no such switch: {"zero_optimisation": {"enabled": false, "stage": 2}}.
bool Document::is_on_without_switch(const JsonNode& value, const std::vector<std::string>& near) const {
  return std::ranges::any_of(near, [&](const std::string& section) {
    return table_.is_section(section) && !table_.find(section + ".enabled") && has_effect_in(value, section);
  });
}

// Returns why an unknown section at the top level is the same to the run whatever is in it; empty if it may not be.
std::string Document::reason_to_ignore_section(const JsonMember& member, const std::vector<std::string>& near) const {
  const bool is_of_other = !advice_on_other_section(member.key).empty();
  const std::vector<std::string> named = sections_named_in(member.key);
  const std::string renamed = advice_on_renaming(member.key);
  const auto with_advice = [&](const std::string& what) {
    if (!renamed.empty()) return what + "; " + renamed;
    const std::vector<std::string>& meant = named.empty() && switched_off(member.value) ? near : named;
    return is_of_other || meant.empty() ? what : fmt::format("{}; did you mean {}?", what, one_of(meant));
  };
  const bool is_misspelt = is_empty(member.value) && !near.empty() && !is_of_other;
  if (is_misspelt || !section_inside(member.value).empty()) return "";
  if (switched_off(member.value) && !is_on_without_switch(member.value, near))
    return with_advice("a section of another program, and switched off");
  if (is_of_other || !section_meant_by(member).empty()) return "";
  const bool is_close = std::ranges::any_of(near, [&](const std::string& name) { return is_close_to(member.key, name); });
  if (is_close || (!near.empty() && has_keys_of(member.value, near))) return "";
  const bool has_effect = std::ranges::any_of(named, [&](const auto& section) { return has_effect_in(member.value, section); });
  return has_effect ? "" : with_advice("a section of another program");
}

// Returns why a top-level key outside the table is the same to the run whatever its value is; empty if it may not be.
// Numbers may be settings that were meant to have an effect ("max_norm": 1.0), so only those that programs have for
// themselves ("num_processes": 8) are ignored.
std::string Document::reason_to_ignore(const JsonMember& member) const {
  const bool from_command_line = member.at.line == 0;  // where nobody has sections of other programs
  if (from_command_line && member.value.kind == JsonKind::Object) return "";
  const std::string ignored = "a key of another program, which DeepSpeed ignores, too";
  const std::vector<std::string> near = likely_names(member.key, table_.names_in(""));
  const std::vector<std::string>& elsewhere = table_.sections_with(member.key);
  if (member.value.kind == JsonKind::Object && (elsewhere.empty() || switched_off(member.value)))
    return reason_to_ignore_section(member, near);
  const bool in_vain = elsewhere.size() == 1 && table_.has_no_effect(elsewhere.front() + "." + member.key);
  const bool means_another = in_vain && !key_meant_by(member.key).empty();  // "num_epochs", also a key of data_sampling
  if (in_vain && !means_another)
    return fmt::format("it belongs in {}, where it has no effect, either", quoted(elsewhere.front()));
  if (!elsewhere.empty() && !means_another) return "";
  if (member.value.kind == JsonKind::Bool && !member.value.boolean && !advice_on_other_section(member.key).empty())
    return ignored;
  const KeyEntry* flat = table_.find_flat(member.key);
  const std::string meant = flat ? flat->path : key_meant_by(member.key);
  const bool is_off = member.value.kind == JsonKind::Bool && !member.value.boolean;
  const bool is_default = flat ? same_value(member.value, read_json(flat->default_json, flat->path)) : is_off;
  const bool says_nothing = member.value.kind == JsonKind::Null || is_auto(member.value) || is_default;
  if (!meant.empty())
    return matters(meant, member.value) && !says_nothing ? "" : fmt::format("{}; {}", ignored, key_here(member.key, meant));
  if (!near.empty()) {
    const bool all_in_vain = std::ranges::all_of(near, [&](const auto& name) { return table_.has_no_effect(name); });
    return all_in_vain ? fmt::format("if it is a misspelt {}, that has no effect, either", one_of(near)) : "";
  }
  const bool may_be_setting = member.value.kind == JsonKind::Number || member.value.kind == JsonKind::List;
  if (may_be_setting && !is_setting_of_a_program(member.key)) return "";
  for (const std::string& advice :
       {advice_on_renaming(member.key), advice_without_key(member.key), advice_on_dtype("", member.key)})
    if (!advice.empty()) return ignored + "; " + advice;
  return ignored;
}

// Returns why an unknown key of this section has no effect; empty if it may: it is misspelt, or belongs elsewhere.
std::string Document::reason_to_ignore_in(const std::string& section, const JsonMember& member) const {
  if (member.value.kind == JsonKind::Object && belongs_at_top(member)) return "";
  const std::vector<std::string>& elsewhere = table_.sections_with(member.key);
  const bool misplaced = elsewhere.size() <= kMostSections && std::ranges::any_of(elsewhere, [&](const std::string& other) {
                           return changes_weights(other.empty() ? member.key : other + "." + member.key);
                         });
  if (misplaced) return "";
  for (const auto& [name, advice] : kLooseSections) {
    if (section != name && !section.starts_with(std::string(name) + ".")) continue;
    const bool misspelt = elsewhere.empty() && !nearest_names(member.key, table_.names_in(section)).empty();
    return misspelt ? "" : fmt::format("DeepSpeed does not read it, either{}", advice);
  }
  return "";
}

// DeepSpeed reads only "type" and "params" of the optimizer and the scheduler. Another key is ignored here, too, when it states
// the default of the place where it belongs ({"type": "Adam", "adam_w_mode": true}), or can be no parameter.
std::string Document::reason_to_ignore_misplaced(const JsonMember& member, const std::string& section) const {
  const KeyEntry* entry = table_.find(section + ".params." + member.key);
  const bool is_text = member.value.kind == JsonKind::String || member.value.kind == JsonKind::Bool;
  if (!entry && is_text && key_meant_by(member.key).empty() && table_.sections_with(member.key).empty() &&
      nearest_names(member.key, table_.names_in(section)).empty() &&
      nearest_names(member.key, table_.names_in(section + ".params")).empty())
    return "DeepSpeed does not read it, either";
  const bool is_default = entry && entry->effect == Effect::Works && entry->default_note.empty() &&
                          same_value(member.value, read_json(entry->default_json, entry->path));
  return is_default ? fmt::format("it belongs in {}, where this is the default", quoted(section + ".params")) : "";
}

// Checks for comments, and keys that DeepSpeed ignores, too, as long as they have no effect on the run. A key that may
// be misspelt, or a misplaced one with an effect, is not ignored.
bool Document::is_ignored(const JsonMember& member, const std::string& path, const std::string& section) {
  std::string what;
  if (is_comment(member.key))
    what = "a comment";
  else if (section.empty())
    what = reason_to_ignore(member);
  else if (section == "optimizer" || section == "scheduler")
    what = reason_to_ignore_misplaced(member, section);
  else
    what = reason_to_ignore_in(section, member);
  if (what.empty()) return false;
  not_used_.push_back(fmt::format("{}: not used here: {}", printable(path), what));
  return true;
}

void Document::collect_section(const JsonMember& member, const std::string& path) {
  const JsonNode& value = member.value;
  if (value.kind == JsonKind::Object) {
    collect(value, path);
  } else if (path == "zero_optimization" && value.kind == JsonKind::Bool) {  // DeepSpeed: true is stage 1
    made_.push_back(integer_node(value.boolean ? 1 : 0, value.at));
    given_.push_back({table_.find("zero_optimization.stage"), &made_.back(), member.at});
  } else if (is_auto(value) && table_.takes_auto(path)) {
    auto_sections_.push_back(path);
  } else if (is_auto(value)) {
    mistakes_.add(value.at, path, "\"auto\" is not accepted; state the section's values or remove it");
  } else if (value.kind != JsonKind::Null) {
    const std::string advice = table_.advice_on(path);
    mistakes_.add(value.at, path,
                  fmt::format("{} is not accepted; an object is expected{}{}", shown(value),
                              advice_on_switch(table_, path, value), advice.empty() ? "" : "; " + advice));
  }
}

// Names that continue this one, or that it continues: "every_steps" of "every", "keep" of "keep_last".
std::vector<std::string> Document::names_continuing(const std::string& name, const std::vector<std::string>& known) const {
  std::vector<std::string> names;
  for (const std::string& other : known) {
    const bool is_start = name.size() >= 3 && other.starts_with(name), continues = name.starts_with(other + "_");
    if ((is_start || continues) && names.size() < kMostSections) names.push_back(other);
  }
  return names;
}

// The place of a section that stands inside of a wrong one: {"zero_optimization": {"fp16": {...}}}. Empty: it is none.
std::string Document::advice_on_place_of(const std::string& name) {
  const std::vector<std::string>& places = table_.places_of_section(name);
  const bool is_at_top = table_.is_section(name);
  if (!is_at_top && places.empty()) return "";
  unknown_values_.push_back(is_at_top ? name : places.front() + "." + name);
  return is_at_top ? "; it belongs at the top level" : fmt::format("; it belongs in {}", one_of(places));
}

// "; did you mean "stage"?"
std::string Document::advice_on_unknown(const JsonMember& member, const std::string& section) {
  const std::vector<std::string>& here = table_.names_in(section);
  const std::string within = section.empty() ? "" : section + ".";
  if (const std::string advice = advice_on_data_axis(section, member.key); !advice.empty()) return "; " + advice;
  if (const std::string advice = advice_on_dtype(section, member.key); !advice.empty()) return "; " + advice;
  if (const std::string advice = advice_without_key(member.key); !advice.empty()) return "; " + advice;
  const bool is_elsewhere = !section.empty() && !table_.sections_with(member.key).empty();  // as it is: "block_size" of aio
  if (const std::string meant = key_meant_by(member.key); !meant.empty() && !is_elsewhere) {
    unknown_values_.push_back(meant);
    const bool is_here = meant.starts_with(within) && meant.find('.', within.size()) == std::string::npos;
    const std::string note = difference_in_meaning(member.key);
    return (is_here ? fmt::format("; did you mean {}?", quoted(meant.substr(within.size()))) : "; use " + meant) +
           (note.empty() ? "" : fmt::format(" ({})", note));
  }
  if (const KeyEntry* flat = section.empty() ? table_.find_flat(member.key) : nullptr) {
    unknown_values_.push_back(flat->path);
    return "; use " + flat->path;
  }
  if (section.empty() && member.value.kind == JsonKind::Object) {
    if (const std::string advice = advice_on_other_section(member.key); !advice.empty()) return "; " + advice;
  }
  if (const std::string advice = advice_on_renaming(member.key); !advice.empty()) return "; " + advice;
  if (const std::string inside = section.empty() ? section_inside(member.value) : ""; !inside.empty()) {
    unknown_values_.push_back(inside);
    return fmt::format("; {} in it belongs at the top level", quoted(inside));
  }
  if (member.key == section && member.value.kind != JsonKind::Object)  // {"fp16": {"fp16": true}}
    return "; leave it out: the section has this name already";
  if (const std::string place = section.empty() ? "" : advice_on_place_of(member.key); !place.empty()) return place;
  std::vector<std::string> near = likely_names(member.key, here);
  const std::vector<std::string>& elsewhere = table_.sections_with(member.key);
  const bool has_a_place = !elsewhere.empty() && elsewhere.size() <= kMostSections;
  constexpr size_t kShort = 5;  // such a name is near to many
  if (has_a_place && member.key.size() <= kShort) near.clear();
  for (const std::string& name : near) unknown_values_.push_back(within + name);
  if (!near.empty()) {
    const KeyEntry* first = table_.find(table_.canonical(within + near.front()));
    const bool is_called_otherwise = first && first->effect == Effect::NotImplemented && !first->instead.empty();
    return fmt::format("; did you mean {}?{}", one_of(near),
                       is_called_otherwise ? fmt::format(" Trivet has {} instead", first->instead) : "");
  }
  const bool is_of_top = has_a_place && elsewhere.front().empty();
  if (const auto names = section.empty() || is_of_top ? std::vector<std::string>() : names_continuing(member.key, here);
      !names.empty()) {
    for (const std::string& name : names) unknown_values_.push_back(within + name);
    return "; did you mean " + one_of(names) + "?";
  }
  if (const std::string known = table_.advice_on(section); !known.empty()) return "; " + known;
  if (has_a_place) {
    for (const std::string& other : elsewhere) unknown_values_.push_back(other.empty() ? member.key : other + "." + member.key);
    return elsewhere.front().empty() ? "; it belongs at the top level" : "; it belongs in " + one_of(elsewhere);
  }
  if (const std::string meant = section.empty() ? section_meant_by(member) : ""; !meant.empty()) {
    unknown_values_.push_back(meant);
    const size_t dot = meant.rfind('.');
    const bool same_name = meant.substr(dot == std::string::npos ? 0 : dot + 1) == member.key;
    return same_name ? fmt::format("; it belongs in {}", quoted(meant.substr(0, dot)))
                     : fmt::format("; its keys are those of {}, which is the name to use", quoted(meant));
  }
  const bool is_top_section = section.empty() && member.value.kind == JsonKind::Object;
  if (const auto named = is_top_section ? sections_named_in(member.key) : std::vector<std::string>(); !named.empty()) {
    unknown_values_.push_back(named.front());
    return fmt::format("; its keys are those of {}, which is the name to use", quoted(named.front()));
  }
  if (here.size() > 12) return "; `trivet config schema` lists all keys";
  std::string text = one_of(here);
  const size_t last = text.rfind(" or ");
  if (last != std::string::npos) text.replace(last, 4, " and ");
  return "; the keys of this section are " + text;
}

void Document::report_unknown(const JsonMember& member, const std::string& path, const std::string& section) {
  if (!section.empty()) unknown_values_.push_back(path);
  const bool shows = mistakes_.shows(member.at);  // otherwise advice would cost time for nothing
  mistakes_.add(member.at, path, "unknown key" + (shows ? advice_on_unknown(member, section) : ""));
}

void Document::check(GivenEntry& given) {
  const KeyEntry& entry = *given.entry;
  if (given.takes) return;
  const std::string what = problem(entry, *given.value);
  if (!what.empty()) {
    given.valid = false;
    unknown_values_.push_back(entry.path);
    return mistakes_.add(given.value->at, entry.path, what);
  }
  if (entry.effect != Effect::NotImplemented) return;
  if (switched_off(*given.value) || given.value->kind == JsonKind::Null ||
      same_value(*given.value, read_json(entry.default_json, entry.path)))
    return;
  const std::string advice = entry.instead.empty() ? fmt::format("remove it or set it to {}", entry.default_json)
                                                   : fmt::format("use {} instead", entry.instead);
  given.valid = false;
  unknown_values_.push_back(entry.path);
  mistakes_.add(given.value->at, entry.path,
                fmt::format("{} is known to DeepSpeed but not implemented by Trivet; {}", shown(*given.value), advice));
}

}  // namespace trivet::config

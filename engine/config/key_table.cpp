#include "engine/config/key_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/config/other_programs.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

using NamesByName = std::unordered_map<std::string, std::vector<std::string>>;

const std::vector<std::string>& found_in(const NamesByName& names, const std::string& name) {
  static const std::vector<std::string> none;
  const auto found = names.find(name);
  return found == names.end() ? none : found->second;
}

void add_once(std::vector<std::string>& names, std::string_view name) {
  if (std::ranges::find(names, name) == names.end()) names.emplace_back(name);
}

}  // namespace

bool Bounds::contains(double value) const {
  return (min_excluded ? value > min : value >= min) && (max_excluded ? value < max : value <= max);
}

bool Bounds::limited() const {
  const double infinity = std::numeric_limits<double>::infinity();
  return min != -infinity || max != infinity;
}

std::string Bounds::text() const {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string low = fmt::format("{} {}", min_excluded ? "more than" : "at least", min);
  const std::string high = fmt::format("{} {}", max_excluded ? "less than" : "at most", max);
  if (max == infinity) return low;
  if (min == -infinity) return high;
  if (!min_excluded && !max_excluded) return fmt::format("{} to {}", min, max);
  return low + " and " + high;
}

std::string KeyEntry::type_text() const {
  switch (type) {
    case KeyType::Bool: return "true or false";
    case KeyType::Integer: return "an integer";
    case KeyType::Number: return "a number";
    case KeyType::String: return "a string";
    case KeyType::List: return "a list";
    case KeyType::Object: return "an object";
    case KeyType::Any: return "a value";
    case KeyType::Enum: {
      std::string text;
      for (const std::string& name : shown_names()) text += (text.empty() ? "" : ", ") + quoted(name);
      return (shown_names().size() > 1 ? "one of " : "") + text;
    }
  }
  return "";
}

std::vector<std::string> KeyEntry::shown_names() const {
  std::vector<std::string> all = names;
  all.insert(all.end(), open_names.begin(), open_names.end());
  return all;
}

bool KeyEntry::is_open_name(const std::string& text) const {
  return std::any_of(open_names.begin(), open_names.end(), [&](const std::string& open) {
    const std::string prefix = open.substr(0, open.find(':') + 1);
    return text.starts_with(prefix) && text.size() > prefix.size();
  });
}

std::string_view KeyEntry::name() const { return std::string_view(path).substr(path.rfind('.') + 1); }
std::string KeyEntry::section() const {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

KeyTable::KeyTable() {
  add_run_keys(*this);
  add_model_keys(*this);
  add_batch_keys(*this);
  add_optimizer_keys(*this);
  add_scheduler_keys(*this);
  add_precision_keys(*this);
  add_zero_keys(*this);
  add_offload_keys(*this);
  add_parallel_keys(*this);
  add_pipeline_keys(*this);
  add_checkpoint_keys(*this);
  add_monitoring_keys(*this);
  add_autotuning_keys(*this);
  add_deepspeed_keys(*this);
  add_data_efficiency_keys(*this);
  index_names();
}

const KeyEntry* KeyTable::find(const std::string& path) const {
  const auto found = places_.find(path);
  return found == places_.end() ? nullptr : &entries_[found->second];
}

bool KeyTable::is_section(const std::string& path) const { return sections_.contains(path); }

const std::vector<std::string>& KeyTable::names_in(const std::string& section) const { return found_in(names_in_, section); }

const std::vector<std::string>& KeyTable::sections_with(const std::string& name) const {
  return found_in(sections_with_, name);
}

const std::vector<std::string>& KeyTable::places_of_section(const std::string& name) const {
  return found_in(places_of_section_, name);
}

const KeyEntry* KeyTable::find_flat(const std::string& name) const {
  const auto found = flat_places_.find(lower_words(name));
  return found == flat_places_.end() ? nullptr : &entries_[found->second];
}

void KeyTable::index_names() {
  for (size_t i = 0; i < entries_.size(); ++i) {
    const KeyEntry& entry = entries_[i];
    index_parts(entry);
    if (entry.effect == Effect::Works)
      for (const std::string& flat : paths_with_underscores(entry.path)) flat_places_.emplace(flat, i);
  }
  // Keys with an effect first: of those without one the user needs to know less.
  for (const KeyEntry& entry : entries_)
    if (entry.effect == Effect::Works) sections_with_[std::string(entry.name())].push_back(entry.section());
  for (const KeyEntry& entry : entries_)
    if (entry.effect == Effect::Inert || entry.effect == Effect::NotUsed)
      if (Names& sections = sections_with_[std::string(entry.name())]; sections.empty()) sections.push_back(entry.section());
  NamesByName by_other_name;
  for (const auto& [other_name, path] : names_) {
    const size_t dot = other_name.rfind('.');
    if (dot != std::string::npos) by_other_name[other_name.substr(dot + 1)].push_back(other_name.substr(0, dot));
  }
  sections_with_.merge(by_other_name);  // leaves the names of keys as they are
}

// The path "a.b.c" puts "a" into "", "b" into "a" and "c" into "a.b".
void KeyTable::index_parts(const KeyEntry& entry) {
  const std::string_view path = entry.path;
  for (size_t start = 0;;) {
    const size_t dot = path.find('.', start);
    const std::string around(path.substr(0, start == 0 ? 0 : start - 1)), name(path.substr(start, dot - start));
    add_once(names_in_[around], name);
    if (dot == std::string::npos) return;
    if (entry.effect == Effect::Works && entry.origin != Origin::Own) add_once(places_of_section_[name], around);
    start = dot + 1;
  }
}

bool KeyTable::has_no_effect(const std::string& path) const {
  const KeyEntry* entry = find(canonical(path));
  return entry && (entry->effect == Effect::Inert || entry->effect == Effect::NotUsed);
}

bool KeyTable::takes_auto(const std::string& section) const {
  return std::ranges::any_of(
      entries_, [&](const KeyEntry& entry) { return entry.path.starts_with(section + ".") && entry.origin != Origin::Own; });
}

const Feature* KeyTable::find_feature(const std::string& section) const {
  const auto found = std::ranges::find(features_, section, &Feature::section);
  return found == features_.end() ? nullptr : &*found;
}

const Feature* KeyTable::feature_around(const std::string& path) const {
  const auto found = std::ranges::find_if(features_, [&](const Feature& feature) {
    return !feature.works && (path == feature.section || path.starts_with(feature.section + "."));
  });
  return found == features_.end() ? nullptr : &*found;
}

std::string KeyTable::advice_on(const std::string& section) const {
  const auto found = advice_.find(section);
  return found == advice_.end() ? "" : found->second;
}

std::string KeyTable::canonical(const std::string& path) const {
  const auto found = names_.find(path);
  return found == names_.end() ? path : found->second;
}

KeyEntry& KeyTable::add(KeyEntry entry) {
  if (find(entry.path)) throw std::logic_error("key_table: " + entry.path + " is added twice");
  for (size_t dot = entry.path.find('.'); dot != std::string::npos; dot = entry.path.find('.', dot + 1))
    sections_.insert(entry.path.substr(0, dot));
  places_.emplace(entry.path, entries_.size());
  return entries_.emplace_back(std::move(entry));
}

const KeyTable& key_table() {
  static const KeyTable table;
  return table;
}

std::string number_json(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string numbers_json(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + number_json(value);
  return "[" + text + "]";
}

}  // namespace trivet::config

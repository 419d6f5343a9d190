#include "interchange/hugging_face/config_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hugging_face {
namespace {

constexpr int64_t kLargestCount = std::numeric_limits<int32_t>::max();

}  // namespace

ConfigFile::ConfigFile(const Json& object, std::string path, std::string prefix)
    : object_(object), path_(std::move(path)), prefix_(std::move(prefix)) {}

const Json* ConfigFile::value_of(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Json* ConfigFile::find(const std::string& key) {
  seen_.insert(key);
  return value_of(key);
}

bool ConfigFile::has(const std::string& key) const { return value_of(key) != nullptr; }

bool ConfigFile::is_null(const std::string& key) {
  seen_.insert(key);
  return object_.contains(key) && !value_of(key);
}

void ConfigFile::refuse(const std::string& key, const std::string& accepted) const {
  const Json* const value = value_of(key);
  throw ConfigError(fmt::format("{}: {}{}: {}; {}", printable(path_), prefix_, printable(key),
                                value ? checkpoint::shown(*value) + " is not accepted" : "is not given", accepted));
}

int64_t ConfigFile::count(const std::string& key, std::optional<int64_t> fallback) {
  const Json* const value = find(key);
  if (!value && fallback) return *fallback;
  const bool fits = value && (value->is_number_unsigned() ? value->get<uint64_t>() <= static_cast<uint64_t>(kLargestCount)
                                                          : value->is_number_integer() && value->get<int64_t>() >= 0);
  if (!fits) refuse(key, fmt::format("use an integer from 0 to {}", kLargestCount));
  return value->get<int64_t>();
}

int64_t ConfigFile::size(const std::string& key, std::optional<int64_t> fallback) {
  const int64_t size = count(key, fallback);
  require(!has(key) || size > 0, key, "use at least 1");
  return size;
}

double ConfigFile::number(const std::string& key, std::optional<double> fallback) {
  const Json* const value = find(key);
  if (!value && fallback) return *fallback;
  if (!value || !value->is_number() || !std::isfinite(value->get<double>())) refuse(key, "use a number");
  return value->get<double>();
}

bool ConfigFile::flag(const std::string& key, bool fallback) {
  const Json* const value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) refuse(key, "use true or false");
  return value->get<bool>();
}

std::string ConfigFile::text(const std::string& key, std::optional<std::string> fallback) {
  const Json* const value = find(key);
  if (!value && fallback) return *fallback;
  if (!value || !value->is_string()) refuse(key, "use a string");
  return value->get<std::string>();
}

std::vector<std::string> ConfigFile::texts(const std::string& key) {
  const Json* const value = find(key);
  if (!value) return {};
  const bool fits =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& item) { return item.is_string(); });
  if (!fits) refuse(key, "use a list of strings");
  return value->get<std::vector<std::string>>();
}

std::vector<int64_t> ConfigFile::counts(const std::string& key) {
  const Json* const value = find(key);
  if (!value) return {};
  const bool fits = value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& item) {
                      return item.is_number_unsigned() && item.get<uint64_t>() <= static_cast<uint64_t>(kLargestCount);
                    });
  if (!fits) refuse(key, fmt::format("use a list of integers from 0 to {}", kLargestCount));
  return value->get<std::vector<int64_t>>();
}

std::vector<double> ConfigFile::positive_numbers(const std::string& key) {
  const Json* const value = find(key);
  const bool fits = value && value->is_array() && std::all_of(value->begin(), value->end(), [](const Json& item) {
                      return item.is_number() && std::isfinite(item.get<double>()) && item.get<double>() > 0;
                    });
  if (!fits) refuse(key, "use a list of numbers greater than 0");
  return value->get<std::vector<double>>();
}

std::optional<ConfigFile> ConfigFile::object(const std::string& key) {
  const Json* const value = find(key);
  if (!value) return {};
  if (!value->is_object()) refuse(key, "use an object");
  return ConfigFile(*value, path_, prefix_ + key + ".");
}

void ConfigFile::ignore(std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) seen_.emplace(key);
}

void ConfigFile::require_same(const std::string& key, const ConfigFile& other, const std::string& other_key) const {
  const Json *const value = value_of(key), *const other_value = other.value_of(other_key);
  if (value && other_value && *value != *other_value)
    refuse(key, fmt::format("{}{} is {}: give both the same value, or remove one", other.prefix_, printable(other_key),
                            checkpoint::shown(*other_value)));
}

void ConfigFile::require_agreement(const ConfigFile& other) const {
  for (const auto& [key, value] : object_.items()) require_same(key, other, key);
}

std::vector<std::string> ConfigFile::unread() const {
  std::vector<std::string> names = unread_;
  for (const auto& [key, value] : object_.items())
    if (!seen_.contains(key) && !is_off(key)) names.push_back(prefix_ + key);
  return names;
}

void ConfigFile::leave_unread(const ConfigFile& object) {
  for (std::string& name : object.unread()) unread_.push_back(std::move(name));
}

bool ConfigFile::is(const std::string& key, double number) const {
  const Json* const value = value_of(key);
  return value && value->is_number() && value->get<double>() == number;
}

bool ConfigFile::is_off(const std::string& key) const {
  const Json* const value = value_of(key);
  return !value || *value == false || ((value->is_object() || value->is_array()) && value->empty());
}

void ConfigFile::finish() const {
  for (const auto& [key, value] : object_.items())
    if (!seen_.contains(key) && !is_off(key))
      refuse(key, "this key of the model is not known here; if it changes no results, remove it from the file");
}

}  // namespace trivet::hugging_face

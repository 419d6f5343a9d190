#include "data/tokenizers/read_json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/tokenizers/code_points.h"

namespace trivet::data {

using Json = nlohmann::json;

JsonPart::JsonPart(const Json& json, std::string place, const std::string& source)
    : json_(json), place_(std::move(place)), source_(source) {
  if (!json.is_object())
    bad_file(source, fmt::format("{}: {} is not accepted; use an object", place_, printable(json.dump(), 60)));
}

bool JsonPart::has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }

std::string JsonPart::type() const {
  if (!has("type") || !json_.at("type").is_string()) refuse("type", "the name of a type");
  return json_.at("type").get<std::string>();
}

bool JsonPart::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_boolean()) refuse(key, "true or false");
  return json_.at(key).get<bool>();
}

std::string JsonPart::text(const char* key, const std::string& otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_string()) refuse(key, "a string");
  return json_.at(key).get<std::string>();
}

std::string JsonPart::character(const char* key, const std::string& otherwise) const {
  std::string text = this->text(key, otherwise);
  if (text.empty() || static_cast<size_t>(code_point_at(text, 0).bytes) != text.size()) refuse(key, "a character");
  return text;
}

int64_t JsonPart::number(const char* key, int64_t otherwise) const {
  if (!has(key)) return otherwise;
  if (!json_.at(key).is_number_integer()) refuse(key, "an integer");
  return json_.at(key).get<int64_t>();
}

JsonPart JsonPart::part(const char* key) const {
  if (!has(key)) refuse(key, "an object");
  return {json_.at(key), place_ + "." + key, source_};
}

std::vector<JsonPart> JsonPart::list(const char* key) const {
  if (!has(key) || !json_.at(key).is_array()) refuse(key, "a list of objects");
  std::vector<JsonPart> parts;
  for (const Json& element : json_.at(key))
    parts.emplace_back(element, fmt::format("{}.{}[{}]", place_, key, parts.size()), source_);
  return parts;
}

void JsonPart::refuse(const char* key, const std::string& accepted) const {
  const std::string value = json_.contains(key) ? printable(json_.at(key).dump(), 60) + " is not accepted" : "is missing";
  bad_file(source_, fmt::format("{}.{}: {}; use {}", place_, key, value, accepted));
}

void JsonPart::refuse_type(const std::string& accepted) const {
  bad_file(source_, fmt::format("{}: \"{}\" is not supported; use {}", place_, printable(type(), 60), accepted));
}

TextOrRegex read_text_or_regex(const JsonPart& part, const char* key) {
  const JsonPart pattern = part.part(key);
  if (pattern.has("String")) return {pattern.text("String", ""), false};
  if (pattern.has("Regex")) return {pattern.text("Regex", ""), true};
  part.refuse(key, "{\"String\": ...} or {\"Regex\": ...}");
}

}  // namespace trivet::data

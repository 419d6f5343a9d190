#include "engine/config/overrides.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "engine/config/json_reader.h"
#include "engine/config/mistakes.h"

namespace trivet::config {
namespace {

void forget_positions(JsonNode& node) {
  node.at = {};
  for (JsonNode& item : node.items) forget_positions(item);
  for (JsonMember& member : node.members) {
    member.at = {};
    forget_positions(member.value);
  }
}

JsonNode value_of(const std::string& text) {
  JsonNode node;
  try {
    node = read_json(text, "--set");
  } catch (const ConfigError&) {  // not JSON: a string without quotes, such as AdamW
    if (text.starts_with('{')) throw;
    node.kind = JsonKind::String;
    node.text = text;
  }
  forget_positions(node);
  return node;
}

JsonNode empty_object() {
  JsonNode node;
  node.kind = JsonKind::Object;
  return node;
}

JsonMember& member_of(JsonNode& object, const std::string& key) {
  for (JsonMember& member : object.members)
    if (member.key == key) return member;
  JsonMember& member = object.members.emplace_back();
  member.key = key;
  member.value = empty_object();
  return member;
}

// "a.b" -> "a", "b"
std::vector<std::string> keys_of_path(const std::string& path) {
  std::vector<std::string> keys{""};
  for (const char letter : path)
    if (letter == '.')
      keys.emplace_back();
    else
      keys.back() += letter;
  return keys;
}

// `at`: the place that messages name.
void apply(JsonNode& root, const std::string& text, Position at = {}) {
  if (!is_utf8(text))
    throw ConfigError(
        fmt::format("--set {}: is not UTF-8; write it in UTF-8 (if it names a file, rename the file)", printable(text)));
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw ConfigError(fmt::format("--set {}: key=value is expected, such as --set zero_optimization.stage=2", printable(text)));
  JsonNode* object = &root;
  std::vector<std::string> keys = keys_of_path(text.substr(0, equals));
  if (std::ranges::any_of(keys, is_blank))
    throw ConfigError(fmt::format("--set {}: {} is empty; name it, as in --set zero_optimization.stage=2", printable(text),
                                  keys.size() == 1 ? "the key" : "a part of the key"));
  const std::string last = keys.back();
  keys.pop_back();
  for (const std::string& key : keys) {
    object = &member_of(*object, key).value;
    if (object->kind != JsonKind::Object) *object = empty_object();
  }
  JsonMember& member = member_of(*object, last);
  member.value = value_of(text.substr(equals + 1));
  member.at = member.value.at = at;
}

// Two keys that say one thing: what is given by --set replaces the other one in the file.
void remove_other_than(JsonNode& root, const std::vector<std::string>& overrides, const std::string& section,
                       const std::string& one, const std::string& other) {
  const auto is_set = [&](const std::string& key) {
    return std::ranges::any_of(overrides, [&](const std::string& text) { return text.starts_with(section + "." + key + "="); });
  };
  if (!is_set(one) || is_set(other)) return;
  for (JsonMember& member : root.members)
    if (member.key == section) std::erase_if(member.value.members, [&](const JsonMember& inner) { return inner.key == other; });
}

bool has_key_or_no_section(const JsonNode& root, const std::string& path) {
  const JsonNode* node = &root;
  for (size_t start = 0; node && start <= path.size();) {
    if (node->kind == JsonKind::Null) return false;  // as good as absent
    if (node->kind != JsonKind::Object) return true;
    const size_t dot = std::min(path.find('.', start), path.size());
    node = node->find(path.substr(start, dot - start));
    start = dot + 1;
  }
  return node != nullptr;
}

}  // namespace

void apply_defaults(JsonNode& root, const std::vector<std::string>& defaults) {
  for (const std::string& text : defaults)
    if (!has_key_or_no_section(root, text.substr(0, text.find('=')))) apply(root, text, kOfWeights);
}

void apply_overrides(JsonNode& root, const std::vector<std::string>& overrides) {
  for (const std::string& text : overrides) apply(root, text);
  remove_other_than(root, overrides, "training", "steps", "epochs");
  remove_other_than(root, overrides, "training", "epochs", "steps");
}

}  // namespace trivet::config

#include "engine/config/json_node.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::config {

const JsonNode* JsonNode::find(const std::string& key) const {
  for (const JsonMember& member : members)
    if (member.key == key) return &member.value;
  return nullptr;
}

JsonNode* JsonNode::find(const std::string& key) { return const_cast<JsonNode*>(std::as_const(*this).find(key)); }

bool is_blank(const std::string& key) { return key.find_first_not_of(" \t\r\n") == std::string::npos; }

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

namespace {

std::string list_to_json(const std::vector<JsonNode>& items) {
  std::string out = "[";
  for (const JsonNode& item : items) out += (out.size() > 1 ? ", " : "") + to_json(item);
  return out + "]";
}

std::string object_to_json(const std::vector<JsonMember>& members) {
  std::string out = "{";
  for (const JsonMember& member : members)
    out += (out.size() > 1 ? ", " : "") + quoted(member.key) + ": " + to_json(member.value);
  return out + "}";
}

bool same_members(const JsonNode& a, const JsonNode& b) {
  if (a.members.size() != b.members.size()) return false;
  return std::all_of(a.members.begin(), a.members.end(), [&](const JsonMember& member) {
    const JsonNode* other = b.find(member.key);
    return other && same_value(member.value, *other);
  });
}

}  // namespace

std::string to_json(const JsonNode& node) {
  switch (node.kind) {
    case JsonKind::Null: return "null";
    case JsonKind::Bool: return node.boolean ? "true" : "false";
    case JsonKind::Number: return node.text;
    case JsonKind::String: return quoted(node.text);
    case JsonKind::List: return list_to_json(node.items);
    case JsonKind::Object: return object_to_json(node.members);
  }
  return "";
}

bool same_value(const JsonNode& a, const JsonNode& b) {
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case JsonKind::Null: return true;
    case JsonKind::Bool: return a.boolean == b.boolean;
    case JsonKind::Number: return a.is_integer && b.is_integer ? a.integer == b.integer : a.number == b.number;
    case JsonKind::String: return a.text == b.text;
    case JsonKind::List: return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same_value);
    case JsonKind::Object: return same_members(a, b);
  }
  return false;
}

}  // namespace trivet::config

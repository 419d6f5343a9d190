// A JSON value that remembers its position in the file, so that every error can say file, line and column.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace trivet::config {

// Line and column count from 1. Line 0 means that the value came from the command line (--set), not from the file.
struct Position {
  int line = 0, column = 0;
};

enum class JsonKind { Null, Bool, Number, String, List, Object };

struct JsonMember;

struct JsonNode {
  JsonKind kind = JsonKind::Null;
  Position at;
  bool boolean = false;
  double number = 0;
  bool is_integer = false;  // a number without fractional part that fits in int64_t: `integer` holds it exactly
  int64_t integer = 0;
  std::string text;  // a string's content; a number as it was written
  std::vector<JsonNode> items;
  std::vector<JsonMember> members;  // in the order of the file; no duplicate keys

  const JsonNode* find(const std::string& key) const;
  JsonNode* find(const std::string& key);
};

struct JsonMember {
  std::string key;
  Position at;
  JsonNode value;
};

// Checks whether a key is empty, or spaces alone.
bool is_blank(const std::string& key);

// The value as compact JSON. Numbers are printed as they were written.
std::string to_json(const JsonNode& node);
std::string quoted(const std::string& text);

// Checks whether two values are equal, however they are written (1e3 equals 1000.0; members may be in any order).
bool same_value(const JsonNode& a, const JsonNode& b);

}  // namespace trivet::config

#include "engine/config/json_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/error.h"
#include "core/printable.h"
#include "core/utf8.h"
#include "engine/config/json_number.h"

namespace trivet::config {
namespace {

class JsonReader {
 public:
  JsonReader(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  JsonNode read() {
    if (text_.substr(0, 3) == "\xEF\xBB\xBF") next_ = 3;  // byte order mark
    skip_space();
    JsonNode node = value(0);
    skip_space();
    if (!at_end()) fail(here(), fmt::format("{} after the end of the JSON value", shown()));
    return node;
  }

 private:
  JsonNode value(int depth) {
    if (depth > kMaxConfigDepth) fail(here(), fmt::format("nested deeper than {} levels", kMaxConfigDepth));
    JsonNode node;
    node.at = here();
    switch (peek()) {
      case '{': read_object(node, depth); break;
      case '[': read_list(node, depth); break;
      case '"':
        node.kind = JsonKind::String;
        node.text = string();
        check_text(node.text, node.at);
        break;
      default: read_scalar(node);
    }
    return node;
  }

  void read_object(JsonNode& node, int depth) {
    node.kind = JsonKind::Object;
    const Position open = here();
    take();
    std::set<std::string> keys;
    skip_space();
    if (accept('}')) return;
    do {
      skip_space();
      expect_more(open, '{');
      if (peek() == '}' && !node.members.empty()) break;  // after a trailing comma
      if (peek() != '"') fail(here(), fmt::format("a key in double quotes is expected, found {}", shown()));
      JsonMember& member = node.members.emplace_back();
      member.at = here();
      member.key = string();
      check_text(member.key, member.at);
      if (!keys.insert(member.key).second) fail(member.at, fmt::format("{}: key given twice; keep one", shown(member.key)));
      skip_space();
      expect_more(open, '{');
      if (!accept(':')) fail(here(), fmt::format("\":\" is expected after the key {}, found {}", shown(member.key), shown()));
      skip_space();
      expect_more(open, '{');
      open_keys_.push_back(&member.key);
      member.value = value(depth + 1);
      open_keys_.pop_back();
      skip_space();
      expect_more(open, '{');
    } while (accept(','));
    if (!accept('}')) fail(here(), fmt::format("\",\" or \"}}\" is expected, found {}", shown()));
  }

  void read_list(JsonNode& node, int depth) {
    node.kind = JsonKind::List;
    const Position open = here();
    take();
    skip_space();
    if (accept(']')) return;
    do {
      skip_space();
      expect_more(open, '[');
      if (peek() == ']' && !node.items.empty()) break;  // after a trailing comma
      node.items.push_back(value(depth + 1));
      skip_space();
      expect_more(open, '[');
    } while (accept(','));
    if (!accept(']')) fail(here(), fmt::format("\",\" or \"]\" is expected, found {}", shown()));
  }

  void read_scalar(JsonNode& node) {
    if (at_end()) fail(here(), "a value is expected, found the end of the file");
    size_t end = next_;
    while (end < text_.size() && is_word(text_[end])) ++end;
    const std::string word(text_.substr(next_, end - next_));
    if (word == "true" || word == "false") {
      node.kind = JsonKind::Bool;
      node.boolean = word == "true";
    } else if (word != "null") {
      if (word.empty()) fail(here(), fmt::format("a value is expected, found {}", shown()));
      const std::string problem = read_number(word, node);
      if (!problem.empty()) fail(here(), problem);
    }
    while (next_ < end) take();
  }

  // Reports and checkpoints copy text from a config into JSON, which must be UTF-8.
  void check_text(std::string_view text, Position at) const {
    if (!is_utf8(text))
      fail(at,
           fmt::format("{}{} is not UTF-8; write it in UTF-8 (if it names a file, rename the file)", open_path(), shown(text)));
    if (text.find('\0') != std::string_view::npos)
      fail(at, fmt::format("{}{} contains U+0000, which is not accepted in a config", open_path(), shown(text)));
  }

  // The key whose value is being read, as in "data.train: ".
  std::string open_path() const {
    std::string path;
    for (const std::string* key : open_keys_) path += (path.empty() ? "" : ".") + *key;
    return path.empty() ? "" : printable(path) + ": ";
  }

  std::string string() {
    const Position open = here();
    take();
    std::string out;
    while (true) {
      if (at_end() || peek() == '\n') fail(open, "the string is not closed; \" is missing");
      const char c = take();
      if (c == '"') return out;
      if (static_cast<unsigned char>(c) < 0x20)
        fail(here(), "control character in a string; write it as an escape such as \\t");
      if (c == '\\') {
        escape(out, open);
      } else {
        out += c;
      }
    }
  }

  void escape(std::string& out, Position open) {
    if (at_end()) fail(open, "the string is not closed; \" is missing");
    const char c = take();
    switch (c) {
      case '"':
      case '\\':
      case '/': out += c; return;
      case 'b': out += '\b'; return;
      case 'f': out += '\f'; return;
      case 'n': out += '\n'; return;
      case 'r': out += '\r'; return;
      case 't': out += '\t'; return;
      case 'u': append_utf8(out, static_cast<char32_t>(code_point(open))); return;
      default: fail(open, "unknown escape in the string; JSON has \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
  }

  uint32_t hex4(Position open) {
    uint32_t code = 0;
    if (next_ + 4 > text_.size()) fail(open, "\\u needs four hexadecimal digits");
    const char* first = text_.data() + next_;
    const auto [end, error] = std::from_chars(first, first + 4, code, 16);
    if (error != std::errc() || end != first + 4) fail(open, "\\u needs four hexadecimal digits");
    for (int i = 0; i < 4; ++i) take();
    return code;
  }

  uint32_t code_point(Position open) {
    const uint32_t high = hex4(open);
    if (high < 0xD800 || high > 0xDFFF) return high;
    if (high > 0xDBFF || text_.substr(next_, 2) != "\\u") fail(open, "\\u with half of a surrogate pair");
    take();
    take();
    const uint32_t low = hex4(open);
    if (low < 0xDC00 || low > 0xDFFF) fail(open, "\\u with half of a surrogate pair");
    return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
  }

  void skip_space() {
    while (!at_end()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        take();
      } else if (c == '#' || text_.substr(next_, 2) == "//") {
        while (!at_end() && peek() != '\n') take();
      } else if (text_.substr(next_, 2) == "/*") {
        skip_block_comment();
      } else {
        return;
      }
    }
  }

  void skip_block_comment() {
    const size_t end = text_.find("*/", next_ + 2);
    if (end == std::string_view::npos) fail(here(), "the comment that begins here is not closed; \"*/\" is missing");
    while (next_ < end + 2) take();
  }

  void expect_more(Position open, char bracket) const {
    if (at_end())
      fail(here(),
           fmt::format("the file ends here, but \"{}\" opened at {}:{} is not closed", bracket, open.line, open.column));
  }

  static bool is_word(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '+' || c == '-' ||
           c == '_';
  }

  bool at_end() const { return next_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[next_]; }
  std::string shown() const {
    if (at_end()) return "the end of the file";
    const size_t bytes = std::max(1, decode_utf8(text_, next_).bytes);
    return shown(text_.substr(next_, bytes));
  }
  static std::string shown(std::string_view text) { return "\"" + printable(text) + "\""; }
  Position here() const { return {line_, column_}; }

  char take() {
    const char c = text_[next_++];
    if (c == '\n') {
      ++line_;
      column_ = 1;
    } else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80) {  // columns count characters, not bytes
      ++column_;
    }
    return c;
  }

  bool accept(char wanted) {
    if (at_end() || peek() != wanted) return false;
    take();
    return true;
  }

  [[noreturn]] void fail(Position at, const std::string& what) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", source_, at.line, at.column, what));
  }

  std::string_view text_;
  const std::string& source_;
  std::vector<const std::string*> open_keys_;  // path to the value being read
  size_t next_ = 0;
  int line_ = 1, column_ = 1;
};

}  // namespace

JsonNode read_json(std::string_view text, const std::string& source) {
  if (text.size() > kMaxConfigBytes)
    throw ConfigError(fmt::format("{}: has {} bytes; a config may have at most {}", source, text.size(), kMaxConfigBytes));
  return JsonReader(text, source).read();
}

}  // namespace trivet::config

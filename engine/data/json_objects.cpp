#include "engine/data/json_objects.h"

#include <fmt/format.h>

#include "core/printable.h"
#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

constexpr std::string_view kByteOrderMark("\xEF\xBB\xBF");

bool is_json_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

}  // namespace

void JsonObjects::refuse(const std::string& expected, char byte) const {
  bad_file(path_, fmt::format("has \"{}\" at byte {}, after {} objects of JSON, where {} was expected",
                              printable(std::string_view(&byte, 1)), bytes_, objects_, expected));
}

void JsonObjects::begin_object(std::string& lines) {
  place_ = Place::InObject;
  depth_ = 1;
  ++objects_;
  lines += '{';
}

void JsonObjects::between(char byte, std::string& lines) {
  if (is_json_space(byte)) return;
  if (static_cast<size_t>(bytes_) < kByteOrderMark.size() && byte == kByteOrderMark[static_cast<size_t>(bytes_)]) return;
  const bool list = form_ == Form::List;
  switch (place_) {
    case Place::BeforeList:
      if (byte == '{' && !list) return begin_object(lines);
      if (byte != '[' || !list) refuse(list ? "\"[\"" : "an object", byte);
      place_ = Place::BeforeFirst;
      return;
    case Place::AfterObject:
      if (byte == '{' && !list) return begin_object(lines);
      if (!list || (byte != ',' && byte != ']')) refuse(list ? "\",\" or \"]\"" : "another object, or the end,", byte);
      place_ = byte == ',' ? Place::BeforeObject : Place::AfterList;
      return;
    case Place::AfterList: refuse("the end of the file", byte);
    default:
      if (byte == ']' && place_ == Place::BeforeFirst) {
        place_ = Place::AfterList;
        return;
      }
      if (byte != '{') refuse("an object", byte);
      begin_object(lines);
  }
}

void JsonObjects::in_object(char byte, std::string& lines) {
  lines += byte == '\n' || byte == '\r' ? ' ' : byte;
  if (byte == '"') place_ = Place::InString;
  if (byte == '{' || byte == '[') ++depth_;
  if (byte != '}' && byte != ']') return;
  if (--depth_ > 0) return;
  place_ = Place::AfterObject;
  lines += '\n';
}

void JsonObjects::in_string(char byte, std::string& lines) {
  if (byte == '\n')
    bad_file(path_, fmt::format("object {} has a string with a line break in it, at byte {}", objects_, bytes_));
  lines += byte;
  if (byte == '"' && !escaped_) place_ = Place::InObject;
  escaped_ = byte == '\\' && !escaped_;
}

void JsonObjects::add(std::string_view piece, std::string& lines) {
  for (const char byte : piece) {
    if (place_ == Place::InString)
      in_string(byte, lines);
    else if (place_ == Place::InObject)
      in_object(byte, lines);
    else
      between(byte, lines);
    ++bytes_;
  }
}

void JsonObjects::finish() const {
  const bool ends = form_ == Form::List ? place_ == Place::AfterList : place_ == Place::AfterObject;
  if (ends) return;
  const bool inside = place_ == Place::InObject || place_ == Place::InString;
  bad_file(path_, fmt::format("ends at byte {} {}; the file is truncated, or no JSON", bytes_,
                              inside ? fmt::format("inside object {}", objects_) : "inside its list of objects"));
}

}  // namespace trivet::data

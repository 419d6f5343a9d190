#include "data/json_objects.h"

#include <fmt/format.h>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/file_kind.h"
#include "data/text_check.h"

namespace trivet::data {
namespace {

bool is_json_space(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

}  // namespace

void JsonObjects::refuse(const std::string& expected, char byte) const {
  bad_file(path_,
           fmt::format("has \"{}\" at byte {}, after {} {} of JSON, where {} was expected{}",
                       printable(std::string_view(&byte, 1)), bytes_, objects_, has_texts_ ? "texts" : "objects", expected,
                       is_called_json(path_) ? "" : "; to read the file as a text, set data.read_as to \"text\""));
}

void JsonObjects::begin_object(std::string& lines) {
  place_ = Place::InObject;
  depth_ = 1;
  ++objects_;
  lines += '{';
}

void JsonObjects::begin_text(std::string& lines) {
  place_ = Place::InString;
  has_texts_ = true;
  ++objects_;
  lines += "{\"text\": \"";
}

// Between the objects of a sequence, at most one separator.
void JsonObjects::in_sequence(char byte, std::string& lines) {
  if (byte == '{') return begin_object(lines);
  const bool may_separate = place_ == Place::AfterObject || byte == kRecordSeparator;
  if (!may_separate || !is_between_objects(byte)) refuse(objects_ == 0 ? "an object" : "another object, or the end,", byte);
  if (objects_ > 0) place_ = Place::BeforeObject;
}

void JsonObjects::between(char byte, std::string& lines) {
  if (is_json_space(byte)) return;
  if (static_cast<size_t>(bytes_) < kByteOrderMark.size() && byte == kByteOrderMark[static_cast<size_t>(bytes_)]) return;
  if (form_ == Form::Sequence) return in_sequence(byte, lines);
  switch (place_) {
    case Place::BeforeList:
      if (byte != '[') refuse("\"[\"", byte);
      place_ = Place::BeforeFirst;
      return;
    case Place::AfterObject:
      if (byte != ',' && byte != ']') refuse("\",\" or \"]\"", byte);
      place_ = byte == ',' ? Place::BeforeObject : Place::AfterList;
      return;
    case Place::AfterList: refuse("the end of the file", byte);
    default:
      if (byte == ']' && place_ == Place::BeforeFirst) {
        place_ = Place::AfterList;
        return;
      }
      if (byte == '"' && (has_texts_ || objects_ == 0)) return begin_text(lines);
      if (byte != '{' || has_texts_) refuse(has_texts_ ? "a text" : "an object", byte);
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
    bad_file(path_, fmt::format("{} {} has a string with a line break in it, at byte {}", has_texts_ ? "text" : "object",
                                objects_, bytes_));
  lines += byte;
  if (byte == '"' && !escaped_) place_ = has_texts_ ? Place::AfterObject : Place::InObject;
  if (place_ == Place::AfterObject) lines += "}\n";
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
  const bool ends =
      form_ == Form::List ? place_ == Place::AfterList : place_ == Place::AfterObject || place_ == Place::BeforeObject;
  if (ends) return;
  const bool inside = place_ == Place::InObject || place_ == Place::InString;
  bad_file(path_, fmt::format("ends at byte {} {}; the file is truncated, or no JSON", bytes_,
                              inside       ? fmt::format("inside {} {}", has_texts_ ? "text" : "object", objects_)
                              : has_texts_ ? "inside its list of texts"
                                           : "inside its list of objects"));
}

}  // namespace trivet::data

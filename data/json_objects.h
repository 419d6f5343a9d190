// Turns JSON in which objects follow each other into one line for each object, piece by piece, so that such a file is read like
// lines of JSON (json_lines.h) and need not fit into memory:
//
//   a list         [{"text": "a"}, {"text":            {"text": "a"}
//                   "b"}]                       ->     {"text":  "b"}
//   a sequence     {"text": "a"} {                     {"text": "a"}
//                    "text": "b"}                      {   "text": "b"}
//
// A comma, a semicolon or a record separator (RFC 7464) may come between the objects of a sequence, and after the last one. A
// list may hold strings instead of objects: each becomes the "text" of an object.
//
// Only what is between the objects is checked here, and that each of them ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::data {

inline constexpr char kRecordSeparator = '\x1E';

inline bool is_between_objects(char byte) { return byte == ',' || byte == ';' || byte == kRecordSeparator; }

class JsonObjects {
 public:
  enum class Form { List, Sequence };
  // `path` is for messages.
  JsonObjects(Form form, std::string path) : form_(form), path_(std::move(path)) {}

  // Appends the lines of the next piece to `lines`. Throws DataError for what is no object, or no list.
  void add(std::string_view piece, std::string& lines);
  // Throws DataError if the list or an object goes on.
  void finish() const;

 private:
  enum class Place { BeforeList, BeforeFirst, BeforeObject, InObject, InString, AfterObject, AfterList };
  void begin_object(std::string& lines);
  void begin_text(std::string& lines);
  void in_sequence(char byte, std::string& lines);
  void between(char byte, std::string& lines);
  void in_object(char byte, std::string& lines);
  void in_string(char byte, std::string& lines);
  [[noreturn]] void refuse(const std::string& expected, char byte) const;

  Form form_;
  std::string path_;
  Place place_ = Place::BeforeList;
  int64_t bytes_ = 0, objects_ = 0;  // so far
  int64_t depth_ = 0;                // depth of the object
  bool escaped_ = false;             // the next byte of a string
  bool has_texts_ = false;           // a list of strings
};

}  // namespace trivet::data

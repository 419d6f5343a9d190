// Reads the parts of a tokenizer.json. Each message names the file, the place in it, and what is accepted there.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trivet::data {

// An object that describes one part, such as {"type": "NFC"}, and its place: "normalizer.normalizers[1]".
class JsonPart {
 public:
  // Throws DataError if `json` is not an object.
  JsonPart(const nlohmann::json& json, std::string place, const std::string& source);

  const std::string& source() const { return source_; }
  const std::string& place() const { return place_; }
  const nlohmann::json& json() const { return json_; }
  std::string type() const;  // the member "type"
  bool has(const char* key) const;
  // These throw if the member has another type. `otherwise` is for a member that is absent or null.
  bool flag(const char* key, bool otherwise) const;
  std::string text(const char* key, const std::string& otherwise) const;
  std::string character(const char* key, const std::string& otherwise) const;  // a string of one character
  int64_t number(const char* key, int64_t otherwise) const;
  JsonPart part(const char* key) const;
  std::vector<JsonPart> list(const char* key) const;  // a list of objects; absent: an error

  [[noreturn]] void refuse(const char* key, const std::string& accepted) const;
  [[noreturn]] void refuse_type(const std::string& accepted) const;

 private:
  const nlohmann::json& json_;
  std::string place_;
  const std::string& source_;
};

// {"String": "x"} or {"Regex": "x+"}
struct TextOrRegex {
  std::string text;
  bool is_regex = false;
};
TextOrRegex read_text_or_regex(const JsonPart& part, const char* key);

}  // namespace trivet::data

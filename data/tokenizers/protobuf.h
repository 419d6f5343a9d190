// Reads the wire format of Protocol Buffers, field by field: as much of it as a model of sentencepiece needs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::data {

class ProtobufReader {
 public:
  // The message must outlive the reader. `source` names the file in messages.
  ProtobufReader(std::string_view message, const std::string& source) : rest_(message), source_(source) {}

  // Goes to the next field. Returns false at the end. Throws DataError if the message is damaged.
  bool next();
  int64_t field() const { return field_; }
  // These throw if the field has another type.
  int64_t integer() const;
  bool flag() const { return integer() != 0; }
  float number() const;
  std::string_view bytes() const;

 private:
  enum class Type { Varint = 0, Fixed64 = 1, Bytes = 2, Fixed32 = 5 };
  uint64_t varint();
  std::string_view take(uint64_t bytes);
  void check(Type type) const;
  [[noreturn]] void damaged() const;

  std::string_view rest_;
  const std::string& source_;
  int64_t field_ = 0;
  Type type_ = Type::Varint;
  uint64_t integer_ = 0;
  std::string_view bytes_;
};

}  // namespace trivet::data

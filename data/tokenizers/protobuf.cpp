#include "data/tokenizers/protobuf.h"

#include <fmt/format.h>

#include <cstring>

#include "data/data_error.h"

namespace trivet::data {

void ProtobufReader::damaged() const {
  bad_file(source_, fmt::format("is not a model of sentencepiece, or is damaged ({} bytes before its end)", rest_.size()));
}

uint64_t ProtobufReader::varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) damaged();
    const auto byte = static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  damaged();
}

std::string_view ProtobufReader::take(uint64_t bytes) {
  if (bytes > rest_.size()) damaged();
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

bool ProtobufReader::next() {
  if (rest_.empty()) return false;
  const uint64_t tag = varint();
  field_ = static_cast<int64_t>(tag >> 3);
  switch (tag & 7) {
    case 0:
      type_ = Type::Varint;
      integer_ = varint();
      return true;
    case 1:
      type_ = Type::Fixed64;
      bytes_ = take(8);
      return true;
    case 2:
      type_ = Type::Bytes;
      bytes_ = take(varint());
      return true;
    case 5:
      type_ = Type::Fixed32;
      bytes_ = take(4);
      return true;
    default: damaged();
  }
}

void ProtobufReader::check(Type type) const {
  if (type_ != type) damaged();
}

int64_t ProtobufReader::integer() const {
  check(Type::Varint);
  return static_cast<int64_t>(integer_);
}

float ProtobufReader::number() const {
  check(Type::Fixed32);
  float value = 0;
  std::memcpy(&value, bytes_.data(), sizeof value);
  return value;
}

std::string_view ProtobufReader::bytes() const {
  check(Type::Bytes);
  return bytes_;
}

}  // namespace trivet::data

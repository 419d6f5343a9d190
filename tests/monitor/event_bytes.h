// Decodes a file of TensorBoard's events, independently of the code that writes it: a table of the checksum's bits, one step at
// a time, and protocol buffers as a list of fields.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::monitor {

// CRC-32C bit by bit, then rotated and added to as TFRecord files want it.
inline uint32_t slow_masked_crc(std::string_view data) {
  uint32_t crc = 0xffffffff;
  for (const char byte : data) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
  }
  crc = ~crc;
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

template <typename Number>
Number take_number(std::string_view& bytes) {
  if (bytes.size() < sizeof(Number)) throw std::runtime_error("the bytes end within a number");
  Number number;
  std::memcpy(&number, bytes.data(), sizeof(Number));
  bytes.remove_prefix(sizeof(Number));
  return number;
}

inline std::vector<std::string> records_of(std::string_view file) {
  std::vector<std::string> records;
  while (!file.empty()) {
    const std::string_view length_bytes = file.substr(0, 8);
    const auto length = take_number<uint64_t>(file);
    if (take_number<uint32_t>(file) != slow_masked_crc(length_bytes)) throw std::runtime_error("checksum of a length");
    records.emplace_back(file.substr(0, length));
    file.remove_prefix(length);
    if (take_number<uint32_t>(file) != slow_masked_crc(records.back())) throw std::runtime_error("checksum of a record");
  }
  return records;
}

struct Field {
  int number = 0;
  uint64_t integer = 0;  // also the bits of a real number
  std::string bytes;     // of a text or a message
};

inline uint64_t take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take_number<uint8_t>(bytes);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

inline std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const uint64_t key = take_varint(message);
    Field& field = fields.emplace_back(Field{static_cast<int>(key >> 3), 0, ""});
    switch (key & 7) {
      case 0: field.integer = take_varint(message); break;
      case 1: field.integer = take_number<uint64_t>(message); break;
      case 5: field.integer = take_number<uint32_t>(message); break;
      case 2: {
        const uint64_t length = take_varint(message);
        field.bytes = message.substr(0, length);
        message.remove_prefix(length);
        break;
      }
      default: throw std::runtime_error("an unknown kind of field");
    }
  }
  return fields;
}

// The value of a field that occurs at most once; zero or empty if it is missing.
inline Field field_of(std::string_view message, int number) {
  for (Field& field : fields_of(message))
    if (field.number == number) return field;
  return {};
}

inline float as_float(const Field& field) { return std::bit_cast<float>(static_cast<uint32_t>(field.integer)); }

}  // namespace trivet::monitor

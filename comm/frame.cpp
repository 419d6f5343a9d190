#include "comm/frame.h"

#include "core/error.h"

namespace trivet::comm {
namespace {

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return value;
}

}  // namespace

std::string encode(const Frame& frame) {
  std::string out;
  append_little_endian(out, frame.payload.size(), 4);
  out.push_back(static_cast<char>(frame.kind));
  return out + frame.payload;
}

PayloadWriter& PayloadWriter::number(int64_t value) {
  append_little_endian(bytes_, static_cast<uint64_t>(value), 8);
  return *this;
}

PayloadWriter& PayloadWriter::text(std::string_view value) {
  append_little_endian(bytes_, value.size(), 4);
  bytes_.append(value);
  return *this;
}

int64_t PayloadReader::number() { return static_cast<int64_t>(little_endian(take(8))); }

std::string PayloadReader::text() { return std::string(take(little_endian(take(4)))); }

std::string_view PayloadReader::take(size_t count) {
  if (count > bytes_.size()) throw CommError(ExitCode::Rendezvous, "a message between ranks is cut short");
  const std::string_view head = bytes_.substr(0, count);
  bytes_.remove_prefix(count);
  return head;
}

}  // namespace trivet::comm

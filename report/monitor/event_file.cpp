#include "report/monitor/event_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <filesystem>

#include "core/clock.h"
#include "core/crc32c.h"

namespace trivet::monitor {
namespace {

constexpr std::string_view kNamePrefix = "events.out.tfevents.";

void append_little_endian(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

// Protocol buffers: each field is its number and the kind of what follows, then the value.
class Message {
 public:
  Message& integer(int field, int64_t value) { return key(field, 0).varint(static_cast<uint64_t>(value)); }
  Message& real(int field, double value) {
    append_little_endian(key(field, 1).bytes_, std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  Message& real32(int field, float value) {
    append_little_endian(key(field, 5).bytes_, std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  Message& text(int field, std::string_view value) {
    key(field, 2).varint(value.size()).bytes_ += value;
    return *this;
  }
  Message& message(int field, const Message& value) { return text(field, value.bytes_); }
  std::string take() { return std::move(bytes_); }

 private:
  Message& key(int field, int kind) { return varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(kind)); }
  Message& varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
    return *this;
  }

  std::string bytes_;
};

// Field numbers of Event.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7, kSourceMetadata = 10;

Message event(double wall_time, int64_t step) {
  Message message;
  message.real(kWallTime, wall_time);
  if (step != 0) message.integer(kStep, step);  // a field that is 0 is left out
  return message;
}

uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(data)));
  return std::rotr(crc, 15) + 0xa282ead8u;
}

// The number after the prefix in the name of a file of events; 0 for other files.
int64_t seconds_in_name(const std::string& name) {
  int64_t seconds = 0;
  if (name.starts_with(kNamePrefix)) std::from_chars(name.data() + kNamePrefix.size(), name.data() + name.size(), seconds);
  return seconds;
}

// A resumed run may start within the second in which the run before it started.
std::string path_of_new_file(const std::string& folder) {
  int64_t seconds = system_clock().unix_seconds();
  std::error_code none;  // a folder that is not there yet
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    seconds = std::max(seconds, seconds_in_name(entry.path().filename().string()) + 1);
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  const std::string name = fmt::format("{}{:010}.{}.{}", kNamePrefix, seconds, host, ::getpid());
  return (std::filesystem::path(folder) / name).string();
}

}  // namespace

std::string first_event(double wall_time) {
  Message writer;
  writer.text(1, "trivet");
  return event(wall_time, 0).text(kFileVersion, "brain.Event:2").message(kSourceMetadata, writer).take();
}

std::string session_start_event(double wall_time, int64_t step) {
  constexpr int kStatus = 1, kStart = 1;
  Message log;
  log.integer(kStatus, kStart);
  return event(wall_time, step).message(kSessionLog, log).take();
}

std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.text(1, scalar.tag).real32(2, static_cast<float>(scalar.value));
    summary.message(1, value);
  }
  return event(wall_time, step).message(kSummary, summary).take();
}

// A text is a tensor of one string, marked for TensorBoard's plugin "text".
std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr int kDataTypeString = 7;
  Message plugin, metadata, dim, shape, tensor, value, summary;
  metadata.message(1, plugin.text(1, "text").text(2, ""));  // name and content
  shape.message(2, dim.integer(1, 1));
  tensor.integer(1, kDataTypeString).message(2, shape).text(8, markdown);
  value.text(1, tag).message(9, metadata).message(8, tensor);
  summary.message(1, value);
  return event(wall_time, step).message(kSummary, summary).take();
}

std::string framed_record(std::string_view event) {
  std::string record;
  append_little_endian(record, event.size(), 8);
  append_little_endian(record, masked_crc(record), 4);
  record += event;
  append_little_endian(record, masked_crc(event), 4);
  return record;
}

EventFile::EventFile(const std::string& folder) : file_(path_of_new_file(folder)) {}

}  // namespace trivet::monitor

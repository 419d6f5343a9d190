// A file of events as TensorBoard reads it: events.out.tfevents.<seconds>.<host>.<pid>. TensorBoard reads all such files of a
// folder in the order of their names, and shows a folder as one run.
//
//   record   u64 length | u32 crc(length) | event | u32 crc(event)      little-endian; masked CRC-32C
//   event    a message "Event" of TensorFlow's protocol buffers (event.proto, summary.proto)
//
// The functions that encode events are separate from the file, so that they can be compared with known bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "report/monitor/output_file.h"
#include "report/monitor/scalars.h"

namespace trivet::monitor {

// Encoded events. `wall_time`: seconds since 1970.
std::string first_event(double wall_time);  // the start of every file: the version of the format
// Declares that from this file on, whatever earlier files say about `step` and later steps is void.
std::string session_start_event(double wall_time, int64_t step);
std::string scalars_event(double wall_time, int64_t step, std::span<const Scalar> scalars);
std::string text_event(double wall_time, int64_t step, std::string_view tag, std::string_view markdown);

std::string framed_record(std::string_view event);

class EventFile {
 public:
  // Creates `folder` if it does not exist, and a file in it whose name is later in order than that of all files of events that
  // the folder holds. Throws Error (Usage) that names the file.
  explicit EventFile(const std::string& folder);
  // Each event is on its way to the disk before this returns.
  void write(std::string_view event) { file_.write(framed_record(event)); }

 private:
  OutputFile file_;
};

}  // namespace trivet::monitor

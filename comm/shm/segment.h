// Memory that processes of one host share. It is found by name until it is unlinked, and it lives until the last mapping ends.
//
// create -> others attach -> unlink: a kill at any later moment leaves nothing behind. All of the memory is reserved at once,
// so that a full /dev/shm is an error here and not a SIGBUS later. Only the same user may attach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trivet::comm {

// Names look like "/trivet-1f2e3d-world". The result unmaps itself. A new segment is zeroed. Throws CommError Rendezvous (it
// exists already, or cannot be opened) or OutOfMemoryError.
std::shared_ptr<std::byte> create_segment(const std::string& name, int64_t bytes);
std::shared_ptr<std::byte> attach_segment(const std::string& name, int64_t bytes);
// It is not an error if there is none.
void unlink_segment(const std::string& name) noexcept;

// Unlinks at the end of its scope, also after an exception.
class SegmentName {
 public:
  explicit SegmentName(std::string name) : name_(std::move(name)) {}
  SegmentName(const SegmentName&) = delete;
  SegmentName& operator=(const SegmentName&) = delete;
  ~SegmentName() { unlink_segment(name_); }

 private:
  std::string name_;
};

}  // namespace trivet::comm

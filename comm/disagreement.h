// The disagreement that ended a group, in memory that its ranks share, so that all of them report the same two calls as the
// reason, even ranks that those two did not wait for. Its initial state is all zero bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>

namespace trivet::comm {

class alignas(64) Disagreement {
 public:
  // The first one stays.
  void record(const std::string& text) {
    uint32_t none = kNone;
    if (!state_.compare_exchange_strong(none, kBeingWritten)) return;
    const size_t length = std::min(text.size(), sizeof text_ - 1);
    std::memcpy(text_, text.data(), length);
    text_[length] = 0;
    state_.store(kRecorded, std::memory_order_release);
  }
  bool recorded() const { return state_.load(std::memory_order_acquire) == kRecorded; }
  const char* text() const { return text_; }

 private:
  enum : uint32_t { kNone, kBeingWritten, kRecorded };
  std::atomic<uint32_t> state_{kNone};
  char text_[508] = {};
};

}  // namespace trivet::comm

#include "comm/gloo/gloo_buffer.h"
#include "core/pipe_signal.h"

#include <algorithm>

namespace trivet::comm {

using std::chrono::milliseconds;

std::string said_by_gloo(const std::exception& error) {
  const std::string text = error.what();
  const size_t end = text.find("] ");
  return text.starts_with('[') && end != std::string::npos ? text.substr(end + 2) : text;
}

GlooBuffer::GlooBuffer(::gloo::transport::Context& maker, std::span<std::byte> bytes)
    : buffer_(maker.createUnboundBuffer(bytes.data(), bytes.size())) {}

void GlooBuffer::send(::gloo::transport::Pair& connection, uint64_t slot) {
  const NoPipeSignal no_signal;
  receives_ = false;
  connection.send(buffer_.get(), slot, 0, buffer_->size);
}

void GlooBuffer::receive(::gloo::transport::Pair& connection, uint64_t slot) {
  const NoPipeSignal no_signal;
  receives_ = true;
  connection.recv(buffer_.get(), slot, 0, buffer_->size);
}

bool GlooBuffer::wait_in_gloo(milliseconds slice) {
  return receives_ ? buffer_->waitRecv(nullptr, slice) : buffer_->waitSend(nullptr, slice);
}

// gloo throws when the time is over, and when the connection has ended. Only the latter also makes a wait throw that would be
// interrupted at once.
GlooBuffer::State GlooBuffer::wait(milliseconds slice) {
  try {
    return wait_in_gloo(std::clamp(slice, milliseconds(0), milliseconds(3600000))) ? State::Complete : State::Interrupted;
  } catch (const std::exception&) {
  }
  try {
    interrupt();
    wait_in_gloo(milliseconds(0));
    return State::Pending;
  } catch (const std::exception& error) {
    why_failed_ = said_by_gloo(error);
    return State::Failed;
  }
}

GlooBuffer::State GlooBuffer::look() {
  const State state = wait(milliseconds(0));
  return state == State::Interrupted ? wait(milliseconds(0)) : state;
}

void GlooBuffer::interrupt() {
  if (receives_)
    buffer_->abortWaitRecv();
  else
    buffer_->abortWaitSend();
}

}  // namespace trivet::comm

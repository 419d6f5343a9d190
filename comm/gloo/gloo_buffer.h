// Memory that gloo sends or receives, and a wait for it that ends after its slice.
//
// [Note: a context without connections] If a wait for a buffer of gloo's takes longer than it may, gloo ends all connections of
// the context that made the buffer. So buffers are made by a context that has no connections, and are given to the connections
// of another one; then a wait that takes too long only throws.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace trivet::comm {

// Returns the text of an error of gloo, without the place in gloo's source.
std::string said_by_gloo(const std::exception& error);

class GlooBuffer {
 public:
  enum class State { Complete, Pending, Interrupted, Failed };

  // `maker` is the context without connections. The bytes must stay valid until this object is destroyed, or the connection is
  // closed.
  GlooBuffer(::gloo::transport::Context& maker, std::span<std::byte> bytes);

  // Each may throw what gloo throws. One of them at a time.
  void send(::gloo::transport::Pair& connection, uint64_t slot);
  void receive(::gloo::transport::Pair& connection, uint64_t slot);

  // On one thread at a time. Complete is returned once for each send and receive.
  State wait(std::chrono::milliseconds slice);
  // Complete, Pending or Failed, at once.
  State look();
  // Ends the wait that is under way, or the next one. On any thread.
  void interrupt();
  const std::string& why_failed() const { return why_failed_; }

 private:
  bool wait_in_gloo(std::chrono::milliseconds slice);

  const std::unique_ptr<::gloo::transport::UnboundBuffer> buffer_;
  bool receives_ = false;
  std::string why_failed_;
};

}  // namespace trivet::comm

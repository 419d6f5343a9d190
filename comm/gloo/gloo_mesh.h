// gloo's connections of one rank to all others, over one interface. Each has a port of its own, which is closed once the other
// rank has connected to it.
//
// gloo takes whoever connects first. So before a connection is used, both ends prove over it that they know the job's key:
//
//   both ways   32 random bytes
//   both ways   HMAC-SHA256(key, "trivet gloo" | sender | receiver | the sender's bytes | the receiver's bytes)
//
// A stranger learns nothing from it but that, and can only keep the rank out in whose place it has connected.
#pragma once

#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <memory>
#include <string>
#include <vector>

#include "comm/gloo/gloo_buffer.h"
#include "comm/network_interface.h"

namespace trivet::comm {

class GlooMesh {
 public:
  static constexpr uint64_t kFirstFreeSlot = 2;  // gloo's numbers of messages; the proof uses those before

  // Throws CommError (Rendezvous).
  GlooMesh(const NetworkInterface& interface, int rank, int size);
  ~GlooMesh();  // data that gloo has written still arrives
  GlooMesh(const GlooMesh&) = delete;
  GlooMesh& operator=(const GlooMesh&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // This host's address and the port for each rank.
  const std::string& address() const { return address_; }

  // Waits until all ranks have connected and proven that they know the key, for about 20 s at most. Returns, by rank, what has
  // prevented it: empty if nothing has. Connections without proof are closed.
  std::vector<std::string> connect(const std::vector<std::string>& addresses, uint64_t key);

  ::gloo::transport::Pair& connection(int rank) { return *context_->getPair(rank); }
  std::unique_ptr<GlooBuffer> buffer(std::span<std::byte> bytes) { return std::make_unique<GlooBuffer>(*maker_, bytes); }
  // Afterwards gloo does not access any memory that it has sent or received over this connection.
  void close(int rank);

 private:
  std::string connect_to(int rank, const std::string& address);

  const int rank_, size_;
  std::shared_ptr<::gloo::transport::Device> device_;
  std::shared_ptr<::gloo::transport::Context> context_, maker_;  // [Note: a context without connections], gloo_buffer.h
  std::string address_;
};

}  // namespace trivet::comm

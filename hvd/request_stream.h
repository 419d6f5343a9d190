// The requests of one rank as they travel to the others. A request that was sent before, which is the rule from the second
// training step on, is sent as a number.
//
// Writer and reader remember the last `capacity` different requests, in slots that are filled in turn. Both see the same
// sequence, so they remember the same.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "hvd/request.h"

namespace trivet::hvd {

class RequestWriter {
 public:
  explicit RequestWriter(int capacity) : slots_(capacity) {}
  // Appends the request to `message`.
  void write(const Request& request, std::string& message);

 private:
  std::vector<std::string> slots_;  // encoded requests
  std::map<std::string, uint32_t> slot_of_;
  size_t next_ = 0;
};

class RequestReader {
 public:
  explicit RequestReader(int capacity) : slots_(capacity) {}
  // All requests of a message, in order. Throws CommError (VersionSkew) for bytes that RequestWriter does not make.
  std::vector<Request> read(std::string_view message);

 private:
  std::vector<std::shared_ptr<const Request>> slots_;
  size_t next_ = 0;
};

}  // namespace trivet::hvd

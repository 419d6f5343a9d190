// Chooses where the ranks of a job meet, and how they prove to each other that they belong to it.
#pragma once

#include <string>

#include "core/descriptor.h"

namespace trivet::cli {

struct Meeting {
  std::string job_id = {};   // empty: the ranks' environment says it, or rank 0 chooses one
  std::string address = {};  // rank 0's address
  int port = 0;
  Descriptor listener =
      {};                  // rank 0's socket on that port, opened before any rank starts; none where rank 0 is on another host
  Descriptor secret = {};  // in memory only; every rank inherits it. None: the ranks' environment names a secret
};

// Listens on this host, on a free port if `port` is 0, and makes a secret. Throws CommError if the port is taken.
Meeting make_meeting(const std::string& job_id, const std::string& address, int port);
// A secret as a descriptor that every rank inherits and reads from its beginning.
Descriptor hold_secret(const std::string& secret);

}  // namespace trivet::cli

// Returns this host's name, for error messages.
#pragma once

#include <unistd.h>

#include <string>

namespace trivet::comm {

inline std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name[0] ? name : "localhost";
}

}  // namespace trivet::comm

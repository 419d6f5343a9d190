// Finds the process that listens on a port of this host, for the message "port 29500 is held by pid 4711 (train)".
#pragma once

#include <string>

namespace trivet::comm {

// "pid 4711 (train)"; of a process of somebody else, "a process of user 1001 that cannot be seen from here".
std::string port_holder(int port);

}  // namespace trivet::comm

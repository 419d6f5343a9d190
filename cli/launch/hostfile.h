// DeepSpeed's hostfiles and filters:  a line "host slots=4";  "host@other:0,2" to include or exclude.
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

struct Host {
  std::string name;
  std::vector<int> slots;
};

// Comments (#) and empty lines are skipped. Throws ConfigError that names the file, the line and what is accepted.
std::vector<Host> parse_hostfile(const std::string& path);
std::vector<Host> parse_hosts(const std::string& text, const std::string& path);

// "a:0,1@b:0,1": every host with its slots.
std::vector<Host> parse_world(const std::string& text);

// At most one of the two may be given. A host without slots means all of its slots.
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude);

// "localhost", a loopback address, or a name of this machine.
bool is_this_host(const std::string& name);

}  // namespace trivet::cli

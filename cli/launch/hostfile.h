// DeepSpeed's hostfiles and filters:  a line "host slots=4";  "host@other:0,2" to include or exclude.
//
// A host is a name, or an address of version 4 or 6; in a hostfile, a user whom ssh logs in as may come before it: "me@host".
// In filters, hosts are named without users, and an address of version 6 has brackets where slots follow: "[fd00::1]:0,2".
#pragma once

#include <string>
#include <vector>

namespace trivet::cli {

struct Host {
  std::string name;  // an address of version 6 without brackets
  std::vector<int> slots;
  std::string user = {};          // empty: that of ssh's own configuration
  bool slots_are_usual = false;   // nobody has said how many there are
  bool slots_are_chosen = false;  // by --include or --exclude, among others

  // Returns the name as ssh takes it: "me@host".
  std::string login() const { return user.empty() ? name : user + "@" + name; }
};

// Comments (#) and empty lines are skipped, and Open MPI's max_slots is checked and has no effect. Throws ConfigError that
// names the file, the line, the part of it that is wrong, and what is accepted.
std::vector<Host> parse_hostfile(const std::string& path);
std::vector<Host> parse_hosts(const std::string& text, const std::string& path);
// DeepSpeed's usual file, which nobody has named (core/found_file.h); empty if it is not there.
std::vector<Host> parse_usual_hostfile(const std::string& path = "/job/hostfile");

// "a:0,1@[fd00::1]:0,1": every host with its slots. A host may be named several times, a slot only once.
std::vector<Host> parse_world(const std::string& text);
std::string world_of(const std::vector<Host>& hosts);

// At most one of the two may be given. A host without ":" means all of its slots. Hosts may be named several times, slots once.
std::vector<Host> filter_hosts(const std::vector<Host>& hosts, const std::string& include, const std::string& exclude);

// Throws ConfigError, which begins with `flag`, for a host that other programs than ssh would take for something else.
void refuse_hosts_only_for_ssh(const std::string& flag, const std::vector<Host>& hosts, bool takes_users);

// Checks whether a text is written as the name or the address of a host is: without a scheme, a user, a port or brackets.
bool can_name_host(const std::string& text);

// "localhost", a loopback address, or a name of this machine.
bool is_this_host(const std::string& name);

}  // namespace trivet::cli

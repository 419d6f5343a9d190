// The hosts of a job, as checkpoints see them: which ranks share a directory, and how ranks send one another parts of files.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts/host_map.h"
#include "comm/process_group.h"

namespace trivet::checkpoint {

struct JobHosts {
  comm::HostMap map{.ranks = {{0}}};
  std::vector<std::string> names{"this host"};  // by host
  // Collective, as ProcessGroup::all_to_all_v, of bytes. Not needed on one host.
  std::function<void(std::span<const std::byte> out, std::span<std::byte> in, const comm::ExchangeCounts& counts)> exchange;

  int count() const { return map.hosts(); }
  int self() const { return map.host; }
  // The first rank of each host creates and renames directories there.
  bool leads() const { return map.line == 0; }
  int host_of(int rank) const;
  // The rank of another host that works for this one there; hosts may have different numbers of ranks.
  int partner_of(int rank, int host) const;
  std::string names_of(const std::vector<int>& hosts) const;  // "node1, node2"
};

// Collective. `name` is this rank's host; hosts of equal names are told apart. The group must outlive the result.
JobHosts find_hosts(comm::ProcessGroup& group, const std::string& name);

}  // namespace trivet::checkpoint

#include "engine/checkpoint/job_hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/member.h"
#include "comm/participants.h"

namespace trivet::checkpoint {

int JobHosts::host_of(int rank) const {
  for (int host = 0; host < count(); ++host)
    if (std::binary_search(map.ranks[host].begin(), map.ranks[host].end(), rank)) return host;
  throw std::logic_error(fmt::format("checkpoint: rank {} is on no host", rank));
}

int JobHosts::partner_of(int rank, int host) const {
  const std::vector<int>&own = map.ranks[host_of(rank)], &theirs = map.ranks[host];
  const auto line = static_cast<size_t>(std::lower_bound(own.begin(), own.end(), rank) - own.begin());
  return theirs[line % theirs.size()];
}

std::string JobHosts::names_of(const std::vector<int>& hosts) const {
  std::string text;
  for (int host : hosts) text += (text.empty() ? "" : ", ") + names[host];
  return text;
}

JobHosts find_hosts(comm::ProcessGroup& group, const std::string& name) {
  const auto identities = comm::over_group(group).gather(name + "\n" + comm::this_boot());
  std::map<std::string, int> numbers;
  std::vector<int> host_of;
  JobHosts hosts;
  hosts.names.clear();
  for (const std::string& identity : identities) {
    const auto [known, added] = numbers.emplace(identity, static_cast<int>(numbers.size()));
    host_of.push_back(known->second);
    if (added) hosts.names.push_back(identity.substr(0, identity.find('\n')));
  }
  hosts.map = comm::map_hosts(host_of, group.rank());
  hosts.exchange = [&group](std::span<const std::byte> out, std::span<std::byte> in, const comm::ExchangeCounts& counts) {
    const auto stream = make_inline_stream();
    group.all_to_all_v({out.data(), DType::UInt8, {static_cast<int64_t>(out.size())}},
                       {in.data(), DType::UInt8, {static_cast<int64_t>(in.size())}}, counts, *stream);
    stream->synchronize();
  };
  return hosts;
}

}  // namespace trivet::checkpoint

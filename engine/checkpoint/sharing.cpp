#include "engine/checkpoint/sharing.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

std::string mark_of(const StoreDirectory& directory, int host) {
  return directory.path(fmt::format("{}mark-{}-{}", kTemporary, directory.options.run_id, host));
}

// -1: none. Without replicas, a network file system may take a moment to show what another host has written.
int host_whose_mark_is_here(const StoreDirectory& directory) {
  const JobHosts& hosts = directory.options.hosts;
  if (!directory.per_host() && hosts.self() == 0) return 0;
  const auto deadline =
      directory.options.clock->now() + (directory.per_host() ? std::chrono::milliseconds(0) : directory.options.lock_patience);
  for (;; directory.options.clock->sleep(kLockInterval)) {
    for (int host = 0; host < (directory.per_host() ? hosts.count() : 1); ++host)
      if (host != hosts.self() && directory.files.kind(mark_of(directory, host)) != EntryKind::Missing) return host;
    if (directory.options.clock->now() >= deadline) return -1;
  }
}

[[noreturn]] void refuse_to_share(const StoreDirectory& directory, int host, int other) {
  const auto& names = directory.options.hosts.names;
  const std::string &first = names[std::min(host, other)], &second = names[std::max(host, other)];
  if (directory.in_memory())
    throw ConfigError(fmt::format("{}: \"{}\" is the same directory on hosts {} and {}; name one in the memory of each host",
                                  directory.key("directory"), directory.options.directory, first, second));
  throw ConfigError(
      fmt::format("{0}: {1} needs a directory on each host, but hosts {2} and {3} have the same {4} \"{5}\"; set {0} to 0, or "
                  "name a directory of the hosts' own disks",
                  directory.key("replicas"), directory.options.replicas, first, second, directory.key("directory"),
                  directory.options.directory));
}

}  // namespace

// Leaders leave a mark, and whoever sees that of another host shares its directory.
void check_sharing(StoreDirectory& directory, const Participants& ranks) {
  const JobHosts& hosts = directory.options.hosts;
  directory.on_leaders(ranks, [&] {
    write_text(directory.files, mark_of(directory, hosts.self()), "");
    directory.files.sync_directory(directory.options.directory);
    return "";
  });
  const auto seen = together(ranks, [&] { return hosts.leads() ? std::to_string(host_whose_mark_is_here(directory)) : ""; });
  if (directory.leads(ranks))
    directory.best_effort("removing a mark", [&] { directory.files.remove(mark_of(directory, hosts.self())); });
  for (int host = 1; host < hosts.count(); ++host) {
    const int other = std::stoi(seen[hosts.map.ranks[host].front()]);
    if (directory.per_host() && other >= 0) refuse_to_share(directory, host, other);
    if (!directory.per_host() && other < 0)
      throw ConfigError(
          fmt::format("checkpoint.directory: \"{}\" on host {} is not the directory of that name on host {}; name "
                      "one on a file system that all hosts share, or set checkpoint.replicas to 1: then each "
                      "host keeps its own files and those of a neighbour",
                      directory.options.directory, hosts.names[host], hosts.names[0]));
  }
}

}  // namespace trivet::checkpoint

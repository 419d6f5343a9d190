#include "engine/checkpoint/lineage.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {
namespace {

constexpr const char* kOrigin = ".origin";
constexpr int64_t kDiskLimitBytes = 4096;  // PATH_MAX
constexpr int64_t kOriginLimitBytes = 128;

[[noreturn]] void refuse_different_runs(const StoreDirectory& directory,
                                        const std::map<std::string, std::set<int>>& hosts_by_origin, const Lineage& known) {
  std::string found;
  for (const auto& [origin, hosts] : hosts_by_origin) {
    if (origin == known.origin) continue;
    found += fmt::format("{}of run {} on {}", found.empty() ? "" : ", ", origin,
                         directory.options.hosts.names_of({hosts.begin(), hosts.end()}));
  }
  if (known.origin.empty())
    throw ConfigError(
        fmt::format("{}: \"{}\" holds steps of different runs: {}; empty it on the hosts whose steps are not wanted",
                    directory.key("directory"), directory.options.directory, found));
  throw ConfigError(
      fmt::format("{}: \"{}\" holds steps {}, but the steps of checkpoint.directory are of run {}; if those in memory are not "
                  "wanted, remove that directory on these hosts",
                  directory.key("directory"), directory.options.directory, found, known.origin));
}

}  // namespace

FoundSteps find_steps(StoreDirectory& directory, const Participants& ranks) {
  FoundSteps found;
  const auto add = [&](const StepAge& age, const std::string& origin, int host) {
    found.newest = std::max(found.newest, age);
    found.hosts_by_origin[origin].insert(host);
  };
  if (directory.per_host()) {
    for (const StepVersion& version : gather_versions(directory.copies, directory.options.hosts, ranks))
      for (const auto& [host, names] : version.files)
        if (version.is_readable()) add({version.id.start, version.id.step}, version.origin, host);
    return found;
  }
  std::istringstream text(together(ranks, [&]() -> std::string {
    const auto newest = ranks.rank == 0 ? directory.copies.newest() : std::nullopt;
    return newest ? fmt::format("{} {} {}", newest->id.start, newest->id.step, newest->origin) : "";
  })[0]);
  StepAge age;
  std::string origin;
  if (text >> age.start >> age.step >> origin) add(age, origin, 0);
  return found;
}

// A host that joins the job may hold steps of another run, which must not be taken for later ones of this job.
Lineage lineage_after(const StoreDirectory& directory, const FoundSteps& found, const Lineage& known) {
  const auto& hosts = found.hosts_by_origin;
  const bool of_another_run = !hosts.empty() && !known.origin.empty() && hosts.begin()->first != known.origin;
  if (hosts.size() > 1 || of_another_run) refuse_different_runs(directory, hosts, known);
  return {.origin = hosts.empty() ? known.origin : hosts.begin()->first,
          .start = std::max({int64_t{1}, known.start, found.newest.start + 1})};
}

void remember_lineage(StoreDirectory& directory, const Lineage& lineage, const Participants& ranks) {
  directory.on_leaders(ranks, [&]() -> std::string {
    const std::string temporary = std::string(kTemporary) + "origin";
    write_text(directory.files, directory.path(temporary), fmt::format("{} {}\n", lineage.origin, lineage.start));
    directory.files.rename(directory.path(temporary), directory.path(kOrigin));
    directory.files.sync_directory(directory.options.directory);
    return "";
  });
}

// If hosts remember different runs, the first one's counts: the steps of another one are then refused.
Lineage remembered_lineage(const StoreDirectory& directory, const Participants& ranks, const std::string& origin) {
  const auto texts = directory.on_leaders(ranks, [&]() -> std::string {
    if (directory.files.kind(directory.path(kOrigin)) == EntryKind::Missing) return "";
    return read_text(directory.files, directory.path(kOrigin), kOriginLimitBytes);
  });
  Lineage lineage;
  for (const std::string& text : texts) {
    Lineage one;
    std::istringstream(text) >> one.origin >> one.start;
    if (!is_safe_run_id(one.origin) || (!origin.empty() && one.origin != origin)) continue;
    if (lineage.origin.empty()) lineage.origin = one.origin;
    if (one.origin == lineage.origin) lineage.start = std::max(lineage.start, one.start);
  }
  return lineage;
}

void remember_disk(StoreDirectory& directory, const std::string& disk, const Participants& ranks) {
  directory.on_leaders(ranks, [&]() -> std::string {
    directory.best_effort("writing .disk", [&] {
      write_text(directory.files, directory.path(kDisk), disk);
    });  // there may be no room before a step gives way
    return "";
  });
}

std::set<std::string> remembered_disks(const StoreDirectory& directory, const Participants& ranks) {
  const auto texts = directory.on_leaders(ranks, [&]() -> std::string {
    if (list_steps(directory.files, directory.options.directory).empty() ||
        directory.files.kind(directory.path(kDisk)) == EntryKind::Missing)
      return "";
    return read_text(directory.files, directory.path(kDisk), kDiskLimitBytes);
  });
  std::set<std::string> disks(texts.begin(), texts.end());
  disks.erase("");
  return disks;
}

}  // namespace trivet::checkpoint

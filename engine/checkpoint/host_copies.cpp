#include "engine/checkpoint/host_copies.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "core/error.h"
#include "engine/checkpoint/parallel.h"
#include "engine/checkpoint/shard_file.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {
namespace {

constexpr size_t kFilesInMessage = 4;

using HostsByFile = std::map<std::string, std::set<int>>;

void on_leaders(const HostDirectory& directory, const std::function<void()>& work) {
  together(directory.ranks, [&]() -> std::string {
    if (directory.hosts.leads()) work();
    return "";
  });
}

void remove_if_present(FileSystem& files, const std::string& path) {
  if (files.kind(path) != EntryKind::Missing) remove_tree(files, path);
}

// Reads a file whose size and hash are known.
bool has_contents(FileSystem& files, const std::string& path, const StoredFile& stored) {
  try {
    const auto file = files.open(path);
    if (file->size() != stored.bytes) return false;
    alignas(64) XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    std::vector<std::byte> buffer(kBlockBytes);
    for (int64_t at = 0; at < stored.bytes; at += kBlockBytes) {
      const std::span data(buffer.data(), static_cast<size_t>(std::min(kBlockBytes, stored.bytes - at)));
      file->read_exactly(at, data);
      XXH3_64bits_update(&hash, data.data(), data.size());
    }
    return XXH3_64bits_digest(&hash) == stored.xxh3;
  } catch (const FileError&) {
    return false;  // as if it were damaged
  }
}

// One version, on its way to all hosts.
class CompletionOfStep {
 public:
  CompletionOfStep(const HostDirectory& directory, const Completion& completion)
      : directory_(directory),
        completion_(completion),
        files_to_read_(completion.needed),
        hosts_(directory.hosts),
        version_(completion.version),
        final_(directory.path + "/" + step_directory_name(version_.id.step)),
        temporary_(directory.path + "/" + completion.temporary) {}

  void run() {
    on_leaders(directory_, [&] {
      remove_if_present(directory_.files, temporary_);
      if (!has_copy(hosts_.self())) directory_.files.create_directory(temporary_);
    });
    transfer_manifest();
    together(directory_.ranks, [&]() -> std::string {
      read_manifest();
      return "";
    });
    HostsByFile present;
    for (const auto& [host, names] : version_.files)
      for (const std::string& name : names) present[name].insert(host);
    refuse_if_lacking(present, present);
    const HostsByFile valid = find_valid();
    refuse_if_lacking(valid, present);
    if (completion_.make_room) on_leaders(directory_, completion_.make_room);
    find_needed();
    transfer_files(valid);
    on_leaders(directory_, [&] { put_in_place(valid); });
  }

 private:
  bool has_copy(int host) const { return version_.files.contains(host); }
  // Where a file that a host lacks goes first.
  std::string target_on(int host, const std::string& name) const {
    return has_copy(host) ? fmt::format("{}/.tmp-{}", final_, name) : fmt::format("{}/{}", temporary_, name);
  }

  void transfer_manifest() const {
    std::vector<int> holders;
    for (const auto& [host, names] : version_.files) holders.push_back(host);
    std::vector<FileTransfer> transfers;
    for (int host = 0; host < hosts_.count(); ++host)
      if (!has_copy(host))
        transfers.push_back({.from = hosts_.map.ranks[holders[host % holders.size()]].front(),
                             .to = hosts_.map.ranks[host].front(),
                             .source = final_ + "/" + kManifestName,
                             .target = target_on(host, kManifestName),
                             .bytes = version_.id.manifest_bytes,
                             .xxh3 = version_.id.manifest_xxh3});
    transfer(directory_.files, directory_.ranks, hosts_, transfers);
  }

  void read_manifest() {
    const std::string path = (has_copy(hosts_.self()) ? final_ : temporary_) + "/" + kManifestName;
    try {
      manifest_ = parse_manifest(read_text(directory_.files, path, kManifestLimitBytes), path);
    } catch (const FileError& error) {
      throw CheckpointError(ExitCode::CheckpointCorrupt, error.what());
    }
  }

  void refuse_if_lacking(const HostsByFile& usable, const HostsByFile& present) const {
    std::string text;
    size_t lacking = 0;
    for (const auto& [name, stored] : manifest_.files) {
      if (usable.contains(name) || lacking++ >= kFilesInMessage) continue;
      const auto there = present.find(name);
      const std::string saved_on = manifest_.hosts_of(name);
      text +=
          fmt::format("; {} is {}{}", name,
                      there == present.end() ? "on none of them"
                                             : "damaged on " + hosts_.names_of({there->second.begin(), there->second.end()}),
                      saved_on.empty() ? "" : fmt::format(" (it was saved on {})", saved_on));
    }
    if (lacking == 0) return;
    if (lacking > kFilesInMessage) text += fmt::format("; and {} more", lacking - kFilesInMessage);
    std::vector<int> all;
    for (int host = 0; host < hosts_.count(); ++host) all.push_back(host);
    throw CheckpointError(ExitCode::CheckpointCorrupt,
                          fmt::format("{}: {} of {} files of step {} cannot be had from the hosts that are there, {}{}", final_,
                                      lacking, manifest_.files.size(), version_.id.step, hosts_.names_of(all), text));
  }

  // The ranks of a host share its files.
  HostsByFile find_valid() const {
    const auto here = version_.files.find(hosts_.self());
    const size_t line = hosts_.map.line, lines = hosts_.map.here().size();
    std::vector<std::string> mine;
    size_t index = 0;
    for (const auto& [name, stored] : manifest_.files)
      if (here != version_.files.end() && here->second.contains(name) && index++ % lines == line) mine.push_back(name);
    const auto texts = together(directory_.ranks, [&] {
      std::vector<char> valid(mine.size());
      run_jobs(mine.size(), 0, [&](size_t i) {
        valid[i] = has_contents(directory_.files, final_ + "/" + mine[i], manifest_.files.at(mine[i])) ? 1 : 0;
      });
      std::string names;
      for (size_t i = 0; i < mine.size(); ++i)
        if (valid[i] != 0) names += mine[i] + "\n";
      return names;
    });
    HostsByFile result;
    for (int rank = 0; rank < directory_.ranks.size; ++rank) {
      std::istringstream names(texts[rank]);
      for (std::string name; names >> name;) result[name].insert(hosts_.host_of(rank));
    }
    return result;
  }

  void find_needed() {
    const auto texts = together(directory_.ranks, [&] {
      std::string text;
      if (files_to_read_)
        for (const std::string& name : files_to_read_(manifest_)) text += name + "\n";
      return text;
    });
    needed_.assign(hosts_.count(), {});
    for (int rank = 0; rank < directory_.ranks.size; ++rank) {
      std::istringstream names(texts[rank]);
      for (std::string name; names >> name;) needed_[hosts_.host_of(rank)].insert(name);
    }
  }

  // A damaged file that is there would be in the way of the others, whether or not a rank reads it.
  bool must_get(int host, const std::string& name, const std::set<int>& valid_on) const {
    if (valid_on.contains(host)) return false;
    const auto there = version_.files.find(host);
    return !files_to_read_ || needed_[host].contains(name) || (there != version_.files.end() && there->second.contains(name));
  }

  // Hosts, and the ranks of a host, take turns in sending.
  void transfer_files(const HostsByFile& valid) const {
    std::vector<FileTransfer> transfers;
    for (int host = 0; host < hosts_.count(); ++host) {
      size_t index = 0;
      for (const auto& [name, stored] : manifest_.files) {
        const std::vector<int> holders(valid.at(name).begin(), valid.at(name).end());
        if (!must_get(host, name, valid.at(name))) continue;
        const std::vector<int>&senders = hosts_.map.ranks[holders[host % holders.size()]], &here = hosts_.map.ranks[host];
        transfers.push_back({.from = senders[index % senders.size()],
                             .to = here[index % here.size()],
                             .source = final_ + "/" + name,
                             .target = target_on(host, name),
                             .bytes = stored.bytes,
                             .xxh3 = stored.xxh3});
        ++index;
      }
    }
    transfer(directory_.files, directory_.ranks, hosts_, transfers);
  }

  // A host that has some of the version gets files into its directory of the step, another one the whole directory.
  void put_in_place(const HostsByFile& valid) const {
    FileSystem& files = directory_.files;
    if (has_copy(hosts_.self())) {
      for (const auto& [name, holders] : valid)
        if (must_get(hosts_.self(), name, holders)) files.rename(target_on(hosts_.self(), name), final_ + "/" + name);
      return files.sync_directory(final_);
    }
    files.sync_directory(temporary_);
    const std::string displaced = directory_.path + "/" + displaced_name(version_.id.step);
    const bool other = files.kind(final_) != EntryKind::Missing;  // another version
    if (other) {
      remove_if_present(files, displaced);
      files.rename(final_, displaced);
    }
    files.rename(temporary_, final_);
    files.sync_directory(directory_.path);
    if (!other) return;
    try {
      remove_tree(files, displaced);
    } catch (const FileError&) {  // NOLINT(bugprone-empty-catch): the step is in place; the next start removes this
    }
  }

  const HostDirectory& directory_;
  const Completion& completion_;
  const FilesToRead& files_to_read_;  // empty: all
  const JobHosts& hosts_;
  const StepVersion& version_;
  const std::string final_, temporary_;
  Manifest manifest_;
  std::vector<std::set<std::string>> needed_;  // by host, if there are files_to_read_
};

}  // namespace

std::vector<int> holders_of(int rank, const JobHosts& hosts, int replicas) {
  std::vector<int> holders;
  const int own = hosts.host_of(rank);
  for (int k = 0; k <= std::min(replicas, hosts.count() - 1); ++k) holders.push_back((own + k) % hosts.count());
  return holders;
}

std::vector<HostFiles> files_by_host(const JobHosts& hosts, int replicas) {
  std::vector<HostFiles> result;
  for (const std::string& name : hosts.names) result.push_back({name, {}});
  for (int host = 0; host < hosts.count(); ++host)
    for (int rank : hosts.map.ranks[host])
      for (int holder : holders_of(rank, hosts, replicas)) result[holder].files.push_back(shard_file_name(rank));
  return result;
}

void copy_to_neighbours(const HostDirectory& directory, const std::string& temporary, const StoredFile& own, int replicas) {
  const auto sizes = together(directory.ranks, [&] { return fmt::format("{} {}", own.bytes, own.xxh3); });
  std::vector<FileTransfer> transfers;
  for (int rank = 0; rank < directory.ranks.size; ++rank) {
    const std::string path = directory.path + "/" + temporary + "/" + shard_file_name(rank);
    FileTransfer file{.from = rank, .to = rank, .source = path, .target = path};
    std::istringstream(sizes[rank]) >> file.bytes >> file.xxh3;
    for (int host : holders_of(rank, directory.hosts, replicas)) {
      if (host == directory.hosts.host_of(rank)) continue;
      file.to = directory.hosts.partner_of(rank, host);
      transfers.push_back(file);
    }
  }
  transfer(directory.files, directory.ranks, directory.hosts, transfers);
}

void complete_on_all_hosts(const HostDirectory& directory, const Completion& completion) {
  const StepVersion& version = completion.version;
  if (!version.is_readable())
    throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("{}/{}: there is no valid manifest", directory.path,
                                                                   step_directory_name(version.id.step)));
  CompletionOfStep(directory, completion).run();
}

}  // namespace trivet::checkpoint

#include "engine/checkpoint/step_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

#include "core/error.h"
#include "engine/checkpoint/shard_file.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {
namespace {

double mib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

std::string StepWriter::temporary_name(int64_t step) const {
  return fmt::format("{}{}-{}", kTemporary, step_directory_name(step), directory_.options.run_id);
}

// A host commits a step only when all hosts have everything for it. If they were stopped when some had committed it and some
// had not, the others do it now. The manifest is what a host writes last.
void StepWriter::finish_commits(const Participants& ranks) {
  const auto versions = gather_versions(directory_.copies, directory_.options.hosts, ranks);
  directory_.on_leaders(ranks, [&] {
    for (const DirectoryEntry& entry : directory_.files.list(directory_.options.directory)) {
      if (!entry.name.starts_with(std::string(kTemporary) + "step-")) continue;
      const VersionId prepared = directory_.copies.version_in(entry.name);
      const bool committed =
          prepared.manifest_bytes > 0 && std::any_of(versions.begin(), versions.end(), [&](const StepVersion& version) {
            return version.id == prepared && !version.files.contains(directory_.options.hosts.self());
          });
      if (committed) commit(prepared.step, entry.name, false);
    }
    return "";
  });
}

std::vector<std::string> StepWriter::write_files(const SaveRequest& request, const std::string& temporary,
                                                 const Participants& ranks) {
  Manifest own;
  const auto shares = together(ranks, [&] {
    own = write_share(request, directory_.path(temporary), ranks.rank);
    return to_text(own);
  });
  if (directory_.per_host())
    copy_to_neighbours(directory_.host_directory(ranks), temporary, own.files.begin()->second, directory_.options.replicas);
  return shares;
}

Manifest StepWriter::write_share(const SaveRequest& request, const std::string& temporary, int rank) const {
  try {
    return write_shard(directory_.files, temporary, {directory_.options.run_id, request.step, rank}, request.pieces);
  } catch (const FileError& error) {
    if (error.error_number() != ENOSPC) throw;
    int64_t needed = 0;
    for (const Piece& piece : request.pieces) needed += piece.data.bytes();
    throw_not_written(fmt::format("{}; this rank needs {:.1f} MiB, {:.1f} MiB are free", error.what(), mib(needed),
                                  mib(directory_.files.free_bytes(directory_.options.directory))));
  }
}

std::string StepWriter::write_manifest(const SaveRequest& request, const Lineage& lineage, const std::string& temporary,
                                       const std::vector<std::string>& shares, int64_t created) const {
  Manifest manifest;
  manifest.run_id = directory_.options.run_id;
  manifest.step = request.step;
  manifest.created = created;
  manifest.ranks = static_cast<int64_t>(shares.size());
  manifest.config = request.config;
  manifest.state = request.state;
  for (const std::string& share : shares) merge(manifest, parse_share(share, "a rank's share"));
  check_partition(manifest, "the ranks' shares");
  manifest.origin = lineage.origin;
  manifest.start = lineage.start;
  if (directory_.per_host()) manifest.hosts = files_by_host(directory_.options.hosts, directory_.options.replicas);
  const std::string text = to_text(manifest);
  write_text(directory_.files, directory_.path(temporary) + "/" + kManifestName, text);
  directory_.files.sync_directory(directory_.path(temporary));
  return text.substr(0, text.find('\n'));  // its checksum
}

void StepWriter::commit(int64_t step, const std::string& temporary, bool is_broken) {
  const std::string final_name = step_directory_name(step);
  directory_.copies.forget(final_name);
  directory_.copies.forget(displaced_name(step));
  if (directory_.files.kind(directory_.path(final_name)) != EntryKind::Missing) {
    if (directory_.files.kind(directory_.path(temporary)) == EntryKind::Missing)
      throw FileError("find", directory_.path(temporary), ENOENT);
    const std::string aside = is_broken ? broken_name(step) : displaced_name(step);
    directory_.remove_if_there(aside);
    directory_.files.rename(directory_.path(final_name), directory_.path(aside));
  }
  directory_.files.rename(directory_.path(temporary), directory_.path(final_name));
  directory_.files.sync_directory(directory_.options.directory);
}

}  // namespace trivet::checkpoint

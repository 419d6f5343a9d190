#include "engine/checkpoint/step_copies.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/run_state.h"
#include "engine/checkpoint/steps.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kNoOrigin = "?";  // no run has this name

}  // namespace

bool StepVersion::is_complete() const {
  std::set<std::string> all;
  for (const auto& [host, names] : files) all.insert(names.begin(), names.end());
  return is_readable() && all.size() == file_count;
}

StepCopies::FromManifest StepCopies::read_manifest(const std::string& name, std::optional<int64_t> step) {
  if (const auto known = known_.find(name); step && known != known_.end()) return known->second;
  FromManifest read;
  read.version.id.step = step.value_or(0);
  try {
    const std::string path = directory_ + "/" + name + "/" + kManifestName;
    const std::string text = read_text(files_, path, kManifestLimitBytes);
    const Manifest manifest = parse_manifest(text, path);
    const RunState state = parse_run_state(manifest.state, path + ": state");
    if (step && manifest.step != *step) return read;
    read.version = {
        .id = {manifest.start, manifest.step, static_cast<int64_t>(text.size()), XXH3_64bits(text.data(), text.size())},
        .content = {state.updates, state.clean()},
        .origin = manifest.origin.empty() ? manifest.run_id : manifest.origin,
        .file_count = manifest.files.size(),
        .files = {}};
    for (const auto& [file, stored] : manifest.files) read.files.insert(file);
  } catch (const CheckpointError& error) {
    if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
  } catch (const FileError&) {  // like a manifest that is damaged: this copy is of no use
  }
  if (step && read.version.is_readable()) known_[name] = read;
  return read;
}

std::optional<StepVersion> StepCopies::newest() {
  std::optional<StepVersion> newest;
  for (const StepDirectory& step : list_steps(files_, directory_)) {
    FromManifest read = read_manifest(step.name, step.step);
    if (read.version.is_readable() && (!newest || newest->id < read.version.id)) newest = std::move(read.version);
  }
  return newest;
}

std::string StepCopies::describe() {
  std::string text;
  for (const StepDirectory& step : list_steps(files_, directory_)) {
    const FromManifest manifest = read_manifest(step.name, step.step);
    const StepVersion& version = manifest.version;
    std::string names;
    size_t count = 0;
    for (const DirectoryEntry& entry : files_.list(directory_ + "/" + step.name)) {
      if (entry.kind != EntryKind::File || !manifest.files.contains(entry.name)) continue;
      names += " " + entry.name;
      ++count;
    }
    text += fmt::format("{} {} {} {} {} {} {} {} {}{}\n", version.id.start, version.id.step, version.id.manifest_bytes,
                        version.id.manifest_xxh3, version.content.updates, version.content.clean ? 1 : 0,
                        version.origin.empty() ? kNoOrigin : version.origin, version.file_count, count, names);
  }
  return text;
}

std::vector<StepVersion> gather_versions(StepCopies& copies, const JobHosts& hosts, const Participants& ranks) {
  const auto texts = together(ranks, [&]() -> std::string {
    if (!hosts.leads()) return "";
    try {
      return copies.describe();
    } catch (const FileError& error) {
      throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("the checkpoints of host {} cannot be listed: {}",
                                                                     hosts.names[hosts.self()], error.what()));
    }
  });
  std::map<VersionId, StepVersion> versions;
  for (int host = 0; host < hosts.count(); ++host) {
    std::istringstream text(texts[hosts.map.ranks[host].front()]);
    StepVersion read;
    size_t count = 0;
    while (text >> read.id.start >> read.id.step >> read.id.manifest_bytes >> read.id.manifest_xxh3 >> read.content.updates >>
           read.content.clean >> read.origin >> read.file_count >> count) {
      if (read.origin == kNoOrigin) read.origin.clear();
      StepVersion& version = versions.emplace(read.id, read).first->second;
      std::set<std::string>& names = version.files[host];
      for (std::string name; count > 0 && text >> name; --count) names.insert(name);
    }
  }
  std::vector<StepVersion> newest_first;
  for (auto& [id, version] : versions) newest_first.push_back(std::move(version));
  std::reverse(newest_first.begin(), newest_first.end());
  return newest_first;
}

}  // namespace trivet::checkpoint

// Tells which files of each step exist, and on which hosts, if every host has a directory of its own.
//
//   version   one save of a step: its manifest is the same on all hosts, to the last bit
//   copy      what one host's directory has of a version: the manifest, and some or all of its files
//
// A step can have several versions: a host that was lost still has the one that it took part in, and the others have meanwhile
// started again and saved that step once more.
#pragma once

#include <compare>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/retention.h"
#include "engine/checkpoint/steps.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

struct VersionId {
  int64_t start = 0, step = 0;  // as in the manifest
  int64_t manifest_bytes = 0;   // size of its text; 0: it cannot be read
  uint64_t manifest_xxh3 = 0;
  auto operator<=>(const VersionId&) const = default;  // NOLINT(modernize-use-nullptr): in the generated comparison
};

struct StepVersion {
  VersionId id;
  SavedStep::Content content;
  std::string origin;                          // as in the manifest, or its run_id; empty: not readable
  size_t file_count = 0;                       // according to the manifest
  std::map<int, std::set<std::string>> files;  // by host: names of those that are there, valid or not
  bool is_readable() const { return id.manifest_bytes > 0; }
  bool is_complete() const;  // every file is on some host
};

// Looks into one host's directory. Remembers manifests that are valid, so that each is read once.
class StepCopies {
 public:
  StepCopies(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {}

  // The steps here, as text for gather_versions. Throws FileError.
  std::string describe();
  // The newest step here that can be read: of the latest start, the one with the greatest number.
  std::optional<StepVersion> newest();
  // The version of a committed step here; not readable if its manifest is not valid.
  VersionId version_of(const StepDirectory& step) { return read_manifest(step.name, step.step).version.id; }
  // The version whose manifest is in this directory; not readable if there is none that is valid.
  VersionId version_in(const std::string& name) { return read_manifest(name, std::nullopt).version.id; }
  // The directory of a step was replaced or removed.
  void forget(const std::string& name) { known_.erase(name); }

 private:
  struct FromManifest {
    StepVersion version;  // without files
    std::set<std::string> files;
  };
  // `step`: that in the name of the directory, if it has one.
  FromManifest read_manifest(const std::string& name, std::optional<int64_t> step);

  FileSystem& files_;
  std::string directory_;
  std::map<std::string, FromManifest> known_;  // by the name of the directory
};

// Collective: the versions of all hosts, newest first. Versions of a later start are newer, whatever their steps: what
// an earlier start has saved after the step from which a later one went on is of no use any more. Throws
// CheckpointError (CheckpointCorrupt) if a host's directory cannot be listed.
std::vector<StepVersion> gather_versions(StepCopies& copies, const JobHosts& hosts, const Participants& ranks);

}  // namespace trivet::checkpoint

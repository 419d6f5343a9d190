// Files of a step on other hosts than those that wrote them, if every host has a directory of its own (checkpoint.replicas).
//
//   saving    each rank's file goes to the next hosts as well, before the step is committed anywhere:
//             replicas 1    host 0: files of 0 and 2    host 1: files of 1 and 0    host 2: files of 2 and 1
//   loading   each host gets the files that it lacks from hosts that have them, and then reads its own directory
//
// All functions are collective, and throw the same on all ranks.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/file_transfer.h"
#include "engine/checkpoint/job_hosts.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/step_copies.h"
#include "engine/checkpoint/together.h"

namespace trivet::checkpoint {

struct HostDirectory {
  FileSystem& files;
  const std::string& path;  // the same on all hosts
  const JobHosts& hosts;
  const Participants& ranks;
};

// The hosts that hold the file of a rank: its own, and `replicas` after it, or all if there are fewer.
std::vector<int> holders_of(int rank, const JobHosts& hosts, int replicas);
// Returns the files that each host is given of a step that all ranks save.
std::vector<HostFiles> files_by_host(const JobHosts& hosts, int replicas);
// Copies what this rank has written (`own`) into `temporary` of its host's directory to the same place on the hosts after it.
void copy_to_neighbours(const HostDirectory& directory, const std::string& temporary, const StoredFile& own, int replicas);

// The files of a step that a rank will read.
using FilesToRead = std::function<std::set<std::string>(const Manifest&)>;

struct Completion {
  const StepVersion& version;
  std::string temporary;    // names the directory in which a host that has nothing of it gathers files
  FilesToRead needed = {};  // empty: each host gets all files
  // Called on leaders when every file is known to be valid on some host, before any is copied.
  std::function<void()> make_room = {};
};

// Gives each host the files of a version that it lacks, or has damaged, under the name of the step. Compares every checksum
// of files. Throws CheckpointError (CheckpointCorrupt), naming files and hosts, if a file is on none of the hosts or valid on
// none.
void complete_on_all_hosts(const HostDirectory& directory, const Completion& completion);

}  // namespace trivet::checkpoint

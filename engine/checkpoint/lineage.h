// Finds out which run the steps of a directory belong to, and which start of it made them.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "engine/checkpoint/store_directory.h"

namespace trivet::checkpoint {

// The facts that all steps of a job share, however often it was started.
struct Lineage {
  std::string origin;  // the run_id of its first start; empty: no step was found, so this start may be the first
  int64_t start = 0;   // the number of this start, from 1: more than that of any start before it
};

// A step of a later start is newer, whatever its number.
struct StepAge {
  // -1: older than any step.
  int64_t start = -1, step = -1;
  auto operator<=>(const StepAge&) const = default;  // NOLINT(modernize-use-nullptr): in the generated comparison
};

// Valid manifests of all hosts or, in a directory that they share, that of the newest step.
struct FoundSteps {
  std::map<std::string, std::set<int>> hosts_by_origin;
  StepAge newest;
};

// The functions with `ranks` are called by all ranks together.
FoundSteps find_steps(StoreDirectory& directory, const Participants& ranks);
// Returns the lineage of the start that found these steps; without origin if there are none. `known`: the lineage of
// the job's other store. Throws ConfigError if hosts hold steps of different runs, or of another run than `known`.
Lineage lineage_after(const StoreDirectory& directory, const FoundSteps& found, const Lineage& known);

// A file in the directory tells of starts that have saved nothing in it. The first function writes the lineage of this start;
// the other reads what an earlier one wrote: no origin if there was none. If `origin` is not empty, only what is of this run.
void remember_lineage(StoreDirectory& directory, const Lineage& lineage, const Participants& ranks);
Lineage remembered_lineage(const StoreDirectory& directory, const Participants& ranks, const std::string& origin);
// In memory: a file in the directory names the directory on disk of the run whose steps are here, by its absolute path. The
// first function writes it; the other returns what hosts with steps have, each once.
void remember_disk(StoreDirectory& directory, const std::string& disk, const Participants& ranks);
std::set<std::string> remembered_disks(const StoreDirectory& directory, const Participants& ranks);

}  // namespace trivet::checkpoint

// Some ranks of the job that run operations of their own, independent of all other ranks.
//
// Communicator::add_process_set makes one. The default-constructed set stands for all ranks.
#pragma once

#include <vector>

namespace trivet::hvd {

struct ProcessSet {
  int id = 0;
  std::vector<int> ranks;  // world ranks, ascending; empty in the set of all ranks
  int own_rank = -1;       // this rank's place in `ranks`, -1 if it is not in the set

  bool global() const { return id == 0; }
  bool included() const { return global() || own_rank >= 0; }
};

}  // namespace trivet::hvd

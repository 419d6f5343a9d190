// Counts, at one node, which ranks below it have come to each meeting. A meeting has a name; all ranks of the job come to it.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "comm/control/message.h"

namespace trivet::comm::control {

class Meetings {
 public:
  // `ranks_below` is the number of ranks in this node's part of the tree, with itself.
  explicit Meetings(int ranks_below = 1) : ranks_below_(ranks_below) {}
  // False if one of the ranks has come before: ranks come to a meeting once.
  bool arrive(const std::string& meeting, const std::vector<int>& ranks);
  bool complete(const std::string& meeting) const;
  // Takes the arrivals not yet told to the parent: of all meetings, or only of those complete below this node.
  std::vector<Arrive> take_untold(bool only_complete);
  // The ranks of the world that have not come, as far as this node knows.
  std::vector<int> missing(const std::string& meeting, int world_size) const;
  size_t open() const { return open_.size(); }
  void end(const std::string& meeting) { open_.erase(meeting); }

 private:
  struct Meeting {
    std::set<int> arrived;
    std::vector<int> untold;
  };
  int ranks_below_;
  std::map<std::string, Meeting> open_;
};

}  // namespace trivet::comm::control

// Keeps the list of who has joined, at the root: decides who is let in, and makes the table when everybody is here.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/control/message.h"

namespace trivet::comm::control {

class Gathering {
 public:
  explicit Gathering(const Seat& root) : held_(root.member.world_size) {
    held_[0] = root.member;
    seats_.resize(held_.size());
    seats_[0] = root;
  }
  // Lets the rank in, or says why not (member.h).
  std::optional<Refusal> add(const Seat& seat);
  std::vector<int> missing() const;
  // "2 of 4 ranks did not join in 0.3 s: 1,3"
  std::string missing_text(std::chrono::milliseconds after) const;
  bool complete() const { return joined_ == static_cast<int>(held_.size()); }
  const Member& root() const { return *held_[0]; }
  bool has(int rank) const { return held_[rank].has_value(); }
  // "a, pid 4711"; the rank must have joined.
  std::string where(int rank) const { return held_[rank]->where(); }
  std::shared_ptr<const Table> table(int fan_out) const;  // when complete

 private:
  std::vector<std::optional<Member>> held_;
  std::vector<Seat> seats_;
  int joined_ = 1;
};

}  // namespace trivet::comm::control

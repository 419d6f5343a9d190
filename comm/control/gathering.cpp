#include "comm/control/gathering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trivet::comm::control {

std::optional<Refusal> Gathering::add(const Seat& seat) {
  if (auto refusal = refusal_of(seat.member, held_)) return refusal;
  held_[seat.member.rank] = seat.member;
  seats_[seat.member.rank] = seat;
  ++joined_;
  return std::nullopt;
}

std::vector<int> Gathering::missing() const {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < held_.size(); ++rank) {
    if (!held_[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

std::string Gathering::missing_text(std::chrono::milliseconds after) const {
  const std::vector<int> ranks = missing();
  return fmt::format("{} of {} ranks did not join in {:.3g} s: {}", ranks.size(), held_.size(),
                     static_cast<double>(after.count()) / 1000, fmt::join(ranks, ","));
}

std::shared_ptr<const Table> Gathering::table(int fan_out) const {
  std::vector<int> node_of;
  for (const Seat& seat : seats_) node_of.push_back(seat.node);
  return std::make_shared<const Table>(Table{seats_[0].member.job_id, seats_, Tree(node_of, fan_out)});
}

}  // namespace trivet::comm::control

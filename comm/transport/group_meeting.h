// Ranks of a group meet when they enter an operation: each sends its header to all others and waits for theirs.
#pragma once

#include "comm/transport/header_exchange.h"

namespace trivet::comm {

class GroupMeeting {
 public:
  // All ranks meet, or this rank and `peers`. The link must outlive this object.
  GroupMeeting(const GroupLink& link, MessageKind kind) : GroupMeeting(link, kind, link.others()) {}
  GroupMeeting(const GroupLink& link, MessageKind kind, std::vector<int> peers)
      : link_(link), peers_(std::move(peers)), headers_(link, kind, peers_) {}

  // Returns what each rank announced to this one, by group rank, when all have entered. Throws on all of them when headers
  // differ. With `counts` (all_to_all_v), it also throws on both ranks of a pair that disagree about them.
  std::vector<Announcement> enter(Announcement mine, const ExchangeCounts* counts = nullptr);
  // The operation that `rank` has entered and this rank has not. Call it only while this rank is not in enter().
  std::optional<OperationHeader> ahead(int rank) const { return headers_.ahead(rank); }

 private:
  void compare(const std::vector<Announcement>& all) const;
  void compare_counts(const std::vector<Announcement>& all, const ExchangeCounts& counts) const;

  const GroupLink& link_;
  const std::vector<int> peers_;
  HeaderExchange headers_;
  uint32_t operations_ = 0;
};

}  // namespace trivet::comm

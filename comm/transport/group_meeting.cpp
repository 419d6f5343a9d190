#include "comm/transport/group_meeting.h"

namespace trivet::comm {

std::vector<Announcement> GroupMeeting::enter(Announcement mine) {
  mine.header.number = ++operations_;
  std::vector<std::unique_ptr<Transfer>> sent;
  std::vector<PendingTransfer> pending;
  for (int rank = 0; rank < link_.size(); ++rank) {
    if (rank == link_.rank()) continue;
    pending.push_back(headers_.next(rank));
    sent.push_back(headers_.send(rank, mine));
  }
  for (size_t i = 0, others = sent.size(); i < others; ++i) pending.push_back({pending[i].rank, sent[i].get()});
  link_.await(pending, mine.header);

  std::vector<Announcement> all;
  for (int rank = 0; rank < link_.size(); ++rank) all.push_back(rank == link_.rank() ? mine : headers_.take(rank));
  for (int rank = 1; rank < link_.size(); ++rank)
    if (all[static_cast<size_t>(rank)].header != all[0].header)
      link_.errors().disagree(0, all[0].header, rank, all[static_cast<size_t>(rank)].header);
  return all;
}

}  // namespace trivet::comm

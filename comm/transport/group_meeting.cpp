#include "comm/transport/group_meeting.h"

namespace trivet::comm {

std::vector<Announcement> GroupMeeting::enter(Announcement mine, const ExchangeCounts* counts) {
  mine.header.number = ++operations_;
  std::vector<Announcement> outgoing(link_.size(), mine);
  std::vector<std::unique_ptr<PendingMessage>> sent;
  std::vector<PeerMessage> pending;
  for (int rank = 0; rank < link_.size(); ++rank) {
    if (rank == link_.rank()) continue;
    if (counts) outgoing[rank].sent = counts->sent[rank], outgoing[rank].received = counts->received[rank];
    sent.push_back(headers_.send(rank, outgoing[rank]));
    pending.push_back({rank, sent.back().get()});
    pending.push_back(headers_.next(rank));
  }
  link_.await(pending, mine.header);

  std::vector<Announcement> all;
  for (int rank = 0; rank < link_.size(); ++rank) all.push_back(rank == link_.rank() ? mine : headers_.take(rank));
  compare(all);
  if (counts) compare_counts(all, *counts);
  return all;
}

void GroupMeeting::compare(const std::vector<Announcement>& all) const {
  for (int rank = 1; rank < link_.size(); ++rank)
    if (all[rank].header != all[0].header) link_.errors().disagree(0, all[0].header, rank, all[rank].header);
}

void GroupMeeting::compare_counts(const std::vector<Announcement>& all, const ExchangeCounts& counts) const {
  const int self = link_.rank();
  for (int rank = 0; rank < link_.size(); ++rank) {
    if (rank == self) continue;
    const OperationHeader& header = all[rank].header;
    if (all[rank].sent != counts.received[rank])
      link_.errors().disagree_about_counts(header, {rank, all[rank].sent}, {self, counts.received[rank]});
    if (all[rank].received != counts.sent[rank])
      link_.errors().disagree_about_counts(header, {self, counts.sent[rank]}, {rank, all[rank].received});
  }
}

}  // namespace trivet::comm

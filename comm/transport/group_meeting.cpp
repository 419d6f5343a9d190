#include "comm/transport/group_meeting.h"

#include <algorithm>

namespace trivet::comm {

std::vector<Announcement> GroupMeeting::enter(Announcement mine, const ExchangeCounts* counts) {
  mine.header.number = ++operations_;
  std::vector<Announcement> outgoing(link_.size(), mine);
  std::vector<std::unique_ptr<PendingMessage>> sent;
  std::vector<PeerMessage> pending;
  for (int rank : peers_) {
    if (counts) outgoing[rank].sent = counts->sent[rank], outgoing[rank].received = counts->received[rank];
    sent.push_back(headers_.send(rank, outgoing[rank]));
    pending.push_back({rank, sent.back().get()});
    pending.push_back(headers_.next(rank));
  }
  link_.await(pending, mine.header);

  std::vector<Announcement> all(link_.size());
  all[link_.rank()] = mine;
  for (int rank : peers_) all[rank] = headers_.take(rank);
  compare(all);
  if (counts) compare_counts(all, *counts);
  return all;
}

void GroupMeeting::compare(const std::vector<Announcement>& all) const {
  std::vector<int> ranks = peers_;
  ranks.push_back(link_.rank());
  std::sort(ranks.begin(), ranks.end());
  const int first = ranks.front();
  for (int rank : ranks)
    if (all[rank].header != all[first].header) link_.errors().disagree(first, all[first].header, rank, all[rank].header);
}

void GroupMeeting::compare_counts(const std::vector<Announcement>& all, const ExchangeCounts& counts) const {
  const int self = link_.rank();
  for (int rank : peers_) {
    const OperationHeader& header = all[rank].header;
    if (all[rank].sent != counts.received[rank])
      link_.errors().disagree_about_counts(header, {rank, all[rank].sent}, {self, counts.received[rank]});
    if (all[rank].received != counts.sent[rank])
      link_.errors().disagree_about_counts(header, {self, counts.sent[rank]}, {rank, all[rank].received});
  }
}

}  // namespace trivet::comm

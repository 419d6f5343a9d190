#include "pipeline/event_graph.h"

#include <map>

#include "pipeline/meetings.h"
#include "pipeline/transfers.h"

namespace trivet::pipeline {
namespace {

class Builder {
 public:
  Builder(const Schedule& schedule, const WorkIndex& work, Overlap overlap)
      : schedule_(schedule), work_(work), overlap_(overlap), sends_(has_sends(schedule)) {}

  EventGraph build() {
    for (size_t rank = 0; rank < schedule_.size(); ++rank) add_steps(rank);
    never_ = add({});
    wait(never_, never_);
    add_transfers();
    for (size_t rank = 0; rank < schedule_.size(); ++rank) {
      add_jobs(rank);
      for (size_t at = 0; at < schedule_[rank].size(); ++at) add_data_flow(schedule_[rank][at], work_.numbers().of(rank, at));
    }
    add_meetings();
    return std::move(graph_);
  }

 private:
  int add(const Event& event) {
    graph_.events.push_back(event);
    return static_cast<int>(graph_.events.size()) - 1;
  }
  void wait(int earlier, int event) {
    if (earlier != event || event == never_) graph_.waits.emplace_back(earlier, event);
  }
  const Stage& stage(int index) const { return work_.stages()[index]; }

  void add_steps(size_t rank) {
    for (size_t at = 0; at < schedule_[rank].size(); ++at) {
      const bool instant = !computes(schedule_[rank][at].op);
      const int step = add({.rank = static_cast<int>(rank), .at = at, .instant = instant});
      if (at > 0) wait(step - 1, step);
    }
  }

  void add_transfers() {
    for (const LinkTransfers& link : find_links(schedule_, work_.stages())) {
      const int first = static_cast<int>(graph_.events.size());
      for (size_t k = 0; k < link.size(); ++k) {
        const Transfer& t = link[k];
        const int transfer = add({.rank = t.from, .at = t.send_at, .queue = Queue::Send, .peer = t.to});
        const int send = work_.numbers().of(t.from, t.send_at);
        wait(send, transfer);
        wait(work_.numbers().of(t.to, t.receive_at), transfer);
        if (k > 0) wait(transfer - 1, transfer);
        if (k >= kSendsInFlight) wait(first + static_cast<int>(k - kSendsInFlight), send);
        arrival_[{t.send.op, t.send.stage, t.send.microbatch}] = transfer;
      }
    }
  }

  void add_meetings() {
    for (const Meeting& meeting : find_meetings(schedule_)) {
      const auto [first_rank, first_at] = meeting.front();
      const int event = add({.rank = static_cast<int>(first_rank), .at = first_at, .queue = Queue::Meet});
      for (const auto& [rank, at] : meeting) {
        const int step = work_.numbers().of(rank, at);
        if (at > 0) wait(step - 1, event);
        if (const auto reduced = reduced_before_.find(step); reduced != reduced_before_.end()) wait(reduced->second, event);
        wait(event, step);
      }
    }
  }

  void add_jobs(size_t rank) {
    std::map<Queue, int> last;
    std::map<int, int> gathered;  // block -> its last UNSHARD
    for (size_t at = 0; at < schedule_[rank].size(); ++at) {
      const Instruction& i = schedule_[rank][at];
      const int step = work_.numbers().of(rank, at);
      const auto gather = gathered.find(i.block);
      if (needs_weights(i.op) && gather != gathered.end()) wait(gather->second, step);
      if (i.op == Op::Tie && last.contains(Queue::Reduce)) reduced_before_[step] = last[Queue::Reduce];
      if (i.op != Op::Unshard && i.op != Op::Reduce) continue;
      if (overlap_ == Overlap::None) {
        graph_.events[step].instant = false;
        continue;
      }
      const Queue queue = i.op == Op::Unshard ? Queue::Gather : Queue::Reduce;
      static_assert(kReductionsInFlight == 1);
      if (queue == Queue::Reduce && last.contains(queue)) wait(last[queue], step);
      const int job = add({.rank = static_cast<int>(rank), .at = at, .queue = queue});
      wait(step, job);
      if (last.contains(queue)) wait(last[queue], job);
      last[queue] = job;
      if (queue == Queue::Gather) gathered[i.block] = job;
    }
  }

  int find(Part part, int stage, int block, int microbatch) const {
    const int number = work_.find(part, stage, block, microbatch);
    return number >= 0 ? number : never_;
  }
  bool apart(int a, int b) const { return sends_ && stage(a).rank != stage(b).rank; }
  int arrival(Op send, int stage, int microbatch) const {
    const auto found = arrival_.find({send, stage, microbatch});
    return found == arrival_.end() ? never_ : found->second;
  }
  // Returns the event after which this stage can use the complete forward (backward_input) of the previous (next) stage.
  int input(int s, int m) const {
    return apart(s - 1, s) ? arrival(Op::SendForward, s - 1, m) : find(Part::Forward, s - 1, stage(s - 1).last_block, m);
  }
  int gradient(int s, int m) const {
    return apart(s, s + 1) ? arrival(Op::SendBackward, s + 1, m)
                           : find(Part::BackwardInput, s + 1, stage(s + 1).first_block, m);
  }

  void add_data_flow(const Instruction& i, int step) {
    const int s = i.stage, m = i.microbatch;
    if (i.op == Op::SendForward) wait(find(Part::Forward, s, stage(s).last_block, m), step);
    if (i.op == Op::SendBackward) wait(find(Part::BackwardInput, s, stage(s).first_block, m), step);
    if (!computes(i.op)) return;
    if (does(i.op, Part::Forward)) {
      if (i.block > stage(s).first_block) wait(find(Part::Forward, s, i.block - 1, m), step);
      if (i.block == stage(s).first_block && s > 0) wait(input(s, m), step);
      return;  // the other parts of an L run within it
    }
    wait(find(Part::Forward, s, i.block, m), step);
    if (does(i.op, Part::BackwardInput)) {
      if (const int recompute = work_.find(Part::Recompute, s, i.block, m); recompute >= 0) wait(recompute, step);
      if (i.block < stage(s).last_block) wait(find(Part::BackwardInput, s, i.block + 1, m), step);
      if (i.block == stage(s).last_block && s + 1 < static_cast<int>(work_.stages().size())) wait(gradient(s, m), step);
    }
    if (i.op == Op::BackwardWeight) wait(find(Part::BackwardInput, s, i.block, m), step);
  }

  const Schedule& schedule_;
  const WorkIndex& work_;
  Overlap overlap_;
  bool sends_;
  int never_ = -1;
  std::map<std::tuple<Op, int, int>, int> arrival_;  // (op, stage, microbatch) of the send -> the transfer
  std::map<int, int> reduced_before_;                // step of a TIE -> the last REDUCE of its rank before it
  EventGraph graph_;
};

}  // namespace

EventGraph event_graph(const Schedule& schedule, const WorkIndex& work, Overlap overlap) {
  return Builder(schedule, work, overlap).build();
}

}  // namespace trivet::pipeline

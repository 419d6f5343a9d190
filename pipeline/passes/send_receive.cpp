#include <algorithm>
#include <map>
#include <optional>

#include "pipeline/passes/passes.h"
#include "pipeline/stages.h"

namespace trivet::pipeline {

bool weight_follows(const Program& program, size_t at) {
  return program[at].op == Op::BackwardInput && at + 1 < program.size() && program[at + 1].op == Op::BackwardWeight &&
         program[at + 1].stage == program[at].stage && program[at + 1].microbatch == program[at].microbatch;
}

namespace {

class Inserter {
 public:
  Inserter(const std::vector<int>& ranks, BackwardSends sends) : ranks_(ranks), sends_(sends) {}

  Program run(const Program& program) {
    out_.clear();
    last_compute_.reset();
    for (size_t at = 0; at < program.size(); ++at) {
      const Instruction& i = program[at];
      const bool backward = i.op == Op::BackwardInput;
      if (i.op == Op::Forward && apart(i.stage, i.stage - 1)) post({Op::ReceiveForward, i.stage, i.microbatch});
      if (backward && apart(i.stage, i.stage + 1)) post({Op::ReceiveBackward, i.stage, i.microbatch});
      compute(i);
      if (sends_ == BackwardSends::AfterWeights && weight_follows(program, at))
        out_.push_back(program[++at]);  // it forms one B with its I
      if (i.op == Op::Forward && apart(i.stage, i.stage + 1)) out_.push_back({Op::SendForward, i.stage, i.microbatch});
      if (backward && apart(i.stage, i.stage - 1)) out_.push_back({Op::SendBackward, i.stage, i.microbatch});
    }
    return std::move(out_);
  }

 private:
  bool apart(int stage, int other) const {
    return other >= 0 && other < static_cast<int>(ranks_.size()) && ranks_[stage] != ranks_[other];
  }
  // Inserts a receive before the computation that precedes its use, so that the transfer overlaps with that computation.
  void post(const Instruction& receive) {
    const size_t place = last_compute_.value_or(out_.size());
    out_.insert(out_.begin() + static_cast<std::ptrdiff_t>(place), receive);
    if (last_compute_) ++*last_compute_;
  }
  void compute(const Instruction& i) {
    last_compute_ = out_.size();
    out_.push_back(i);
  }

  const std::vector<int>& ranks_;
  BackwardSends sends_;
  Program out_;
  std::optional<size_t> last_compute_;
};

// Puts the receives of a link into the order of its sends, so that the k-th receive takes what the k-th send sends.
void sort_receives(Schedule& schedule, const std::vector<int>& ranks) {
  using LinkKey = std::tuple<bool, int, int>;  // forward, from rank, to rank
  std::map<LinkKey, std::vector<Instruction>> sent;
  for (const Program& program : schedule)
    for (const Instruction& i : program) {
      const auto rank = [&](int stage) { return ranks[stage]; };
      if (i.op == Op::SendForward)
        sent[{true, rank(i.stage), rank(i.stage + 1)}].push_back({Op::ReceiveForward, i.stage + 1, i.microbatch});
      if (i.op == Op::SendBackward)
        sent[{false, rank(i.stage), rank(i.stage - 1)}].push_back({Op::ReceiveBackward, i.stage - 1, i.microbatch});
    }
  for (auto& [link, receives] : sent) {
    Program& program = schedule[std::get<2>(link)];
    // Goes from the end: a receive that is after its successor in the link's order moves directly before that successor.
    size_t limit = program.size();
    for (auto receive = receives.rbegin(); receive != receives.rend(); ++receive) {
      const auto found = std::find(program.begin(), program.end(), *receive);
      const size_t place = found - program.begin();
      if (place >= limit && found != program.end()) {
        std::rotate(program.begin() + static_cast<std::ptrdiff_t>(limit), found, found + 1);
      } else {
        limit = place;
      }
    }
  }
}

}  // namespace

Schedule insert_send_receive(const Schedule& schedule, BackwardSends sends) {
  const std::vector<int> ranks = stage_ranks(schedule);
  Schedule out;
  for (const Program& program : schedule) out.push_back(Inserter(ranks, sends).run(program));
  sort_receives(out, ranks);
  return out;
}

}  // namespace trivet::pipeline

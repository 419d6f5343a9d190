#include "pipeline/validate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <stdexcept>

namespace trivet::pipeline {
namespace {

using Done = std::set<std::tuple<Op, int, int>>;  // (op, stage, microbatch)

// One pipeline rank on its way through its program. Sends and receives queue on a stream per direction and complete in pairs.
struct Walker {
  const Program* program = nullptr;
  size_t at = 0;
  std::map<bool, std::deque<Instruction>> queues;  // key: forward direction

  bool finished() const { return at == program->size(); }
  const Instruction& next() const { return (*program)[at]; }
};

bool forward_direction(Op op) { return op == Op::SendForward || op == Op::ReceiveForward; }

Instruction partner_of(const Instruction& i) {
  switch (i.op) {
    case Op::SendForward: return {Op::ReceiveForward, i.stage + 1, i.microbatch};
    case Op::ReceiveForward: return {Op::SendForward, i.stage - 1, i.microbatch};
    case Op::SendBackward: return {Op::ReceiveBackward, i.stage - 1, i.microbatch};
    default: return {Op::SendBackward, i.stage + 1, i.microbatch};
  }
}

class Simulation {
 public:
  Simulation(const Schedule& schedule, int microbatches) : microbatches_(microbatches) {
    for (const Program& program : schedule) {
      walkers_.push_back({&program, 0, {}});
      for (const Instruction& i : program) {
        last_stage_ = std::max(last_stage_, i.stage);
        explicit_sends_ |= communicates_between_stages(i.op);
      }
    }
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Walker& walker : walkers_) moved |= advance(walker);
      moved |= pair_transfers();
    }
    report_blocked();
    report_missing();
  }

 private:
  bool has(Op op, int stage, int microbatch) const { return done_.count({op, stage, microbatch}) > 0; }

  bool ready(const Instruction& i) const {
    const bool sends = explicit_sends_;
    switch (i.op) {
      case Op::Forward:
        return i.stage == 0 || has(sends ? Op::ReceiveForward : Op::Forward, sends ? i.stage : i.stage - 1, i.microbatch);
      case Op::BackwardInput:
        return has(Op::Forward, i.stage, i.microbatch) &&
               (i.stage == last_stage_ ||
                has(sends ? Op::ReceiveBackward : Op::BackwardInput, sends ? i.stage : i.stage + 1, i.microbatch));
      case Op::BackwardWeight: return has(Op::BackwardInput, i.stage, i.microbatch);
      case Op::SendForward: return has(Op::Forward, i.stage, i.microbatch);
      case Op::SendBackward: return has(Op::BackwardInput, i.stage, i.microbatch);
      default: return true;
    }
  }

  bool advance(Walker& walker) {
    bool moved = false;
    while (!walker.finished() && ready(walker.next())) {
      const Instruction& i = walker.next();
      if (communicates_between_stages(i.op)) {
        walker.queues[forward_direction(i.op)].push_back(i);
      } else if (!done_.insert({i.op, i.stage, i.microbatch}).second) {
        throw std::logic_error(fmt::format("schedule: {} runs twice", to_string(i)));
      }
      ++walker.at;
      moved = true;
    }
    return moved;
  }

  bool pair_transfers() {
    bool moved = false;
    for (Walker& sender : walkers_)
      for (auto& [direction, queue] : sender.queues) {
        if (queue.empty()) continue;
        const Instruction partner = partner_of(queue.front());
        for (Walker& receiver : walkers_) {
          auto& other = receiver.queues[direction];
          if (&other == &queue || other.empty() || other.front() != partner) continue;
          done_.insert({queue.front().op, queue.front().stage, queue.front().microbatch});
          done_.insert({partner.op, partner.stage, partner.microbatch});
          queue.pop_front();
          other.pop_front();
          moved = true;
          break;
        }
      }
    return moved;
  }

  void report_blocked() const {
    std::vector<std::string> blocked;
    for (size_t rank = 0; rank < walkers_.size(); ++rank)
      if (!walkers_[rank].finished())
        blocked.push_back(fmt::format("rank {} waits for ever at {} (instruction {} of {})", rank,
                                      to_string(walkers_[rank].next()), walkers_[rank].at, walkers_[rank].program->size()));
    if (!blocked.empty()) throw std::logic_error(fmt::format("schedule deadlocks: {}", fmt::join(blocked, "; ")));
  }

  void report_missing() const {
    for (int stage = 0; stage <= last_stage_; ++stage)
      for (int m = 0; m < microbatches_; ++m)
        for (Op op : {Op::Forward, Op::BackwardInput, Op::BackwardWeight})
          if (!has(op, stage, m))
            throw std::logic_error(fmt::format("schedule: {} is missing", to_string(Instruction{op, stage, m})));
  }

  std::vector<Walker> walkers_;
  Done done_;
  int microbatches_;
  int last_stage_ = 0;
  bool explicit_sends_ = false;
};

int peak_microbatches(const Program& program) {
  std::set<std::pair<int, int>> live;  // (stage, microbatch)
  size_t peak = 0;
  for (const Instruction& i : program) {
    if (i.op == Op::Forward) live.insert({i.stage, i.microbatch});
    if (i.op == Op::BackwardWeight) live.erase({i.stage, i.microbatch});
    peak = std::max(peak, live.size());
  }
  return static_cast<int>(peak);
}

}  // namespace

ScheduleFacts validate(const Schedule& schedule, int microbatches) {
  Simulation(schedule, microbatches).run();
  ScheduleFacts facts;
  for (const Program& program : schedule) facts.peak_microbatches.push_back(peak_microbatches(program));
  return facts;
}

void validate_lifetimes(const Program& program, const BlockParameters& parameters) {
  const auto has = [](const std::vector<int64_t>& elements, int block) { return elements.at(static_cast<size_t>(block)) > 0; };
  std::set<int> whole, incomplete;
  for (const Instruction& i : program) {
    const auto fail = [&](const std::string& why) { throw std::logic_error(fmt::format("program: {} {}", to_string(i), why)); };
    if (i.op == Op::Unshard && !whole.insert(i.block).second) fail("gathers what is whole already");
    if (i.op == Op::Reshard && whole.erase(i.block) == 0) fail("releases what is not whole");
    if (i.op == Op::Reduce) incomplete.erase(i.block);
    if (!computes(i.op)) continue;
    for (int block : parameters.used_by.at(static_cast<size_t>(i.block))) {
      if (needs_weights(i.op) && has(parameters.sharded_elements, block) && !whole.count(block))
        fail(fmt::format("uses the weights of block {} while they are sharded; an UNSHARD is missing", block));
      if (makes_weight_gradients(i.op) && has(parameters.gradient_elements, block)) incomplete.insert(block);
    }
  }
  if (!whole.empty()) throw std::logic_error(fmt::format("program: block {} is still whole at the end", *whole.begin()));
  if (!incomplete.empty())
    throw std::logic_error(
        fmt::format("program: the gradients of block {} are never reduced when complete", *incomplete.begin()));
}

}  // namespace trivet::pipeline

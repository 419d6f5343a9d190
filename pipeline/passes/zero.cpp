#include <algorithm>
#include <map>
#include <set>

#include "pipeline/passes/passes.h"

namespace trivet::pipeline {
namespace {

const std::vector<int>& used_blocks(const BlockParameters& parameters, const Instruction& i) {
  return parameters.weights_of.at(i.block);
}

// Returns the blocks whose gradients an instruction adds to.
std::vector<int> gradient_blocks(const BlockParameters& parameters, const std::vector<Tie>& ties, const Instruction& i) {
  if (makes_weight_gradients(i.op)) return parameters.gradients_of.at(i.block);
  if (i.op != Op::Tie) return {};
  for (const Tie& tie : ties)
    if (tie.user_block == i.block) return {tie.owner_block};
  return {};
}

int64_t sharded(const BlockParameters& parameters, int block) { return parameters.sharded_elements.at(block); }

// Returns, for each position and each block whose weights the instruction uses, the position of their next use, or -1.
std::vector<std::map<int, int>> next_uses(const Program& program, const BlockParameters& parameters) {
  std::vector<std::map<int, int>> next(program.size());
  std::map<int, int> seen;
  for (int at = static_cast<int>(program.size()) - 1; at >= 0; --at) {
    const Instruction& i = program[at];
    if (!needs_weights(i.op)) continue;
    for (int block : used_blocks(parameters, i)) {
      const auto known = seen.find(block);
      next[at][block] = known == seen.end() ? -1 : known->second;
      seen[block] = at;
    }
  }
  return next;
}

// Counts the elements of other sharded blocks that are used after `from` and before `to`.
int64_t distance(const Program& program, const BlockParameters& parameters, int from, int to, int block) {
  int64_t elements = 0;
  for (int at = from + 1; at < to; ++at) {
    const Instruction& i = program[at];
    if (!needs_weights(i.op)) continue;
    for (int other : used_blocks(parameters, i))
      if (other != block) elements += sharded(parameters, other);
  }
  return elements;
}

// Follows a walk through a program and knows which blocks some microbatch has used and will use again.
class MicrobatchWindows {
 public:
  MicrobatchWindows(const Program& program, const BlockParameters& parameters) : parameters_(parameters) {
    for (const Instruction& i : program)
      if (needs_weights(i.op))
        for (int block : used_blocks(parameters, i)) ++uses_ahead_[{block, i.microbatch}];
  }
  void pass(const Instruction& i) {
    for (int block : used_blocks(parameters_, i)) {
      int& ahead = uses_ahead_[{block, i.microbatch}];
      std::set<int>& open = open_[block];
      --ahead > 0 ? void(open.insert(i.microbatch)) : void(open.erase(i.microbatch));
    }
  }
  bool open(int block) const {
    const auto found = open_.find(block);
    return found != open_.end() && !found->second.empty();
  }

 private:
  const BlockParameters& parameters_;
  std::map<std::pair<int, int>, int> uses_ahead_;  // (block, microbatch)
  std::map<int, std::set<int>> open_;              // block -> microbatches
};

}  // namespace

Program insert_reduce(const Program& program, const BlockParameters& parameters, ReduceWhen when,
                      const std::vector<Tie>& ties) {
  // (block, microbatch or -1) -> position of the last instruction that adds to its gradients
  std::map<std::pair<int, int>, size_t> last;
  for (size_t at = 0; at < program.size(); ++at) {
    const Instruction& i = program[at];
    for (int block : gradient_blocks(parameters, ties, i))
      if (parameters.gradient_elements.at(block) > 0)
        last[{block, when == ReduceWhen::EveryMicrobatch ? i.microbatch : -1}] = at;
  }
  std::multimap<size_t, int> reduce_after;
  for (const auto& [key, at] : last) reduce_after.emplace(at, key.first);

  Program out;
  for (size_t at = 0; at < program.size(); ++at) {
    out.push_back(program[at]);
    const auto [begin, end] = reduce_after.equal_range(at);
    for (auto entry = begin; entry != end; ++entry) {
      const size_t block = entry->second;
      const int stage = parameters.stage_of.empty() ? program[at].stage : parameters.stage_of.at(block);
      out.push_back({Op::Reduce, stage, -1, entry->second});
    }
  }
  return out;
}

Program insert_unshard(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits) {
  const auto next = next_uses(program, parameters);
  MicrobatchWindows windows(program, parameters);
  std::set<int> whole;
  int64_t live = 0;
  const auto stays = [&](int block, int at, int use) {
    switch (limits.release) {
      case UnshardRelease::Distance: return distance(program, parameters, at, use, block) < limits.max_reuse_distance;
      case UnshardRelease::Use: return false;
      case UnshardRelease::Microbatch: return windows.open(block);
      case UnshardRelease::Step: return true;
    }
    return false;
  };
  Program out;
  for (int at = 0; at < static_cast<int>(program.size()); ++at) {
    const Instruction& i = program[at];
    if (!needs_weights(i.op)) {
      out.push_back(i);
      continue;
    }
    for (int block : used_blocks(parameters, i)) {
      if (sharded(parameters, block) == 0 || !whole.insert(block).second) continue;
      live += sharded(parameters, block);
      out.push_back({Op::Unshard, i.stage, -1, block});
    }
    out.push_back(i);
    windows.pass(i);
    for (const auto& [block, use] : next[at]) {
      if (sharded(parameters, block) == 0) continue;
      const bool at_once = use == at + 1;
      if (at_once || (use >= 0 && live <= limits.max_live_elements && stays(block, at, use))) continue;
      whole.erase(block);
      live -= sharded(parameters, block);
      out.push_back({Op::Reshard, i.stage, -1, block});
    }
  }
  return out;
}

Program prefetch(const Program& program, const BlockParameters& parameters, const UnshardLimits& limits) {
  std::vector<size_t> transfers;  // positions of UNSHARD and RESHARD
  for (size_t at = 0; at < program.size(); ++at)
    if (program[at].op == Op::Unshard || program[at].op == Op::Reshard) transfers.push_back(at);

  std::vector<bool> issued(program.size(), false);
  Program out;
  int64_t live = 0;
  size_t next_transfer = 0;
  for (size_t at = 0; at < program.size(); ++at) {
    while (next_transfer < transfers.size() && transfers[next_transfer] <= at) ++next_transfer;
    const Instruction& i = program[at];
    if (i.op == Op::Unshard && issued[at]) continue;
    if (i.op == Op::Unshard) live += sharded(parameters, i.block);
    if (i.op == Op::Reshard) live -= sharded(parameters, i.block);
    if (needs_weights(i.op)) {
      // Look ahead for the gathers that may start before this computation.
      int64_t ahead = 0;
      std::set<int> released;
      for (size_t n = next_transfer; n < transfers.size(); ++n) {
        const size_t later = transfers[n];
        const Instruction& candidate = program[later];
        if (candidate.op == Op::Reshard) {
          released.insert(candidate.block);
          continue;
        }
        const int64_t elements = sharded(parameters, candidate.block);
        ahead += elements;
        const bool fits = ahead <= limits.prefetch_elements && (issued[later] || live + elements <= limits.max_live_elements);
        if (!fits || released.count(candidate.block)) break;
        if (issued[later]) continue;
        issued[later] = true;
        live += elements;
        out.push_back(candidate);
      }
    }
    out.push_back(i);
  }
  return out;
}

int64_t most_whole_elements(const Program& program, const BlockParameters& parameters) {
  int64_t live = 0, most = 0;
  for (const Instruction& i : program) {
    if (i.op == Op::Reshard) live -= sharded(parameters, i.block);
    if (i.op != Op::Unshard) continue;
    live += sharded(parameters, i.block);
    most = std::max(most, live);
  }
  return most;
}

}  // namespace trivet::pipeline

#include "data/tokenizers/merges.h"

#include <array>
#include <bit>
#include <limits>
#include <queue>

namespace trivet::data {
namespace {

constexpr int32_t kNoMerge = std::numeric_limits<int32_t>::max();
constexpr size_t kFew = 64;  // symbols for which looking at all pairs is faster than a queue

size_t mixed(int32_t left, int32_t right) {
  const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  return static_cast<size_t>((pair * 0x9E3779B97F4A7C15u) >> 20);
}

// A symbol of a long word that is being merged, linked to its neighbours (-1: none).
struct LinkedSymbol {
  int32_t id;
  int32_t previous, next;
  bool gone = false;
};

// A possible merge. It is stale once either of its symbols has changed.
struct MergeCandidate {
  int32_t rank, at, left, right, result;
  bool operator>(const MergeCandidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 2)) {}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  for (size_t at = mixed(left, right);; ++at) {
    const Merge& merge = slots_[at & (slots_.size() - 1)];
    if (merge.left == left && merge.right == right) return &merge;
    if (merge.left < 0) return nullptr;
  }
}

MergeTable::Merge& MergeTable::slot_of(int32_t left, int32_t right) {
  for (size_t at = mixed(left, right);; ++at) {
    Merge& merge = slots_[at & (slots_.size() - 1)];
    if (merge.left < 0 || (merge.left == left && merge.right == right)) return merge;
  }
}

void MergeTable::grow() {
  std::vector<Merge> old(2 * slots_.size());
  old.swap(slots_);
  for (const Merge& merge : old)
    if (merge.left >= 0) slot_of(merge.left, merge.right) = merge;
}

void MergeTable::add(int32_t left, int32_t right, int32_t rank, int32_t result) {
  if (2 * (used_ + 1) > slots_.size()) grow();
  Merge& slot = slot_of(left, right);
  used_ += slot.left < 0;
  slot = {left, right, rank, result};
}

void MergeTable::apply(std::vector<int32_t>& symbols) const {
  if (symbols.size() <= kFew)
    apply_to_few(symbols);
  else
    apply_to_many(symbols);
}

void MergeTable::apply_to_few(std::vector<int32_t>& symbols) const {
  std::array<int32_t, kFew> rank, result;  // [i]: for the merge of symbols i and i + 1
  size_t count = symbols.size();
  const auto look_up = [&](size_t i) {
    const Merge* merge = find(symbols[i], symbols[i + 1]);
    rank[i] = merge ? merge->rank : kNoMerge;
    if (merge) result[i] = merge->result;
  };
  for (size_t i = 0; i + 1 < count; ++i) look_up(i);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (rank[i] < rank[best]) best = i;
    if (rank[best] == kNoMerge) break;
    symbols[best] = result[best];
    --count;
    for (size_t i = best + 1; i < count; ++i) symbols[i] = symbols[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) rank[i] = rank[i + 1], result[i] = result[i + 1];
    if (best > 0) look_up(best - 1);
    if (best + 1 < count) look_up(best);
  }
  symbols.resize(count);
}

void MergeTable::apply_to_many(std::vector<int32_t>& symbols) const {
  const auto count = static_cast<int32_t>(symbols.size());
  std::vector<LinkedSymbol> nodes;
  nodes.reserve(symbols.size());
  for (int32_t i = 0; i < count; ++i) nodes.push_back({symbols[i], i - 1, i + 1 < count ? i + 1 : -1});

  std::priority_queue<MergeCandidate, std::vector<MergeCandidate>, std::greater<>> candidates;
  const auto node = [&](int32_t at) -> LinkedSymbol& { return nodes[at]; };
  const auto consider = [&](int32_t at) {
    if (at < 0 || node(at).next < 0) return;
    const int32_t left = node(at).id, right = node(node(at).next).id;
    if (const Merge* merge = find(left, right)) candidates.push({merge->rank, at, left, right, merge->result});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i);

  while (!candidates.empty()) {
    const MergeCandidate best = candidates.top();
    candidates.pop();
    LinkedSymbol& left = node(best.at);
    if (left.gone || left.id != best.left || left.next < 0 || node(left.next).id != best.right) continue;
    LinkedSymbol& right = node(left.next);
    left.id = best.result;
    left.next = right.next;
    right.gone = true;
    if (left.next >= 0) node(left.next).previous = best.at;
    consider(left.previous);
    consider(best.at);
  }

  symbols.clear();
  for (int32_t at = 0; at >= 0; at = node(at).next) symbols.push_back(node(at).id);
}

}  // namespace trivet::data

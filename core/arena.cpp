#include "core/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace trivet {
namespace {

// Blocks of a planning arena are told apart by address; the addresses start here and are never dereferenced.
constexpr uintptr_t kPlanningBase = 4096;

int64_t round_up(int64_t bytes) { return (bytes + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment; }

}  // namespace

Arena::Arena(std::string name, Allocator& allocator, MemoryMeter& meter, MemoryCategory category, int64_t capacity_bytes)
    : name_(std::move(name)),
      memory_(allocator, meter, category, DType::UInt8, Shape{round_up(capacity_bytes)}),
      capacity_(round_up(capacity_bytes)) {}

std::byte* Arena::base() const {
  const void* data = memory_.empty() ? nullptr : memory_.view().data;
  return data ? static_cast<std::byte*>(const_cast<void*>(data)) : reinterpret_cast<std::byte*>(kPlanningBase);
}

TensorView Arena::allocate(DType dtype, const Shape& shape) {
  TensorView view{nullptr, dtype, shape};
  const int64_t bytes = std::max(round_up(view.bytes()), kAlignment);
  const auto gap = std::find_if(gaps_.begin(), gaps_.end(), [bytes](const auto& one) { return one.second >= bytes; });
  const int64_t offset = gap == gaps_.end() ? end_ : gap->first;
  if (offset + bytes > capacity_)
    throw std::logic_error(fmt::format("arena \"{}\": {} bytes do not fit ({} of {} bytes used); the plan is too small", name_,
                                       bytes, used_, capacity_));
  if (gap == gaps_.end()) {
    end_ += bytes;
  } else {
    const int64_t left = gap->second - bytes;
    const auto next = gaps_.erase(gap);
    if (left > 0) gaps_.emplace_hint(next, offset + bytes, left);
  }
  blocks_.emplace(offset, bytes);
  used_ += bytes;
  peak_ = std::max(peak_, offset + bytes);
  view.data = base() + offset;
  return view;
}

void Arena::release(TensorView view) {
  const auto block = blocks_.find(static_cast<std::byte*>(view.data) - base());
  if (block == blocks_.end())
    throw std::logic_error(fmt::format("arena \"{}\": asked to release a tensor that it did not allocate", name_));
  const auto [offset, bytes] = *block;
  blocks_.erase(block);
  used_ -= bytes;
  add_gap(offset, bytes);
}

// Joins it with the gaps before and after it; at the end of all blocks there is no gap.
void Arena::add_gap(int64_t offset, int64_t bytes) {
  auto after = gaps_.lower_bound(offset);
  if (after != gaps_.end() && after->first == offset + bytes) {
    bytes += after->second;
    after = gaps_.erase(after);
  }
  if (after != gaps_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == offset) {
      offset = before->first;
      bytes += before->second;
      gaps_.erase(before);
    }
  }
  if (offset + bytes == end_)
    end_ = offset;
  else
    gaps_.emplace(offset, bytes);
}

}  // namespace trivet

#include "core/arena.h"

#include <fmt/format.h>

#include <algorithm>

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
  int64_t offset = 0;
  for (const auto& [begin, size] : blocks_) {
    if (begin - offset >= bytes) break;
    offset = begin + size;
  }
  if (offset + bytes > capacity_)
    throw std::logic_error(fmt::format("arena \"{}\": {} bytes do not fit ({} of {} bytes used); the plan is too small", name_,
                                       bytes, used_, capacity_));
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
  used_ -= block->second;
  blocks_.erase(block);
}

}  // namespace trivet

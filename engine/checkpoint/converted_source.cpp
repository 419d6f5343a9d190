#include "engine/checkpoint/converted_source.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trivet::checkpoint {
namespace {

constexpr int64_t kElementsAtOnce = int64_t{1} << 22;

// Through float32, which holds the values of the narrower types.
void convert(ConstTensorView from, TensorView to) {
  dispatch_float(from.dtype, [&]<typename From>() {
    dispatch_float(to.dtype, [&]<typename To>() {
      for (int64_t i = 0; i < to.elements(); ++i) to.as<To>()[i] = static_cast<To>(static_cast<float>(from.as<From>()[i]));
    });
  });
}

}  // namespace

const TensorInfo* ConvertedSource::find(const std::string& name) const {
  const TensorInfo* const stored = stored_.find(name);
  if (!stored || !shown_ || !is_float(stored->dtype)) return stored;
  const std::lock_guard lock(mutex_);
  const auto [info, added] = infos_.try_emplace(name, *stored);
  if (added) info->second.dtype = *shown_;
  return &info->second;
}

void ConvertedSource::read(std::span<const Piece> wanted) const {
  std::vector<Piece> as_stored;
  std::vector<const Piece*> converted;
  for (const Piece& piece : wanted) {
    const TensorInfo* const stored = stored_.find(piece.name);
    const bool converts = stored && stored->dtype != piece.data.dtype && is_float(stored->dtype) && is_float(piece.data.dtype);
    if (!converts) {
      as_stored.push_back(piece);
      continue;
    }
    Piece same = piece;
    same.data.dtype = stored->dtype;
    check_stored(stored_, same);
    converted.push_back(&piece);
  }
  stored_.read(as_stored);
  for (const Piece* piece : converted) read_converted(*piece, stored_.find(piece->name)->dtype);
}

void ConvertedSource::read_converted(const Piece& wanted, DType stored) const {
  std::vector<std::byte> memory;
  for (int64_t done = 0; done < wanted.count; done += kElementsAtOnce) {
    const int64_t count = std::min(kElementsAtOnce, wanted.count - done);
    memory.resize(static_cast<size_t>(count * size_of(stored)));
    Piece piece = wanted;
    piece.first += done;
    piece.count = count;
    piece.used_as = wanted.data.dtype;
    piece.data = {memory.data(), stored, {count}};
    stored_.read({&piece, 1});
    convert(piece.data, wanted.data.slice(done, count));
  }
}

}  // namespace trivet::checkpoint

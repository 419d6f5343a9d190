#include "kernels/element_digest.h"

#include <algorithm>
#include <cstring>

namespace trivet::kernels {
namespace {

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio, as in SplitMix64

template <typename Bits>
uint64_t digest_of(const void* data, int64_t count, uint64_t key, int64_t first_element) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, static_cast<const std::byte*>(data) + i * static_cast<int64_t>(sizeof(Bits)), sizeof(Bits));
    sum += bits * (((key + static_cast<uint64_t>(first_element + i)) * kGolden) | 1);
  }
  return sum;
}

uint64_t digest_on_host(ConstTensorView view, uint64_t key, int64_t first_element) {
  switch (size_of(view.dtype)) {
    case 2: return digest_of<uint16_t>(view.data, view.elements(), key, first_element);
    case 8: return digest_of<uint64_t>(view.data, view.elements(), key, first_element);
    default: return digest_of<uint32_t>(view.data, view.elements(), key, first_element);
  }
}

}  // namespace

uint64_t ElementDigest::of(ConstTensorView view, uint64_t key, int64_t first_element) {
  constexpr int64_t kMaxElements = int64_t{1} << 20;
  if (device_ == Device::Meta) return 0;
  if (device_ == Device::Cpu) return digest_on_host(view, key, first_element);
  uint64_t sum = 0;
  for (int64_t done = 0; done < view.elements(); done += kMaxElements) {
    const ConstTensorView piece = view.slice(done, std::min(kMaxElements, view.elements() - done));
    buffer_.resize(piece.bytes());
    const TensorView copy{buffer_.data(), piece.dtype, piece.shape};
    kernels_.to_host(piece, copy);
    sum += digest_on_host(copy, key, first_element + done);
  }
  return sum;
}

}  // namespace trivet::kernels

#include "core/random.h"
#include "kernels/cpu/fused/ranges.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/numbers.h"

#define TRIVET_LOOPS "kernels/cpu/fused/dropout_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {
namespace {

inline constexpr int64_t kChunk = 1024;  // elements; their random words fit in the first-level cache

// Generates the random words of elements [begin, end) of a tensor [B, ...] on the calling thread, a chunk at a time, and calls
//   body(first, words, count)    for elements [first, first + count) of the tensor
template <typename Body>
void for_each_random_chunk(const DropoutSite& site, int64_t per_sample, int64_t begin, int64_t end, const Body& body) {
  const auto make_words = by_isa(&baseline::philox_words, &v3::philox_words, &v4::philox_words);
  alignas(64) uint32_t words[kChunk];
  while (begin < end) {
    const int64_t sample = begin / per_sample, place = begin % per_sample;
    const bool in_second = place >= site.second;
    const int64_t element = site.first_element + place + (in_second ? site.skipped : 0), block = element / 4;
    const int64_t part_end = in_second ? per_sample : std::min(site.second, per_sample);
    const int64_t count = std::min({end - begin, part_end - place, (block + kChunk / 4) * 4 - element});
    const uint64_t high = (static_cast<uint64_t>(site.step.value()) << 32) + static_cast<uint64_t>(site.first_sample + sample);
    make_words(site.key, static_cast<uint64_t>(block), high, words, (element + count + 3) / 4 - block);
    body(begin, words + (element - 4 * block), count);
    begin += count;
  }
}

int64_t elements_per_sample(ConstTensorView x) { return x.shape[0] == 0 ? 0 : x.elements() / x.shape[0]; }

void drop(ConstTensorView x, TensorView out, const DropoutSite& site, int threads) {
  const int64_t per_sample = elements_per_sample(x);
  dispatch_float(x.dtype, [&]<typename T>() {
    const auto loop = by_isa(&baseline::drop_words<T>, &v3::drop_words<T>, &v4::drop_words<T>);
    for_each_element_range(x.elements(), threads, [&](int64_t begin, int64_t end) {
      for_each_random_chunk(site, per_sample, begin, end, [&](int64_t first, const uint32_t* words, int64_t count) {
        loop(x.as<T>() + first, words, site.rate, out.as<T>() + first, count);
      });
    });
  });
}

}  // namespace

void add_dropped_elements(const DropoutAdd& args, int64_t begin, int64_t end) {
  const DropoutSite& site = args.dropout;
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const T *residual = args.residual.as<T>(), *x = args.x.as<T>();
    T* out = args.out.as<T>();
    if (site.rate == 0) {
      const auto loop = by_isa(&baseline::add_into<T>, &v3::add_into<T>, &v4::add_into<T>);
      return loop(residual + begin, x + begin, out + begin, end - begin);
    }
    const auto loop = by_isa(&baseline::add_drop_words<T>, &v3::add_drop_words<T>, &v4::add_drop_words<T>);
    const int64_t per_sample = elements_per_sample(args.x);
    for_each_random_chunk(site, per_sample, begin, end, [&](int64_t first, const uint32_t* words, int64_t count) {
      loop(residual + first, x + first, words, site.rate, out + first, count);
    });
  });
}

void compute(const DropoutAdd& args, int threads) {
  const DropoutSite& site = args.dropout;
  if (args.residual.absent())
    return site.rate == 0 ? compute(Copy{args.x, args.out}, threads) : drop(args.x, args.out, site, threads);
  for_each_element_range(args.x.elements(), threads,
                         [&](int64_t begin, int64_t end) { add_dropped_elements(args, begin, end); });
}

void compute(const DropoutBackward& args, int threads) {
  if (args.dropout.rate == 0) return compute(Copy{args.dy, args.dx}, threads);
  drop(args.dy, args.dx, args.dropout, threads);
}

}  // namespace trivet::kernels::cpu

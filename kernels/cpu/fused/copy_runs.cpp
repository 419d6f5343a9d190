#include <cstring>

#include "kernels/cpu/fused/ranges.h"
#include "kernels/memory.h"

namespace trivet::kernels::cpu {

void compute(const CopyRuns& args, int threads) {
  const auto bytes = static_cast<int64_t>(size_of(args.from.dtype));
  const auto place = [&](int64_t run, const std::array<int64_t, 3>& steps) {
    const int64_t k = run % args.counts[2], rest = run / args.counts[2];
    return (rest / args.counts[1] * steps[0] + rest % args.counts[1] * steps[1] + k * steps[2]) * bytes;
  };
  for_each_range(args.runs(), threads, 1, args.run, [&](int64_t begin, int64_t end) {
    for (int64_t run = begin; run < end; ++run)
      std::memcpy(static_cast<std::byte*>(args.out.data) + place(run, args.out_steps),
                  static_cast<const std::byte*>(args.from.data) + place(run, args.from_steps),
                  static_cast<size_t>(args.run * bytes));
  });
}

}  // namespace trivet::kernels::cpu

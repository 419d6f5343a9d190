#include "autotune/bench/kernel_timer.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace trivet::autotune {

// The mean, because a step takes as long as all its calls together, including slow ones. Calls that were interrupted from
// outside must not count in full.
double KernelTimer::mean_without_outliers(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  const double most = kOutlier * seconds[seconds.size() / 2];
  double sum = 0;
  for (const double each : seconds) sum += std::min(each, most);
  return sum / static_cast<double>(seconds.size());
}

void KernelTimer::begins() {
  if (clock_) begin_ = clock_->now();
}

void KernelTimer::ended(const kernels::KernelCall& call) {
  if (clock_) timed_.push_back({call, begin_, clock_->now()});
}

KernelTimer::Times KernelTimer::take() {
  using Key = std::tuple<std::string_view, std::string_view, DType, std::array<int64_t, 5>>;
  std::map<Key, std::vector<double>> alike;
  std::map<Key, kernels::KernelCall> calls;
  double gaps = 0, counted = 0, before = 0;
  for (const Timed& timed : timed_) {
    const double begin = clock_->milliseconds(timed.begin) / 1e3, end = clock_->milliseconds(timed.end) / 1e3;
    const kernels::KernelCall& call = timed.call;
    const Key key{call.kernel, call.variant, call.dtype, call.sizes};
    alike[key].push_back(end - begin);
    calls[key] = call;
    if (before > 0 && begin - before < kWait) gaps += begin - before, counted += 1;
    before = end;
  }
  Times times{.samples = {}, .calls = {}, .gap_seconds = counted > 0 ? gaps / counted : 0};
  for (auto& [key, seconds] : alike) {
    times.calls.push_back(static_cast<int64_t>(seconds.size()));
    times.samples.push_back(sample_of(calls[key], mean_without_outliers(seconds)));
  }
  timed_.clear();
  clock_.reset();  // must be destroyed before the streams that it times
  return times;
}

}  // namespace trivet::autotune

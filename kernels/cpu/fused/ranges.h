// Divides independent elements, rows or columns among threads. The result must not depend on where the cuts are.
#pragma once

#include <algorithm>
#include <cstdint>

namespace trivet::kernels::cpu {

// Below this many elements of work a second thread costs more than it saves.
inline constexpr int64_t kWorthAThread = 16384;

// Calls body(begin, end) for ranges that cover [0, count), cut at multiples of `grain`. `work` is the number of elements that
// one item stands for. The body must not throw.
template <typename Body>
void for_each_range(int64_t count, int threads, int64_t grain, int64_t work, const Body& body) {
  if (count <= 0) return;
  const int64_t pieces = (count + grain - 1) / grain;
  const int64_t team = std::min({int64_t{threads}, pieces, count * work / kWorthAThread});
  if (team <= 1) return body(int64_t{0}, count);
#pragma omp parallel for schedule(static, 1) num_threads(static_cast <int>(team))
  for (int64_t member = 0; member < team; ++member) {
    const int64_t begin = pieces * member / team * grain, end = std::min(count, pieces * (member + 1) / team * grain);
    if (begin < end) body(begin, end);
  }
}

// Ranges of elements are cut at multiples of 64, so that two threads never write to the same cache line of an aligned tensor.
template <typename Body>
void for_each_element_range(int64_t count, int threads, const Body& body) {
  for_each_range(count, threads, 64, 1, body);
}

}  // namespace trivet::kernels::cpu

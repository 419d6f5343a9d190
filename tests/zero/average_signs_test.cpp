// The average of values that are sent as signs: against the formula in double, and the bytes that it sends.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "comm/world.h"
#include "core/random.h"
#include "kernels/signs.h"
#include "zero/collectives.h"

namespace trivet::zero {
namespace {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

constexpr int64_t kBlockSize = kernels::kQuantizedBlock;

TensorView floats_of(Floats& values) { return {values.data(), DType::Float32, {static_cast<int64_t>(values.size())}}; }

Floats sent_by(int rank, int64_t elements, uint64_t round) {
  Floats values(elements);
  for (int64_t e = 0; e < elements; ++e)
    values[e] = unit_float(philox(static_cast<uint64_t>(rank), static_cast<uint64_t>(e), round)[0]) - 0.4f;
  return values;
}

bool counts(int64_t element) { return element % 5 != 0; }

// Takes the signs and mean magnitudes out of `values`, and returns them.
Doubles take_signs(Doubles& values) {
  Doubles taken(values.size());
  for (size_t first = 0; first < values.size(); first += kBlockSize) {
    double sum = 0, counted = 0;
    for (size_t e = first; e < first + kBlockSize; ++e)
      if (counts(static_cast<int64_t>(e))) sum += std::abs(values[e]), ++counted;
    for (size_t e = first; e < first + kBlockSize; ++e) {
      taken[e] = counts(static_cast<int64_t>(e)) ? std::copysign(sum / counted, values[e]) : 0;
      values[e] = counts(static_cast<int64_t>(e)) ? values[e] - taken[e] : 0;
    }
  }
  return taken;
}

// Three rounds, in each of which a rank adds new values to its error.
TEST(AverageSigns, IsThatOfTheFormulaAndCarriesBothErrorsOn) {
  for (const int ranks : {1, 2, 3}) {
    const int64_t shard = 2 * kBlockSize, elements = shard * ranks;
    std::vector<Doubles> errors(ranks, Doubles(elements)), averages;
    Doubles server(elements);
    for (uint64_t round = 0; round < 3; ++round) {
      Doubles mean = server;
      for (int rank = 0; rank < ranks; ++rank) {
        const Floats values = sent_by(rank, elements, round);
        for (int64_t e = 0; e < elements; ++e) errors[rank][e] += values[e];
        const Doubles taken = take_signs(errors[rank]);
        for (int64_t e = 0; e < elements; ++e) mean[e] += taken[e] / ranks;
      }
      averages.push_back(take_signs(mean));
      server = mean;
    }
    comm::run_threads(ranks, [&](comm::World& world) {
      const auto stream = make_thread_stream("transfers");
      const auto kernels = kernels::make_cpu_kernels(1);
      MemoryMeter meter;
      Arena buffers{"buffers", host_allocator(), meter, MemoryCategory::Buffers, 1 << 20};
      Floats error(elements), own_server(shard), variance(elements), average(elements);
      for (int64_t e = 0; e < elements; ++e) variance[e] = counts(e) ? 1.0f : 0.0f;
      for (uint64_t round = 0; round < 3; ++round) {
        const Floats values = sent_by(world.rank(), elements, round);
        for (int64_t e = 0; e < elements; ++e) error[e] += values[e];
        average_signs({.values = floats_of(error),
                       .server_error = floats_of(own_server),
                       .variance = floats_of(variance),
                       .average = floats_of(average)},
                      world.group(), *stream, *kernels, buffers);
        for (int64_t e = 0; e < elements; ++e) ASSERT_NEAR(average[e], averages[round][e], 1e-5) << e;
      }
      for (int64_t e = 0; e < elements; ++e) ASSERT_NEAR(error[e], errors[world.rank()][e], 1e-5) << e;
      for (int64_t e = 0; e < shard; ++e) ASSERT_NEAR(own_server[e], server[world.rank() * shard + e], 1e-5) << e;
      EXPECT_EQ(world.group().traffic().bytes_sent, 3 * 2 * (ranks - 1) * shard / kBlockSize * 36);
      EXPECT_EQ(buffers.used_bytes(), 0);
    });
  }
}

}  // namespace
}  // namespace trivet::zero

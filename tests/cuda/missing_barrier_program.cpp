// Shows what missing synchronization looks like (scripts/show_missing_barrier). Usage: missing_barrier barrier|wait
// kept|removed
//
// "barrier": every thread passes its number to its neighbour through shared memory. "wait": a stream reads what another one
// wrote long before. On the fake device the numbers are right either way; ThreadSanitizer reports the access that nothing
// orders.
#include <cuda_runtime.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "core/cuda/launch.h"
#include "core/cuda/streams.h"

namespace {

using trivet::cuda::Streams;

template <bool kBarrier>
__global__ void pass_to_neighbour(int* out) {
  __shared__ int numbers[64];
  const int i = static_cast<int>(threadIdx.x);
  numbers[i] = i;
  if constexpr (kBarrier) __syncthreads();
  out[i] = i > 0 ? numbers[i - 1] : 63;
}

__global__ void copy_from_neighbour(const int* from, int* out) { out[threadIdx.x] = from[(threadIdx.x + 63) % 64]; }

__global__ void say_done(int* done) { atomicAdd(done, 1); }

void run_barrier(bool kept, cudaStream_t stream, int* numbers) {
  TRIVET_LAUNCH(kept ? pass_to_neighbour<true> : pass_to_neighbour<false>, 1, 64, 0, stream, numbers);
}

void run_wait(bool kept, const Streams& streams, int* numbers) {
  const auto side = streams.make_stream(0), other = streams.make_stream(0);
  int done = 0;
  side->enqueue([&] {
    run_barrier(true, streams.current(), numbers + 64);
    TRIVET_LAUNCH(say_done, 1, 1, 0, streams.current(), &done);
  });
  if (kept) other->wait(side->record());
  while (std::atomic_ref(done).load(std::memory_order_relaxed) == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  side->enqueue([] {});  // other exchanges between host and stream order nothing
  other->enqueue([&] { TRIVET_LAUNCH(copy_from_neighbour, 1, 64, 0, streams.current(), numbers + 64, numbers); });
  other->record().wait_on_host();
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const bool kept = std::strcmp(arguments[2], "kept") == 0;
  const Streams streams(0);
  int* numbers = nullptr;
  CUDA_CHECK(cudaMalloc(&numbers, 2 * 64 * sizeof(int)));
  if (std::strcmp(arguments[1], "barrier") == 0) {
    run_barrier(kept, streams.current(), numbers);
  } else {
    run_wait(kept, streams, numbers);
  }
  streams.make_compute_stream()->record().wait_on_host();
  int host[64];
  CUDA_CHECK(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost));
  CUDA_CHECK(cudaFree(numbers));
  int right = 0;
  for (int i = 0; i < 64; ++i) right += host[i] == (i + 63) % 64 || host[i] == (i + 62) % 64;
  std::printf("%s %s: %d of 64 numbers are right\n", arguments[1], arguments[2], right);
}

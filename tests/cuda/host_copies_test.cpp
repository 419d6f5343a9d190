// Copies from pageable memory go through staging memory that several streams share.
#include "kernels/cuda/host_copies.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "core/cuda/error.h"
#include "core/cuda/handle.h"
#include "core/cuda/memory.h"
#include "tests/cuda/gate.h"

namespace trivet::kernels::cuda::host_copies_test {
namespace {

using trivet::cuda::Gate;
using trivet::cuda::StreamHandle;

using Bytes = std::vector<unsigned char>;

Bytes bytes(size_t count, unsigned char first) {
  Bytes all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

class HostCopiesTest : public testing::Test {
 protected:
  static constexpr int64_t kStaging = 64;
  ~HostCopiesTest() override { allocator_->release(device_, 1024); }
  static StreamHandle make_stream() {
    cudaStream_t stream = nullptr;
    CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return StreamHandle(stream);
  }
  void to_device(const Bytes& from, int64_t place, const StreamHandle& stream) {
    copies_.to_device(from.data(), device_ + place, static_cast<int64_t>(from.size()), stream.get());
  }
  Bytes read(int64_t place, int64_t count, const StreamHandle& stream) {
    Bytes out(count);
    copies_.to_host(device_ + place, out.data(), count, stream.get());
    return out;
  }

  std::unique_ptr<Allocator> allocator_ = trivet::cuda::make_device_allocator(0);
  unsigned char* device_ = static_cast<unsigned char*>(allocator_->allocate(1024));
  HostCopies copies_{0, kStaging};
  StreamHandle one_ = make_stream(), two_ = make_stream();
};

// While a stream is held, its bytes stay in staging memory; a wait for another stream does not free them.
TEST_F(HostCopiesTest, BytesStayStagedUntilTheirOwnStreamHasCopiedThem) {
  const Bytes held = bytes(16, 1), others = bytes(16, 100), later = bytes(48, 150);
  {
    Gate gate(one_.get());
    to_device(held, 0, one_);
    to_device(others, 256, two_);
    EXPECT_EQ(read(256, 16, two_), others);  // the second stream is done, the first is not
    to_device(bytes(16, 200), 512, two_);
    gate.open();
  }
  EXPECT_EQ(read(0, 16, one_), held);
  EXPECT_EQ(read(512, 16, two_), bytes(16, 200));
  to_device(later, 0, one_);
  EXPECT_EQ(read(0, 48, one_), later);
}

// A copy that is larger than the staging memory goes in pieces, in both directions; each piece is copied before its place is
// used again.
TEST_F(HostCopiesTest, MoreThanTheStagingMemoryGoesInPieces) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{128}, size_t{200}}) {
    const Bytes all = bytes(count, static_cast<unsigned char>(count));
    to_device(all, 3, one_);
    EXPECT_EQ(read(3, static_cast<int64_t>(count), one_), all) << count;
  }
}

TEST_F(HostCopiesTest, TheSourceIsFreeWhenTheCallReturns) {
  Bytes source = bytes(32, 7);
  const Bytes expected = source;
  {
    Gate gate(one_.get());
    to_device(source, 0, one_);
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0));
  }
  EXPECT_EQ(read(0, 32, one_), expected);
}

// When a copy to the host is done, so is all work that its stream was given before.
TEST_F(HostCopiesTest, ToTheHostWaitsForTheStream) {
  const Bytes before = bytes(8, 1);
  to_device(before, 0, one_);
  CUDA_CHECK(cudaMemsetAsync(device_, 9, 4, one_.get()));
  EXPECT_EQ(read(0, 8, one_), (Bytes{9, 9, 9, 9, 5, 6, 7, 8}));
}

// Page-locked memory needs no staging, but the call waits for the copy all the same.
TEST_F(HostCopiesTest, ToPageLockedMemoryWaitsForTheStream) {
  const auto pinned = trivet::cuda::make_pinned_allocator(0);
  auto* const to = static_cast<unsigned char*>(pinned->allocate(8));
  std::fill_n(to, 8, static_cast<unsigned char>(0));
  to_device(bytes(8, 1), 0, one_);
  CUDA_CHECK(cudaStreamSynchronize(one_.get()));
  std::atomic<bool> is_back = false;
  {
    Gate gate(one_.get());
    std::thread reader([&] {
      copies_.to_host(device_, to, 8, one_.get());
      is_back = true;
    });
    EXPECT_TRUE(trivet::cuda::stays_busy(one_.get()));
    EXPECT_FALSE(is_back);
    gate.open();
    reader.join();
  }
  EXPECT_EQ(Bytes(to, to + 8), bytes(8, 1));
  pinned->release(to, 8);
}

}  // namespace
}  // namespace trivet::kernels::cuda::host_copies_test

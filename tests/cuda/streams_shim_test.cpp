// Tests streams as the fake device sees them: what they create, when the host waits, and what they do on a broken device.
#include <vector>

#include "core/error.h"
#include "shim.h"
#include "tests/cuda/stream_order.h"

namespace trivet::cuda::streams_shim_test {
namespace {

class StreamsOnFakeDevice : public StreamOrder {};

// Works as a training step does: gathers run ahead, reductions run later, and events are kept until they are needed.
TEST_F(StreamsOnFakeDevice, TheSteadyStateCreatesNothingAndNeverWaits) {
  const auto step = [&] {
    std::vector<Event> gathered;
    for (int block = 0; block < 4; ++block) {
      side_->enqueue([&] { launch_store(block, block); });
      gathered.push_back(side_->record());
    }
    for (int block = 0; block < 4; ++block) {
      gathered[block].synchronize();
      launch_copy(block, 10 + block);
      other_->enqueue([&] { launch_copy(10 + block, 20 + block); });
    }
    other_->synchronize();
  };
  step();
  const auto before = cuda_shim::counts();
  for (int i = 0; i < 3; ++i) step();
  const auto after = cuda_shim::counts();
  EXPECT_EQ(after.events_made, before.events_made);
  EXPECT_EQ(after.streams_made, before.streams_made);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.host_waits, before.host_waits);
  EXPECT_EQ(after.launches - before.launches, 3 * 12);
}

TEST_F(StreamsOnFakeDevice, WaitingForAnEventIsLeftToTheDevice) {
  side_->enqueue([&] { launch_store(0, 5); });
  const Event done = side_->record();
  const auto waits = cuda_shim::counts().host_waits;
  done.synchronize();
  EXPECT_EQ(cuda_shim::counts().host_waits, waits);
}

TEST_F(StreamsOnFakeDevice, AFailedKernelIsAnErrorOfALaterCall) {
  const cuda_shim::Configured configured(cuda_shim::configuration());
  cuda_shim::break_device(cudaErrorIllegalAddress);
  EXPECT_THROW(side_->enqueue([] {}), DeviceError);
  EXPECT_THROW(side_->record(), DeviceError);
}

}  // namespace
}  // namespace trivet::cuda::streams_shim_test

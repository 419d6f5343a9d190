// Copies between a device and its host run at the same time as updates on the host, and are waited for where they are needed
// (zero/host_side.h). The tests run on the fake device, whose streams really run at the same time.
#include "zero/host_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <optional>
#include <thread>

#include "core/cuda/memory.h"
#include "core/cuda/streams.h"
#include "kernels/cuda/cuda_kernels.h"
#include "tests/cuda/gate.h"
#include "zero/staged_walk.h"

namespace trivet::zero {
namespace {

using namespace std::chrono_literals;

constexpr int64_t kPiece = 2048, kPieces = 5, kElements = kPieces * kPiece;

// Opens gates when open() is called, or when that takes so long that the caller must be waiting for them.
class Opener {
 public:
  explicit Opener(std::vector<cuda::Gate*> gates, std::chrono::milliseconds after = 5s)
      : thread_([this, gates = std::move(gates), after] {
          const auto end = std::chrono::steady_clock::now() + after;
          while (!asked_ && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
          opened_ = true;
          for (cuda::Gate* gate : gates) gate->open();
        }) {}
  ~Opener() { asked_ = true; }
  void open() { asked_ = true; }
  bool has_opened() const { return opened_; }

 private:
  std::atomic<bool> asked_ = false, opened_ = false;
  std::jthread thread_;  // last: it uses what is above
};

// A group in bfloat16 on the device, whose master weights and one state are in host memory.
class HostSideOnCuda : public testing::Test {
 protected:
  HostSideOnCuda() {
    layout_.blocks[0].groups[0].states = Placement::Host;
    group_ = std::make_unique<ParameterGroup>(
        layout_.blocks[0].groups[0],
        GroupOptions{.dtype = DType::BFloat16, .gradient_dtype = DType::BFloat16, .optimizer_states = 1},
        Resources{.kernels = *kernels_,
                  .allocator = *memory_,
                  .meter = meter_,
                  .buffers = buffers_,
                  .axes = {{*single_, *gathers_, *single_, *gathers_}},
                  .collectives = {},
                  .offload = {.host = &side_, .staging = kOptions}});
  }

  std::unique_ptr<Stream> keep(Stream*& stream) {
    auto made = streams_.make_stream(0);
    stream = made.get();
    return made;
  }
  cudaStream_t handle_of(Stream& stream) {
    cudaStream_t handle = nullptr;
    stream.enqueue([&] { handle = streams_.current(); });
    return handle;
  }
  bool is_busy(Stream& stream) {
    const bool busy = cudaStreamQuery(handle_of(stream)) == cudaErrorNotReady;
    cudaGetLastError();
    return busy;
  }
  // The gradients of piece k are k + 1.
  void compute_gradients() {
    std::vector<uint16_t> values;
    for (int64_t e = 0; e < kElements; ++e) values.push_back(bfloat16_of(static_cast<float>(e / kPiece + 1)));
    group_->begin_step();
    kernels_->from_host({values.data(), DType::BFloat16, {kElements}}, group_->gradient(0).view.reshaped({kElements}));
    group_->reduce();
    group_->retire();
  }
  static uint16_t bfloat16_of(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }
  static void expect_all(ConstTensorView view, float value) {
    ASSERT_EQ(view.dtype, DType::BFloat16);
    const auto* bits = static_cast<const uint16_t*>(view.data);
    for (int64_t e = 0; e < view.elements(); ++e) ASSERT_EQ(bits[e], bfloat16_of(value)) << "element " << e;
  }
  void visit_all(const UsePiece& use) {
    visit(pieces_of(*group_, kPiece),
          {.master = Access::ReadWrite, .copy_out = Access::Write, .states = {Access::ReadWrite}, .gradient = true}, buffers_,
          kOptions, use);
  }

  static constexpr StagingOptions kOptions{.most_elements = kPiece, .read_ahead = true, .write_behind = true};

  cuda::Streams streams_{0};
  std::unique_ptr<Allocator> memory_ = cuda::make_device_allocator(0), pinned_ = cuda::make_pinned_allocator(0);
  MemoryMeter meter_;
  std::unique_ptr<kernels::Kernels> kernels_ = kernels::make_cuda_kernels(
      {.streams = &streams_, .allocator = memory_.get(), .meter = &meter_, .workspace_bytes = 1 << 20});
  std::unique_ptr<kernels::Kernels> host_kernels_ = kernels::make_cpu_kernels(1);
  Stream *to_ = nullptr, *from_ = nullptr;
  HostSide side_{{.device = *kernels_,
                  .host = *host_kernels_,
                  .allocator = *pinned_,
                  .to = keep(to_),
                  .from = keep(from_),
                  .staging_bytes = 1 << 16}};
  Arena buffers_{"buffers", *memory_, meter_, MemoryCategory::Buffers, 1 << 20};
  std::unique_ptr<Stream> gathers_ = streams_.make_compute_stream();
  std::unique_ptr<comm::ProcessGroup> single_ =
      comm::make_single_group("single", [this](ConstTensorView from, TensorView to) { kernels_->copy(from, to); });
  std::vector<ParameterSpec> specs_{{.name = "weight", .shape = {kElements}}};
  ShardLayout layout_ = make_shard_layout({{"net", specs_}}, {.shards = ShardCounts(1)});
  std::unique_ptr<ParameterGroup> group_;
};

// While piece 1 is updated, the gradients of piece 2 and the weights of piece 0 are being copied.
TEST_F(HostSideOnCuda, CopiesRunDuringTheUpdateOfAnotherPiece) {
  compute_gradients();
  std::optional<cuda::Gate> down, up;
  std::optional<Opener> opener;
  int64_t next = 0;
  visit_all([&](const OwnedPiece& piece, const OwnedRange& range) {
    const auto number = static_cast<float>(next++);
    EXPECT_EQ(piece.first, static_cast<int64_t>(number) * kPiece);
    expect_all(range.gradient, number + 1);
    std::fill_n(static_cast<uint16_t*>(range.copy_out.data), range.count, bfloat16_of(-number));
    if (number == 0) {
      down.emplace(handle_of(*to_));
      up.emplace(handle_of(*from_));
      opener.emplace(std::vector<cuda::Gate*>{&*down, &*up});
    } else if (number == 1) {
      EXPECT_FALSE(opener->has_opened());
      EXPECT_TRUE(is_busy(*to_));
      EXPECT_TRUE(is_busy(*from_));
      opener->open();
    }
  });
  EXPECT_EQ(next, kPieces);
  std::vector<uint16_t> weights(kElements);
  kernels_->to_host(group_->weight(0), {weights.data(), DType::BFloat16, {kElements}});
  for (int64_t e = 0; e < kElements; ++e)
    ASSERT_EQ(weights[e], bfloat16_of(-static_cast<float>(e / kPiece))) << "element " << e;
}

TEST_F(HostSideOnCuda, AnUpdateBeginsWhenItsGradientsAreThereAndAVisitEndsWhenItsWeightsAre) {
  compute_gradients();
  std::optional<cuda::Gate> down(handle_of(*to_)), up;
  std::optional<Opener> opener(std::in_place, std::vector<cuda::Gate*>{&*down}, 30ms);
  int64_t next = 0;
  visit_all([&](const OwnedPiece&, const OwnedRange& range) {
    if (next == 0) {
      EXPECT_TRUE(opener->has_opened());
    }
    expect_all(range.gradient, static_cast<float>(++next));
    std::fill_n(static_cast<uint16_t*>(range.copy_out.data), range.count, bfloat16_of(1));
    if (next < kPieces) return;
    up.emplace(handle_of(*from_));
    opener.emplace(std::vector<cuda::Gate*>{&*up}, 30ms);
  });
  EXPECT_TRUE(opener->has_opened());
}

// The host may use host memory only once the device's last access to it is over.
TEST_F(HostSideOnCuda, HostMemoryIsTheHostsWhenTheDeviceIsDoneWithIt) {
  HostTensor tensor(side_, MemoryCategory::Parameters, DType::Float32, 3);
  const ScopedTensor ones(buffers_, DType::Float32, {3});
  kernels_->initialize(ones, {.kind = Init::Kind::Ones}, 0, 0);
  HostTensorOnDevice on_device(tensor);
  {
    cuda::Gate gate(handle_of(*to_));
    const PendingCopy written = on_device.write(0, ones);
    written.wait();  // holds kernels, not the host
    EXPECT_TRUE(is_busy(*to_));
    const Opener opener({&gate}, 30ms);
    EXPECT_EQ(tensor.host_memory().as<float>()[2], 1.0f);
    EXPECT_TRUE(opener.has_opened());
  }
  cuda::Gate gate(handle_of(*from_));
  tensor.copy_up_on(*from_, ones);
  const Opener opener({&gate}, 30ms);
  tensor.host_memory().as<float>()[2] = 2.0f;
  EXPECT_TRUE(opener.has_opened());
}

}  // namespace
}  // namespace trivet::zero

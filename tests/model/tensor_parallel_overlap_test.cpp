// Tests what runs at the same time as a sum over the tensor axis.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "model/linear.h"
#include "tests/model/layer_on_ranks.h"

namespace trivet::model {
namespace {

// Counts the work that is enqueued; nothing runs before `release`.
class HeldStream final : public Stream {
 public:
  explicit HeldStream(std::shared_future<void> release) {
    inner_->enqueue([release] { EXPECT_EQ(release.wait_for(std::chrono::seconds(10)), std::future_status::ready); });
  }
  void enqueue(std::function<void()> work) override {
    ++enqueued;
    inner_->enqueue(std::move(work));
  }
  Event record() override { return inner_->record(); }
  void wait(const Event& event) override { inner_->wait(event); }
  void synchronize() override { inner_->synchronize(); }
  int enqueued = 0;

 private:
  std::unique_ptr<Stream> inner_ = make_thread_stream("held");
};

// Announces that its weight gradient has been computed, and checks how much had been enqueued before.
class AnnouncingLinear : public Linear {
 public:
  AnnouncingLinear(const Options& options, HeldStream& stream, std::promise<void>& made)
      : Linear(options), stream_(stream), made_(made) {}

 protected:
  void make_weight_gradients(Context& context, Gradients gradients, ConstTensorView inputs, ConstTensorView output_gradients,
                             const Saved& saved) const override {
    EXPECT_EQ(stream_.enqueued, 1);
    Linear::make_weight_gradients(context, gradients, inputs, output_gradients, saved);
    made_.set_value();
  }

 private:
  HeldStream& stream_;
  std::promise<void>& made_;
};

TEST(TensorParallelLayers, MakeTheWeightGradientWhileDxIsSummed) {
  comm::run_threads(2, [](comm::World& world) {
    Values weight(2 * 3, 1), x(2 * 3, 1), dy(2 * 2, world.rank() + 1), y(2 * 2), dx(2 * 3, kGarbage), dweight(2 * 3, kGarbage);
    std::promise<void> made;
    HeldStream stream(made.get_future().share());
    const AnnouncingLinear linear({.in = 3, .out = 4, .bias = false, .split = {0, {4}}}, stream, made);
    const RankAxis axis{world.group(), stream};
    const auto kernels = kernels::make_cpu_kernels(1);
    Arena arena("none");
    Context context{*kernels, arena};
    context.axes[Axis::Tensor] = &axis;
    Saved saved;
    const ConstTensorView weights[] = {view_of(weight, {2, 3})};
    const Gradient gradients[] = {{view_of(dweight, {2, 3}), false}};
    linear.forward(context, weights, view_of(x, {2, 3}), view_of(y, {2, 2}), saved);
    linear.backward(context, weights, gradients, view_of(dy, {2, 2}), view_of(dx, {2, 3}), saved);
    EXPECT_THAT(dx, testing::Each(2 * 1.0 + 2 * 2.0));
    EXPECT_THAT(dweight, testing::Each(2.0 * (world.rank() + 1)));
    world.close();
  });
}

}  // namespace
}  // namespace trivet::model

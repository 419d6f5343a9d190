#include "tests/equivalence/planted_faults.h"

#include <atomic>
#include <functional>
#include <optional>

#include "comm/world.h"
#include "kernels/products.h"

namespace trivet::test {
namespace {

void flip(const void* data, int64_t byte_size, uint64_t element, int bit) {
  auto* const bytes = static_cast<uint8_t*>(const_cast<void*>(data)) + element * static_cast<uint64_t>(byte_size);
  const int in_element = bit % static_cast<int>(8 * byte_size);
  bytes[in_element / 8] ^= static_cast<uint8_t>(1u << (in_element % 8));
}

void flip(ConstTensorView view, uint64_t element, int bit) {
  flip(view.data, size_of(view.dtype), element % static_cast<uint64_t>(view.elements()), bit);
}

// Elements of a tensor that belong to one parameter.
struct Part {
  ConstTensorView view;
  std::string parameter;
};

void flip_one_of(const std::vector<Part>& parts, const Placement& placement, Planted& planted) {
  uint64_t all = 0;
  for (const Part& part : parts) all += static_cast<uint64_t>(part.view.elements());
  if (all == 0) return;
  uint64_t place = placement.place % all;
  for (const Part& part : parts) {
    const auto elements = static_cast<uint64_t>(part.view.elements());
    if (place < elements) {
      flip(part.view, place, placement.bit);
      planted = {.done = true, .parameter = part.parameter};
      return;
    }
    place -= elements;
  }
}

// The weights that are whole on this rank at this moment.
std::vector<Part> whole_weights(Engine& engine) {
  std::vector<Part> parts;
  engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    if (group.layout().role == zero::GroupRole::TiedGradients) return;
    for (size_t i = 0; i < group.layout().parameters.size(); ++i) try {
        parts.push_back({group.weight(static_cast<int>(i)), group.layout().parameters[i].name});
      } catch (const std::logic_error&) {  // sharded now
      }
  });
  return parts;
}

// The sums of gradients that this rank will update weights from.
std::vector<Part> own_gradients(Engine& engine) {
  std::vector<Part> parts;
  engine.parameters().for_each_group([&](int, zero::ParameterGroup& group) {
    if (!group.layout().trainable || group.layout().role != zero::GroupRole::Own) return;
    const zero::OwnedRange owned = group.owned();
    for (const zero::FlatParameter& parameter : group.layout().parameters) {
      const zero::Intersection part = zero::intersection(parameter, owned.first, owned.count);
      if (part.count > 0) parts.push_back({owned.gradient.slice(part.first_in_range, part.count), parameter.name});
    }
  });
  return parts;
}

// One rank's observer: counts products, and flips a bit at one of them.
class Planter final : public kernels::KernelObserver {
 public:
  std::optional<Placement> placement;  // given in the step of the fault, on its rank
  Planted* planted = nullptr;
  Engine* engine = nullptr;
  uint64_t products = 0;  // since the step began

  void asked(const kernels::Matmul& product) override {
    if (waits_for(Fault::Weight)) flip_one_of(whole_weights(*engine), *placement, *planted);
    out_ = product.out;
  }
  void ended(const kernels::KernelCall& call) override {
    if (call.kernel != "matmul") return;
    if (waits_for(Fault::Accumulator)) flip_one_of(own_gradients(*engine), *placement, *planted);
    if (waits_for(Fault::Gradient) && call.result == kernels::Result::WeightGradient && out_.dtype == DType::Float32) {
      flip(out_, placement->place, placement->bit);
      planted->done = true;
    }
    ++products;
  }

 private:
  bool waits_for(Fault fault) const {
    return placement && placement->fault == fault && !planted->done && products >= placement->moment;
  }

  TensorView out_;
};

// One rank's messages: counts sums of gradients over data ranks, and flips a bit in the result of one.
struct Messages {
  std::optional<Placement> placement;
  Planted* planted = nullptr;
  std::atomic<uint64_t> sums = 0;
};

class PassingGroup final : public comm::ProcessGroup {
 public:
  PassingGroup(std::unique_ptr<comm::ProcessGroup> owned, comm::ProcessGroup* inner, Messages& messages)
      : owned_(std::move(owned)), inner_(owned_ ? *owned_ : *inner), messages_(messages) {}

  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  const std::string& name() const override { return inner_.name(); }
  void all_reduce(TensorView data, comm::ReduceOp op, Stream& stream) override {
    inner_.all_reduce(data, op, stream);
    after_sum(data, stream);
  }
  void reduce_scatter(ConstTensorView whole, TensorView shard, comm::ReduceOp op, Stream& stream) override {
    inner_.reduce_scatter(whole, shard, op, stream);
    after_sum(shard, stream);
  }
  void all_gather(ConstTensorView shard, TensorView whole, Stream& stream) override { inner_.all_gather(shard, whole, stream); }
  void broadcast(TensorView data, int root, Stream& stream) override { inner_.broadcast(data, root, stream); }
  void all_to_all(ConstTensorView in, TensorView out, Stream& stream) override { inner_.all_to_all(in, out, stream); }
  void all_to_all_v(ConstTensorView in, TensorView out, const comm::ExchangeCounts& counts, Stream& stream) override {
    inner_.all_to_all_v(in, out, counts, stream);
  }
  void send(ConstTensorView data, int peer, Stream& stream) override { inner_.send(data, peer, stream); }
  void receive(TensorView data, int peer, Stream& stream) override { inner_.receive(data, peer, stream); }
  void barrier(Stream& stream) override { inner_.barrier(stream); }
  std::unique_ptr<comm::ProcessGroup> subgroup(const std::vector<int>& ranks, const std::string& name) override {
    auto group = inner_.subgroup(ranks, name);
    if (!group) return nullptr;
    return std::make_unique<PassingGroup>(std::move(group), nullptr, messages_);
  }
  comm::Traffic traffic() const override { return inner_.traffic(); }

 private:
  void after_sum(TensorView data, Stream& stream) {
    if (name() != "data.reduce" || data.dtype != DType::Int64) return;
    const uint64_t sum = messages_.sums++;
    if (!messages_.placement || sum != messages_.placement->moment) return;
    messages_.planted->done = true;
    stream.enqueue([data, placement = *messages_.placement] { flip(data, placement.place, placement.bit); });
  }

  std::unique_ptr<comm::ProcessGroup> owned_;
  comm::ProcessGroup& inner_;
  Messages& messages_;
};

class PassingWorld final : public comm::World {
 public:
  PassingWorld(comm::World& inner, Messages& messages)
      : inner_(inner), group_(std::make_unique<PassingGroup>(nullptr, &inner.group(), messages)) {}
  comm::ProcessGroup& group() const override { return *group_; }
  std::string host() const override { return "host-" + std::to_string(inner_.rank()); }
  Allocator& allocator() override { return inner_.allocator(); }
  void close() override { inner_.close(); }
  void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

 private:
  comm::World& inner_;
  std::unique_ptr<comm::ProcessGroup> group_;
};

// What the ranks of a run share with its hooks.
struct Hooks {
  explicit Hooks(int ranks) : planters(ranks), messages(ranks) {}
  std::vector<Planter> planters;
  std::vector<Messages> messages;
};

TinyRun hooked(TinyRun run, const std::shared_ptr<Hooks>& hooks) {
  run.observer = [hooks](int rank) { return &hooks->planters[rank]; };
  run.wrap = [hooks](comm::World& world) { return std::make_unique<PassingWorld>(world, hooks->messages[world.rank()]); };
  return run;
}

}  // namespace

Moments count_moments(const TinyRun& run) {
  const auto hooks = std::make_shared<Hooks>(run.ranks);
  Moments moments{std::vector<uint64_t>(run.ranks), std::vector<uint64_t>(run.ranks)};
  TinyRun counted = hooked(run, hooks);
  counted.steps = 2;
  counted.config.audit.every_steps = 0;
  counted.before_step = [hooks, &moments](Engine&, int rank, int64_t step) {
    if (step == 0) hooks->planters[rank].products = hooks->messages[rank].sums = 0;
    if (step == 1) moments.products[rank] = hooks->planters[rank].products, moments.sums[rank] = hooks->messages[rank].sums;
  };
  test::run(counted);
  return moments;
}

TinyRun with_fault(TinyRun run, const Placement& placement, Planted& planted) {
  const auto hooks = std::make_shared<Hooks>(run.ranks);
  run = hooked(std::move(run), hooks);
  run.before_step = [hooks, placement, &planted](Engine& engine, int rank, int64_t step) {
    Planter& planter = hooks->planters[rank];
    Messages& messages = hooks->messages[rank];
    const bool armed = rank == placement.rank && step == placement.step;
    planter.engine = &engine;
    planter.products = 0;
    planter.planted = messages.planted = &planted;
    messages.sums = 0;
    planter.placement = messages.placement = armed ? std::optional(placement) : std::nullopt;
  };
  return run;
}

}  // namespace trivet::test

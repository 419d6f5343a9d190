#include "autotune/block_work.h"

#include <algorithm>
#include <typeinfo>

#include "comm/rank_axis.h"
#include "core/rising_number.h"
#include "engine/rank_batches.h"
#include "tensor_parallel/split.h"

namespace trivet::autotune {
namespace {

class CallLog final : public kernels::KernelObserver {
 public:
  void ended(const kernels::KernelCall& call) override {
    note(PassWork::Kind::Kernel, to_->calls.size());
    to_->calls.push_back(call);
  }
  void started(const AxisOperation& operation) {
    note(PassWork::Kind::Operation, to_->operations.size());
    to_->operations.push_back(operation);
  }
  void waits(const PassWork* work, size_t operation) {
    if (work == to_) note(PassWork::Kind::Wait, operation);  // operations of another part have ended with that part
  }
  void write_to(PassWork& work) { to_ = &work; }
  const PassWork& work() const { return *to_; }

 private:
  void note(PassWork::Kind kind, size_t index) { to_->items.push_back({kind, index}); }

  PassWork* to_ = nullptr;
};

// The stream of an axis. It logs waits; the group logs its operations.
class LoggingStream final : public Stream {
 public:
  LoggingStream(Axis axis, CallLog& log) : axis_(axis), log_(log) {}
  void enqueue(std::function<void()> work) override { work(); }
  Event record() override { return Event(std::make_shared<Started>(log_, last_operation())); }
  void wait(const Event&) override {}
  void synchronize() override { record().synchronize(); }

 private:
  class Started final : public Event::State {
   public:
    Started(CallLog& log, std::optional<size_t> last) : log_(log), work_(&log.work()), last_(last) {}
    void synchronize() override {
      if (last_) log_.waits(work_, *last_);
    }
    void observe(WaitObserver&) override {}

   private:
    CallLog& log_;
    const PassWork* work_;
    std::optional<size_t> last_;
  };
  std::optional<size_t> last_operation() const {
    const std::vector<AxisOperation>& operations = log_.work().operations;
    for (size_t i = operations.size(); i-- > 0;)
      if (operations[i].axis == axis_) return i;
    return {};
  }

  Axis axis_;
  CallLog& log_;
};

// The group of an axis, or of ranks that are `stride` apart on it; it logs the operations that are requested.
class LoggingGroup final : public comm::ProcessGroup {
 public:
  LoggingGroup(Axis axis, int size, CallLog& log, int stride = 1) : axis_(axis), size_(size), stride_(stride), log_(log) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  const std::string& name() const override { return name_; }
  void all_reduce(TensorView data, comm::ReduceOp, Stream&) override { note(comm::Operation::AllReduce, data); }
  void reduce_scatter(ConstTensorView whole, TensorView, comm::ReduceOp, Stream&) override {
    note(comm::Operation::ReduceScatter, whole);
  }
  void all_gather(ConstTensorView, TensorView whole, Stream&) override { note(comm::Operation::AllGather, whole); }
  void broadcast(TensorView data, int, Stream&) override { note(comm::Operation::Broadcast, data); }
  void all_to_all(ConstTensorView in, TensorView, Stream&) override { note(comm::Operation::AllToAll, in); }
  // Ranks that share experts send to one rank at a time. All others are priced as an even exchange in which the rank sends as
  // much to the others.
  void all_to_all_v(ConstTensorView in, TensorView, const comm::ExchangeCounts& counts, Stream&) override {
    if (size_ == 1) return;
    if (axis_ == Axis::Expert) return note(comm::Operation::Send, in);
    const auto sent = static_cast<double>(in.elements() - counts.sent[0]) / (size_ - 1) * size_;
    start(comm::Operation::AllToAllV, sent * static_cast<double>(size_of(in.dtype)));
  }
  void send(ConstTensorView data, int, Stream&) override { note(comm::Operation::Send, data); }
  void receive(TensorView data, int, Stream&) override { note(comm::Operation::Receive, data); }
  void barrier(Stream&) override {}
  std::unique_ptr<comm::ProcessGroup> subgroup(const std::vector<int>&, const std::string&) override { return nullptr; }
  comm::Traffic traffic() const override { return {}; }

 private:
  void note(comm::Operation operation, ConstTensorView data) {
    if (size_ > 1) start(operation, static_cast<double>(data.bytes()));
  }
  void start(comm::Operation operation, double bytes) { log_.started({axis_, operation, bytes, size_, stride_}); }

  Axis axis_;
  int size_, stride_;
  CallLog& log_;
  std::string name_{name_of(axis_)};
};

// Returns a rank's own tokens, with the documents, positions and references of whole sequences.
Microbatch microbatch_of(const SampleSpec& sample, const BlockSite& site) {
  const Microbatch whole = sample.without_memory(site.microbatch);
  Microbatch own = part_of(sample, site.context).without_memory(site.microbatch);
  own.documents = whole.documents, own.positions = whole.positions, own.reference = whole.reference;
  return own;
}

// Runs one block at a time, without any memory.
class BlockRun {
 public:
  BlockRun(const model::Model& model, const BlockSite& site)
      : model_(model),
        site_(site),
        meta_(kernels::make_meta_kernels()),
        kernels_(kernels::make_observed_kernels(*meta_, log_)),
        tensor_stream_(Axis::Tensor, log_),
        context_stream_(Axis::Context, log_),
        expert_stream_(Axis::Expert, log_),
        tensor_group_(Axis::Tensor, site.tensor, log_),
        context_group_(Axis::Context, site.context, log_),
        expert_group_(Axis::Expert, site.expert, log_),
        neighbours_(Axis::Context, site.context_neighbours, log_),
        across_neighbours_(Axis::Context, site.context / site.context_neighbours, log_, site.context_neighbours),
        tensor_axis_{tensor_group_, tensor_stream_, site.sequence_parallel, false},
        context_axis_{
            .group = context_group_,
            .stream = context_stream_,
            .context_kind = site.context_kind,
            .cut = site.context_kind == ContextKind::Ulysses ? SequencePart::Cut::InOrder : SequencePart::Cut::Balanced,
            .neighbours = site.context_neighbours > 1 ? &neighbours_ : nullptr,
            .across_neighbours = site.context_neighbours > 1 ? &across_neighbours_ : nullptr},
        expert_axis_{.group = expert_group_, .stream = expert_stream_},
        microbatch_(microbatch_of(model.sample, site)) {}

  Context context_of(Arena& arena) {
    Context context{.kernels = *kernels_, .arena = arena, .microbatch = &microbatch_};
    context.random.step = static_cast<double>(kStepAfterAllRuns);
    context.recompute_attention = site_.recompute_attention;
    context.axes[Axis::Tensor] = &tensor_axis_;
    if (site_.context > 1) context.axes[Axis::Context] = &context_axis_;
    if (site_.expert > 1) context.axes[Axis::Expert] = &expert_axis_;
    return context;
  }

  BlockWork run(const Layer& layer, const Shape& input, bool first) {
    BlockWork work;
    std::vector<ConstTensorView> weights;
    std::vector<Gradient> gradients;
    for (const ParameterSpec& spec : layer.parameters()) {
      Shape shape = tensor_parallel::local_part(spec, 0, site_.tensor).shape;
      const bool shared = site_.expert > 1 && spec.sharing == Sharing::Expert;
      if (shared) shape[0] /= site_.expert;
      weights.push_back({nullptr, dtype_in(spec, site_.dtype), shape});
      gradients.push_back(spec.trainable ? Gradient{{nullptr, DType::Float32, shape}, true, [] { return true; }} : Gradient{});
      (spec.tied_to.empty() ? work.parameters : work.tied_parameters) += shape.elements();
      if (spec.trainable) (spec.tied_to.empty() ? work.trained : work.tied_trained) += shape.elements();
      if (shared) work.expert_parameters += shape.elements();
      if (shared && spec.trainable) work.expert_trained += shape.elements();
    }
    Arena arena("block");
    Context context = context_of(arena);
    const ConstTensorView x = first ? samples() : ConstTensorView{nullptr, site_.dtype, input};
    const TensorView dx = first ? TensorView{} : TensorView{nullptr, site_.dtype, input};
    Saved saved;
    const int64_t input_bytes = first ? 0 : x.bytes();
    if (layer.role() == LayerRole::Loss) {
      log_.write_to(work.backward);
      layer.forward_backward(context, weights, gradients, x, dx, saved);
      work.saved_bytes = input_bytes;
    } else {
      const TensorView y{nullptr, site_.dtype, output(layer, input)};
      work.output_elements = y.elements();
      log_.write_to(work.forward);
      layer.forward(context, weights, x, y, saved);
      work.saved_bytes = input_bytes + arena.used_bytes();
      log_.write_to(work.backward);
      layer.backward(context, weights, gradients, y, dx, saved);
      // Layers whose experts are shared compute both halves at once.
      if (work.expert_parameters == 0) work.pending_bytes = input_bytes + bytes_between_halves(layer, weights, x, y, dx);
      if (!first) run_again(layer, weights, x, work.again);
    }
    work.peak_bytes = arena.peak_bytes();
    return work;
  }

  void run_again(const Layer& layer, Weights weights, ConstTensorView x, PassWork& again) {
    log_.write_to(again);
    Arena arena("again");
    Saved saved;
    Context context = context_of(arena);
    layer.forward_again(context, weights, x, saved);
  }

  int64_t bytes_between_halves(const Layer& layer, Weights weights, ConstTensorView x, TensorView y, TensorView dx) {
    PassWork unused;
    log_.write_to(unused);
    Arena arena("halves");
    Saved saved;
    Context context = context_of(arena);
    layer.forward(context, weights, x, y, saved);
    layer.backward_input(context, weights, y, dx, saved);
    return arena.used_bytes();
  }

  // With sequence parallelism a rank has only its own tokens of the tensors between blocks.
  Shape output(const Layer& layer, const Shape& input) const {
    Shape shape = layer.output_shape(input);
    if (site_.sequence_parallel && input == microbatch_.input.shape) shape[1] /= site_.tensor;
    return shape;
  }
  // The first block's input, in the model's dtype if it is numbers, as the engine converts it.
  ConstTensorView samples() const {
    const ConstTensorView input = microbatch_.input;
    return {nullptr, is_float(input.dtype) ? site_.dtype : input.dtype, input.shape};
  }

 private:
  const model::Model& model_;
  BlockSite site_;
  CallLog log_;
  std::unique_ptr<kernels::Kernels> meta_, kernels_;
  LoggingStream tensor_stream_, context_stream_, expert_stream_;
  LoggingGroup tensor_group_, context_group_, expert_group_, neighbours_, across_neighbours_;
  comm::RankAxis tensor_axis_, context_axis_, expert_axis_;
  Microbatch microbatch_;
};

bool are_alike(const Layer& a, const Layer& b) {
  const auto same = [](const ParameterSpec& x, const ParameterSpec& y) {
    return x.name == y.name && x.shape == y.shape && x.trainable == y.trainable;
  };
  return typeid(a) == typeid(b) && a.type() == b.type() && a.work_variant() == b.work_variant() &&
         std::ranges::equal(a.parameters(), b.parameters(), same);
}

}  // namespace

BlockWorks::BlockWorks(const model::Model& model) : model_(model) {
  for (size_t block = 0; block < model.layers.size(); ++block)
    repeats_.push_back(block > 0 && are_alike(*model.layers[block], *model.layers[block - 1]));
}

Works BlockWorks::at(const BlockSite& site) const {
  BlockRun run(model_, site);
  Works works;
  Shape input = run.samples().shape, input_before;
  const Layer* before = nullptr;  // the block before, unless it reads samples: then it has no gradient of its input
  for (const auto& block : model_.layers) {
    const Layer& layer = *block;
    const bool loss = layer.role() == LayerRole::Loss, reads_samples = works.empty();
    const bool repeats = before != nullptr && !loss && input == input_before && repeats_[works.size()] &&
                         layer.output_shape(input) == before->output_shape(input);
    works.push_back(repeats ? works.back() : std::make_shared<const BlockWork>(run.run(layer, input, reads_samples)));
    before = reads_samples ? nullptr : &layer;
    input_before = input;
    if (!loss) input = run.output(layer, input);
  }
  return works;
}

}  // namespace trivet::autotune

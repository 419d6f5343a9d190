#include "engine/worker.h"

#include <fmt/format.h>

#include <vector>

#include "core/error.h"

namespace trivet {
namespace {

// A reduction may run beside the backward of the next block; holding more whole gradients would only cost memory.
constexpr int kOverlappedReductions = 1;

// A tied parameter gets two contributions a microbatch, hence the 2 in the number of terms.
ParameterOptions parameter_options(const Config& config, int microbatches, int ranks) {
  return {.zero_stage = config.zero.stage,
          .dtype = config.model_dtype(),
          .gradient_dtype = config.grad_accum_dtype.value_or(config.model_dtype()),
          .fixed_point = config.reproducible == Reproducible::Layout,
          .fixed_point_terms = int64_t{2} * microbatches * ranks,
          .microbatches = microbatches,
          .optimizer_states = optimizer_states(config.optimizer.type, config.optimizer)};
}

}  // namespace

zero::CollectiveOptions collective_options(const ZeroConfig& zero) {
  return {.reduce_bucket_elements = zero.reduce_bucket_size,
          .gather_bucket_elements = zero.allgather_bucket_size,
          .reduce_scatter = zero.reduce_scatter,
          .allgather_partitions = zero.allgather_partitions};
}

Worker::Worker(const Config& config, const Programs& programs, const zero::ShardLayout& layout, const model::Model& model,
               int64_t micro_batch_size, const WorkerResources& resources)
    : config_(config),
      programs_(programs),
      batch_shape_{micro_batch_size, model.sequence_length},
      resources_(resources),
      parameters_(layout, parameter_options(config, programs.microbatches, layout.ranks),
                  {.kernels = resources.kernels,
                   .allocator = resources.allocator,
                   .meter = resources.meter,
                   .buffers = resources.buffers,
                   .gather_group = resources.gather_group,
                   .gather_stream = resources.gather_stream,
                   .reduce_group = resources.reduce_group,
                   .reduce_stream = resources.reduce_stream,
                   .collectives = collective_options(config.zero)}),
      executor_(model, parameters_, resources.kernels, resources.activations,
                {.dtype = config.model_dtype(),
                 .clear_after_forward = programs.recompute,
                 .reductions_in_flight = config.zero.overlap_comm ? kOverlappedReductions : 0}),
      optimizer_(config.optimizer, parameters_,
                 {.kernels = resources.kernels,
                  .allocator = resources.allocator,
                  .meter = resources.meter,
                  .buffers = resources.buffers,
                  .group = resources.control_group,
                  .stream = resources.control_stream,
                  .collectives = collective_options(config.zero),
                  .sub_group_elements = config.zero.sub_group_size}) {}

// The arenas were planned for one shape; another one would be a defect far from its cause.
void Worker::check_shape(const Microbatch& microbatch) const {
  if (!(microbatch.tokens.shape == batch_shape_) || !(microbatch.targets.shape == batch_shape_))
    throw DataError(ExitCode::Usage, fmt::format("engine: a microbatch has tokens {} and targets {}, the plan is for {}",
                                                 to_string(microbatch.tokens.shape), to_string(microbatch.targets.shape),
                                                 to_string(batch_shape_)));
}

StepLoss Worker::forward_backward(std::span<const Microbatch> microbatches, const StepNumbers& numbers) {
  if (static_cast<int>(microbatches.size()) != programs_.microbatches)
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: {} microbatches were given, a step has {} (gradient_accumulation_steps)",
                                microbatches.size(), programs_.microbatches));
  for (const Microbatch& microbatch : microbatches) check_shape(microbatch);
  parameters_.begin_step();
  return executor_.run(programs_.train, {.microbatches = microbatches,
                                         .seed = numbers.seed,
                                         .step = numbers.step,
                                         .loss_scale = numbers.loss_scale,
                                         .training = true});
}

StepOutcome Worker::update(const StepNumbers& numbers, int64_t microbatches_of_all_ranks) {
  const bool check_finite = !config_.bf16.enabled || config_.bf16.check_grad_overflow;
  return optimizer_.run({.lr = numbers.lr,
                         .beta1 = numbers.beta1,
                         .beta2 = numbers.beta2,
                         .update = numbers.update,
                         .loss_scale = numbers.loss_scale,
                         .microbatches = microbatches_of_all_ranks,
                         .clipping = config_.gradient_clipping,
                         .check_finite = check_finite});
}

StepResult Worker::train_step(std::span<const Microbatch> microbatches, const StepNumbers& numbers) {
  StepResult result = combine(forward_backward(microbatches, numbers));
  const int64_t all = static_cast<int64_t>(microbatches.size()) * resources_.control_group.size();
  const StepOutcome outcome = update(numbers, all);
  result.grad_norm = outcome.grad_norm;
  result.skipped = outcome.skipped;
  return result;
}

StepResult Worker::evaluate(int64_t microbatches, const std::function<Microbatch(int64_t)>& make) {
  StepLoss sum;
  for (int64_t i = 0; i < microbatches; ++i) {
    const Microbatch microbatch = make(i);
    check_shape(microbatch);
    const StepLoss loss = executor_.run(programs_.evaluate, {.microbatches = {&microbatch, 1}, .training = false});
    sum.loss_sum.add(loss.loss_sum);
    sum.loss_tokens += loss.loss_tokens;
  }
  return combine(sum);
}

StepResult Worker::combine(const StepLoss& loss) {
  std::vector<int64_t> words(loss.loss_sum.words().begin(), loss.loss_sum.words().end());
  words.push_back(loss.loss_tokens);
  if (resources_.control_group.size() > 1) {
    resources_.control_group.all_reduce({words.data(), DType::Int64, {static_cast<int64_t>(words.size())}}, comm::ReduceOp::Sum,
                                        resources_.control_stream);
    resources_.control_stream.synchronize();
  }
  ExactSum sum;
  std::copy(words.begin(), words.end() - 1, sum.words().begin());
  StepResult result;
  result.tokens = words.back();
  result.loss = result.tokens > 0 ? sum.value() / static_cast<double>(result.tokens) : 0.0;
  return result;
}

}  // namespace trivet

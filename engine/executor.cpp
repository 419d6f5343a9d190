#include "engine/executor.h"

#include <stdexcept>

#include "comm/rank_axis.h"
#include "engine/partitioned_input.h"
#include "kernels/kernels.h"
#include "zero/host_side.h"

namespace trivet {

using pipeline::Instruction;
using pipeline::Op;

Executor::Executor(const ExecutorParts& parts, const RankResources& resources, const ExecutorOptions& options)
    : model_(parts.model),
      parameters_(parts.parameters),
      stages_(parts.stages),
      links_(parts.links),
      axes_(parts.axes),
      resources_(resources),
      options_(options),
      reducer_(options.reductions_in_flight) {
  if (options.leaves > 0) leaf_kernels_.emplace(resources.kernels, resources.activations, options.leaves);
}

void Executor::run(const pipeline::Program& program, const std::vector<Recompute>& recompute, const StepInputs& inputs) {
  inputs_ = inputs;
  recompute_ = &recompute;
  microbatches_ = static_cast<int>(inputs.microbatches.size());
  resources_.kernels.zero(inputs_.results->losses(microbatches_));
  shapes_.clear();
  for (size_t block = 0; block < model_.layers.size(); ++block)
    shapes_.push_back(block == 0 ? inputs.microbatches[0].input.shape : model_.layers[block - 1]->output_shape(shapes_.back()));
  // Every rank has all tokens, but only its part of what the first block makes from them (comm/rank_axis.h).
  for (const auto& [name, axis] : EnumNames<Axis>::table)
    if (const comm::RankAxis* shared = axes_[axis]; shared && shared->splits_tokens)
      for (size_t block = 1; block < shapes_.size(); ++block) shapes_[block][1] /= shared->size();
  const comm::RankAxis* const tensor = axes_[Axis::Tensor];
  if (leaf_kernels_)
    leaf_kernels_->set_rows(shapes_[0][0], shapes_[0][1], tensor && tensor->splits_tokens ? tensor->size() : 1);
  flights_.clear();
  flights_.resize(inputs.microbatches.size());
  for (Flight& flight : flights_) {
    flight.inputs.resize(model_.layers.size());
    flight.output_gradients.resize(model_.layers.size());
    flight.input_arrived.resize(model_.layers.size());
    flight.gradient_arrived.resize(model_.layers.size());
    flight.inputs_on_host.resize(model_.layers.size());
    flight.input_moved.resize(model_.layers.size());
    flight.saved.resize(model_.layers.size());
  }
  for (size_t at = 0; at < program.size(); ++at) {
    const timeline::RecordedInstruction recorded(inputs.recorder, at);
    run(program[at]);
    if (inputs.memory) inputs.memory->after(program[at].op);
  }
  reducer_.finish();
  links_.finish();
  flights_.clear();
  if (!inputs.training) add_losses();  // evaluation programs have no SUM_LOSS
}

void Executor::run(const Instruction& i) {
  switch (i.op) {
    case Op::Forward: return forward(i.block, i.microbatch);
    case Op::Recompute: return recompute(i.block, i.microbatch);
    case Op::Loss: return loss(i.block, i.microbatch);
    case Op::Backward: return backward(i.block, i.microbatch);
    case Op::BackwardInput: return backward_input(i.block, i.microbatch);
    case Op::BackwardWeight: return backward_weight(i.block, i.microbatch);
    case Op::Offload: return offload(i.block, i.microbatch);
    case Op::Fetch: return fetch(i.block, i.microbatch);
    case Op::Unshard: return parameters_.unshard(i.block);
    case Op::Reshard: return parameters_.reshard(i.block);
    case Op::Reduce: return parameters_.reduce(i.block, reducer_);
    case Op::SendForward: return send_forward(i.stage, i.microbatch);
    case Op::ReceiveForward: return receive_forward(i.stage, i.microbatch);
    case Op::SendBackward: return send_backward(i.stage, i.microbatch);
    case Op::ReceiveBackward: return receive_backward(i.stage, i.microbatch);
    case Op::Tie: reducer_.finish(); return parameters_.tie(i.block);
    case Op::SumLoss:
      add_losses();
      return inputs_.results->sum_losses_over(resources_.channels.group(Purpose::Control),
                                              resources_.channels.stream(Purpose::Control));
  }
  throw std::logic_error("executor: " + to_string(i) + " is not an instruction");
}

// ---- between stages

void Executor::send_forward(int stage, int microbatch) {
  const int next = stage + 1, block = stages_.first_blocks[next];
  links_.send(Direction::Forward, stages_.rank_of_stage[next], std::move(flight(microbatch).inputs[block]));
}

void Executor::receive_forward(int stage, int microbatch) {
  const auto block = static_cast<size_t>(stages_.first_blocks[stage]);
  ScopedTensor& input = flight(microbatch).inputs[block];
  input = ScopedTensor(resources_.activations, options_.dtype, input_shape(static_cast<int>(block)));
  flight(microbatch).input_arrived[block] = links_.receive(Direction::Forward, stages_.rank_of_stage[stage - 1], input.view());
}

void Executor::send_backward(int stage, int microbatch) {
  const int block = stages_.first_blocks[stage] - 1;
  links_.send(Direction::Backward, stages_.rank_of_stage[stage - 1], std::move(flight(microbatch).output_gradients[block]));
}

void Executor::receive_backward(int stage, int microbatch) {
  const int next = stages_.first_blocks[stage + 1];
  const auto block = static_cast<size_t>(next) - 1;
  ScopedTensor& gradient = flight(microbatch).output_gradients[block];
  gradient = ScopedTensor(resources_.activations, options_.dtype, input_shape(next));
  flight(microbatch).gradient_arrived[block] =
      links_.receive(Direction::Backward, stages_.rank_of_stage[stage + 1], gradient.view());
}

// ---- between the device and the host

// The part of a fully recomputed block's input that this rank keeps.
ConstTensorView Executor::kept_part(int block, ConstTensorView input) const {
  return partitions_input(block) ? slice_of(input, *axes_[Axis::Tensor]) : input;
}

// The copy overlaps with the block's forward, which comes next and releases the input.
void Executor::offload(int block, int microbatch) {
  zero::HostSide& host = *resources_.offload.activations;
  const ConstTensorView kept = kept_part(block, input(block, microbatch));
  ScopedTensor& copy = flight(microbatch).inputs_on_host[block];
  copy = ScopedTensor(host.activations(), kept.dtype, kept.shape);
  flight(microbatch).input_moved[block] = host.to_host(kept, copy);
  offloaded_bytes_ += kept.bytes();
}

void Executor::fetch(int block, int microbatch) {
  const ConstTensorView copy = flight(microbatch).inputs_on_host[block];
  ScopedTensor& input = flight(microbatch).inputs[block];
  input = ScopedTensor(resources_.activations, copy.dtype, copy.shape);
  flight(microbatch).input_moved[block] = resources_.offload.activations->from_host(copy, input);
}

// ---- blocks

void Executor::forward(int block, int microbatch) {
  const ConstTensorView x = input(block, microbatch);
  Saved& saved = flight(microbatch).saved[block];
  Context c = context(block, microbatch);
  if (inputs_.training && options_.counts_loss) c.expert_tokens = inputs_.results->expert_tokens(block);
  if (computes_loss(block)) {  // only in programs without a backward: training runs the last block as L
    layer(block).forward(c, parameters_.weights(block), x, {}, saved);
  } else {
    ScopedTensor y(resources_.activations, options_.dtype, input_shape(block + 1));
    layer(block).forward(c, parameters_.weights(block), x, y, saved);
    if (inputs_.search) inputs_.search->look_at_output(block, microbatch, y.view());
    flight(microbatch).inputs[block + 1] = std::move(y);
  }
  if (recompute_of(block) == Recompute::Full || !inputs_.training) saved.clear();
  ScopedTensor& kept = flight(microbatch).inputs[block];
  if (!inputs_.training) kept.reset();
  if (!flight(microbatch).inputs_on_host[block].empty()) {
    flight(microbatch).input_moved[block].synchronize();
    kept.reset();
  } else if (partitions_input(block)) {
    kept = keep_slice(kept, *axes_[Axis::Tensor], resources_.kernels, resources_.activations);
  }
}

void Executor::recompute(int block, int microbatch) {
  ScopedTensor& kept = flight(microbatch).inputs[block];
  flight(microbatch).input_moved[block].synchronize();
  flight(microbatch).inputs_on_host[block].reset();
  if (partitions_input(block)) kept = gather_slices(kept, input_shape(block), *axes_[Axis::Tensor], resources_.activations);
  const ConstTensorView x = input(block, microbatch);
  Context c = context(block, microbatch);
  layer(block).forward_again(c, parameters_.weights(block), x, flight(microbatch).saved[block]);
}

void Executor::loss(int block, int microbatch) {
  Context c = context(block, microbatch);
  ScopedTensor dx = input_gradient(block);
  const std::vector<Gradient> gradients = this->gradients(block);
  layer(block).forward_backward(c, parameters_.weights(block), gradients, input(block, microbatch), dx,
                                flight(microbatch).saved[block]);
  if (inputs_.search && options_.counts_loss) inputs_.search->look_at_loss(block, microbatch, c.loss);
  look_at_gradients(block, microbatch, gradients, dx);
  end_contribution(block, microbatch, gradients);
  pass_gradient_on(block, microbatch, std::move(dx));
  finish_block(block, microbatch);
}

void Executor::backward(int block, int microbatch) {
  Context c = context(block, microbatch);
  ScopedTensor dx = input_gradient(block);
  const std::vector<Gradient> gradients = this->gradients(block);
  layer(block).backward(c, parameters_.weights(block), gradients, output_gradient(block, microbatch), dx,
                        flight(microbatch).saved[block]);
  look_at_gradients(block, microbatch, gradients, dx);
  end_contribution(block, microbatch, gradients);
  pass_gradient_on(block, microbatch, std::move(dx));
  finish_block(block, microbatch);
}

void Executor::backward_input(int block, int microbatch) {
  Context c = context(block, microbatch);
  ScopedTensor dx = input_gradient(block);
  layer(block).backward_input(c, parameters_.weights(block), output_gradient(block, microbatch), dx,
                              flight(microbatch).saved[block]);
  look_at_gradients(block, microbatch, {}, dx);
  pass_gradient_on(block, microbatch, std::move(dx));
}

void Executor::backward_weight(int block, int microbatch) {
  Context c = context(block, microbatch);
  const std::vector<Gradient> gradients = this->gradients(block);
  layer(block).backward_weight(c, gradients, flight(microbatch).saved[block]);
  look_at_gradients(block, microbatch, gradients, {});
  end_contribution(block, microbatch, gradients);
  finish_block(block, microbatch);
}

std::vector<Gradient> Executor::gradients(int block) {
  std::vector<Gradient> gradients = parameters_.gradients(block);
  const auto specs = layer(block).parameters();
  for (size_t i = 0; axes_[Axis::Expert] && i < gradients.size(); ++i)
    if (specs[i].sharing == Sharing::Expert && !gradients[i].view.absent())
      gradients[i].next = [this, block, i] { return parameters_.end_part(block, i, inputs_.scalars.inverse_loss_scale); };
  return gradients;
}

Context Executor::context(int block, int microbatch) {
  const Microbatch& batch = inputs_.microbatches[microbatch];
  Context c{.kernels = leaf_kernels_ ? *leaf_kernels_ : resources_.kernels, .arena = resources_.activations};
  if (leaf_kernels_) c.leaves = &leaf_kernels_->leaves();
  c.microbatch = &batch;
  c.random = {inputs_.seed, inputs_.scalars.step, batch.first_sample};
  c.training = inputs_.training;
  c.gradient_scale = inputs_.scalars.loss_scale / inputs_.gradient_divisor;
  c.recompute_attention = recompute_of(block) == Recompute::Selective;
  c.mlp_slice_tokens = options_.mlp_slice_tokens;
  c.axes = axes_;
  c.logits = inputs_.logits;
  if (options_.counts_loss) {
    const TensorView sums = inputs_.results->losses(microbatches_).row_range(microbatch, 1);
    c.loss = sums.slice(0, 2);
    c.correct = sums.slice(2, 1);
    if (inputs_.results->has_rewards()) c.rewards = sums.slice(3, 2);
  }
  return c;
}

ConstTensorView Executor::input(int block, int microbatch) {
  if (block == 0) return sample_input(microbatch);
  Flight& f = flight(microbatch);
  f.input_arrived[block].synchronize();
  return f.inputs[block];
}

ConstTensorView Executor::sample_input(int microbatch) {
  const ConstTensorView given = inputs_.microbatches[microbatch].input;
  if (!is_float(given.dtype) || given.dtype == options_.dtype) return given;
  ScopedTensor& converted = flight(microbatch).inputs[0];
  if (converted.empty()) {
    converted = ScopedTensor(resources_.activations, options_.dtype, given.shape);
    resources_.kernels.copy(given, converted);
  }
  return converted;
}

ConstTensorView Executor::output_gradient(int block, int microbatch) {
  Flight& f = flight(microbatch);
  f.gradient_arrived[block].synchronize();
  return f.output_gradients[block];
}

ScopedTensor Executor::input_gradient(int block) {
  if (block == 0) return {};
  return ScopedTensor(resources_.activations, options_.dtype, input_shape(block));
}

// The gradient with respect to a block's input is the previous block's output gradient.
void Executor::pass_gradient_on(int block, int microbatch, ScopedTensor gradient) {
  if (block > 0) flight(microbatch).output_gradients[block - 1] = std::move(gradient);
}

// The block's backward is complete: it no longer needs anything of this microbatch.
void Executor::finish_block(int block, int microbatch) {
  Flight& f = flight(microbatch);
  f.saved[block].clear();
  f.inputs[block].reset();
  f.output_gradients[block].reset();
}

// Where sums over tokens have a fixed order, a microbatch's gradients of ranks that share tokens are parts of one tree, which
// is rounded once: of tensor ranks for parameters that they do not split, then of context ranks, the first of which contributes
// the sum, and the others nothing. Ranks that share experts have added up the parts of those among them.
void Executor::end_contribution(int block, int microbatch, const std::vector<Gradient>& gradients) {
  const auto parameters = layer(block).parameters();
  for (size_t i = 0; leaf_kernels_ && i < gradients.size(); ++i) {
    const TensorView gradient = gradients[i].view;
    if (gradient.absent()) continue;
    const auto sum_over = [&](comm::ProcessGroup& group, Stream& stream) {
      group.all_reduce(gradient, comm::ReduceOp::TreeSum, stream);
      stream.record().synchronize();
    };
    const comm::RankAxis *const tensor = axes_[Axis::Tensor], *sequence = axes_[Axis::Context];
    if (tensor && tensor->splits_tokens && parameters[i].split.dim < 0) sum_over(tensor->group, tensor->stream);
    comm::ProcessGroup* others = sequence ? &sequence->group : nullptr;
    if (axes_[Axis::Expert] && parameters[i].sharing == Sharing::Expert) {
      sequence = axes_[Axis::Expert];
      others = sequence->same_experts;
    }
    if (!others) continue;
    sum_over(*others, sequence->stream);
    if (others->rank() > 0) resources_.kernels.zero(gradient);
  }
  parameters_.end_contribution(block, inputs_.scalars.inverse_loss_scale, microbatch);
}

void Executor::look_at_gradients(int block, int microbatch, const std::vector<Gradient>& gradients, ConstTensorView input) {
  if (!inputs_.search) return;
  inputs_.search->look_at_gradients(block, microbatch, gradients);
  inputs_.search->look_at_input_gradient(block, microbatch, input);
}

void Executor::add_losses() {
  resources_.kernels.sum_losses({.losses = inputs_.results->losses(microbatches_), .words = inputs_.results->loss_words()});
}

}  // namespace trivet

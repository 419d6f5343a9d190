#include "engine/executor.h"

#include <stdexcept>

namespace trivet {

using pipeline::Instruction;
using pipeline::Op;

Executor::Executor(const model::Model& model, Parameters& parameters, kernels::Kernels& kernels, Arena& activations,
                   const ExecutorOptions& options)
    : model_(model),
      parameters_(parameters),
      kernels_(kernels),
      activations_(activations),
      options_(options),
      reducer_(options.reductions_in_flight) {}

StepLoss Executor::run(const pipeline::Program& program, const StepInputs& inputs) {
  inputs_ = inputs;
  loss_ = {};
  flights_.clear();
  flights_.resize(inputs.microbatches.size());
  for (Flight& flight : flights_) {
    flight.inputs.resize(model_.layers.size());
    flight.output_gradients.resize(model_.layers.size());
    flight.saved.resize(model_.layers.size());
  }
  for (const Instruction& instruction : program) run(instruction);
  reducer_.finish();
  flights_.clear();
  return loss_;
}

void Executor::run(const Instruction& i) {
  switch (i.op) {
    case Op::Forward: return forward(i.block, i.microbatch);
    case Op::Recompute: return recompute(i.block, i.microbatch);
    case Op::Loss: return loss(i.block, i.microbatch);
    case Op::Backward: return backward(i.block, i.microbatch);
    case Op::BackwardInput: return backward_input(i.block, i.microbatch);
    case Op::BackwardWeight: return backward_weight(i.block, i.microbatch);
    case Op::Unshard: return parameters_.unshard(i.block);
    case Op::Reshard: return parameters_.reshard(i.block);
    case Op::Reduce: return parameters_.reduce(i.block, reducer_);
    case Op::SendForward:
    case Op::ReceiveForward:
    case Op::SendBackward:
    case Op::ReceiveBackward: break;
  }
  throw std::logic_error("executor: " + to_string(i) + " is not an instruction of a single stage");
}

void Executor::forward(int block, int microbatch) {
  const ConstTensorView x = input(block, microbatch);
  Saved& saved = flight(microbatch).saved[static_cast<size_t>(block)];
  Context c = context(microbatch);
  if (last(block)) {  // only in programs without a backward: training runs the last block as L
    layer(block).forward(c, parameters_.weights(block), x, {}, saved);
    collect_loss(c);
  } else {
    ScopedTensor y(activations_, options_.dtype, layer(block).output_shape(x.shape));
    layer(block).forward(c, parameters_.weights(block), x, y, saved);
    flight(microbatch).inputs[static_cast<size_t>(block) + 1] = std::move(y);
  }
  if (options_.clear_after_forward || !inputs_.training) saved.clear();
  if (!inputs_.training) flight(microbatch).inputs[static_cast<size_t>(block)].reset();
}

void Executor::recompute(int block, int microbatch) {
  const ConstTensorView x = input(block, microbatch);
  Context c = context(microbatch);
  ScopedTensor y(activations_, options_.dtype, layer(block).output_shape(x.shape));
  layer(block).forward(c, parameters_.weights(block), x, y, flight(microbatch).saved[static_cast<size_t>(block)]);
}

void Executor::loss(int block, int microbatch) {
  Context c = context(microbatch);
  ScopedTensor dx = input_gradient(block, microbatch);
  layer(block).forward_backward(c, parameters_.weights(block), parameters_.gradients(block), input(block, microbatch), dx,
                                flight(microbatch).saved[static_cast<size_t>(block)]);
  collect_loss(c);
  parameters_.end_contribution(block, 1.0 / inputs_.loss_scale);
  pass_gradient_on(block, microbatch, std::move(dx));
  finish_block(block, microbatch);
}

void Executor::backward(int block, int microbatch) {
  Context c = context(microbatch);
  ScopedTensor dx = input_gradient(block, microbatch);
  layer(block).backward(c, parameters_.weights(block), parameters_.gradients(block),
                        flight(microbatch).output_gradients[static_cast<size_t>(block)], dx,
                        flight(microbatch).saved[static_cast<size_t>(block)]);
  parameters_.end_contribution(block, 1.0 / inputs_.loss_scale);
  pass_gradient_on(block, microbatch, std::move(dx));
  finish_block(block, microbatch);
}

void Executor::backward_input(int block, int microbatch) {
  Context c = context(microbatch);
  ScopedTensor dx = input_gradient(block, microbatch);
  layer(block).backward_input(c, parameters_.weights(block), flight(microbatch).output_gradients[static_cast<size_t>(block)],
                              dx, flight(microbatch).saved[static_cast<size_t>(block)]);
  pass_gradient_on(block, microbatch, std::move(dx));
}

void Executor::backward_weight(int block, int microbatch) {
  Context c = context(microbatch);
  layer(block).backward_weight(c, parameters_.gradients(block), flight(microbatch).saved[static_cast<size_t>(block)]);
  parameters_.end_contribution(block, 1.0 / inputs_.loss_scale);
  finish_block(block, microbatch);
}

Context Executor::context(int microbatch) {
  const Microbatch& batch = inputs_.microbatches[static_cast<size_t>(microbatch)];
  Context c{.kernels = kernels_, .arena = activations_};
  c.microbatch = &batch;
  c.random = {inputs_.seed, inputs_.step, batch.first_sample};
  c.training = inputs_.training;
  c.loss_scale = inputs_.loss_scale;
  return c;
}

ConstTensorView Executor::input(int block, int microbatch) const {
  if (block == 0) return inputs_.microbatches[static_cast<size_t>(microbatch)].tokens;
  return flights_[static_cast<size_t>(microbatch)].inputs[static_cast<size_t>(block)];
}

ScopedTensor Executor::input_gradient(int block, int microbatch) {
  if (block == 0) return {};
  return ScopedTensor(activations_, options_.dtype, input(block, microbatch).shape);
}

// The gradient with respect to a block's input is the previous block's output gradient.
void Executor::pass_gradient_on(int block, int microbatch, ScopedTensor gradient) {
  if (block > 0) flight(microbatch).output_gradients[static_cast<size_t>(block) - 1] = std::move(gradient);
}

// The block's backward is complete: nothing of the microbatch is needed here any more.
void Executor::finish_block(int block, int microbatch) {
  Flight& f = flight(microbatch);
  f.saved[static_cast<size_t>(block)].clear();
  f.inputs[static_cast<size_t>(block)].reset();
  f.output_gradients[static_cast<size_t>(block)].reset();
}

void Executor::collect_loss(const Context& c) {
  loss_.loss_sum.add(c.loss_sum);
  loss_.loss_tokens += c.loss_tokens;
}

}  // namespace trivet

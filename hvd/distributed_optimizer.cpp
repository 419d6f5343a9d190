#include "hvd/distributed_optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hvd {
namespace {

void check_optimizer(const std::function<void()>& optimizer_step, const std::vector<NamedTensor>& gradients,
                     const DistributedOptimizerOptions& options) {
  if (!optimizer_step)
    throw ConfigError(
        "hvd: DistributedOptimizer: optimizer_step is empty; give the function that takes a step with the gradients");
  if (options.backward_passes_per_step < 1)
    throw ConfigError(
        fmt::format("hvd: backward_passes_per_step: {} is not accepted; use at least 1", options.backward_passes_per_step));
  if (options.op != ReduceOp::Average && options.op != ReduceOp::Sum && options.op != ReduceOp::Adasum)
    throw ConfigError(fmt::format(
        "hvd: DistributedOptimizer: op \"{}\" is not accepted; use \"average\", \"sum\" or \"adasum\"", name_of(options.op)));
  if (name_of(options.compression) == "?")
    throw ConfigError(fmt::format("hvd: DistributedOptimizer: compression {} is not accepted; use {}",
                                  static_cast<int>(options.compression), accepted_names<Compression>()));
  if (!(options.gradient_predivide_factor > 0))
    throw ConfigError(fmt::format("hvd: gradient_predivide_factor: {} is not accepted; use a number greater than 0",
                                  options.gradient_predivide_factor));
  if (options.gradient_predivide_factor != 1 && options.op != ReduceOp::Average)
    throw ConfigError(fmt::format("hvd: gradient_predivide_factor: {} needs op \"average\"; leave it out or use that op",
                                  options.gradient_predivide_factor));
  std::set<std::string> names;
  for (const NamedTensor& gradient : gradients)
    if (!names.insert(gradient.name).second)
      throw ConfigError(fmt::format("hvd: DistributedOptimizer: the name \"{}\" occurs twice; give each gradient its own",
                                    printable(gradient.name)));
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(Communicator& hvd, std::function<void()> optimizer_step,
                                           std::vector<NamedTensor> gradients, const DistributedOptimizerOptions& options)
    : hvd_(hvd),
      optimizer_step_(std::move(optimizer_step)),
      gradients_(std::move(gradients)),
      options_(options),
      passes_(gradients_.size()),
      started_(gradients_.size()) {
  check_optimizer(optimizer_step_, gradients_, options_);
}

void DistributedOptimizer::gradient_ready(size_t index) {
  if (index >= gradients_.size())
    throw ConfigError(fmt::format("hvd: gradient_ready({}): there are {} gradients", index, gradients_.size()));
  if (++passes_[index] > options_.backward_passes_per_step)
    throw ConfigError(
        fmt::format("hvd: gradient \"{}\" was ready {} times before step(); call step() after {} backward passes, or increase "
                    "backward_passes_per_step",
                    printable(gradients_[index].name), passes_[index], options_.backward_passes_per_step));
  if (started_[index])
    throw ConfigError(
        fmt::format("hvd: gradient \"{}\" was ready after synchronize() and before step(); call step() first, then the "
                    "next backward pass",
                    printable(gradients_[index].name)));
  if (passes_[index] == options_.backward_passes_per_step) start(index);
}

void DistributedOptimizer::start(size_t index) {
  if (started_[index]) return;
  const double passes = options_.average_aggregated_gradients ? options_.backward_passes_per_step : 1;
  handles_.push_back(
      hvd_.allreduce_async_(gradients_[index].tensor, {.name = "gradient." + gradients_[index].name,
                                                       .op = options_.op,
                                                       .compression = options_.compression,
                                                       .prescale_factor = 1 / options_.gradient_predivide_factor,
                                                       .postscale_factor = options_.gradient_predivide_factor / passes,
                                                       .process_set = options_.process_set}));
  started_[index] = true;
}

void DistributedOptimizer::synchronize() {
  for (size_t i = 0; i < gradients_.size(); ++i) start(i);
  std::vector<Handle> handles;
  handles.swap(handles_);
  try {
    hvd_.synchronize(handles);
  } catch (...) {
    begin_step();  // otherwise the next step() would use gradients that are not averaged
    throw;
  }
}

void DistributedOptimizer::step() {
  synchronize();
  optimizer_step_();
  begin_step();
}

void DistributedOptimizer::begin_step() {
  std::fill(passes_.begin(), passes_.end(), 0);
  std::fill(started_.begin(), started_.end(), false);
}

}  // namespace trivet::hvd

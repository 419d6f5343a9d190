#include "kernels/optimizers.h"

#include "core/exact_sum.h"
#include "kernels/costs.h"
#include "kernels/rules.h"
#include "kernels/verdict.h"

namespace trivet::kernels {
namespace {

// The gradient has 16 or 32 bits; states are float32 and have as many elements; copy_out is absent or of a float type.
void check_optimizer(const char* kernel, ConstTensorView gradient, std::initializer_list<NamedView> states,
                     ConstTensorView copy_out, ConstTensorView verdict) {
  std::vector<NamedView> all{{"gradient", gradient}, {"copy_out", copy_out}, {"verdict", verdict}};
  all.insert(all.end(), states.begin(), states.end());
  const Rules rules(kernel, all);
  rules.floating(gradient.dtype);
  rules.require(gradient.dtype != DType::Float64, "gradients must be float32, bfloat16 or float16");
  for (const NamedView& state : states) {
    rules.types(DType::Float32, {state.view});
    rules.sizes(gradient.elements(), {state.view});
  }
  if (!verdict.absent()) {
    rules.types(DType::Float64, {verdict});
    rules.sizes(kVerdictSize, {verdict});
  }
  if (copy_out.absent()) return;
  rules.floating(copy_out.dtype);
  rules.sizes(gradient.elements(), {copy_out});
}

}  // namespace

void Adam::check() const {
  check_optimizer("adam", gradient, {{"master", master}, {"moment1", moment1}, {"moment2", moment2}}, copy_out, verdict);
}

void AdamUpdates::check() const {
  for (const Adam& update : updates) update.check();
}

KernelCall AdamUpdates::describe() const {
  KernelCall call{
      .kernel = "adam", .dtype = updates.empty() ? DType::Float32 : updates.front().gradient.dtype, .bound = Bound::Memory};
  for (const Adam& a : updates) {
    call.sizes[0] += a.gradient.elements();
    call.flops += 15 * elements(a.master);
    call.bytes += total_bytes({a.gradient, a.copy_out}) + 2 * total_bytes({a.master, a.moment1, a.moment2});
  }
  return call;
}

void Sgd::check() const {
  if (momentum_buffer.absent()) return check_optimizer("sgd", gradient, {{"master", master}}, copy_out, verdict);
  check_optimizer("sgd", gradient, {{"master", master}, {"momentum_buffer", momentum_buffer}}, copy_out, verdict);
}

KernelCall Sgd::describe() const {
  return {.kernel = "sgd",
          .dtype = gradient.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 6 * elements(master),
          .bytes = total_bytes({gradient, copy_out}) + 2 * total_bytes({master, momentum_buffer})};
}

void Lion::check() const { check_optimizer("lion", gradient, {{"master", master}, {"moment", moment}}, copy_out, verdict); }

KernelCall Lion::describe() const {
  return {.kernel = "lion",
          .dtype = gradient.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 10 * elements(master),
          .bytes = total_bytes({gradient, copy_out}) + 2 * total_bytes({master, moment})};
}

void Adagrad::check() const {
  check_optimizer("adagrad", gradient, {{"master", master}, {"sum_of_squares", sum_of_squares}}, copy_out, verdict);
}

KernelCall Adagrad::describe() const {
  return {.kernel = "adagrad",
          .dtype = gradient.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 9 * elements(master),
          .bytes = total_bytes({gradient, copy_out}) + 2 * total_bytes({master, sum_of_squares})};
}

void LambUpdate::check() const {
  check_optimizer("lamb_update", gradient, {{"master", master}, {"moment1", moment1}, {"moment2", moment2}, {"update", update}},
                  {}, verdict);
}

KernelCall LambUpdate::describe() const {
  return {.kernel = "lamb_update",
          .dtype = gradient.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 14 * elements(master),
          .bytes = total_bytes({gradient, master, update}) + 2 * total_bytes({moment1, moment2})};
}

void ApplyUpdate::check() const {
  check_optimizer("apply_update", update, {{"master", master}}, copy_out, verdict);
  if (square_sums.absent()) return;
  const Rules rules("apply_update", {{"square_sums", square_sums}});
  rules.types(DType::Int64, {square_sums});
  rules.sizes(2 * ExactSum::kWords, {square_sums});
}

KernelCall ApplyUpdate::describe() const {
  return {.kernel = "apply_update",
          .dtype = update.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 3 * elements(master),
          .bytes = total_bytes({update, copy_out}) + 2 * total_bytes({master})};
}

void MomentumUpdate::check() const {
  check_optimizer("momentum_update", gradient, {{"momentum_buffer", momentum_buffer}, {"out", out}}, {}, verdict);
}

KernelCall MomentumUpdate::describe() const {
  return {.kernel = "momentum_update",
          .dtype = gradient.dtype,
          .sizes = elements_of(gradient),
          .bound = Bound::Memory,
          .flops = 5 * elements(gradient),
          .bytes = total_bytes({gradient, out}) + 2 * total_bytes({momentum_buffer})};
}

void RunningAverage::check() const { check_optimizer("running_average", gradient, {{"master", master}}, copy_out, verdict); }

KernelCall RunningAverage::describe() const {
  return {.kernel = "running_average",
          .dtype = gradient.dtype,
          .sizes = elements_of(master),
          .bound = Bound::Memory,
          .flops = 3 * elements(master),
          .bytes = total_bytes({gradient, copy_out}) + 2 * total_bytes({master})};
}

}  // namespace trivet::kernels

#include "kernels/memory.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {

void Zero::check() const {}

KernelCall Zero::describe() const {
  return {.kernel = "zero", .dtype = out.dtype, .sizes = elements_of(out), .bound = Bound::Memory, .bytes = total_bytes({out})};
}

void Copy::check() const {
  const Rules rules("copy", {{"from", from}, {"out", out}});
  rules.sizes(from.elements(), {out});
  rules.require(from.dtype == out.dtype || (is_float(from.dtype) && is_float(out.dtype)),
                "only floating-point types can be converted");
}

KernelCall Copy::describe() const {
  return {.kernel = "copy",
          .variant = from.dtype == out.dtype ? "" : "converts",
          .dtype = from.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .bytes = total_bytes({from, out})};
}

void Add::check() const {
  const Rules rules("add", {{"from", from}, {"out", out}});
  rules.sizes(from.elements(), {out});
  rules.types(out.dtype, {from});
  rules.require(is_float(out.dtype) || out.dtype == DType::Int64, "the type must be floating-point or int64");
}

KernelCall Add::describe() const {
  return {.kernel = "add",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = total_bytes({from}) + written(out, true)};
}

void Scale::check() const { Rules("scale", {{"x", out}}).floating(out.dtype); }

KernelCall Scale::describe() const {
  return {.kernel = "scale",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .flops = elements(out),
          .bytes = written(out, true)};
}

void Transpose::check() const {
  const Rules rules("transpose", {{"from", from}, {"out", out}});
  rules.floating(from.dtype);
  rules.types(from.dtype, {out});
  rules.require(from.shape.dims() == 3, "the input must be [B, R, C]");
  rules.shapes({from.shape[0], from.shape[2], from.shape[1]}, {out});
}

KernelCall Transpose::describe() const {
  return {.kernel = "transpose",
          .dtype = from.dtype,
          .sizes = {from.shape[0], from.shape[1], from.shape[2]},
          .bound = Bound::Memory,
          .bytes = total_bytes({from, out})};
}

namespace {

// The elements from the first to the last one of all runs.
int64_t span_of(const CopyRuns& args, const std::array<int64_t, 3>& steps) {
  int64_t last = 0;
  for (size_t i = 0; i < steps.size(); ++i) last += (args.counts[i] - 1) * steps[i];
  return last + args.run;
}

}  // namespace

void CopyRuns::check() const {
  const Rules rules("copy_runs", {{"from", from}, {"out", out}});
  if (from.dtype != DType::Int32) rules.floating(from.dtype);
  rules.types(from.dtype, {out});
  bool positive = run > 0;
  for (size_t i = 0; i < counts.size(); ++i) positive = positive && counts[i] > 0 && from_steps[i] >= 0 && out_steps[i] >= 0;
  rules.require(positive, "counts and runs must be positive, and steps not negative");
  rules.require(span_of(*this, from_steps) <= from.elements() && span_of(*this, out_steps) <= out.elements(),
                "the runs must lie within the tensors");
}

KernelCall CopyRuns::describe() const {
  return {.kernel = "copy_runs",
          .dtype = from.dtype,
          .sizes = {runs(), run},
          .bound = Bound::Memory,
          .bytes = 2.0 * static_cast<double>(runs() * run * static_cast<int64_t>(size_of(from.dtype)))};
}

void Initialize::check() const { Rules("initialize", {{"x", out}}).floating(out.dtype); }

KernelCall Initialize::describe() const {
  return {.kernel = "initialize",
          .dtype = out.dtype,
          .sizes = elements_of(out),
          .bound = Bound::Memory,
          .bytes = total_bytes({out})};
}

}  // namespace trivet::kernels

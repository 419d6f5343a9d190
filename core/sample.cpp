#include "core/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <stdexcept>

#include "core/error.h"

namespace trivet {
namespace {

void check_range(const char* what, ConstTensorView values, int32_t least, int64_t end) {
  if (!values.data || values.dtype != DType::Int32) return;
  for (int64_t i = 0; i < values.elements(); ++i) {
    const int32_t value = values.as<int32_t>()[i];
    if (value >= least && value < end) continue;
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: {} {} at position {} of a microbatch is outside of what the model knows, 0 to {}",
                                what, value, i, end - 1));
  }
}

Shape batch_of(int64_t samples, const Shape& one) {
  if (one.dims() == Shape::kMaxDims)
    throw std::invalid_argument(fmt::format("SampleSpec: a sample of shape {} leaves no dim for the batch; use at most {} dims",
                                            to_string(one), Shape::kMaxDims - 1));
  std::array<int64_t, Shape::kMaxDims> dims{samples};
  std::copy(one.span().begin(), one.span().end(), dims.begin() + 1);
  return Shape(std::span<const int64_t>(dims.data(), static_cast<size_t>(one.dims()) + 1));
}

// "fp32 [4, 8]"
std::string text_of(ConstTensorView view) { return fmt::format("{} {}", name_of(view.dtype), to_string(view.shape)); }

void check_documents(const Microbatch& microbatch, const Shape& planned) {
  const auto fits = [&](ConstTensorView view) { return view.dtype == DType::Int32 && view.shape == planned; };
  const ConstTensorView documents = microbatch.documents, positions = microbatch.positions;
  if (!fits(documents) || !fits(positions))
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: a microbatch does not say where documents begin, as the plan wants: documents and "
                                "positions are {} and {} and must be int32 {}",
                                text_of(documents), text_of(positions), to_string(planned)));
  if (!documents.data || !positions.data) return;
  const int64_t length = planned[1];
  for (int64_t i = 0; i < documents.elements(); ++i) {
    const int32_t first = documents.as<int32_t>()[i], place = positions.as<int32_t>()[i];
    const int64_t token = i % length;
    const int32_t before = token > 0 ? documents.as<int32_t>()[i - 1] : 0;
    const bool begins = first == token && before != length, is_padding = first == length;
    if ((begins || (token > 0 && first == before) || is_padding) && place == (is_padding ? 0 : token - first)) continue;
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: token {} of a sequence of a microbatch has first token {} and place {} "
                                "of a document, which no document has",
                                token, first, place));
  }
}

int64_t count_documents(ConstTensorView documents, int64_t row) {
  const int64_t length = documents.shape[1];
  const int32_t* const firsts = documents.as<int32_t>() + row * length;
  int64_t count = 0;
  for (int64_t token = 0; token < length; ++token) count += firsts[token] == token ? 1 : 0;
  return count;
}

void check_pairs_of_documents(ConstTensorView documents) {
  for (int64_t row = 0; documents.data && row < documents.shape[0]; row += 2) {
    const int64_t preferred = count_documents(documents, row), rejected = count_documents(documents, row + 1);
    if (preferred == rejected) continue;
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: rows {} and {} of a microbatch of pairs have {} and {} documents; document k of one "
                                "is compared with document k of the other, so both need as many",
                                row, row + 1, preferred, rejected));
  }
}

}  // namespace

Shape SampleSpec::inputs_of(int64_t samples) const { return batch_of(samples * rows(), input); }
Shape SampleSpec::targets_of(int64_t samples) const { return batch_of(samples * rows(), targets); }

Shape SampleSpec::reference_of(int64_t samples) const {
  if (!pairs) return {0};
  return documents ? targets_of(samples) : Shape{samples * rows()};
}

SampleSpec SampleSpec::cut_to(int64_t tokens) const {
  SampleSpec shorter = *this;
  shorter.input = shorter.targets = {tokens};
  return shorter;
}

Microbatch SampleSpec::without_memory(int64_t samples) const {
  return {{nullptr, input_dtype, inputs_of(samples)},
          {nullptr, DType::Int32, targets_of(samples)},
          0,
          {nullptr, DType::Float64, reference_of(samples)},
          documents ? ConstTensorView{nullptr, DType::Int32, targets_of(samples)} : ConstTensorView(),
          documents ? ConstTensorView{nullptr, DType::Int32, targets_of(samples)} : ConstTensorView()};
}

void check(const Microbatch& microbatch, const SampleSpec& sample, int64_t samples) {
  const Microbatch planned = sample.without_memory(samples);
  const auto alike = [](ConstTensorView a, ConstTensorView b) { return a.dtype == b.dtype && a.shape == b.shape; };
  if (!alike(microbatch.input, planned.input) || !alike(microbatch.targets, planned.targets))
    throw DataError(
        ExitCode::Usage,
        fmt::format("engine: a microbatch has inputs {} and targets {}, but the plan is for {} and {}",
                    text_of(microbatch.input), text_of(microbatch.targets), text_of(planned.input), text_of(planned.targets)));
  if (sample.pairs && !alike(microbatch.reference, planned.reference))
    throw DataError(ExitCode::Usage,
                    fmt::format("engine: a microbatch of pairs has {} of a reference model, but the plan is for {}",
                                text_of(microbatch.reference), text_of(planned.reference)));
  if (sample.documents) check_documents(microbatch, planned.targets.shape);
  if (sample.documents && sample.pairs) check_pairs_of_documents(microbatch.documents);
  if (!sample.documents && !microbatch.documents.absent())
    throw DataError(ExitCode::Usage,
                    "engine: a microbatch says where documents begin, but the plan is for samples that are one text; set "
                    "data.packing to \"isolated\"");
  check_range("input", microbatch.input, 0, sample.input_values);
  check_range("target", microbatch.targets, std::numeric_limits<int32_t>::min(), sample.classes);
}

}  // namespace trivet

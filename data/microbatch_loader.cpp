#include "data/microbatch_loader.h"

#include <algorithm>
#include <stdexcept>

namespace trivet::data {
namespace {

// Fills a microbatch of `samples` samples. visit_of(row) says which sample a row is.
template <typename VisitOf>
void fill_batch(const SampleSource& source, int64_t samples, HostMicrobatch& out, VisitOf visit_of) {
  const SampleSpec& spec = source.spec();
  const size_t input_bytes = spec.rows() * spec.input.elements() * size_of(spec.input_dtype);
  const size_t length = spec.targets.elements(), targets = spec.rows() * length;
  const size_t references = spec.reference_of(1).elements(), count = samples;
  out.input.resize(count * input_bytes);
  out.targets.resize(count * targets);
  out.reference.resize(count * references);
  out.documents.resize(spec.documents ? count * targets : 0);
  out.positions.resize(out.documents.size());
  for (size_t b = 0; b < count; ++b) {
    const std::span<std::byte> input(out.input.data() + b * input_bytes, input_bytes);
    const std::span<int32_t> expected(out.targets.data() + b * targets, targets);
    const std::span<double> reference(out.reference.data() + b * references, references);
    const Visit visit = visit_of(static_cast<int64_t>(b));
    if (visit.sample >= 0) {
      source.fill(visit.sample, visit.epoch, input, expected);
      source.fill_reference(visit.sample, reference);
    } else {
      std::ranges::fill(input, std::byte{0});
      std::ranges::fill(expected, -1);
      std::ranges::fill(reference, 0);
    }
    if (!spec.documents) continue;
    const std::span<int32_t> documents(out.documents.data() + b * targets, targets);
    if (visit.sample >= 0)
      source.fill_documents(visit.sample, documents);
    else
      std::ranges::fill(documents, static_cast<int32_t>(length));
    for (size_t i = 0; i < targets; ++i)
      out.positions[b * targets + i] = std::max<int32_t>(static_cast<int32_t>(i % length) - documents[i], 0);
  }
  out.view.input = {out.input.data(), spec.input_dtype, spec.inputs_of(samples)};
  out.view.targets = {out.targets.data(), DType::Int32, spec.targets_of(samples)};
  out.view.documents = out.view.positions = {};
  if (spec.documents) {
    out.view.documents = {out.documents.data(), DType::Int32, spec.targets_of(samples)};
    out.view.positions = {out.positions.data(), DType::Int32, spec.targets_of(samples)};
  }
  out.view.reference = {out.reference.data(), DType::Float64, spec.reference_of(samples)};
}

template <typename T>
void cut_rows(T* values, int64_t rows, int64_t length, int64_t kept) {
  for (int64_t row = 1; row < rows; ++row) std::copy_n(values + row * length, kept, values + row * kept);
}

}  // namespace

void cut_sequences(HostMicrobatch& microbatch, int64_t tokens) {
  const Shape shape = microbatch.view.input.shape;
  if (shape.dims() != 2 || microbatch.view.targets.shape != shape || tokens > shape[1])
    throw std::logic_error("cut_sequences: the microbatch has no sequences that are long enough");
  cut_rows(reinterpret_cast<int32_t*>(microbatch.input.data()), shape[0], shape[1], tokens);
  cut_rows(microbatch.targets.data(), shape[0], shape[1], tokens);
  microbatch.view.input.shape = microbatch.view.targets.shape = {shape[0], tokens};
  if (microbatch.documents.empty()) return;
  cut_rows(microbatch.documents.data(), shape[0], shape[1], tokens);
  cut_rows(microbatch.positions.data(), shape[0], shape[1], tokens);
  // Padding has the number of tokens.
  for (int32_t& first : microbatch.documents) first = std::min(first, static_cast<int32_t>(tokens));
  microbatch.view.documents.shape = microbatch.view.positions.shape = {shape[0], tokens};
}

MicrobatchLoader::MicrobatchLoader(std::shared_ptr<const SampleSource> source, std::shared_ptr<const Sampler> sampler,
                                   const BatchLayout& layout)
    : source_(std::move(source)), sampler_(std::move(sampler)), layout_(layout) {
  if (layout.micro_batch < 1 || layout.accumulation < 1 || layout.data_rank < 0 || layout.data_rank >= layout.data_size)
    throw std::logic_error("microbatch loader: impossible batch layout");
}

void MicrobatchLoader::fill(int64_t step, int64_t m, HostMicrobatch& out) const {
  if (m < 0 || m >= layout_.accumulation) throw std::logic_error("microbatch loader: no such microbatch in the step");
  fill_numbered(step, m * layout_.data_size + layout_.data_rank, out);
}

void MicrobatchLoader::fill_numbered(int64_t step, int64_t number, HostMicrobatch& out) const {
  if (number < 0 || number >= layout_.accumulation * layout_.data_size)
    throw std::logic_error("microbatch loader: no microbatch of the step has this number");
  fill_batch(*source_, layout_.micro_batch, out, [&](int64_t row) { return sampler_->visit(step, number, row); });
  out.view.first_sample = number * layout_.micro_batch * source_->spec().rows();
}

EvaluationLoader::EvaluationLoader(std::shared_ptr<const SampleSource> source, int64_t batch_size, int64_t limit)
    : source_(std::move(source)), batch_size_(batch_size), samples_(source_->samples()) {
  if (limit > 0) samples_ = std::min(samples_, limit);
}

void EvaluationLoader::fill(int64_t batch, HostMicrobatch& out) const {
  const int64_t first = batch * batch_size_;
  fill_batch(*source_, batch_size_, out, [&](int64_t b) { return Visit{first + b < samples_ ? first + b : -1, 0}; });
  out.view.first_sample = first * source_->spec().rows();
}

}  // namespace trivet::data

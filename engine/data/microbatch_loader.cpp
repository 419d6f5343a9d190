#include "engine/data/microbatch_loader.h"

#include <algorithm>
#include <stdexcept>

namespace trivet::data {
namespace {

// B sequences of S tokens. `read_row` fills the S + 1 tokens of row b and returns whether there is such a sample.
template <typename ReadRow>
void fill_rows(int64_t B, int64_t S, HostMicrobatch& out, ReadRow read_row) {
  out.tokens.resize(static_cast<size_t>(B * S));
  out.targets.resize(static_cast<size_t>(B * S));
  std::vector<int32_t> row(static_cast<size_t>(S + 1));
  for (int64_t b = 0; b < B; ++b) {
    const bool real = read_row(b, std::span<int32_t>(row));
    const auto tokens = out.tokens.begin() + b * S, targets = out.targets.begin() + b * S;
    if (real) {
      std::copy(row.begin(), row.end() - 1, tokens);
      std::copy(row.begin() + 1, row.end(), targets);
    } else {
      std::fill_n(tokens, S, 0);
      std::fill_n(targets, S, -1);
    }
  }
  out.view.tokens = {out.tokens.data(), DType::Int32, {B, S}};
  out.view.targets = {out.targets.data(), DType::Int32, {B, S}};
}

}  // namespace

MicrobatchLoader::MicrobatchLoader(std::shared_ptr<const TokenFile> tokens, const SampleOrder& order, int64_t sequence_length,
                                   const BatchLayout& layout)
    : tokens_(std::move(tokens)), order_(order), sequence_length_(sequence_length), layout_(layout) {
  if (layout.micro_batch < 1 || layout.accumulation < 1 || layout.data_rank < 0 || layout.data_rank >= layout.data_size)
    throw std::logic_error("microbatch loader: impossible batch layout");
}

void MicrobatchLoader::fill(int64_t step, int64_t m, HostMicrobatch& out) const {
  if (m < 0 || m >= layout_.accumulation) throw std::logic_error("microbatch loader: no such microbatch in the step");
  const int64_t first = first_sample_of(layout_, m);
  const int64_t first_of_run = step * layout_.global_batch() + first;
  fill_rows(layout_.micro_batch, sequence_length_, out, [&](int64_t b, std::span<int32_t> row) {
    tokens_->read(order_.first_token_of(first_of_run + b), row);
    return true;
  });
  out.view.first_sample = first;
}

EvaluationLoader::EvaluationLoader(std::shared_ptr<const TokenFile> tokens, int64_t sequence_length, int64_t batch_size,
                                   int64_t limit)
    : tokens_(std::move(tokens)), sequence_length_(sequence_length), batch_size_(batch_size) {
  samples_ = SampleOrder(tokens_->tokens(), sequence_length, 0, false).samples();
  if (limit > 0) samples_ = std::min(samples_, limit);
}

void EvaluationLoader::fill(int64_t batch, HostMicrobatch& out) const {
  const int64_t first = batch * batch_size_;
  fill_rows(batch_size_, sequence_length_, out, [&](int64_t b, std::span<int32_t> row) {
    if (first + b >= samples_) return false;
    tokens_->read((first + b) * sequence_length_, row);
    return true;
  });
  out.view.first_sample = first;
}

}  // namespace trivet::data

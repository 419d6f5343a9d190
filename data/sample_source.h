// The interface of a data set: samples with numbers, all of one kind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "core/sample.h"
#include "data/sample_order.h"

namespace trivet::data {

// Read only, and shared by all ranks of a process: any thread may call it at any time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual int64_t samples() const = 0;
  // The samples of each source of a mixture, whose samples follow each other; otherwise one number.
  virtual std::vector<int64_t> sizes_of_sources() const { return {samples()}; }
  // Returns how many samples the epochs have: more than one size if the data has grown (growing_data.h).
  virtual std::vector<EpochSize> epoch_sizes() const { return {{0, samples()}}; }
  // Fills the input and the targets of one sample, 0 .. samples() - 1, as spec() says: of all of its rows, one after another.
  // `epoch`, from 0, is for sources that change their samples from epoch to epoch (augmentation); what they give is a function
  // of both numbers.
  virtual void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const = 0;
  // For samples of several documents (SampleSpec::documents): the first token of each token's document, or the number of tokens
  // of a row for padding (kernels/attention.h), of all rows, one after another.
  virtual void fill_documents(int64_t /*sample*/, std::span<int32_t> first_tokens) const { std::ranges::fill(first_tokens, 0); }
  // Checks whether there may be samples of which the loss counts no target, and whether it counts any of this one.
  virtual bool may_lack_targets() const { return true; }
  virtual bool has_targets(int64_t sample) const {
    std::vector<std::byte> input(static_cast<size_t>(spec().rows() * spec().input.elements() * size_of(spec().input_dtype)));
    std::vector<int32_t> targets(static_cast<size_t>(spec().rows() * spec().targets.elements()));
    fill(sample, 0, input, targets);
    return std::ranges::any_of(targets, [](int32_t target) { return target >= 0; });
  }
  // For pairs of answers: how many there are, and the number of the answer at each element of SampleSpec::reference_of(1),
  // which is -1 where there is none. Pair p has answers 2 p, which is preferred, and 2 p + 1.
  virtual int64_t pairs() const { return samples(); }
  virtual void fill_answers(int64_t sample, std::span<int64_t> answers) const {
    std::iota(answers.begin(), answers.end(), sample * static_cast<int64_t>(answers.size()));
  }
  // Fills log-probabilities of pairs of answers in the reference model, which only a run can know (ReferencedSource).
  virtual void fill_reference(int64_t /*sample*/, std::span<double> log_probabilities) const {
    std::ranges::fill(log_probabilities, 0);
  }
  // Identifies the data by its sizes and a hash, so that a resumed run can tell that it has changed (exit code 18).
  virtual std::string digest() const = 0;
};

}  // namespace trivet::data

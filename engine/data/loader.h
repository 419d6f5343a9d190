// Batches for one rank, computed from one global position: what a step reads depends only on the seed and the step, never on
// the layout.
//
// A sample is `sequence_length` tokens and the same number of targets, shifted by one. Sample number n of a run (n = step x
// global batch + position in the batch) is found with a computed permutation of the samples of an epoch, so there is no index
// file and nothing to save but `step`.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/layer.h"

namespace trivet::data {

// A sequence of token ids, read only. Shared by all ranks of a process.
class TokenFile {
 public:
  virtual ~TokenFile() = default;
  virtual int64_t tokens() const = 0;
  virtual int64_t vocabulary_size() const = 0;
  // out[i] = token first + i
  virtual void read(int64_t first, std::span<int32_t> out) const = 0;
  // Identifies the data by its sizes and a hash, so that a resumed run can tell that it has changed (exit code 18).
  virtual std::string digest() const = 0;
};

// The samples of one split, in the order of training.
class SampleOrder {
 public:
  // Samples start at multiples of sequence_length within [first_token, first_token + tokens).
  SampleOrder(int64_t tokens, int64_t sequence_length, uint64_t seed, bool shuffle);
  int64_t samples() const { return samples_; }          // per epoch
  int64_t first_token_of(int64_t sample_number) const;  // any number >= 0: epoch = number / samples

 private:
  int64_t samples_, sequence_length_;
  uint64_t seed_;
  bool shuffle_;
};

// Owns the memory of one microbatch.
struct HostMicrobatch {
  std::vector<int32_t> tokens, targets;
  Microbatch view;
};

}  // namespace trivet::data

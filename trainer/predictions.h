// Reads what a model predicts for samples of an evaluation, for people who look at the run: a class for each target, the one
// with the largest logit, or the text that the most probable class of each step spells (CTC's best path; kernels/ctc.h).
//
// Each rank of the last pipeline stage keeps those of the samples that it evaluates; those of all ranks together begin with the
// same samples on every layout (shown_first). One thread at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/logits_reader.h"

namespace trivet {

struct Prediction {
  int64_t sample = 0;  // its number in the evaluation
  bool right = false;  // all targets of the sample that count are predicted
  int64_t first = 0;   // the number of the target that the first of `classes` predicts
  std::vector<int32_t> classes = {};
};

class Predictions final : public LogitsReader {
 public:
  // The most samples that are kept of one kind: wrong ones and right ones of samples that have one target each, or one text;
  // otherwise (next tokens, of which some are always wrong) the first samples. With so many wrong ones, nothing more is read.
  static constexpr int64_t kJudged = 16, kOthers = 4;
  // A sample that begins with a prompt keeps the targets after it, up to this many; any other sample keeps its last ones.
  static constexpr int64_t kMostOfAnswers = 1024;

  // `samples`: of the evaluation, which may end within a microbatch.
  Predictions(const SampleSpec& sample, int64_t samples) : sample_(sample), samples_(samples) {}

  int64_t wants(const Microbatch& microbatch) const override;
  TargetRange wants_targets(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t sample,
                            int64_t targets) const override;
  void read(kernels::Kernels& kernels, const Microbatch& microbatch, int64_t first, ConstTensorView logits,
            int64_t first_target) override;

  const std::vector<Prediction>& kept() const { return kept_; }

 private:
  bool judges() const { return sample_.counted_targets() == 1; }
  void keep(Prediction prediction);

  SampleSpec sample_;
  int64_t samples_, right_ = 0, wrong_ = 0;
  std::vector<Prediction> kept_;
};

// Chooses which kept ones to show, at most `most`: wrong ones first, each sample once, in order of their numbers.
std::vector<Prediction> shown_first(std::vector<Prediction> kept, int64_t most = Predictions::kJudged);

// Convert for sending between ranks. from_text throws std::invalid_argument for another text.
std::string to_text(const std::vector<Prediction>& predictions);
std::vector<Prediction> predictions_from_text(const std::string& text);

}  // namespace trivet

#include "data/microbatch_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "data/distributed_sampler.h"
#include "data/token_array.h"
#include "data/token_source.h"

namespace trivet::data {
namespace {

// Token number i has the id i.
std::shared_ptr<SampleSource> counting(int32_t tokens, int64_t length) {
  std::vector<int32_t> ids(tokens);
  for (int32_t i = 0; i < tokens; ++i) ids[i] = i;
  return std::make_shared<TokenSource>(std::make_shared<TokenArray>(ids, tokens), length);
}

const int32_t* tokens_of(const HostMicrobatch& batch) { return batch.view.input.as<int32_t>(); }

std::vector<int32_t> all_tokens_of(const HostMicrobatch& batch) {
  return {tokens_of(batch), tokens_of(batch) + batch.view.input.elements()};
}

using Samples = std::map<int64_t, std::vector<int32_t>>;  // number within the step -> tokens

// The samples that all ranks together read in one step.
Samples step_of(int64_t step, int64_t micro_batch, int64_t accumulation, int64_t data_size) {
  const auto tokens = counting(1000, 8);
  const SampleOrder order(tokens->samples(), 99, true);
  Samples samples;
  for (int64_t rank = 0; rank < data_size; ++rank) {
    const MicrobatchLoader loader(tokens, order, {micro_batch, accumulation, data_size, rank});
    HostMicrobatch batch;
    for (int64_t m = 0; m < accumulation; ++m) {
      loader.fill(step, m, batch);
      for (int64_t b = 0; b < micro_batch; ++b)
        samples[batch.view.first_sample + b] = {tokens_of(batch) + b * 8, tokens_of(batch) + (b + 1) * 8};
    }
  }
  return samples;
}

TEST(MicrobatchLoader, EveryLayoutReadsTheSameSamplesUnderTheSameNumbers) {
  for (int64_t step : {0, 1, 7, 40}) {
    const Samples expected = step_of(step, 2, 6, 1);
    ASSERT_EQ(expected.size(), 12u);
    EXPECT_EQ(step_of(step, 2, 3, 2), expected);
    EXPECT_EQ(step_of(step, 2, 2, 3), expected);
    EXPECT_EQ(step_of(step, 2, 1, 6), expected);
    EXPECT_EQ(step_of(step, 12, 1, 1), expected);
    EXPECT_EQ(step_of(step, 1, 4, 3), expected);
  }
}

TEST(MicrobatchLoader, MicrobatchesAreDealtToRanksInTurn) {
  const BatchLayout layout{.micro_batch = 2, .accumulation = 2, .data_size = 3, .data_rank = 1};
  EXPECT_EQ(layout.global_batch(), 12);
  EXPECT_EQ(first_sample_of(layout, 0), 2);
  EXPECT_EQ(first_sample_of(layout, 1), 8);
}

TEST(MicrobatchLoader, AnyRankCanLoadTheMicrobatchesOfAnotherByNumber) {
  for (int64_t number = 0; number < 6; ++number) {
    const auto loader_of = [](int64_t rank) {
      return MicrobatchLoader(counting(300, 8), SampleOrder(36, 5, true),
                              {.micro_batch = 2, .accumulation = 2, .data_size = 3, .data_rank = rank});
    };
    HostMicrobatch own, numbered;
    loader_of(number % 3).fill(1, number / 3, own);
    loader_of((number + 1) % 3).fill_numbered(1, number, numbered);
    EXPECT_EQ(numbered.input, own.input) << number;
    EXPECT_EQ(numbered.targets, own.targets) << number;
    EXPECT_EQ(numbered.view.first_sample, own.view.first_sample) << number;
  }
  HostMicrobatch out;
  const MicrobatchLoader loader(counting(300, 8), SampleOrder(36, 5, true),
                                {.micro_batch = 2, .accumulation = 2, .data_size = 3});
  EXPECT_THROW(loader.fill_numbered(1, 6, out), std::logic_error);
}

TEST(MicrobatchLoader, TargetsAreTokensShiftedByOne) {
  const MicrobatchLoader loader(counting(100, 8), SampleOrder(12, 5, true), {.micro_batch = 3});
  HostMicrobatch batch;
  loader.fill(2, 0, batch);
  EXPECT_EQ(batch.view.input.shape, (Shape{3, 8}));
  EXPECT_EQ(batch.view.input.data, batch.input.data());
  for (size_t i = 0; i < batch.targets.size(); ++i) EXPECT_EQ(batch.targets[i], tokens_of(batch)[i] + 1);
}

TEST(MicrobatchLoader, StepsOfAnEpochCoverEverySampleOnce) {
  const MicrobatchLoader loader(counting(8 * 12 + 1, 8), SampleOrder(12, 5, true), {.micro_batch = 4});
  HostMicrobatch batch;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::vector<int32_t> firsts;
    for (int64_t step = 0; step < 3; ++step) {
      loader.fill(epoch * 3 + step, 0, batch);
      for (size_t b = 0; b < 4; ++b) firsts.push_back(tokens_of(batch)[b * 8]);
    }
    std::sort(firsts.begin(), firsts.end());
    for (int32_t i = 0; i < 12; ++i) EXPECT_EQ(firsts[i], i * 8);
  }
}

TEST(MicrobatchLoader, ABatchMayBeLargerThanTheEpoch) {
  const MicrobatchLoader loader(counting(9, 4), SampleOrder(2, 5, true), {.micro_batch = 5});
  HostMicrobatch batch;
  loader.fill(0, 0, batch);
  std::multiset<int32_t> firsts;
  for (size_t b = 0; b < 5; ++b) firsts.insert(tokens_of(batch)[b * 4]);
  EXPECT_GE(firsts.count(0), 2u);
  EXPECT_GE(firsts.count(4), 2u);
}

TEST(CutSequences, KeepsTheFirstTokensOfEachSampleAndTheirTargets) {
  const MicrobatchLoader loader(counting(41, 5), SampleOrder(8, 0, false), {.micro_batch = 3});
  for (const int64_t tokens : {1, 2, 5}) {
    HostMicrobatch batch;
    loader.fill(0, 0, batch);
    cut_sequences(batch, tokens);
    EXPECT_EQ(batch.view.input.shape, (Shape{3, tokens}));
    EXPECT_EQ(batch.view.targets.shape, (Shape{3, tokens}));
    for (int64_t sample = 0; sample < 3; ++sample)
      for (int64_t t = 0; t < tokens; ++t) {
        EXPECT_EQ(tokens_of(batch)[sample * tokens + t], sample * 5 + t);
        EXPECT_EQ(batch.view.targets.as<int32_t>()[sample * tokens + t], sample * 5 + t + 1);
      }
  }
  HostMicrobatch batch;
  loader.fill(0, 0, batch);
  EXPECT_THROW(cut_sequences(batch, 6), std::logic_error);
}

// Its samples say in which epoch they were filled.
class EpochSource final : public SampleSource {
 public:
  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return 3; }
  void fill(int64_t, int64_t epoch, std::span<std::byte>, std::span<int32_t> targets) const override {
    targets[0] = static_cast<int32_t>(epoch);
  }
  std::string digest() const override { return ""; }

 private:
  SampleSpec spec_{.input = {1}, .targets = {1}, .input_values = 1, .classes = 100};
};

std::vector<int32_t> epochs_of(const MicrobatchLoader& loader, int64_t step, int64_t microbatch) {
  HostMicrobatch batch;
  loader.fill(step, microbatch, batch);
  return batch.targets;
}

TEST(MicrobatchLoader, TellsTheSourceInWhichEpochASampleIs) {
  const auto source = std::make_shared<EpochSource>();
  const MicrobatchLoader loader(source, SampleOrder(3, 5, true), {.micro_batch = 2, .accumulation = 2});
  EXPECT_EQ(epochs_of(loader, 0, 0), (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(epochs_of(loader, 0, 1), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(epochs_of(loader, 1, 1), (std::vector<int32_t>{2, 2}));
  const BatchLayout layout{.micro_batch = 2};
  const MicrobatchLoader as_pytorch(
      source, std::make_shared<DistributedSampler>(DistributedSamplerOptions{.samples = 3}, layout, "a.json"), layout);
  EXPECT_EQ(epochs_of(as_pytorch, 1, 0), (std::vector<int32_t>{0, -1}));
  EXPECT_EQ(epochs_of(as_pytorch, 2, 0), (std::vector<int32_t>{1, 1}));
}

TEST(EvaluationLoader, GoesThroughTheSplitInOrderAndPadsTheLastBatch) {
  const EvaluationLoader loader(counting(21, 4), 2);  // 5 samples
  EXPECT_EQ(loader.samples(), 5);
  EXPECT_EQ(loader.batches(), 3);
  HostMicrobatch batch;
  loader.fill(0, batch);
  EXPECT_EQ(all_tokens_of(batch), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  loader.fill(2, batch);
  EXPECT_EQ(all_tokens_of(batch), (std::vector<int32_t>{16, 17, 18, 19, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{17, 18, 19, 20, -1, -1, -1, -1}));
  EXPECT_EQ(batch.view.first_sample, 4);
  loader.fill(3, batch);
  EXPECT_EQ(batch.targets, std::vector<int32_t>(8, -1));
}

TEST(EvaluationLoader, LimitKeepsTheFirstSamples) {
  EXPECT_EQ(EvaluationLoader(counting(21, 4), 2, 3).samples(), 3);
  EXPECT_EQ(EvaluationLoader(counting(21, 4), 2, 99).samples(), 5);
}

}  // namespace
}  // namespace trivet::data

// A generator's logits are those of training, for the last tokens that the model has room for.
#include "trainer/generation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "comm/world.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/engine.h"
#include "tests/engine/small_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

constexpr int64_t kLength = 12;

class Generation : public testing::TestWithParam<model::Type> {
 protected:
  Generation() {
    config_ = small_config();
    config_.model.type = GetParam();
    config_.model.sequence_length = kLength;
    config_.model.initializer_range = 0.3;  // so that logits differ
    config_.batch = {.micro_batch_size = 1};
    if (GetParam() != model::Type::Llama) return;
    config_.model.attention_soft_cap = 1;
    config_.model.logits_soft_cap = 2;
    config_.model.query_scale_size = 3;
  }

  // Saves the state at the start of training, and returns its mean loss on these tokens.
  double save(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) const {
    double loss = 0;
    comm::run_threads(1, [&](comm::World& world) {
      Engine engine(plan_of(config_, 1), model_of(config_), world);
      engine.save(folder_.path());
      const Shape shape{1, kLength};
      const Microbatch batch{{tokens.data(), DType::Int32, shape}, {targets.data(), DType::Int32, shape}, 0};
      loss = engine.evaluate({{batch}}).loss;
    });
    return loss;
  }
  Generator generator() const {
    return {model_of(config_), checkpoint::open_newest(real_file_system(), folder_.path()), Device::Cpu, 1};
  }

  const test::TemporaryFolder folder_;
  Config config_;
};

double loss_of(const std::vector<float>& logits, int32_t target) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  return std::log(sum) - static_cast<double>(logits[target]);
}

std::vector<int32_t> some_tokens(int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * i * 7 + 3 * i + 5) % 97));
  return tokens;
}

TEST_P(Generation, LogitsOfEveryPrefixGiveTheLossOfTraining) {
  const std::vector<int32_t> text = some_tokens(kLength + 1);
  const double loss = save({text.begin(), text.end() - 1}, {text.begin() + 1, text.end()});
  Generator generator = this->generator();
  double sum = 0;
  for (size_t length = 1; length <= kLength; ++length)
    sum += loss_of(generator.next_logits(std::span(text).first(length)), text[length]);
  EXPECT_NEAR(sum / kLength, loss, 1e-5);
}

TEST_P(Generation, OfALongTextTheLastTokensCount) {
  const std::vector<int32_t> text = some_tokens(2 * kLength + 3);
  save(some_tokens(kLength), some_tokens(kLength));
  Generator generator = this->generator();
  const std::vector<float> logits = generator.next_logits(text);
  EXPECT_EQ(logits, generator.next_logits(std::span(text).last(kLength)));
  EXPECT_NE(logits, generator.next_logits(std::span(text).first(kLength)));
}

class GenerationWithLongRope : public Generation {};

// The room of the model is longer than the original length, but a text may be shorter.
TEST_P(GenerationWithLongRope, TheLengthOfTheTextChoosesTheFactors) {
  constexpr int64_t kOriginal = 6;
  const auto pairs = static_cast<size_t>(model::with_defaults(config_.model).head_size / 2);
  const std::vector<double> few(pairs, 1.5), many(pairs, 8.0);
  const auto set_factors = [&](const std::vector<double>& of_short, const std::vector<double>& of_long) {
    config_.model.rotary_scaling = {.type = model::RotaryScalingType::LongRope,
                                    .factor = 2,
                                    .original_length = kOriginal,
                                    .short_factors = of_short,
                                    .long_factors = of_long};
  };
  set_factors(few, many);
  const std::vector<int32_t> text = some_tokens(kLength);
  save(text, text);
  const auto logits = [&](const std::vector<double>& of_short, const std::vector<double>& of_long, size_t length) {
    set_factors(of_short, of_long);
    return generator().next_logits(std::span(text).first(length));
  };
  EXPECT_EQ(logits(few, many, kOriginal), logits(few, few, kOriginal));
  EXPECT_NE(logits(few, many, kOriginal), logits(many, many, kOriginal));
  EXPECT_EQ(logits(few, many, kOriginal + 1), logits(many, many, kOriginal + 1));
  EXPECT_EQ(logits(few, many, kLength), logits(many, many, kLength));
}

INSTANTIATE_TEST_SUITE_P(Models, GenerationWithLongRope, testing::Values(model::Type::Llama));
INSTANTIATE_TEST_SUITE_P(Models, Generation, testing::Values(model::Type::Gpt, model::Type::Llama));

}  // namespace
}  // namespace trivet

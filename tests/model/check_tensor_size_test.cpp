// Tests which models can be divided among how many tensor ranks.
#include <gtest/gtest.h>

#include "core/error.h"
#include "model/linear.h"
#include "model/model.h"

namespace trivet::model {
namespace {

void expect_size_refused(const Description& description, int size, const std::string& message) {
  try {
    check_tensor_size(build(description), size);
    ADD_FAILURE() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), message.c_str());
  }
}

TEST(CheckTensorSize, AcceptsEvenHeadsAndFeedForwardAndAnyVocabulary) {
  for (int size : {1, 2, 4})
    check_tensor_size(build({.type = Type::Llama, .hidden_size = 32, .heads = 4, .key_value_heads = 2, .vocabulary_size = 61}),
                      size);
  check_tensor_size(build({.vocabulary_size = 50257}), 12);
}

TEST(CheckTensorSize, NamesWhatDoesNotDivide) {
  expect_size_refused({.hidden_size = 24, .heads = 3, .vocabulary_size = 61}, 2,
                      "parallel.tensor: 2 does not divide model.heads 3; use one of 1, 3");
  expect_size_refused({.hidden_size = 24, .heads = 6, .key_value_heads = 3, .vocabulary_size = 61}, 2,
                      "parallel.tensor: 2 neither divides model.key_value_heads 3 nor is a multiple of it; use one of 1, 3, 6");
  expect_size_refused({.hidden_size = 24, .heads = 4, .feed_forward_size = 30, .vocabulary_size = 61}, 4,
                      "parallel.tensor: 4 does not divide model.feed_forward_size 30; use one of 1, 2");
  expect_size_refused({.hidden_size = 24, .heads = 4, .vocabulary_size = 3}, 4,
                      "parallel.tensor: 4 is more than model.vocabulary_size 3; use one of 1, 2");
}

TEST(CheckTensorSize, AsksEachSplitParameterOfAListOfLayers) {
  Model model;
  model.names = {"first"};
  model.layers.push_back(std::make_unique<Linear>(Linear::Options{.in = 4, .out = 12, .split = {0, {12}, {3}}}));
  check_tensor_size(model, 3);
  check_tensor_size(model, 6);
  try {
    check_tensor_size(model, 2);
    ADD_FAILURE() << "was accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "parallel.tensor: 3 parts of first.weight cannot be divided among 2 ranks; use a divisor or a multiple of 3");
  }
}

}  // namespace
}  // namespace trivet::model

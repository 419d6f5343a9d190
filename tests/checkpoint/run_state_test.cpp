// The state of a run: each field has a type and a range, and an error names file, field, value and what is accepted.
#include "engine/checkpoint/run_state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

using ::testing::HasSubstr;

const std::string kFull =
    R"({"steps":9,"updates":7,"skipped_in_a_row":2,"seed":3,"train_batch_size":12,"train_micro_batch_size_per_gpu":4,)"
    R"("loss_scale":{"scale":1024.5,"clean_steps":6,"hysteresis":2},"data":"digest","tokenizer":"text"})";

std::string with(const std::string& from, const std::string& to) {
  std::string text = kFull;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  try {
    parse_run_state(text, "dir/manifest.json: state");
    return "";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt);
    return error.what();
  }
}

TEST(RunState, RoundTrips) {
  const RunState state = parse_run_state(kFull, "a");
  EXPECT_EQ(state.steps, 9);
  EXPECT_EQ(state.updates, 7);
  EXPECT_EQ(state.skipped_in_a_row, 2);
  EXPECT_FALSE(state.clean());
  EXPECT_EQ(state.seed, 3);
  EXPECT_EQ(state.train_batch_size, 12);
  EXPECT_EQ(state.micro_batch_size, 4);
  EXPECT_EQ(state.loss_scale, (LossScaleState{1024.5, 6, 2}));
  EXPECT_EQ(state.data, "digest");
  EXPECT_EQ(state.tokenizer, "text");
  EXPECT_EQ(to_text(state), kFull);
}

// A resumed run compares new losses with these bits.
TEST(RunState, EvaluationsRoundTrip) {
  RunState state{.steps = 40, .updates = 40};
  state.evaluations = EvaluationState{.step = 40, .best_step = 30, .best_loss = 0.1 + 0.2, .without_improvement = 2};
  state.steps_per_epoch = 7;
  const RunState read = parse_run_state(to_text(state), "a");
  EXPECT_EQ(read.evaluations, state.evaluations);
  EXPECT_EQ(read.best_step(), 30);
  EXPECT_EQ(read.steps_per_epoch, 7);
  state.evaluations = EvaluationState{.step = 20};
  EXPECT_EQ(parse_run_state(to_text(state), "a").evaluations, state.evaluations);
  EXPECT_EQ(RunState{}.best_step(), 0);
}

TEST(RunState, EvaluationsHaveTypesAndRanges) {
  const auto refused = [](const std::string& evaluations, const std::string& message) {
    const std::string text = with(R"("data":)", R"("evaluations":)" + evaluations + R"(,"data":)");
    EXPECT_EQ(error_of(text), "dir/manifest.json: state.evaluations" + message);
  };
  const std::string whole = " is not accepted; it must be a whole number from ";
  refused("[]", ": [] is not an object");
  refused(R"({"step":10,"best_step":1,"best_loss":1,"without_improvement":0})", ": step: 10" + whole + "0 to 9");
  refused(R"({"step":8,"best_step":9,"best_loss":1,"without_improvement":0})", ": best_step: 9" + whole + "0 to 8");
  refused(R"({"step":8,"best_step":8,"best_loss":null,"without_improvement":0})",
          ": best_loss: null is not accepted; it must be a finite number");
  refused(R"({"step":8,"best_step":8,"without_improvement":0})", ": \"best_loss\" is missing");
  refused(R"({"step":8,"best_step":0,"without_improvement":9})", ": without_improvement: 9" + whole + "0 to 8");
  EXPECT_EQ(error_of(with(R"("data":)", R"("steps_per_epoch":0,"data":)")),
            "dir/manifest.json: state: steps_per_epoch: 0" + whole + "1 to 1000000000000");
}

TEST(RunState, FilesOfDataThatGrowsRoundTrip) {
  RunState state{.steps = 9, .updates = 9, .train_batch_size = 12};
  state.data_files = {{0, "a.tokens", "tokens 5"}, {0, "b \"c\".tokens", "tokens 6"}, {108, "\u00e9.tokens", "tokens 7"}};
  EXPECT_EQ(parse_run_state(to_text(state), "a").data_files, state.data_files);
  EXPECT_TRUE(parse_run_state(kFull, "a").data_files.empty());
}

TEST(RunState, FilesOfDataThatGrowsHaveTypesAndRanges) {
  const auto refused = [](const std::string& files, const std::string& message) {
    const std::string text = with(R"("data":)", R"("data_files":)" + files + R"(,"data":)");
    EXPECT_EQ(error_of(text), "dir/manifest.json: state" + message) << files;
  };
  const std::string whole = " is not accepted; it must be a whole number from ";
  const std::string list = " is not accepted; it must be a list of files";
  const std::string first = R"({"first_epoch":0,"name":"a","digest":"d"})";
  refused("[]", ": data_files: []" + list);
  refused(R"({"a":1})", ": data_files: {\"a\":1}" + list);
  refused("[1]", ".data_files[0]: 1 is not an object");
  refused(R"([{"name":"a","digest":"d"}])", ".data_files[0]: \"first_epoch\" is missing");
  refused(R"([{"first_epoch":1,"name":"a","digest":"d"}])", ".data_files[0]: first_epoch: 1" + whole + "0 to 0");
  refused("[" + first + R"(,{"first_epoch":109,"name":"b","digest":"d"}])",
          ".data_files[1]: first_epoch: 109" + whole + "0 to 108");
  refused("[" + first + R"(,{"first_epoch":3,"name":"b","digest":"d"},{"first_epoch":2,"name":"c","digest":"d"}])",
          ".data_files[2]: first_epoch: 2" + whole + "3 to 108");
  const std::string not_empty = " is not accepted; it must be a string that is not empty";
  refused(R"([{"first_epoch":0,"name":"","digest":"d"}])", ".data_files[0]: name: \"\"" + not_empty);
  refused(R"([{"first_epoch":0,"name":"a","digest":7}])", ".data_files[0]: digest: 7" + not_empty);
  for (const char* name : {"../a", "/a", "b/a", ".a"})
    refused(
        fmt::format(R"([{{"first_epoch":0,"name":"{}","digest":"d"}}])", name),
        fmt::format(".data_files[0]: name: \"{}\" is not accepted; it must be the name of a file that is not hidden, without "
                    "a folder",
                    name));
}

TEST(RunState, TheSmallestIsAccepted) {
  const RunState state = parse_run_state(to_text(RunState{}), "a");
  EXPECT_TRUE(state.clean());
  EXPECT_FALSE(state.loss_scale);
}

TEST(RunState, MessagesShowTheBeginningOfALongValue) {
  const std::string lengthy(1000, 'x'), cut = std::string(199, 'x') + "...";
  EXPECT_EQ(
      error_of(with("\"steps\":9", "\"steps\":\"" + lengthy + "\"")),
      "dir/manifest.json: state: steps: \"" + cut + " is not accepted; it must be a whole number from 0 to 1000000000000");
  EXPECT_EQ(error_of("\"" + lengthy + "\""), "dir/manifest.json: state: \"" + cut + " is not an object");
}

TEST(RunState, EveryFieldHasATypeAndARange) {
  const auto refused = [](const std::string& from, const std::string& to, const std::string& message) {
    EXPECT_EQ(error_of(with(from, to)), "dir/manifest.json: state" + message);
  };
  const std::string whole = " is not accepted; it must be a whole number from ";
  refused("\"steps\":9", "\"steps\":9223372036854775808", ": steps: 9223372036854775808" + whole + "0 to 1000000000000");
  refused("\"steps\":9", "\"steps\":1000000000001", ": steps: 1000000000001" + whole + "0 to 1000000000000");
  refused("\"steps\":9", "\"steps\":-1", ": steps: -1" + whole + "0 to 1000000000000");
  refused("\"steps\":9", "\"steps\":9.5", ": steps: 9.5" + whole + "0 to 1000000000000");
  refused("\"steps\":9", "\"steps\":\"9\"", ": steps: \"9\"" + whole + "0 to 1000000000000");
  refused("\"steps\":9", "\"steps\":null", ": steps: null" + whole + "0 to 1000000000000");
  refused("\"updates\":7", "\"updates\":-1", ": updates: -1" + whole + "0 to 9");
  refused("\"updates\":7", "\"updates\":10", ": updates: 10" + whole + "0 to 9");
  refused("\"skipped_in_a_row\":2", "\"skipped_in_a_row\":3", ": skipped_in_a_row: 3" + whole + "0 to 2");
  refused("\"skipped_in_a_row\":2", "\"skipped_in_a_row\":-1", ": skipped_in_a_row: -1" + whole + "0 to 2");
  refused("\"seed\":3", "\"seed\":-3", ": seed: -3" + whole + "0 to 9223372036854775807");
  refused("\"train_batch_size\":12", "\"train_batch_size\":0", ": train_batch_size: 0" + whole + "1 to 4611686018427387904");
  refused("\"train_batch_size\":12", "\"train_batch_size\":4611686018427387904",
          ": steps: 9" + whole + "0 to 1");  // the data cursor would overflow
  refused("\"train_micro_batch_size_per_gpu\":4", "\"train_micro_batch_size_per_gpu\":13",
          ": train_micro_batch_size_per_gpu: 13" + whole + "1 to 12");
  const std::string positive = " is not accepted; it must be a finite number above 0";
  refused("1024.5", "0", ".loss_scale: scale: 0" + positive);
  refused("1024.5", "-2.5", ".loss_scale: scale: -2.5" + positive);
  refused("1024.5", "\"2\"", ".loss_scale: scale: \"2\"" + positive);
  refused("\"clean_steps\":6", "\"clean_steps\":10", ".loss_scale: clean_steps: 10" + whole + "0 to 9");
  refused("\"hysteresis\":2", "\"hysteresis\":-1", ".loss_scale: hysteresis: -1" + whole + "0 to 1000000000000");
  refused("\"digest\"", "1", ": data: 1 is not accepted; it must be a string");
  refused("\"text\"", "[]", ": tokenizer: [] is not accepted; it must be a string");
}

TEST(RunState, WhatIsNoObjectOrLacksAFieldIsRefused) {
  EXPECT_EQ(error_of("[]"), "dir/manifest.json: state: [] is not an object");
  EXPECT_EQ(error_of("7"), "dir/manifest.json: state: 7 is not an object");
  EXPECT_THAT(error_of(""), HasSubstr("dir/manifest.json: state: not JSON"));
  EXPECT_EQ(error_of(with(R"("updates":7,)", "")), "dir/manifest.json: state: \"updates\" is missing");
  EXPECT_EQ(error_of(with(R"("clean_steps":6,)", "")), "dir/manifest.json: state.loss_scale: \"clean_steps\" is missing");
  EXPECT_EQ(error_of(with(R"({"scale":1024.5,"clean_steps":6,"hysteresis":2})", "[]")),
            "dir/manifest.json: state.loss_scale: [] is not an object");
  EXPECT_THAT(error_of(with(R"("updates":7)", R"("steps":7)")), HasSubstr("\"steps\" appears twice"));
  EXPECT_THAT(error_of(with("1024.5", "1e999")), HasSubstr("not JSON"));
}

}  // namespace
}  // namespace trivet::checkpoint

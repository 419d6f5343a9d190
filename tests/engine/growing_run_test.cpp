// Runs whose data grows while they train: which files an epoch has, equal bits on every layout, and resuming.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <functional>
#include <map>

#include "comm/world.h"
#include "core/error.h"
#include "core/file_system.h"
#include "data/token_file.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/config/explain.h"
#include "engine/config/load.h"
#include "tests/support/temporary_folder.h"
#include "trainer/checkpoints.h"
#include "trainer/replay.h"
#include "trainer/resume.h"
#include "trainer/run.h"
#include "trainer/trainer.h"

namespace trivet {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kGrowingSequence = 8;

class GrowingRun : public testing::Test {
 protected:
  GrowingRun() {
    std::filesystem::create_directory(folder.at("web"));
    write("a", 10);
  }

  // A file of so many samples, whose content depends on its name.
  void write(const std::string& name, int64_t samples) const {
    TokenFileWriter writer(folder.at("web/" + name + ".tokens"), *data::bytes_tokenizer());
    std::vector<int32_t> ids;
    for (int64_t i = 0; i <= samples * kGrowingSequence; ++i)
      ids.push_back(static_cast<int32_t>((name[0] * 7 + i * i * 3 + i * name[0]) % 251));
    writer.add(ids);
    writer.finish();
  }
  using TokenFileWriter = data::TokenFileWriter;

  Config config(const std::vector<std::string>& further = {}) const {
    std::vector<std::string> keys{"checkpoint.directory=" + folder.at("steps")};
    keys.insert(keys.end(), further.begin(), further.end());
    return parse_config(fmt::format(R"({{"model": {{"layers": 2, "hidden_size": 16, "heads": 2, "sequence_length": {}}},
                         "data": {{"train": "{}", "grows": true}}, "reproducible": "layout", "training": {{"steps": 12}},
                         "train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "steps_per_print": 1000000,
                         "checkpoint": {{"every_steps": 4}}, "optimizer": {{"params": {{"lr": 0.01}}}}}})",
                                    kGrowingSequence, folder.at("web")),
                        "grow.json", keys);
  }

  // What appears in the folder before a step (counted from 1): names and samples.
  using Arrivals = std::multimap<int64_t, std::pair<std::string, int64_t>>;

  // What a run computed, and what it said when it took up files, from the step after which it resumed.
  struct Trace {
    std::map<int64_t, uint32_t> loss_bits;
    std::map<int64_t, std::string> news;
  };

  // The loop of the trainer, in which files arrive just before the first rank begins a step. `of_rank` is what differs from
  // rank to rank.
  Trace train(
      const Config& config, int ranks, const Arrivals& arriving, TrainOptions options = {},
      const std::function<void(Config&, int rank)>& of_rank = [](Config&, int) {}) const {
    Trace trace;
    options.config_text = explain_as_json(config);
    comm::run_threads(ranks, [&](comm::World& world) {
      Config own = config;
      of_rank(own, world.rank());
      trainer::Run run(own, world, options);
      trainer::Checkpoints checkpoints(run);
      trainer::resume_if_asked(run, checkpoints);
      while (run.steps_done() < run.total_steps()) {
        const int64_t step = run.steps_done() + 1;
        if (world.rank() == 0) {
          const auto [first, last] = arriving.equal_range(step);
          for (auto file = first; file != last; ++file) write(file->second.first, file->second.second);
        }
        const std::string news = run.intake.before_step(step - 1);
        const StepResult result = run.engine.train_batch(run.batches.fill(step - 1));
        if (checkpoints.saves() && checkpoints.is_due()) checkpoints.save(checkpoint::OnFailure::End);
        if (world.rank() != 0) continue;
        trace.loss_bits[step] = std::bit_cast<uint32_t>(static_cast<float>(result.loss));
        if (!news.empty()) trace.news[step] = news;
      }
      checkpoints.finish();
    });
    return trace;
  }
  void keep_only(const std::vector<std::string>& names) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder.at("web")))
      if (std::ranges::find(names, entry.path().stem().string()) == names.end()) std::filesystem::remove(entry.path());
  }

  template <typename Kind = DataError>
  static std::string refusal(const std::function<void()>& work, ExitCode code) {
    try {
      work();
      return "no error";
    } catch (const Kind& error) {
      EXPECT_EQ(error.exit_code(), code);
      return error.what();
    }
  }
  std::vector<DataFileState> files_of(const std::string& step) const {
    return checkpoint::open_path(real_file_system(), folder.at(step)).run_state().data_files;
  }

  // Epochs begin at samples 0, 10, 20 (then 15 samples), 35, 50 (then 22), 72 ... Step s has samples 8 s - 8 to 8 s - 1.
  const Arrivals arrivals{{3, {"c", 3}}, {3, {"b", 2}}, {6, {"d", 7}}};
  const test::TemporaryFolder folder;
};

// Every token of a step, against the files: without a shuffle, an epoch has the samples of all files in the order in which they
// were taken up.
TEST_F(GrowingRun, AnEpochHasTheFilesThatAreThereWhenItBegins) {
  const Config plain = config({"data.shuffle=false", "checkpoint.directory="});
  std::vector<int32_t> read, expected;
  comm::run_threads(1, [&](comm::World& world) {
    trainer::Run run(plain, world, {});
    for (int64_t step = 0; step < 12; ++step) {
      const auto [first, last] = arrivals.equal_range(step + 1);
      for (auto file = first; file != last; ++file) write(file->second.first, file->second.second);
      run.intake.before_step(step);
      for (const Microbatch& microbatch : run.batches.fill(step)) {
        const auto* const ids = static_cast<const int32_t*>(microbatch.input.data);
        read.insert(read.end(), ids, ids + microbatch.input.elements());
      }
    }
  });
  const auto add = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const auto file = data::open_tokens(folder.at("web/" + name + ".tokens"));
      std::vector<int32_t> ids(file->tokens() - 1);
      file->read(0, ids);
      expected.insert(expected.end(), ids.begin(), ids.end());
    }
  };
  // b and c arrive together and follow each other, with 2 x 8 + 1 and 3 x 8 + 1 tokens: 5 samples, of which the third begins
  // with the last token of b.
  const auto add_b_and_c = [&] {
    const auto b = data::open_tokens(folder.at("web/b.tokens")), c = data::open_tokens(folder.at("web/c.tokens"));
    std::vector<int32_t> ids(b->tokens() + c->tokens());
    b->read(0, std::span(ids).first(b->tokens()));
    c->read(0, std::span(ids).subspan(b->tokens()));
    expected.insert(expected.end(), ids.begin(), ids.begin() + 5 * kGrowingSequence);
  };
  for (int epoch = 0; epoch < 7; ++epoch) {
    add({"a"});
    if (epoch >= 2) add_b_and_c();
    if (epoch >= 4) add({"d"});
  }
  ASSERT_EQ(read.size(), 12u * 8 * kGrowingSequence);
  expected.resize(read.size());
  EXPECT_EQ(read, expected);
}

// The first step has 2 2/3 epochs of 3 samples. What arrives before the second step is not for the third epoch, which has
// begun.
TEST_F(GrowingRun, AnEpochThatHasBegunDoesNotChange) {
  write("a", 3);
  const Config two_steps = config({"data.shuffle=false", "checkpoint.directory=", "training.steps=2"});
  std::vector<int32_t> first_tokens;
  comm::run_threads(1, [&](comm::World& world) {
    trainer::Run run(two_steps, world, {});
    for (int64_t step = 0; step < 2; ++step) {
      if (step == 1) write("b", 2);
      run.intake.before_step(step);
      for (const Microbatch& microbatch : run.batches.fill(step))
        first_tokens.push_back(*static_cast<const int32_t*>(microbatch.input.data));
    }
  });
  const auto first_of = [&](const char* name, int64_t sample) {
    std::vector<int32_t> token(1);
    data::open_tokens(folder.at(name))->read(sample * kGrowingSequence, token);
    return token[0];
  };
  std::vector<int32_t> expected;
  for (const int64_t sample : {0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2}) expected.push_back(first_of("web/a.tokens", sample));
  for (const int64_t sample : {0, 1}) expected.push_back(first_of("web/b.tokens", sample));
  for (const int64_t sample : {0, 1}) expected.push_back(first_of("web/a.tokens", sample));
  EXPECT_EQ(first_tokens, expected);
}

TEST_F(GrowingRun, HasTheSameBitsOnEveryLayout) {
  const Trace one = train(config(), 1, arrivals);
  ASSERT_EQ(one.loss_bits.size(), 12u);
  EXPECT_EQ(one.news, (std::map<int64_t, std::string>{
                          {3, "epoch 3 begins with 2 more files of 42 tokens: 3 files, 15 samples (b.tokens, c.tokens)"},
                          {7, "epoch 5 begins with 1 more file of 57 tokens: 4 files, 22 samples (d.tokens)"}}));
  const std::vector<std::pair<int, std::vector<std::string>>> layouts{
      {2, {"zero_optimization.stage=3"}},
      {4, {"zero_optimization.stage=3", "zero_optimization.stage3_param_persistence_threshold=0"}},
      {8, {"parallel.pipeline=2", "parallel.tensor=2"}}};
  for (const auto& [ranks, layout] : layouts) {
    keep_only({"a"});
    std::vector<std::string> keys = layout;
    keys.push_back("checkpoint.directory=" + folder.at("on" + std::to_string(ranks)));
    const Trace other = train(config(keys), ranks, arrivals);
    EXPECT_EQ(other.loss_bits, one.loss_bits) << ranks;
    EXPECT_EQ(other.news, one.news) << ranks;
  }
  keep_only({"a"});
  const Trace without = train(config({"checkpoint.directory="}), 1, {});
  EXPECT_TRUE(without.news.empty());
  for (int64_t step = 1; step <= 12; ++step)
    EXPECT_EQ(without.loss_bits.at(step) == one.loss_bits.at(step), step < 3) << "the files change what later steps read";
}

// A checkpoint of step 4 knows b and c. When a run resumes from it, d arrives before step 6, as it did in the whole run.
TEST_F(GrowingRun, ResumesWithTheFilesOfItsEpochsOnAnotherLayout) {
  const Trace whole = train(config(), 1, arrivals);
  const std::vector<DataFileState> files = files_of("steps/step-00000004");
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0], (DataFileState{0, "a.tokens", data::open_tokens(folder.at("web/a.tokens"))->digest()}));
  EXPECT_EQ(files[1], (DataFileState{2, "b.tokens", data::open_tokens(folder.at("web/b.tokens"))->digest()}));
  EXPECT_EQ(files[2].first_epoch, 2);
  EXPECT_EQ(files_of("steps/step-00000008").size(), 4u);
  const std::vector<std::pair<int, std::vector<std::string>>> layouts{
      {1, {}}, {2, {"zero_optimization.stage=3"}}, {8, {"parallel.pipeline=2", "parallel.tensor=2"}}};
  for (const auto& [ranks, layout] : layouts)
    for (const int64_t step : {4, 8}) {
      if (step == 4) keep_only({"a", "b", "c"});
      std::vector<std::string> keys = layout;
      keys.push_back("checkpoint.directory=" + folder.at(fmt::format("from-{}-on-{}", step, ranks)));
      const Trace rest = train(config(keys), ranks, step == 4 ? Arrivals{{6, {"d", 7}}} : Arrivals{},
                               {.resume = true, .resume_directory = folder.at(fmt::format("steps/step-{:08}", step))});
      auto expected = whole;
      std::erase_if(expected.loss_bits, [&](const auto& loss) { return loss.first <= step; });
      std::erase_if(expected.news, [&](const auto& news) { return news.first <= step; });
      EXPECT_EQ(rest.loss_bits, expected.loss_bits) << step << " on " << ranks;
      EXPECT_EQ(rest.news, expected.news) << step << " on " << ranks;
    }
}

// The fourth epoch begins in step 5, after the checkpoint, so what it has was not decided.
TEST_F(GrowingRun, TakesUpWhatArrivedBetweenTwoStarts) {
  const Trace whole = train(config(), 1, arrivals);
  const Trace rest =
      train(config({"checkpoint.directory="}), 1, {}, {.resume = true, .resume_directory = folder.at("steps/step-00000004")});
  EXPECT_EQ(
      rest.news,
      (std::map<int64_t, std::string>{{5, "epoch 4 begins with 1 more file of 57 tokens: 4 files, 22 samples (d.tokens)"}}));
  EXPECT_NE(rest.loss_bits.at(5), whole.loss_bits.at(5));
}

TEST_F(GrowingRun, ALostOrChangedFileIsNamedWhenARunResumes) {
  train(config({"training.steps=4"}), 1, arrivals);
  const std::string path = folder.at("web/b.tokens"), step = folder.at("steps/step-00000004"),
                    whole = folder.read("web/b.tokens");
  const std::string digest = data::open_tokens(path)->digest();
  const auto resumed = [&](int ranks) {
    return refusal([&] { train(config(), ranks, {}, {.resume = true}); }, ExitCode::DataChanged);
  };
  const std::string end = ", and " + step + " was trained on it";
  const std::string missing =
      path + " is missing, or shorter than its header says" + end + "; restore the file or start over without --resume";
  std::filesystem::remove(path);
  EXPECT_EQ(resumed(1), missing);
  EXPECT_EQ(resumed(2), missing);
  folder.write("web/b.tokens", whole.substr(0, whole.size() - 1));
  EXPECT_EQ(resumed(1), missing);
  write("b", 3);
  EXPECT_EQ(resumed(1), path + " has changed" + end + ": it was " + digest + ", now it is " +
                            data::open_tokens(path)->digest() + "; restore the file or start over without --resume");
  folder.write("web/b.tokens", whole);
  EXPECT_EQ(resumed(1), "no error");
}

TEST_F(GrowingRun, AFileThatOnlySomeHostsHaveWaits) {
  for (const char* host : {"host1", "host2"}) {
    std::filesystem::create_directory(folder.at(host));
    std::filesystem::copy(folder.at("web/a.tokens"), folder.at(host) + std::string("/a.tokens"));
  }
  const auto of_rank = [&](Config& own, int rank) {
    own.data.train = folder.at(rank == 0 ? "web" : "host" + std::to_string(rank));
  };
  write("b", 2);
  write("c", 3);
  const auto copy = [&](const char* name, const char* host) {
    std::filesystem::copy(folder.at("web/") + name, folder.at(host) + std::string("/") + name);
  };
  copy("b.tokens", "host1");
  for (const char* host : {"host1", "host2"}) copy("c.tokens", host);
  testing::internal::CaptureStderr();
  const Config plain = config({"checkpoint.directory=", "train_batch_size=12", "training.steps=3"});
  const Trace trace = train(plain, 3, {}, {}, of_rank);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("web: b.tokens is not complete; it is left for an epoch that begins later"));
  EXPECT_TRUE(trace.news.empty()) << "c is there from the beginning";

  std::filesystem::remove(folder.at("host2/c.tokens"));
  copy("b.tokens", "host2");
  std::filesystem::copy(folder.at("web/b.tokens"), folder.at("host2/c.tokens"));
  const std::string differs = refusal<CommError>([&] { train(plain, 3, {}, {}, of_rank); }, ExitCode::RanksDisagree);
  EXPECT_THAT(differs, AllOf(HasSubstr("data.train: rank 0 read "), HasSubstr("/c.tokens\" (tokens 25"),
                             HasSubstr("but rank 2 read"), HasSubstr("(tokens 17")));
  folder.write("host2/c.tokens", std::string(300, 'x'));
  EXPECT_EQ(refusal([&] { train(plain, 3, {}, {}, of_rank); }, ExitCode::Usage),
            folder.at("host2/c.tokens") +
                ": is not a token file (it does not start with \"TRIVTOK\"); if it is a text, give it another name, such as "
                "NAME.txt (rank 2)");
}

TEST_F(GrowingRun, BeginsWithACompleteFile) {
  const std::string whole = folder.read("web/a.tokens");
  folder.write("web/a.tokens", whole.substr(0, 150));
  testing::internal::CaptureStderr();
  const std::string error = refusal([&] { train(config(), 2, {}); }, ExitCode::Usage);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("a.tokens is not complete"));
  EXPECT_EQ(error,
            "grow.json: data.train: \"" + folder.at("web") + "\" has no complete .tokens file yet; start when there is one");
}

TEST_F(GrowingRun, DataThatGrowsAndDataThatDoesNotAreTwoRuns) {
  train(config({"training.steps=4"}), 1, {});
  const auto resumed = [&](const std::vector<std::string>& keys) {
    return refusal<ConfigError>([&] { train(config(keys), 1, {}, {.resume = true}); }, ExitCode::Usage);
  };
  const std::string pattern = "data.train=" + folder.at("web/*.tokens"), other = "checkpoint.directory=" + folder.at("other");
  EXPECT_EQ(resumed({"data.grows=false", pattern}), "grow.json: data.grows: false does not match " +
                                                        folder.at("steps/step-00000004") +
                                                        ", which was saved with true; set it to true");
  train(config({"training.steps=4", "data.grows=false", pattern, other}), 1, {});
  EXPECT_EQ(resumed({other}), "grow.json: data.grows: true does not match " + folder.at("other/step-00000004") +
                                  ", which was saved with false; set it to false");
}

// 12 steps of samples that are twice as long do not reach the epochs in which files were taken up.
TEST_F(GrowingRun, SamplesOfAnotherLengthAreAnotherRun) {
  train(config({"training.steps=4"}), 1, arrivals);
  const auto resumed = [&](const char* key) {
    return refusal<ConfigError>([&] { train(config({key}), 1, {}, {.resume = true}); }, ExitCode::Usage);
  };
  EXPECT_EQ(resumed("model.sequence_length=2"),
            "grow.json: " + folder.at("steps/step-00000004") +
                " has taken up files for epoch 3, which its 4 steps do not reach with samples as they are now; use the "
                "model.sequence_length and data.packing of that run");
  // Samples of 5 tokens: the first 2 epochs have 16 each, and end with step 4.
  EXPECT_THAT(resumed("model.sequence_length=5"), HasSubstr("has taken up files for epoch 3, which its 4 steps do not reach"));
  EXPECT_THAT(resumed("model.sequence_length=16"), HasSubstr("model.sequence_length: 16 does not match"));
}

TEST_F(GrowingRun, CanBeReplayedWithTheFilesOfThatTime) {
  const Config whole = config();
  train(whole, 1, arrivals);
  write("e", 4);  // arrives after the run
  const auto replayed = [&](const ReplayOptions& options) {
    std::string result;
    comm::run_threads(2, [&](comm::World& world) {
      std::string text = replay(whole, world, options);
      if (world.rank() == 0) result = text;
    });
    return result;
  };
  for (const int64_t step : {4, 8, 12})
    EXPECT_THAT(replayed({.step = step}),
                HasSubstr("tensors are equal to " + folder.at(fmt::format("steps/step-{:08}", step))));
  // From the beginning: the checkpoint of step 12 says what all 12 steps read.
  for (const char* step : {"steps/step-00000004", "steps/step-00000008"}) std::filesystem::remove_all(folder.at(step));
  EXPECT_THAT(replayed({.step = 12}), HasSubstr("from the beginning"));
}

TEST_F(GrowingRun, IsNotReplayedBeyondWhatCheckpointsKnow) {
  train(config(), 1, arrivals);
  std::filesystem::remove_all(folder.at("steps/step-00000012"));
  std::string metrics;
  for (int64_t step = 1; step <= 12; ++step)
    metrics += fmt::format("{{\"step\": {}, \"loss\": 1, \"loss_bits\": \"00000001\"}}\n", step);
  folder.write("metrics.jsonl", metrics);
  const auto refused = [&](int64_t step) {
    return refusal<ConfigError>(
        [&] {
          comm::run_threads(1, [&](comm::World& world) {
            replay(config(), world, {.step = step, .metrics_file = folder.at("metrics.jsonl")});
          });
        },
        ExitCode::Usage);
  };
  EXPECT_EQ(refused(12), "--step: step 10 begins epoch 6, and no checkpoint says which files of \"" + folder.at("web") +
                             "\" that epoch has; use a step before it, or one that has a checkpoint after it");
  std::filesystem::remove_all(folder.at("steps"));
  EXPECT_THAT(refused(2), HasSubstr("--step: step 1 begins epoch 1, and no checkpoint says"));
}

// Of a whole job, which the trainer runs itself.
TEST_F(GrowingRun, SaysWhatItTakesUp) {
  const auto printed = [&](int64_t steps, bool resume) {
    const Config job =
        config({fmt::format("training.steps={}", steps), "checkpoint.every_epochs=1", "checkpoint.every_steps=0"});
    testing::internal::CaptureStdout();
    comm::run_threads(
        2, [&](comm::World& world) { trivet::train(job, world, {.resume = resume, .config_text = explain_as_json(job)}); });
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(
      printed(1, false),
      AllOf(HasSubstr("data    " + folder.at("web") +
                      ": 1 file with 81 training tokens in 10 samples, and those that will arrive; 0 validation tokens\n"),
            HasSubstr("epochs  10 samples until more files arrive, the first ends with step 2; the run with step 1\n")));
  write("b", 2);
  EXPECT_THAT(printed(4, true),
              HasSubstr("data    epoch 2 begins with 1 more file of 17 tokens: 2 files, 12 samples (b.tokens)\n"));
  std::vector<int64_t> saved;
  for (const auto& step : checkpoint::list_steps(real_file_system(), folder.at("steps"))) saved.push_back(step.step);
  EXPECT_THAT(saved, testing::ElementsAre(1, 2, 3, 4))
      << "epochs end with samples 10, 22, 34: in steps 2, 3, 5; 1 and 4 end runs";
}

}  // namespace
}  // namespace trivet

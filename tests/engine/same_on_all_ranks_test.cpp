#include "engine/same_on_all_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <mutex>

#include "core/error.h"
#include "engine/config/config.h"
#include "engine/config/load.h"
#include "tests/support/temporary_folder.h"
#include "trainer/config_checks.h"
#include "trainer/files_of_run.h"

namespace trivet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Files = std::vector<FileContent>;

// The error that each rank gets when rank r has read files[r], or "".
std::vector<std::string> errors(const std::vector<Files>& files) {
  std::vector<std::string> all(files.size());
  comm::run_threads(static_cast<int>(files.size()), [&](comm::World& world) {
    const int rank = world.rank();
    try {
      check_same_on_all_ranks(files[rank], world);
    } catch (const CommError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::RanksDisagree);
      all[rank] = error.what();
    }
  });
  return all;
}

TEST(SameOnAllRanks, IsWhatRanksThatReadTheSameFilesFind) {
  const Files files{{"data.train", "a.tokens", "1"}, {"model.vocabulary", "b.json", "2"}};
  EXPECT_THAT(errors({files, files, files}), ElementsAre("", "", ""));
  EXPECT_THAT(errors({{}, {}, {}}), ElementsAre("", "", ""));
}

TEST(SameOnAllRanks, IsWhatIsInAFileAndNotItsPath) {
  EXPECT_THAT(errors({{{"data.train", "/mnt/a", "1"}}, {{"data.train", "/data/a", "1"}}}), ElementsAre("", ""));
}

TEST(SameOnAllRanks, NamesTheFileTheRanksAndBothDigestsToAll) {
  const Files usual{{"data.train", "a", "1"}, {"data.validation", "b", "2"}},
      other{{"data.train", "a", "1"}, {"data.validation", "b", "3"}};
  const std::string text =
      "data.validation: rank 0 read \"b\" (2), but rank 2 read \"b\" (3); all ranks must find the same file at this path";
  EXPECT_THAT(errors({usual, usual, other}), ElementsAre(text, text, text));
}

TEST(SameOnAllRanks, NamesARankThatHasReadFewerFiles) {
  const Files two{{"data.train", "a", "1"}, {"data.validation", "b", "2"}}, one{{"data.train", "a", "1"}};
  const std::string text = "rank 0 read 2 files, but rank 1 read 1";
  EXPECT_THAT(errors({two, one}), ElementsAre(text, text));
}

// The error that each of two ranks gets which were given different configs or flags, or "".
std::vector<std::string> config_errors(const std::string& config, const std::string& other_config, const TrainOptions& options,
                                       const TrainOptions& other_options) {
  std::vector<std::string> all(2);
  comm::run_threads(2, [&](comm::World& world) {
    const bool first = world.rank() == 0;
    try {
      trainer::check_same_config(parse_config(first ? config : other_config, "config"), world, first ? options : other_options);
    } catch (const CommError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::RanksDisagree);
      all[world.rank()] = error.what();
    }
  });
  return all;
}

TEST(SameConfig, NamesWhatDiffersOnAllRanks) {
  const std::string config = R"({"train_batch_size": 4})", other = R"({"train_batch_size": 8})";
  EXPECT_THAT(config_errors(config, config, {}, {}), ElementsAre("", ""));
  std::string text =
      "config: rank 0 and rank 1 differ; train_batch_size is 4 on rank 0, 8 on rank 1; start all ranks with the same config "
      "and "
      "flags";
  EXPECT_THAT(config_errors(config, other, {}, {}), ElementsAre(text, text));
  text =
      "config: rank 0 and rank 1 differ; --resume is not given on rank 0, \"old\" on rank 1; start all ranks with the same "
      "config "
      "and flags";
  EXPECT_THAT(config_errors(config, config, {}, {.resume = true, .resume_directory = "old"}), ElementsAre(text, text));
}

class OneToken : public data::TokenSequence {
 public:
  int64_t tokens() const override { return 1; }
  int64_t vocabulary_size() const override { return 1; }
  void read(int64_t, std::span<int32_t>) const override {}
  std::string digest() const override { return "one token"; }
};

TEST(ContentsOfFiles, AreOfEveryFileThatTheConfigNames) {
  const test::TemporaryFolder folder;
  Config config;
  config.data.train = "train.tokens";
  config.data.validation = "validation.tokens";
  config.pipeline.schedule_file = folder.write("schedule", "0F0");
  config.pipeline.cost_file = folder.write("costs.json", "[]");
  const auto dataset =
      data::text_data({std::make_shared<OneToken>(), std::make_shared<OneToken>(), data::bytes_tokenizer(), 256}, 1);
  const Files files = trainer::contents_of_files(config, *dataset);
  std::vector<std::string> keys;
  for (const FileContent& file : files) keys.push_back(file.key + " " + file.path);
  EXPECT_THAT(keys, ElementsAre("data.train train.tokens", "data.validation validation.tokens", "model.vocabulary train.tokens",
                                "pipeline.schedule " + folder.at("schedule"), "pipeline.partition " + folder.at("costs.json")));
  EXPECT_EQ(files[0].digest, "one token");
  EXPECT_THAT(files[2].digest, HasSubstr("256 tokens, xxh3 "));
  EXPECT_THAT(files[3].digest, HasSubstr("3 bytes, xxh3 "));
  const std::string before = files[3].digest;
  folder.write("schedule", "0B0");
  EXPECT_NE(trainer::contents_of_files(config, *dataset)[3].digest, before);
  std::filesystem::remove_all(folder.path());
  EXPECT_THROW(trainer::contents_of_files(config, *dataset), ConfigError);
}

}  // namespace
}  // namespace trivet

// Data that grows: the order of samples whose number rises from one epoch to the next, and the files of a folder that are taken
// up. When they are taken up, the ranks decide (tests/engine/growing_run_test.cpp).
#include "data/growing_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "data/characters.h"
#include "data/sampler.h"
#include "data/token_file.h"
#include "engine/config/config.h"
#include "tests/data/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "trainer/open_data.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

GrowingData growing(const Config& config) { return {trainer::data_options(config), config.model.sequence_length}; }

// The samples of `places` places, and their epochs.
std::vector<Visit> visits(const Sampler& sampler, const BatchLayout& layout, int64_t places) {
  std::vector<Visit> all;
  for (int64_t place = 0; place < places; ++place)
    all.push_back(sampler.visit(place / layout.global_batch(), place % layout.global_batch() / layout.micro_batch,
                                place % layout.micro_batch));
  return all;
}

std::vector<int64_t> samples_of(const std::vector<Visit>& visits) {
  std::vector<int64_t> samples;
  for (const Visit& visit : visits) samples.push_back(visit.sample);
  return samples;
}

std::vector<int64_t> epochs_of(const std::vector<Visit>& visits) {
  std::vector<int64_t> epochs;
  for (const Visit& visit : visits) epochs.push_back(visit.epoch);
  return epochs;
}

class EpochsOfSeveralSizes : public testing::Test {
 protected:
  const BatchLayout layout_{.micro_batch = 2, .accumulation = 1, .data_size = 2};  // 4 places a step
  const std::vector<EpochSize> sizes_{{0, 3}, {2, 5}, {3, 7}};                     // epochs begin at 0, 3, 6, 11, 18, 25
};

TEST_F(EpochsOfSeveralSizes, FollowEachOtherWhateverStepTheyFallInto) {
  const auto all = visits(EndlessSampler(sizes_, 7, false, layout_), layout_, 20);
  EXPECT_THAT(samples_of(all), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 5, 6, 0, 1));
  EXPECT_THAT(epochs_of(all), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 4, 4));
}

// An epoch has the order that it would have if all epochs had its size.
TEST_F(EpochsOfSeveralSizes, HaveThePermutationOfTheirOwnSize) {
  const auto all = visits(EndlessSampler(sizes_, 7, true, layout_), layout_, 25);
  const std::vector<int64_t> size{3, 3, 5, 7, 7}, begin{0, 3, 6, 11, 18};
  for (size_t epoch = 0; epoch < size.size(); ++epoch)
    for (int64_t i = 0; i < size[epoch]; ++i)
      EXPECT_EQ(all[begin[epoch] + i].sample,
                SampleOrder(size[epoch], 7, true).sample_of(static_cast<int64_t>(epoch) * size[epoch] + i))
          << epoch << " " << i;
}

TEST_F(EpochsOfSeveralSizes, DoNotChangeWhatEarlierEpochsRead) {
  const auto all = visits(EndlessSampler(sizes_, 7, true, layout_), layout_, 18);
  for (size_t known = 1; known < sizes_.size(); ++known) {
    const std::vector<EpochSize> first(sizes_.begin(), sizes_.begin() + static_cast<int64_t>(known));
    const int64_t end = known == 1 ? 6 : 11;
    const auto before = visits(EndlessSampler(first, 7, true, layout_), layout_, end);
    EXPECT_EQ(samples_of(before), samples_of({all.begin(), all.begin() + end})) << known;
    EXPECT_EQ(epochs_of(before), epochs_of({all.begin(), all.begin() + end})) << known;
  }
}

TEST_F(EpochsOfSeveralSizes, AreCountedInSteps) {
  const EndlessSampler sampler(sizes_, 7, true, layout_);
  const std::vector<std::pair<double, int64_t>> steps{{0, 0}, {1, 1}, {2, 2}, {2.4, 2}, {3, 3}, {4, 5}, {4.5, 6}, {5, 7}};
  for (const auto& [epochs, expected] : steps) EXPECT_EQ(sampler.steps_of(epochs), expected) << epochs;
  std::vector<int64_t> complete;
  for (int64_t step = 0; step <= 7; ++step) complete.push_back(sampler.epochs_in(step));
  EXPECT_THAT(complete, ElementsAre(0, 1, 2, 3, 3, 4, 4, 5));
  EXPECT_TRUE(completes_epoch(sampler, 3, 3));
  EXPECT_FALSE(completes_epoch(sampler, 4, 1));
}

TEST_F(EpochsOfSeveralSizes, OneSizeIsTheOrderOfDataThatDoesNotGrow) {
  const EndlessSampler grows({{0, 5}}, 7, true, layout_), does_not(SampleOrder(5, 7, true), layout_);
  EXPECT_EQ(samples_of(visits(grows, layout_, 23)), samples_of(visits(does_not, layout_, 23)));
  EXPECT_EQ(grows.steps_of(2.5), does_not.steps_of(2.5));
  EXPECT_THROW(EndlessSampler({{1, 5}}, 7, true, layout_), std::logic_error);
}

class GrowingFolder : public testing::Test {
 protected:
  GrowingFolder() {
    config.source = "grow.json";
    config.data.train = folder.path();
    config.data.grows = true;
    config.data.validation_fraction = 0;
    config.model.sequence_length = 4;
  }

  // A .tokens file of the bytes of a text, and its path.
  std::string write(const std::string& name, const std::string& text, const Tokenizer& tokenizer = *bytes_tokenizer(),
                    bool documents = false) const {
    TokenFileWriter writer(folder.at(name), tokenizer);
    writer.add(tokenizer.encode(text));
    if (documents) writer.end_document();
    writer.finish();
    return folder.at(name);
  }
  // The inputs of all samples, as text.
  static std::vector<std::string> inputs(const SampleSource& source) {
    std::vector<std::string> texts;
    for (int64_t sample = 0; sample < source.samples(); ++sample) {
      std::vector<int32_t> ids(static_cast<size_t>(source.spec().input.elements())), targets(ids.size());
      source.fill(sample, 0, std::as_writable_bytes(std::span(ids)), targets);
      texts.emplace_back(ids.begin(), ids.end());
    }
    return texts;
  }

  const test::TemporaryFolder folder;
  Config config;
};

TEST_F(GrowingFolder, ListsTokenFilesButNoneThatAreHiddenOrTemporary) {
  for (const char* name : {"b.tokens", "a.tokens"}) write(name, "01234");
  for (const char* name : {".c.tokens", "d.tokens.tmp", "e.tokens.123.tmp", "readme.txt"}) folder.write(name, "x");
  std::filesystem::create_directory(folder.at("f.tokens"));
  std::filesystem::create_symlink("a.tokens", folder.at("g.tokens"));  // one file by two names is read once
  GrowingData data = growing(config);
  EXPECT_THAT(data.new_files(), ElementsAre("a.tokens", "b.tokens"));
  data.take_up(0, {"b.tokens"});
  EXPECT_THAT(data.new_files(), ElementsAre("a.tokens"));
  config.data.train = folder.at("b*.tokens");
  EXPECT_THAT(growing(config).new_files(), ElementsAre("b.tokens"));
  config.data.train = folder.at("*.tokens");
  EXPECT_THAT(growing(config).new_files(), ElementsAre("a.tokens", "b.tokens"));
}

TEST_F(GrowingFolder, AFileThatIsShorterThanItsHeaderSaysIsNotThereYet) {
  const std::string whole = folder.read(std::filesystem::path(write("whole.tokens", std::string(300, 'a'))).filename());
  const GrowingData data = growing(config);
  EXPECT_EQ(data.digest_of("none.tokens"), "");
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{127}, size_t{128}, size_t{200}, whole.size() - 1}) {
    folder.write("half.tokens", whole.substr(0, bytes));
    EXPECT_EQ(data.digest_of("half.tokens"), "") << bytes;
  }
  folder.write("half.tokens", std::string(whole.size(), '\0'));
  EXPECT_EQ(data.digest_of("half.tokens"), "") << "room was made for it, and nothing was written";
  folder.write("half.tokens", whole);
  EXPECT_EQ(data.digest_of("half.tokens"), open_tokens(folder.at("whole.tokens"))->digest());
}

TEST_F(GrowingFolder, AFileThatCannotBeReadIsNamed) {
  const GrowingData data = growing(config);
  std::string damaged = folder.read(std::filesystem::path(write("whole.tokens", "0123456789")).filename());
  folder.write("long.tokens", damaged + "x");
  EXPECT_THROW(data.digest_of("long.tokens"), DataError);
  damaged[20] ^= 1;
  folder.write("damaged.tokens", damaged);
  expect_error(
      [&] { data.digest_of("damaged.tokens"); }, ExitCode::DataChanged,
      folder.at("damaged.tokens") + ": the checksum of the header does not match: the file is damaged; prepare it again");
  const std::string text = folder.write("text.tokens", std::string(500, 't'));
  expect_error([&] { data.digest_of("text.tokens"); }, ExitCode::Usage,
               text +
                   ": is not a token file (it does not start with \"TRIVTOK\"); if it is a text, give it another name, such as "
                   "NAME.txt");
  folder.write("a\nb.tokens", "x");
  expect_error([&] { data.new_files(); }, ExitCode::Usage,
               folder.path() +
                   ": the name \"a\\nb.tokens\" in it has control characters, or bytes that are not UTF-8; rename the "
                   "file");
}

TEST_F(GrowingFolder, HasASourceForFilesThatAreTakenUpTogether) {
  write("a.tokens", "01234567+");  // 2 samples of 4 and the last target
  write("b.tokens", "abc");
  write("c.tokens", "defgh-");
  write("d.tokens", "ABCD.");
  GrowingData data = growing(config);
  ASSERT_TRUE(data.take_up(0, {"a.tokens"}));
  const auto first = data.train();
  ASSERT_TRUE(data.take_up(2, {"b.tokens", "c.tokens"}));
  ASSERT_TRUE(data.take_up(3, {"d.tokens"}));
  EXPECT_THAT(inputs(*first), ElementsAre("0123", "4567")) << "it does not change";
  EXPECT_THAT(inputs(*data.train()), ElementsAre("0123", "4567", "abcd", "efgh", "ABCD"));
  EXPECT_EQ(data.train()->epoch_sizes(), (std::vector<EpochSize>{{0, 2}, {2, 4}, {3, 5}}));
  EXPECT_EQ(first->epoch_sizes(), (std::vector<EpochSize>{{0, 2}}));
  ASSERT_EQ(data.files().size(), 4u);
  EXPECT_EQ(data.files()[2], (TakenFile{2, "c.tokens", open_tokens(folder.at("c.tokens"))->digest()}));
  EXPECT_EQ(data.tokens(), 9 + 3 + 6 + 5);
  EXPECT_EQ(data.sizes(), "4 files with 23 training tokens in 5 samples, and those that will arrive; 0 validation tokens");
  EXPECT_THROW(data.take_up(3, {"e.tokens"}), std::logic_error);

  GrowingData again = growing(config);
  again.take_up(0, {"a.tokens", "d.tokens"});
  again.restore(data.files());
  EXPECT_EQ(again.files(), data.files());
  EXPECT_EQ(inputs(*again.train()), inputs(*data.train()));
  EXPECT_EQ(again.train_digest(), data.train_digest());
  EXPECT_NE(first->digest(), data.train_digest());
  std::vector<TakenFile> later = data.files();
  later.back().first_epoch = 4;
  again.restore(later);
  EXPECT_NE(again.train_digest(), data.train_digest()) << "another epoch reads the same files";
}

TEST_F(GrowingFolder, TooFewTokensForASampleWaitForMore) {
  write("a.tokens", "01234");
  write("b.tokens", "abcd");
  write("c.tokens", "e");
  GrowingData data = growing(config);
  data.take_up(0, {"a.tokens"});
  EXPECT_FALSE(data.take_up(1, {"b.tokens"}));
  EXPECT_THAT(data.new_files(), ElementsAre("b.tokens", "c.tokens"));
  EXPECT_TRUE(data.take_up(1, {"b.tokens", "c.tokens"}));
  EXPECT_THAT(inputs(*data.train()), ElementsAre("0123", "abcd"));
  GrowingData alone = growing(config);
  EXPECT_THROW(alone.take_up(0, {"b.tokens"}), DataError);
  EXPECT_TRUE(alone.files().empty());
}

TEST_F(GrowingFolder, AllFilesHaveOneTokenizer) {
  config.vocabulary.kind = VocabularyKind::Characters;
  write("a.tokens", "ababa", *characters_tokenizer("ab"));
  write("b.tokens", "acaca", *characters_tokenizer("ac"));
  GrowingData data = growing(config);
  EXPECT_NE(data.digest_of("b.tokens"), "") << "nothing was opened before";
  data.take_up(0, {"a.tokens"});
  expect_error([&] { data.digest_of("b.tokens"); }, ExitCode::Usage,
               "grow.json: data.train: " + folder.at("b.tokens") + " was made with a different tokenizer from " +
                   folder.at("a.tokens") + "; prepare both with the same one");
}

TEST_F(GrowingFolder, DocumentsStayWholeWithoutOnesThatNobodyKnows) {
  config.data.packing = Packing::Isolated;
  write("a.tokens", "ab", *bytes_tokenizer(), true);
  write("b.tokens", "cde", *bytes_tokenizer(), true);
  write("c.tokens", "fghij");
  GrowingData data = growing(config);
  data.take_up(0, {"a.tokens"});
  EXPECT_TRUE(data.take_up(1, {"b.tokens"})) << "a document need not fill a sample";
  ASSERT_EQ(data.train()->samples(), 2);
  std::vector<int32_t> first_tokens(4);
  data.train()->fill_documents(1, first_tokens);
  EXPECT_THAT(first_tokens, testing::ElementsAre(0, 0, 4, 4));
  expect_error([&] { data.digest_of("c.tokens"); }, ExitCode::Usage,
               folder.at("c.tokens") +
                   ": does not say where documents end, which data.packing \"isolated\" needs; use \"stream\", "
                   "or prepare the texts with `trivet data prepare`");
}

TEST_F(GrowingFolder, ValidationIsOtherData) {
  write("a.tokens", "01234");
  const test::TemporaryFolder other;
  config.data.validation = other.write("validation.txt", "abcdefghi");
  GrowingData data = growing(config);
  data.take_up(0, {"a.tokens"});
  EXPECT_EQ(data.validation()->samples(), 2);
  const std::string digest = data.validation_digest();
  write("b.tokens", "56789");
  data.take_up(1, {"b.tokens"});
  EXPECT_EQ(data.validation_digest(), digest);
  EXPECT_THAT(data.sizes(), testing::HasSubstr("; 9 validation tokens"));
}

TEST_F(GrowingFolder, WhatIsNoFolderOfTokenFilesIsRefused) {
  const auto refused = [&](const std::string& train, const std::string& why) {
    config.data.train = train;
    expect_error([&] { GrowingData data = growing(config); }, ExitCode::Usage,
                 "grow.json: data.train: \"" + train + "\" is not accepted with data.grows: " + why);
  };
  const std::string advice = "name a folder of .tokens files, or some of them: \"folder/web-*.tokens\"";
  refused(write("a.tokens", "01234"), advice);
  refused(folder.at("*.txt"), advice);
  refused(folder.at("none"), advice);
  refused(folder.at("none/*.tokens"), "there is no folder \"" + folder.at("none") + "\"");
  config.data.train = folder.at("gone");
  std::filesystem::create_directory(folder.at("gone"));
  const GrowingData data = growing(config);
  std::filesystem::remove(folder.at("gone"));
  expect_error([&] { data.new_files(); }, ExitCode::Usage,
               folder.at("gone") + ": this folder cannot be read: No such file or directory");
}

}  // namespace
}  // namespace trivet::data

// Samples of which the loss counts nothing, and data that have nothing else.
#include "data/counted_targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "data/dataset.h"
#include "data/document_source.h"
#include "data/mixture.h"
#include "data/prepare.h"
#include "data/token_array.h"
#include "data/token_source.h"
#include "tests/data/expect_error.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::HasSubstr;

// Documents of these lengths. The loss ignores the tokens whose numbers, from 0, are listed.
std::shared_ptr<TokenArray> tokens_of(const std::vector<int64_t>& lengths, const std::vector<size_t>& ignored) {
  EncodedText text;
  for (const int64_t length : lengths) {
    text.ids.resize(text.ids.size() + static_cast<size_t>(length), 1);
    text.document_ends.push_back(static_cast<int64_t>(text.ids.size()));
  }
  if (!ignored.empty()) text.ignored.resize(text.ids.size());
  for (const size_t token : ignored) text.ignored[token] = 1;
  return std::make_shared<TokenArray>(std::move(text), 10);
}

// Compares what a source says of each sample with the targets that it fills.
int64_t without_targets(const SampleSource& source) {
  int64_t none = 0;
  for (int64_t sample = 0; sample < source.samples(); ++sample) {
    EXPECT_EQ(source.has_targets(sample), source.SampleSource::has_targets(sample)) << sample;
    none += source.has_targets(sample) ? 0 : 1;
  }
  EXPECT_EQ(samples_without_targets(source), none);
  EXPECT_EQ(has_any_target(source), none < source.samples());
  return none;
}

TEST(CountedTargets, AreKnownOfEachSample) {
  struct Case {
    std::vector<int64_t> lengths;
    std::vector<size_t> ignored;
    int64_t stream, whole, single;  // samples without targets
  };
  const std::vector<Case> cases{{{4, 4, 1}, {}, 0, 0, 0},
                                {{4, 4, 1}, {0, 1, 2, 3, 4}, 1, 1, 1},
                                {{4, 4, 1}, {1, 2, 3, 5, 6, 7, 8}, 1, 2, 2},
                                {{9}, {1, 2, 3, 4, 5, 6, 7, 8}, 2, 2, 2},
                                {{1, 1, 1, 1, 4, 1}, {}, 0, 1, 0}};
  for (const Case& one : cases) {
    const auto tokens = tokens_of(one.lengths, one.ignored);
    const TokenSource stream(tokens, 4);
    EXPECT_EQ(without_targets(stream), one.stream) << one.lengths.size();
    const DocumentSource whole(tokens, {.sequence_length = 4, .packing = Packing::Whole});
    EXPECT_EQ(without_targets(whole), one.whole) << one.lengths.size();
    const DocumentSource single(tokens, {.sequence_length = 4, .packing = Packing::Single});
    EXPECT_EQ(without_targets(single), one.single) << one.lengths.size();
    EXPECT_EQ(without_targets(TokenSource(tokens, 4, LossOn::All)), 0);
  }
}

TEST(CountedTargets, OfAMixtureAreThoseOfItsSources) {
  const auto some = std::make_shared<TokenSource>(tokens_of({9}, {1, 2, 3, 4}), 4),
             none = std::make_shared<TokenSource>(tokens_of({9}, {1, 2, 3, 4, 5, 6, 7, 8}), 4);
  EXPECT_EQ(without_targets(JoinedSource({some, none})), 3);
  EXPECT_NO_THROW(refuse_without_targets(JoinedSource({none, some}), "training"));
  EXPECT_EQ(has_any_target(*some, 1), false) << "only the first sample is looked at";
  expect_error(
      [&] { refuse_without_targets(*none, "validation"); }, ExitCode::Usage,
      "data: none of the 2 validation samples of model.sequence_length 4 has a token that the loss counts, so there is "
      "nothing to learn from and no loss: their tokens are those of prompts, of messages that are not the assistant's "
      "or have weight 0, or the first of their document; use data with answers, or count all tokens with data.loss_on "
      "\"all\"");
}

// Lines that have nothing to learn, in a data set of which they are all or a part.
class NothingToLearn : public testing::TestWithParam<const char*> {
 protected:
  DataOptions options(const std::string& lines) const {
    DataOptions options;
    options.data.train = folder_.write("a.jsonl", lines);
    options.data.chat_template = ChatTemplate::ChatMl;
    options.data.validation_fraction = 0;
    return options;
  }
  PrepareOptions preparation(const std::string& lines) const {
    PrepareOptions options;
    options.inputs = {folder_.write("a.jsonl", lines)};
    options.output = folder_.at("a.tokens");
    options.chat_template = ChatTemplate::ChatMl;
    options.replace = true;
    return options;
  }
  static std::string line() { return std::string(GetParam()) + "\n"; }

  test::TemporaryFolder folder_;
};

TEST_P(NothingToLearn, IsRefusedIfThereIsNothingElse) {
  const std::string lines = line() + line();
  for (const auto& attempt : {std::function<void()>([&] { open_dataset(options(lines)); }),
                              std::function<void()>([&] { prepare(preparation(lines)); })}) {
    try {
      attempt();
      ADD_FAILURE() << lines;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("a.jsonl: has nothing to learn: the loss counts none of "));
      EXPECT_EQ(error.exit_code(), ExitCode::Usage);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.at("a.tokens")));
  DataOptions all = options(lines);
  all.data.loss_on = LossOn::All;
  EXPECT_THAT(open_dataset(all).notes, testing::Not(testing::Contains(HasSubstr("no token that the loss counts"))));
}

TEST_P(NothingToLearn, IsCountedAndTold) {
  const std::string lines = line() + "{\"prompt\": \"q\", \"completion\": \"a\"}\n" + line();
  const auto told = testing::Contains(HasSubstr("2 of 3 documents have no token that the loss counts"));
  EXPECT_THAT(open_dataset(options(lines)).notes, told);
  const std::vector<std::string> notes = prepare(preparation(lines)).notes;
  EXPECT_EQ(std::ranges::count_if(notes, [](const std::string& note) { return note.starts_with("2 of 3 documents"); }), 1);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, NothingToLearn,
    testing::Values(R"({"messages": [{"role": "user", "content": "only a question"}]})",
                    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a", "weight": 0}]})",
                    R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]})",
                    R"({"conversations": [{"from": "human", "value": "q"}]})", R"({"prompt": "q", "completion": ""})",
                    R"({"prompt": [{"role": "user", "content": "q"}], )"
                    R"("completion": [{"role": "assistant", "content": "a", "train": false}]})"));

}  // namespace
}  // namespace trivet::data

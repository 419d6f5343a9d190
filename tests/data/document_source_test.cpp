#include "data/document_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "data/microbatch_loader.h"
#include "data/mixture.h"
#include "data/token_array.h"
#include "data/token_source.h"
#include "data/training_data.h"
#include "tests/data/expect_error.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

struct Filled {
  std::vector<int32_t> input, targets;
  bool operator==(const Filled&) const = default;
};

Filled filled(const SampleSource& source, int64_t sample) {
  const auto length = static_cast<size_t>(source.spec().targets.elements());
  Filled out{std::vector<int32_t>(length, 99), std::vector<int32_t>(length, 99)};
  source.fill(sample, 0, std::as_writable_bytes(std::span(out.input)), out.targets);
  return out;
}

// Documents of these lengths; the tokens count from 1. The tokens in `ignored` are no targets.
std::shared_ptr<TokenArray> documents(const std::vector<int64_t>& lengths, const std::vector<int64_t>& ignored = {}) {
  EncodedText text;
  for (const int64_t length : lengths) {
    for (int64_t i = 0; i < length; ++i) text.ids.push_back(static_cast<int32_t>(text.ids.size()) + 1);
    text.document_ends.push_back(static_cast<int64_t>(text.ids.size()));
  }
  if (!ignored.empty()) text.ignored.resize(text.ids.size());
  for (const int64_t token : ignored) text.ignored[token - 1] = 1;
  return std::make_shared<TokenArray>(std::move(text), 100);
}

TEST(DocumentSource, WholePutsAsManyDocumentsIntoASampleAsFit) {
  const DocumentSource source(documents({3, 2, 4}), {.sequence_length = 5, .packing = Packing::Whole});
  ASSERT_EQ(source.samples(), 2);
  EXPECT_EQ(filled(source, 0), (Filled{{1, 2, 3, 4, 0}, {2, 3, -1, 5, -1}})) << "no document predicts the next one";
  EXPECT_EQ(filled(source, 1), (Filled{{6, 7, 8, 0, 0}, {7, 8, 9, -1, -1}}));
  EXPECT_EQ(source.cut_documents(), 0);
  EXPECT_DOUBLE_EQ(source.padding(), 3.0 / 10);
}

TEST(DocumentSource, SingleGivesEachDocumentItsOwnSample) {
  const DocumentSource source(documents({3, 1, 2, 6}), {.sequence_length = 5, .packing = Packing::Single});
  ASSERT_EQ(source.samples(), 3) << "one token has no target";
  EXPECT_EQ(filled(source, 0), (Filled{{1, 2, 0, 0, 0}, {2, 3, -1, -1, -1}}));
  EXPECT_EQ(filled(source, 1), (Filled{{5, 0, 0, 0, 0}, {6, -1, -1, -1, -1}}));
  EXPECT_EQ(filled(source, 2), (Filled{{7, 8, 9, 10, 11}, {8, 9, 10, 11, 12}})) << "one token more than the sample is long";
}

// Documents take a place less than they have tokens. The third fits into the first sample, the last piece of the fifth into the
// second.
TEST(DocumentSource, IsolatedDocumentsGoIntoTheFirstSampleThatHasRoom) {
  const DocumentSource source(documents({4, 5, 3, 1, 7}, {8}), {.sequence_length = 5, .packing = Packing::Isolated});
  ASSERT_EQ(source.samples(), 3);
  EXPECT_TRUE(source.spec().documents);
  EXPECT_EQ(filled(source, 0), (Filled{{1, 2, 3, 10, 11}, {2, 3, 4, 11, 12}}));
  EXPECT_EQ(filled(source, 1), (Filled{{5, 6, 7, 8, 19}, {6, 7, -1, 9, 20}}));
  EXPECT_EQ(filled(source, 2), (Filled{{14, 15, 16, 17, 18}, {15, 16, 17, 18, 19}}));
  std::vector<int32_t> firsts(5);
  source.fill_documents(0, firsts);
  EXPECT_THAT(firsts, ElementsAre(0, 0, 0, 3, 3));
  source.fill_documents(1, firsts);
  EXPECT_THAT(firsts, ElementsAre(0, 0, 0, 0, 4));
  EXPECT_EQ(source.cut_documents(), 1);
}

// The second source of a mixture, a row without a sample, and a curriculum that cuts sequences.
TEST(DocumentSource, ABatchSaysWhereDocumentsBegin) {
  const DocumentSource::Options options{.sequence_length = 5, .packing = Packing::Isolated};
  const auto joined = std::make_shared<JoinedSource>(
      std::vector<std::shared_ptr<const SampleSource>>{std::make_shared<DocumentSource>(documents({6}), options),
                                                       std::make_shared<DocumentSource>(documents({3, 2, 2}), options)});
  const EvaluationLoader loader(joined, 3);
  HostMicrobatch batch;
  loader.fill(0, batch);
  EXPECT_THAT(batch.documents, ElementsAre(0, 0, 0, 0, 0, 0, 0, 2, 3, 5, 5, 5, 5, 5, 5));
  EXPECT_THAT(batch.positions, ElementsAre(0, 1, 2, 3, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0));
  SampleSpec spec = joined->spec();
  EXPECT_NO_THROW(check(batch.view, spec, 3));
  cut_sequences(batch, 4);
  spec = spec.cut_to(4);
  EXPECT_NO_THROW(check(batch.view, spec, 3));
  EXPECT_EQ(batch.documents[7], 3);
  EXPECT_EQ(batch.documents[8], 4) << "padding begins where the sequence ends";
}

TEST(DocumentSource, ALongDocumentIsCutSoThatEachTokenButTheFirstIsATargetOnce) {
  for (const Packing packing : {Packing::Whole, Packing::Single, Packing::Isolated}) {
    for (int64_t length = 2; length < 20; ++length) {
      const DocumentSource source(documents({2, length, 3}), {.sequence_length = 4, .packing = packing});
      std::map<int32_t, int> times;
      for (int64_t sample = 0; sample < source.samples(); ++sample) {
        const Filled one = filled(source, sample);
        for (size_t i = 0; i < one.targets.size(); ++i) {
          if (one.targets[i] < 0) continue;
          ++times[one.targets[i]];
          EXPECT_EQ(one.input[i] + 1, one.targets[i]) << "the token before it";
        }
      }
      for (int64_t token = 1; token <= length + 5; ++token) {
        const bool is_first = token == 1 || token == 3 || token == length + 3;
        EXPECT_EQ(times[static_cast<int32_t>(token)], is_first ? 0 : 1) << "token " << token << " of length " << length;
      }
      EXPECT_EQ(source.cut_documents(), length > 5 ? 1 : 0);
    }
  }
}

TEST(DocumentSource, TargetsThatTheDataIgnoresDoNotCount) {
  const auto tokens = documents({4, 3}, {1, 2, 3, 5});
  const DocumentSource completions(tokens, {.sequence_length = 8});
  EXPECT_THAT(filled(completions, 0).targets, ElementsAre(-1, -1, 4, -1, 6, 7, -1, -1));
  const DocumentSource all(tokens, {.sequence_length = 8, .loss_on = LossOn::All});
  EXPECT_THAT(filled(all, 0).targets, ElementsAre(2, 3, 4, -1, 6, 7, -1, -1));
  EXPECT_THAT(filled(TokenSource(tokens, 3), 0).targets, ElementsAre(-1, -1, 4));
  EXPECT_THAT(filled(TokenSource(tokens, 3), 1).targets, ElementsAre(-1, 6, 7));
  EXPECT_THAT(filled(TokenSource(tokens, 3, LossOn::All), 0).targets, ElementsAre(2, 3, 4));
}

TEST(DocumentSource, NeedsDocuments) {
  const auto stream = std::make_shared<TokenArray>(std::vector<int32_t>{1, 2, 3}, 100);
  expect_error([&] { DocumentSource(stream, {.sequence_length = 4}); }, ExitCode::Usage,
               "data.packing: \"whole\" needs to know where documents end, which the data does not say; use \"stream\", or "
               "prepare the texts with `trivet data prepare`");
  for (const Packing packing : {Packing::Single, Packing::Whole})
    expect_error(
        [&] {
          DocumentSource(documents({1, 1}), {.sequence_length = 4, .packing = packing});
        },
        ExitCode::Usage,
        "data: none of the 2 documents has two tokens, which a sample needs with data.packing \"" +
            std::string(name_of(packing)) + "\"; use longer documents or \"stream\"");
}

TEST(DocumentSource, TheDigestTellsHowDocumentsArePacked) {
  const auto tokens = documents({3, 2});
  const DocumentSource whole(tokens, {.sequence_length = 4}),
      single(tokens, {.sequence_length = 4, .packing = Packing::Single});
  EXPECT_NE(whole.digest(), single.digest());
  EXPECT_NE(tokens->digest(), documents({2, 3})->digest());
  EXPECT_NE(tokens->digest(), documents({3, 2}, {1})->digest());
}

TEST(DocumentSource, ARunSaysHowManyDocumentsItHas) {
  const auto data = text_data(
      {.train = documents({3, 2, 9}), .tokenizer = bytes_tokenizer(), .vocabulary_size = 256, .packing = Packing::Whole}, 5);
  EXPECT_EQ(data->sizes(),
            "3 training documents, 1 longer than a sample and cut, in 3 samples with 20.0 % padding, 0 validation documents");
  EXPECT_EQ(data->train()->samples(), 3);
  DataConfig evaluated;
  evaluated.only_evaluated = true;
  const auto sizes_of = [&](const std::vector<int64_t>& lengths, Packing packing) {
    const Dataset dataset{
        .train = documents(lengths), .tokenizer = bytes_tokenizer(), .vocabulary_size = 256, .packing = packing};
    return text_data(dataset, 5, evaluated)->sizes();
  };
  EXPECT_EQ(sizes_of({3, 2, 9}, Packing::Whole),
            "3 documents, 1 longer than a sample and cut, in 3 samples with 20.0 % padding");
  EXPECT_EQ(sizes_of({6}, Packing::Single), "1 document, in 1 sample with 0.0 % padding");
  EXPECT_EQ(sizes_of({3, 9}, Packing::Stream), "12 tokens");
  EXPECT_NE(data->train_digest(), documents({3, 2, 9})->digest());
}

}  // namespace
}  // namespace trivet::data

#include "engine/data/dataset.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/data/token_file.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

DataOptions options_for(const std::string& train, VocabularyKind vocabulary) {
  DataOptions options;
  options.data.train = train;
  options.vocabulary = vocabulary;
  return options;
}

std::vector<int32_t> all_of(const TokenSequence& file) {
  std::vector<int32_t> ids(file.tokens());
  file.read(0, ids);
  return ids;
}

TEST(Dataset, TinyShakespeareHas65CharactersAndTheKnownSplit) {
  const std::string path = shared_data("tinyshakespeare/input.txt");
  SKIP_WITHOUT(path);
  const Dataset dataset = open_dataset(options_for(path, VocabularyKind::Characters));
  EXPECT_EQ(dataset.vocabulary_size, 65);
  EXPECT_EQ(dataset.train->tokens(), 1003854);
  EXPECT_EQ(dataset.validation->tokens(), 111540);
  std::vector<int32_t> ids(13);
  dataset.train->read(0, ids);
  EXPECT_EQ(ids,
            (std::vector<int32_t>{18, 47, 56, 57, 58, 1, 15, 47, 58, 47, 64, 43, 52}));  // nanoGPT's ids of "First Citizen"
  EXPECT_EQ(dataset.tokenizer->decode(ids), "First Citizen");
}

TEST(Dataset, TheLastFractionIsForValidation) {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "0123456789");
  DataOptions options = options_for(path, VocabularyKind::Bytes);
  options.data.validation_fraction = 0.3;
  const Dataset dataset = open_dataset(options);
  EXPECT_EQ(dataset.tokenizer->decode(all_of(*dataset.train)), "0123456");
  EXPECT_EQ(dataset.tokenizer->decode(all_of(*dataset.validation)), "789");
}

TEST(Dataset, ValidationMayBeAFileOfItsOwnOrAbsent) {
  const test::TemporaryFolder folder;
  DataOptions options = options_for(folder.write("a.txt", "abc"), VocabularyKind::Characters);
  options.data.validation = folder.write("b.txt", "cab");
  const Dataset dataset = open_dataset(options);
  EXPECT_EQ(all_of(*dataset.validation), (std::vector<int32_t>{2, 0, 1}));
  options.data.validation.clear();
  options.data.validation_fraction = 0;
  EXPECT_EQ(open_dataset(options).validation, nullptr);
}

TEST(Dataset, ReadsGzip) {
  const test::TemporaryFolder folder;
  const std::string path = folder.at("a.txt.gz");
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, "packed");
  gzclose(file);
  const Dataset dataset = open_dataset(options_for(path, VocabularyKind::Bytes));
  EXPECT_EQ(dataset.train->tokens() + dataset.validation->tokens(), 6);
}

TEST(Dataset, ATokenFileGivesTheSameIdsAsItsText) {
  const test::TemporaryFolder folder;
  const std::string text = "the quick brown fox\n\xC3\xA9t\xC3\xA9";
  const auto tokenizer = characters_tokenizer(text);
  TokenFileWriter writer(folder.at("a.tokens"), *tokenizer);
  writer.add(tokenizer->encode(text));
  writer.finish();
  const Dataset from_text = open_dataset(options_for(folder.write("a.txt", text), VocabularyKind::Characters));
  const Dataset from_tokens = open_dataset(options_for(folder.at("a.tokens"), VocabularyKind::Characters));
  EXPECT_EQ(all_of(*from_tokens.train), all_of(*from_text.train));
  EXPECT_EQ(all_of(*from_tokens.validation), all_of(*from_text.validation));
  EXPECT_EQ(from_tokens.train->digest(), from_text.train->digest());
  EXPECT_EQ(from_tokens.tokenizer->to_text(), from_text.tokenizer->to_text());
}

TEST(Dataset, DigestTellsDataApart) {
  const test::TemporaryFolder folder;
  const auto digest = [&](std::string_view text) {
    return open_dataset(options_for(folder.write("a.txt", text), VocabularyKind::Bytes)).train->digest();
  };
  EXPECT_EQ(digest("some text here"), digest("some text here"));
  EXPECT_NE(digest("some text here"), digest("some text Here"));
}

}  // namespace
}  // namespace trivet::data

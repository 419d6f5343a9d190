// Tests values that are just accepted, and the next values, which are not.
#include <gtest/gtest.h>

#include "data/bpe_train.h"
#include "data/dataset.h"
#include "data/token_file.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

TEST(DataLimits, AModelsVocabularyMayBeExactlyThatOfTheTokens) {
  const test::TemporaryFolder folder;
  const std::string path = folder.at("a.tokens");
  TokenFileWriter writer(path, *bytes_tokenizer());
  writer.add(bytes_tokenizer()->encode("some text"));
  writer.finish();
  DataOptions options;
  options.data.train = path;
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 256;
  EXPECT_EQ(open_dataset(options).vocabulary_size, 256);
  options.vocabulary_size = 255;
  EXPECT_THROW(open_dataset(options), DataError);
}

TEST(DataLimits, AllBytesAreTokens) {
  const std::string all{'\x00', '\x7f', '\xff'};
  EXPECT_EQ(bytes_tokenizer()->decode(std::vector<int32_t>{0, 127, 255}), all);
  EXPECT_EQ(bytes_tokenizer()->encode(all), (std::vector<int32_t>{0, 127, 255}));
}

TEST(DataLimits, TheSmallestBpeVocabularyIsTheBytesAndTheEndOfText) {
  WordCounts words;
  words.add("aaaa");
  EXPECT_EQ(train_bpe(words, 257)->vocabulary_size(), 257);
  EXPECT_THROW(train_bpe(words, 256), DataError);
}

}  // namespace
}  // namespace trivet::data

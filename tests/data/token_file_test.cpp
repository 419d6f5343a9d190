#include "data/token_file.h"

#include <gtest/gtest.h>

#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

// A tokenizer with a given number of tokens, which encodes nothing.
class Sized : public Tokenizer {
 public:
  explicit Sized(int64_t size) : size_(size) {}
  std::string name() const override { return "sized"; }
  int64_t vocabulary_size() const override { return size_; }
  std::vector<int32_t> encode(std::string_view) const override { return {}; }
  std::string decode(std::span<const int32_t>) const override { return ""; }
  std::string to_text() const override { return "{\"sized\":" + std::to_string(size_) + "}"; }

 private:
  int64_t size_;
};

std::vector<int32_t> all_tokens(const TokenSequence& file) {
  std::vector<int32_t> ids(file.tokens());
  file.read(0, ids);
  return ids;
}

class TokenFileOfWidth : public testing::TestWithParam<int64_t> {};

TEST_P(TokenFileOfWidth, ReadsBackWhatWasWritten) {
  const test::TemporaryFolder folder;
  const int64_t vocabulary = GetParam();
  const auto last = static_cast<int32_t>(vocabulary - 1);
  const std::vector<int32_t> first_piece{0, last, 1 % (last + 1)}, second_piece{last / 2, last};
  TokenFileWriter writer(folder.at("a.tokens"), Sized(vocabulary));
  writer.add(first_piece);
  writer.add({});
  writer.add(second_piece);
  EXPECT_EQ(writer.tokens(), 5);
  writer.finish();
  const auto file = open_token_file(folder.at("a.tokens"));
  EXPECT_EQ(all_tokens(*file), (std::vector<int32_t>{0, last, 1 % (last + 1), last / 2, last}));
  EXPECT_EQ(file->vocabulary_size(), vocabulary);
  EXPECT_EQ(file->info().tokenizer_text, Sized(vocabulary).to_text());
  EXPECT_EQ(file->info().tokenizer_name, "sized");
  EXPECT_EQ(bytes_of(file->info().type), vocabulary <= 256 ? 1 : vocabulary <= 65536 ? 2 : 4);
  verify_tokens(folder.at("a.tokens"));
}

INSTANTIATE_TEST_SUITE_P(TokenFile, TokenFileOfWidth, testing::Values(1, 2, 255, 256, 257, 65536, 65537, 200000));

// Version 2: documents, and tokens that the loss ignores.
TEST(TokenFile, ReadsBackDocumentsAndWhatTheLossIgnores) {
  for (const int64_t vocabulary : {256, 65536, 200000}) {
    const test::TemporaryFolder folder;
    TokenFileWriter writer(folder.at("a.tokens"), Sized(vocabulary));
    writer.add_text({.ids = {1, 2, 3}, .ignored = {1, 0, 1}, .document_ends = {2}});
    writer.end_document();
    writer.end_document();  // an empty document does not count
    writer.add_text({.ids = {4, 5, 6, 7, 8, 9, 10}});
    writer.add_text({.ids = {11}, .ignored = {1}});
    EXPECT_EQ(writer.ignored_tokens(), 3);
    writer.finish();
    const auto file = open_token_file(folder.at("a.tokens"));
    EXPECT_EQ(all_tokens(*file), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    EXPECT_EQ(file->document_ends(), (std::vector<int64_t>{2, 3, 11})) << "the last document ends with the file";
    EXPECT_EQ(file->info().documents, 3);
    EXPECT_TRUE(file->info().ignores_some);
    verify_tokens(folder.at("a.tokens"));
    for (int64_t first = 0; first < 11; ++first) {
      std::vector<int32_t> targets(static_cast<size_t>(11 - first), 7);
      file->ignore(first, targets);
      for (int64_t token = first; token < 11; ++token)
        EXPECT_EQ(targets[static_cast<size_t>(token - first)], token == 0 || token == 2 || token == 10 ? -1 : 7) << token;
    }
  }
}

TEST(TokenFile, IsOfVersion1WithoutDocuments) {
  const test::TemporaryFolder folder;
  TokenFileWriter writer(folder.at("a.tokens"), Sized(300));
  writer.add(std::vector<int32_t>{1, 2, 3});
  writer.finish();
  EXPECT_EQ(folder.read("a.tokens")[8], 1);
  EXPECT_TRUE(open_tokens(folder.at("a.tokens"))->document_ends().empty());
}

TEST(TokenFile, TheDigestTellsDocumentsAndIgnoredTokens) {
  const test::TemporaryFolder folder;
  const auto digest_of = [&](const EncodedText& text) {
    TokenFileWriter writer(folder.at("a.tokens"), Sized(300));
    writer.add_text(text);
    writer.finish();
    return open_tokens(folder.at("a.tokens"))->digest();
  };
  const std::string plain = digest_of({.ids = {1, 2, 3}});
  EXPECT_EQ(plain, digest_of({.ids = {1, 2, 3}, .document_ends = {3}})) << "one document is no boundary";
  EXPECT_NE(plain, digest_of({.ids = {1, 2, 3}, .document_ends = {1, 3}}));
  EXPECT_NE(digest_of({.ids = {1, 2, 3}, .document_ends = {2, 3}}), digest_of({.ids = {1, 2, 3}, .document_ends = {1, 3}}));
  EXPECT_NE(plain, digest_of({.ids = {1, 2, 3}, .ignored = {1, 0, 0}}));
}

TEST(TokenFile, ReadsAnyRange) {
  const test::TemporaryFolder folder;
  TokenFileWriter writer(folder.at("a.tokens"), Sized(1000));
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 1000; ++i) ids.push_back(i);
  writer.add(ids);
  writer.finish();
  const auto file = open_tokens(folder.at("a.tokens"));
  std::vector<int32_t> some(3);
  file->read(997, some);
  EXPECT_EQ(some, (std::vector<int32_t>{997, 998, 999}));
  file->read(1000, {});
  EXPECT_THROW(file->read(998, some), std::logic_error);
  EXPECT_THROW(file->read(-1, some), std::logic_error);
}

TEST(TokenFile, AnUnfinishedFileLeavesNothing) {
  const test::TemporaryFolder folder;
  {
    TokenFileWriter writer(folder.at("a.tokens"), Sized(10));
    writer.add(std::vector<int32_t>{1, 2, 3});
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFile, TheBytesAreAsDocumented) {
  const test::TemporaryFolder folder;
  TokenFileWriter writer(folder.at("a.tokens"), *bytes_tokenizer());
  writer.add(std::vector<int32_t>{'h', 'i'});
  writer.finish();
  const std::string content = file_content(folder.at("a.tokens"));
  ASSERT_EQ(content.size(), 194u);  // 128 + 29 of the tokenizer, padded to 192, and two tokens
  const auto number = [&](size_t offset, size_t bytes) {
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(content[offset + i])} << (8 * i);
    return value;
  };
  EXPECT_EQ(content.substr(0, 8), "TRIVTOK\n");
  EXPECT_EQ(number(8, 4), 1u);
  EXPECT_EQ(number(12, 4), 1u);
  EXPECT_EQ(number(16, 8), 256u);
  EXPECT_EQ(number(24, 8), 2u);
  EXPECT_EQ(number(32, 8), 192u);
  EXPECT_EQ(number(40, 8), 29u);
  EXPECT_EQ(content.substr(64, 16), std::string("bytes\0\0\0\0\0\0\0\0\0\0\0", 16));
  EXPECT_EQ(content.substr(128, 29), "{\"trivet_tokenizer\":\"bytes\"}\n");
  EXPECT_EQ(content.substr(192), "hi");
}

TEST(ForeignTokens, ReadsMegatronAndLlmC) {
  SKIP_WITHOUT(shared_data("golden/two_docs.bin"));
  for (const std::string name : {"golden/two_docs.bin", "golden/two_docs.idx"}) {
    const auto file = open_token_file(shared_data(name));
    EXPECT_EQ(all_tokens(*file), (std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(file->info().documents, 2);
    EXPECT_EQ(file->vocabulary_size(), 0);
  }
  EXPECT_EQ(all_tokens(*open_tokens(shared_data("golden/five_tokens_llmc.bin"))), (std::vector<int32_t>{50256, 1, 2, 3, 4}));
}

TEST(ForeignTokens, DigestTellsFilesApart) {
  const test::TemporaryFolder folder;
  std::string content(1024 + 4, '\0');
  content.replace(0, 12, std::string("\x88\xd8\x34\x01\x01\0\0\0\x02\0\0\0", 12));
  const auto digest_with = [&](char token) {
    content[1024] = token;
    return open_tokens(folder.write("a.bin", content))->digest();
  };
  EXPECT_EQ(digest_with(1), digest_with(1));
  EXPECT_NE(digest_with(1), digest_with(2));
}

// The file has more than one piece of 16 KiB, and more than 65,536 sequences.
TEST(TokenFile, ReadsLongRangesInPieces) {
  const test::TemporaryFolder folder;
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 100'000; ++i) ids.push_back(i * 7 % 65'521);
  TokenFileWriter writer(folder.at("a.tokens"), Sized(65'521));
  writer.add(ids);
  writer.finish();
  EXPECT_EQ(all_tokens(*open_tokens(folder.at("a.tokens"))), ids);

  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  const auto sequences = static_cast<int64_t>(ids.size());
  add(uint64_t{1}), add(uint8_t{4}), add(sequences), add(int64_t{0});
  for (int64_t i = 0; i < sequences; ++i) add(int32_t{1});
  for (int64_t i = 0; i < sequences; ++i) add(4 * i);
  folder.write("b.idx", index);
  folder.write("b.bin", {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(int32_t)});
  EXPECT_EQ(all_tokens(*open_tokens(folder.at("b.bin"))), ids);
}

}  // namespace
}  // namespace trivet::data

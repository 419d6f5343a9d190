// The full text of the message, and the exit code, for each data file that is not what it should be.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "data/bpe_files.h"
#include "data/dataset.h"
#include "data/hash.h"
#include "data/input_files.h"
#include "data/text_file.h"
#include "data/token_file.h"
#include "data/token_header.h"
#include "data/token_source.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

constexpr ExitCode kUsage = ExitCode::Usage, kChanged = ExitCode::DataChanged;

class BadFile : public testing::Test {
 protected:
  // A file of 10 byte tokens: 128 + 64 + 10 bytes.
  std::string good_tokens() {
    TokenFileWriter writer(path("a.tokens"), *bytes_tokenizer());
    writer.add(bytes_tokenizer()->encode("0123456789"));
    writer.finish();
    return file_content(path("a.tokens"));
  }
  // A token file with one field of the header changed, and the header's checksum recomputed.
  std::string with_header(void (*change)(TokenHeader&)) {
    std::string content = good_tokens();
    TokenHeader header;
    std::memcpy(&header, content.data(), sizeof header);
    change(header);
    header.header_xxh3 = hash_bytes({reinterpret_cast<const char*>(&header), kTokenHeaderHashed});
    std::memcpy(content.data(), &header, sizeof header);
    return content;
  }
  std::string path(const std::string& name) const { return folder_.at(name); }
  std::string write(const std::string& name, std::string_view content) const { return folder_.write(name, content); }

  void expect_open(const std::string& name, std::string_view content, ExitCode code, const std::string& message) {
    write(name, content);
    expect_error([&] { open_tokens(path(name)); }, code, path(name) + ": " + message);
  }
  DataOptions options(const std::string& train, VocabularyKind vocabulary) const {
    DataOptions result;
    result.data.train = train;
    result.vocabulary = vocabulary;
    result.source = "gpt.json";
    return result;
  }
  void expect_dataset(const DataOptions& options, const std::string& message) {
    expect_error([&] { open_dataset(options); }, kUsage, message);
  }

 private:
  test::TemporaryFolder folder_;
};

TEST_F(BadFile, Missing) {
  expect_error([&] { open_tokens(path("none.tokens")); }, kUsage, path("none.tokens") + ": no such file");
  expect_dataset(options(path("none.txt"), VocabularyKind::Bytes), path("none.txt") + ": no such file");
  for (const std::string name : {"HuggingFaceH4/ultrachat_200k", "https://host/a.jsonl", "hf://datasets/x/a.jsonl"})
    expect_dataset(options(name, VocabularyKind::Bytes),
                   name +
                       ": no such file; data is read from this machine, not from a hub or the web: download it first, and "
                       "name the file or the folder");
  for (const std::string name : {"data/none.txt", "none", "./none", "a/b/c"})
    expect_dataset(options(name, VocabularyKind::Bytes), name + ": no such file");
  std::filesystem::create_symlink("nowhere", path("dead"));
  for (const ReadAs read_as : {ReadAs::Text, ReadAs::Bytes, ReadAs::UInt16, ReadAs::UInt32})
    for (const char* name : {"none.bin", "dead"}) {
      DataOptions of_kind = options(path(name), VocabularyKind::Size);
      of_kind.vocabulary_size = 300;
      of_kind.data.read_as = read_as;
      expect_dataset(of_kind, path(name) + ": no such file");
      of_kind.data.train = write("a.bin", "abcdefgh");
      of_kind.data.validation = path(name);
      if (read_as == ReadAs::UInt16) expect_dataset(of_kind, path(name) + ": no such file");
    }
  expect_dataset(options("", VocabularyKind::Bytes), "gpt.json: data.train: is missing; name a text file or a token file");
}

TEST_F(BadFile, ADirectoryOrEmpty) {
  std::filesystem::create_directory(path("folder"));
  expect_dataset(options(path("folder"), VocabularyKind::Bytes),
                 path("folder") +
                     ": is a folder without data; texts have names that end with .txt, .text or .md (and .gz or .zst), and "
                     "objects of JSON may have any name");
  expect_dataset(options(write("empty.txt", ""), VocabularyKind::Bytes), path("empty.txt") + ": is empty");
  expect_open("empty.tokens", "", kUsage, "is empty");
}

TEST_F(BadFile, ATextWithTheNameOfATokenFile) {
  expect_open(
      "text.tokens", "To be or not to be", kUsage,
      "is not a token file (it does not start with \"TRIVTOK\"); if it is a text, give it another name, such as NAME.txt");
}

TEST_F(BadFile, ATruncatedHeader) {
  expect_open("a.tokens", good_tokens().substr(0, 100), kChanged,
              "is truncated: it has 100 bytes, but the header alone has 128");
}

TEST_F(BadFile, TruncatedTokens) {
  expect_open("a.tokens", good_tokens().substr(0, 199), kChanged,
              "has 199 bytes, but 10 tokens of 1 bytes from byte 192 make 202: the file is truncated");
}

TEST_F(BadFile, BytesAfterTheTokens) {
  expect_open("a.tokens", good_tokens() + "?", kChanged,
              "has 203 bytes, but 10 tokens of 1 bytes from byte 192 make 202: the file has grown");
}

TEST_F(BadFile, AnotherVersion) {
  expect_open("a.tokens", with_header([](TokenHeader& header) { header.version = 9; }), kUsage,
              "token file version 9; this program reads versions 1 to 3");
}

TEST_F(BadFile, AFlippedBitInTheHeader) {
  std::string content = good_tokens();
  content[25] ^= 1;
  expect_open("a.tokens", content, kChanged,
              "the checksum of the header does not match: the file is damaged; prepare it again");
}

TEST_F(BadFile, AFlippedBitInTheTokenizer) {
  std::string content = good_tokens();
  content[130] ^= 1;
  expect_open("a.tokens", content, kChanged,
              "the checksum of the tokenizer does not match: the file is damaged; prepare it again");
}

TEST_F(BadFile, AFlippedBitInTheTokens) {
  std::string content = good_tokens();
  const std::string header_says = open_token_file(path("a.tokens"))->info().data_hash;
  content[195] ^= 1;
  const std::string found = hexadecimal(hash_bytes("012" + std::string(1, '3' ^ 1) + "456789"));
  write("a.tokens", content);
  expect_error([&] { verify_tokens(path("a.tokens")); }, kChanged,
               path("a.tokens") + ": the checksum of the tokens is " + found + ", but the header says " + header_says +
                   ": the file is damaged; prepare it again");
}

// Two documents of 5 byte tokens, of which the first two are ignored: 128 + 64 + 10 + 6 bytes, two ends, and two bytes of bits.
TEST_F(BadFile, ADamagedEndOfADocumentOrIgnoredToken) {
  TokenFileWriter writer(path("a.tokens"), *bytes_tokenizer());
  writer.add_text({.ids = std::vector<int32_t>(10, 65), .ignored = {1, 1}, .document_ends = {5, 10}});
  writer.finish();
  const std::string good = file_content(path("a.tokens"));
  ASSERT_EQ(good.size(), 226u);
  const auto damaged = [&](size_t byte) {
    std::string content = good;
    content[byte] ^= 1;
    return write("a.tokens", content);
  };
  const auto begins = [&](const std::string& part) { return path("a.tokens") + ": the checksum of " + part + " is "; };
  const std::vector<std::pair<size_t, std::string>> parts{{208, "the ends of documents"}, {224, "the ignored tokens"}};
  for (const auto& [byte, part] : parts) {
    damaged(byte);
    try {
      verify_tokens(path("a.tokens"));
      ADD_FAILURE() << part;
    } catch (const DataError& error) {
      EXPECT_EQ(error.exit_code(), kChanged);
      EXPECT_EQ(std::string(error.what()).rfind(begins(part), 0), 0u) << error.what();
    }
  }
  write("a.tokens", good.substr(0, 225));
  expect_error([&] { open_tokens(path("a.tokens")); }, kChanged,
               path("a.tokens") + ": has 225 bytes, but 10 tokens of 1 bytes from byte 192 make 226: the file is truncated");
}

TEST_F(BadFile, AnImpossibleNumberOfDocuments) {
  expect_open("a.tokens", with_header([](TokenHeader& header) { header.documents = 1; }), kUsage,
              "impossible header: documents in a file of version 1");
  const auto version_2 = [](TokenHeader& header) { header.version = 2, header.documents = 11; };
  expect_open("a.tokens", with_header(version_2), kUsage,
              "impossible header: 10 tokens, 11 documents, 0 bytes of ignored tokens");
  const auto odd = [](TokenHeader& header) { header.version = 3, header.documents = 1; };
  expect_open("a.tokens", with_header(odd), kUsage, "impossible header: 1 documents are no pairs");
  const auto bits = [](TokenHeader& header) { header.version = 2, header.ignored_bytes = 1; };
  expect_open("a.tokens", with_header(bits), kUsage, "impossible header: 10 tokens, 0 documents, 1 bytes of ignored tokens");
}

TEST_F(BadFile, AnImpossibleWidthOrPlace) {
  expect_open("a.tokens", with_header([](TokenHeader& header) { header.bytes_per_token = 3; }), kUsage,
              "3 bytes per token are not accepted; it must be 1, 2 or 4");
  expect_open("a.tokens", with_header([](TokenHeader& header) { header.tokens_offset = 64; }), kUsage,
              "impossible header: 10 tokens at byte 64");
  expect_open("a.tokens", with_header([](TokenHeader& header) { header.tokenizer_bytes = ~uint64_t{0} - 100; }), kUsage,
              "impossible header: 10 tokens at byte 192");
}

TEST_F(BadFile, AMissingOneWhoseNameIsWhatTwoFilesOfMegatronBeginWith) {
  expect_error([&] { open_tokens(path("web_text_document")); }, kUsage, path("web_text_document") + ": no such file");
  write("web_text_document.bin", "x"), write("web_text_document.idx", "x");
  const std::string named = path("web_text_document");
  for (const auto& open : {std::function<void()>([&] { open_tokens(named); }),
                           std::function<void()>([&] { find_inputs({named}, ReadAs::Auto, FolderUse::Train); })})
    expect_error(open, kUsage, named + ": no such file; " + named + ".bin, with its .idx, is there: name that");
}

TEST_F(BadFile, ATokenOutsideTheVocabulary) {
  DataOptions wide =
      options(write("wide.bin", std::string("\3\0\0\0\0\x28\x6B\xEE", 8)), VocabularyKind::Size);  // 4,000,000,000
  wide.vocabulary_size = 50;
  wide.data.read_as = ReadAs::UInt32;
  wide.data.validation_fraction = 0;
  std::vector<int32_t> read(2);
  expect_error([&] { open_dataset(wide).train->read(0, read); }, kUsage,
               path("wide.bin") + ": token 1 is below 0 or above 2147483647, outside the vocabulary of 50 (0 to 49)");
  write("a.tokens", with_header([](TokenHeader& header) { header.vocabulary_size = 50; }));  // '2' is 50
  const auto file = open_tokens(path("a.tokens"));
  std::vector<int32_t> ids(4);
  expect_error([&] { file->read(1, ids); }, kUsage,
               path("a.tokens") + ": token 2 is 50, outside the vocabulary of 50 (0 to 49)");
  expect_error([&] { verify_tokens(path("a.tokens")); }, kUsage,
               path("a.tokens") + ": token 2 is 50, outside the vocabulary of 50 (0 to 49)");
}

std::string llm_c(int32_t magic, int32_t version, int32_t count, size_t bytes) {
  std::string content(bytes, '\0');
  const int32_t header[] = {magic, version, count};
  std::memcpy(content.data(), header, std::min(bytes, sizeof header));
  return content;
}

TEST_F(BadFile, LlmC) {
  expect_open("a.bin", llm_c(20240520, 1, 5, 1032), kChanged,
              "has 1032 bytes, but 5 tokens of 2 bytes after the header make 1034");
  expect_open("a.bin", llm_c(20240520, 2, 5, 1034), kUsage,
              "llm.c token file with magic number 20240520 and version 2; this program reads version 1");
  expect_open("a.bin", llm_c(20240801, 7, 5, 500), kChanged,
              "is truncated: it has 500 bytes, but the llm.c header alone has 1024");
  expect_open("a.bin", llm_c(20240801, 7, -1, 1024), kChanged,
              "has 1024 bytes, but -1 tokens of 4 bytes after the header make 1020");
}

// An index with one sequence of `tokens` 2-byte tokens, in one document.
std::string megatron_index(int32_t tokens, uint64_t version = 1, uint8_t type = 8, int64_t pointer = 0) {
  std::string index("MMIDIDX\0\0", 9);
  const auto add = [&](auto value) { index.append(reinterpret_cast<const char*>(&value), sizeof value); };
  add(version), add(type), add(int64_t{1}), add(int64_t{2}), add(tokens), add(pointer), add(int64_t{0}), add(int64_t{1});
  return index;
}

TEST_F(BadFile, Megatron) {
  const std::string data = write("d.bin", std::string(8, '\1')), index = path("d.idx");
  const auto expect = [&](const std::string& content, ExitCode code, const std::string& message) {
    write("d.idx", content);
    expect_error([&] { open_tokens(data); }, code, message);
  };
  expect("MMIDIDY", kUsage, index + ": is not a Megatron index (it does not start with \"MMIDIDX\")");
  expect(megatron_index(4).substr(0, 20), kChanged, index + ": is truncated: it has 20 bytes, but the header alone has 34");
  expect(megatron_index(4).substr(0, 50), kChanged, index + ": is truncated: 50 bytes cannot hold 1 sequences and 2 documents");
  expect(megatron_index(4, 3), kUsage, index + ": Megatron index version 3; this program reads version 1");
  expect(megatron_index(4, 1, 7), kUsage,
         index + ": Megatron dtype code 7 is not accepted; it must be 1 (uint8), 4 (int32) or 8 (uint16)");
  expect(megatron_index(4, 1, 8, 6), kUsage, index + ": sequence 0 has 4 tokens at byte 6, expected at byte 0");
  expect(megatron_index(5), kChanged, data + ": has 8 bytes, but " + index + " states 5 tokens of 2 bytes, 10 bytes in total");
  write("d.idx", megatron_index(4));
  std::filesystem::remove(data);
  expect_error([&] { open_tokens(index); }, kUsage, data + ": no such file");
}

TEST_F(BadFile, AForeignFileDoesNotSayItsVocabulary) {
  write("a.bin", llm_c(20240520, 1, 5, 1034));
  expect_dataset(options(path("a.bin"), VocabularyKind::Bytes),
                 "gpt.json: model.vocabulary: \"bytes\", but " + path("a.bin") +
                     " is a llm.c file, which does not say its vocabulary; use its size (50257 for GPT-2) or a tokenizer file");
  std::string content = llm_c(20240520, 1, 5, 1034);
  content[1024 + 6] = 100;
  write("a.bin", content);
  DataOptions sized = options(path("a.bin"), VocabularyKind::Size);
  sized.vocabulary_size = 100;
  sized.data.validation_fraction = 0;
  const Dataset dataset = open_dataset(sized);
  std::vector<int32_t> ids(5);
  expect_error([&] { dataset.train->read(0, ids); }, kUsage,
               path("a.bin") + ": token 3 is 100, outside the vocabulary of 100 (0 to 99)");
}

TEST_F(BadFile, AnotherVocabularyThanTheConfigs) {
  good_tokens();
  expect_dataset(options(path("a.tokens"), VocabularyKind::Characters),
                 "gpt.json: model.vocabulary: \"characters\", but " + path("a.tokens") +
                     " was made with tokenizer \"bytes\" of 256 tokens; use \"bytes\"");
  DataOptions sized = options(path("a.tokens"), VocabularyKind::Size);
  sized.vocabulary_size = 100;
  expect_dataset(sized, "gpt.json: model.vocabulary: 100, but " + path("a.tokens") +
                            " was made with tokenizer \"bytes\" of 256 tokens; use at least 256");
  sized.data.train = write("a.txt", "text");
  expect_dataset(
      sized,
      "gpt.json: model.vocabulary: 100 is a size, but " + path("a.txt") +
          " is text, which needs a tokenizer; use \"bytes\", \"characters\" or a tokenizer file, or prepare a token file "
          "with `trivet data prepare`");
}

TEST_F(BadFile, TextThatIsNotUtf8HasNoCharacters) {
  expect_dataset(options(write("latin1.txt", "caf\xE9 au lait"), VocabularyKind::Characters),
                 path("latin1.txt") +
                     ": is not UTF-8 at byte 3 (0xe9), so it is no text; ids of tokens without a header, such as nanoGPT's "
                     "train.bin, are read "
                     "with data.read_as \"uint16\"; a text in another encoding can be converted (iconv -f LATIN1 -t UTF-8); a "
                     "text of any bytes "
                     "is read with data.read_as \"bytes\" (--read-as bytes of `trivet data prepare`)");
  DataOptions any = options(path("latin1.txt"), VocabularyKind::Characters);
  any.data.read_as = ReadAs::Bytes;
  expect_dataset(
      any, path("latin1.txt") + ": the text is not UTF-8 at byte 3 (0xe9), so it has no characters; use vocabulary \"bytes\"");
}

TEST_F(BadFile, AValidationTextWithOtherCharacters) {
  DataOptions two = options(write("a.txt", "abc"), VocabularyKind::Characters);
  two.data.validation = write("b.txt", "abxc");
  expect_dataset(two,
                 path("b.txt") + ": character \"x\" (U+0078) at byte 2 is not among the 3 characters of the training text");
}

TEST_F(BadFile, ValidationTokensOfAnotherTokenizer) {
  good_tokens();
  const auto letters = characters_tokenizer("abc");
  TokenFileWriter writer(path("b.tokens"), *letters);
  writer.add(letters->encode("abccba"));
  writer.finish();
  DataOptions two = options(path("a.tokens"), VocabularyKind::Size);
  two.vocabulary_size = 256;
  two.data.validation = path("b.tokens");
  expect_dataset(two, "gpt.json: data.validation: " + path("b.tokens") + " was made with a different tokenizer from " +
                          path("a.tokens") + "; prepare both with the same one");
}

TEST_F(BadFile, TooLittleDataForOneSample) {
  const auto tokens = open_dataset(options(write("a.txt", "0123456789"), VocabularyKind::Bytes)).validation;
  expect_error([&] { TokenSource(tokens, 64); }, kUsage,
               "data: 1 tokens are too few for one sample of sequence_length 64, which needs 65; give more text; a "
               "sample has at least 2 tokens");
}

TEST_F(BadFile, Tokenizers) {
  const auto expect = [&](const std::string& name, std::string_view content, const std::string& message) {
    write(name, content);
    expect_error([&] { load_tokenizer(path(name)); }, kUsage, path(name) + ": " + message);
  };
  expect("merges.txt", "#version: 0.2\nh e\nhe llo\n", "merge 1 joins \"llo\", which no earlier merge produces");
  expect("merges.txt", "h e\nhello\n", "line 2: \"hello\" is not a merge (two tokens separated by one space)");
  expect("merges.txt", "h e\na \x01\n", "line 2: \"\\x01\" is not written in GPT-2's byte alphabet");
  expect("merges.txt", "h e\n\x1b[31m\n", "line 2: \"\\x1b[31m\" is not a merge (two tokens separated by one space)");
  for (const char* no_object : {"[]", "null", "5", "\"x\"", " [{}]\n"})
    expect("tokenizer.json", no_object, "is JSON, but not a tokenizer, which is an object ({...}); get the file again");
  expect("gpt2.tiktoken", "IQ== 0\nIg== 2\n", "line 2: \"Ig== 2\" is not a token in base64 followed by its rank, 1");
  expect("gpt2.tiktoken", "IQ== 0\n", "byte 0 has no token, so this is not a byte-level vocabulary");
  expect(
      "vocab.json", "{\"!\": 0, \"model\": 1}",
      "is JSON, but not a tokenizer (it has neither \"model\" nor \"trivet_tokenizer\"); name a tokenizer.json, or the merges "
      "(vocab.bpe, merges.txt) that belong to it");
  expect("own.json", "{\"trivet_tokenizer\": \"words\"}",
         "trivet_tokenizer: \"words\" is not accepted; use \"bytes\", \"characters\" or \"sentencepiece\"");
  expect("tokenizer.json", "{\"model\": {\"type\": \"WordLevel\", \"vocab\": {}}}",
         "model: \"WordLevel\" is not supported; use BPE, Unigram or WordPiece");
}

TEST_F(BadFile, ATokenizerJsonWithHoles) {
  auto json = bpe_from_merges("h e\n", "x")->to_text();
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const auto expect = [&](const std::string& text, const std::string& message) {
    expect_error([&] { tokenizer_from_text(text, "t.json"); }, kUsage, "t.json: " + message);
  };
  expect(replaced("\"he\":256", "\"hx\":256"), "merge 0 produces \"he\", which is not in the vocabulary");
  expect(replaced("\"he\":256", "\"he\":1300"), "token id 1300 is outside 0 to 1281, the range for 258 entries");
  expect(replaced("\"he\":256", "\"he\":1282"), "token id 1282 is outside 0 to 1281, the range for 258 entries");
  expect(replaced("\"he\":256", "\"he\":-1"), "token id -1 is outside 0 to 1281, the range for 258 entries");
  expect(replaced("\"he\":256", "\"he\":0"),
         "two tokens have the id 0: \"!\" and \"he\"; texts would not come back as they were");
  expect(replaced("\"h e\"", "\"h q1\""), "model.merges: \"q1\" is not in model.vocab");
  expect(replaced("\"h e\"", "\"he\""), "model.merges: \"he\" is not two tokens separated by a space");
}

TEST_F(BadFile, ABpeTokenOutsideTheVocabulary) {
  const auto tokenizer = bpe_from_merges("h e\n", "x");
  expect_error([&] { tokenizer->decode(std::vector<int32_t>{1, 258}); }, kUsage, "token 258 is outside the vocabulary of 258");
  expect_error([&] { characters_tokenizer("ab")->decode(std::vector<int32_t>{2}); }, kUsage,
               "token 2 is outside the vocabulary of 2 characters");
  expect_error([&] { bytes_tokenizer()->decode(std::vector<int32_t>{256}); }, kUsage, "token 256 is not a byte (0 to 255)");
}

// Otherwise one number in a short file would take 512 MiB.
TEST_F(BadFile, ATokenizerJsonHasNoHigherIdThanEntries) {
  const std::string json = bpe_from_merges("h e\n", "x")->to_text(), end_of_text = "\"id\":257";
  std::string text = json;
  ASSERT_NE(text.find(end_of_text), std::string::npos);
  EXPECT_EQ(tokenizer_from_text(text, "t.json")->vocabulary_size(), 258);
  text.replace(text.find(end_of_text), end_of_text.size(), "\"id\":16777215");
  expect_error([&] { tokenizer_from_text(text, "t.json"); }, kUsage,
               "t.json: token id 16777215 is outside 0 to 1281, the range for 258 entries");
}

TEST_F(BadFile, ATokenizerHasALimitOfSizeAndDepth) {
  write("big.json", "{");
  std::filesystem::resize_file(path("big.json"), kMaxTokenizerBytes + 1);
  expect_error([&] { load_tokenizer(path("big.json")); }, kUsage,
               path("big.json") + ": has more than 67108864 bytes (unpacked), which is the maximum for a tokenizer");
  expect_error([&] { tokenizer_from_text(std::string(100'000, '['), "t.json"); }, kUsage,
               "t.json: is nested deeper than 16 levels");
  expect_error([&] { bpe_from_tiktoken(std::string(4 * 400, 'Q') + " 0\n", "gpt2.tiktoken"); }, kUsage,
               "gpt2.tiktoken: line 1: the token has 1200 bytes; at most 1024 are accepted");
}

// The file has a few KiB that unpack to 3 MiB.
TEST_F(BadFile, AGzipFileIsLimitedByWhatItUnpacksTo) {
  gzFile file = gzopen(path("a.gz").c_str(), "wb");
  const std::string zeros(1 << 20, '\0');
  for (int i = 0; i < 3; ++i) gzwrite(file, zeros.data(), static_cast<unsigned>(zeros.size()));
  gzclose(file);
  EXPECT_EQ(read_text(path("a.gz"), 3 << 20).size(), size_t{3} << 20);
  expect_error([&] { read_text(path("a.gz"), (3 << 20) - 1, "a tokenizer"); }, kUsage,
               path("a.gz") + ": has more than 3145727 bytes (unpacked), which is the maximum for a tokenizer");
}

TEST_F(BadFile, ADeviceIsNoFileOfData) {
  for (const char* device : {"/dev/zero", "/dev/null"}) {
    expect_error([&] { read_text(device); }, kUsage, std::string(device) + ": is a pipe or a device; name a file");
    expect_error([&] { open_tokens(device); }, kUsage, std::string(device) + ": is a pipe or a device; name a file");
  }
}

TEST_F(BadFile, ATokenFileHoldsATokenizerOfLimitedSize) {
  expect_open("a.tokens", with_header([](TokenHeader& header) {
                header.tokenizer_bytes = (uint64_t{64} << 20) + 1;
                header.tokens_offset = uint64_t{65} << 20;
              }),
              kUsage, "the tokenizer in it has 67108865 bytes; at most 67108864 are accepted");
}

// If the file were mapped, reading the part that is gone would end the process with SIGBUS.
TEST_F(BadFile, ThatIsCutShortWhileItIsOpen) {
  good_tokens();
  const auto file = open_tokens(path("a.tokens"));
  std::vector<int32_t> ids(10);
  file->read(0, ids);
  std::filesystem::resize_file(path("a.tokens"), 195);
  const std::string message =
      ": has 195 bytes, but had 202 when it was opened; put the file back as it was and continue from the last "
      "checkpoint";
  expect_error([&] { file->read(0, ids); }, kChanged, path("a.tokens") + message);
  std::filesystem::resize_file(path("a.tokens"), 202);
  file->read(0, ids);
  EXPECT_EQ(ids[9], 0);
}

TEST_F(BadFile, OfAnotherProgramThatIsCutShortOrGrowsWhileItIsOpen) {
  write("a.bin", llm_c(20240520, 1, 5, 1034));
  const auto file = open_tokens(path("a.bin"));
  std::vector<int32_t> ids(1);
  std::filesystem::resize_file(path("a.bin"), 2000);
  expect_error([&] { file->read(4, ids); }, kChanged,
               path("a.bin") +
                   ": has 2000 bytes, but had 1034 when it was opened; put the file back as it was and continue from the "
                   "last checkpoint");
  std::filesystem::resize_file(path("a.bin"), 0);
  EXPECT_THROW(static_cast<void>(file->digest()), DataError);
}

}  // namespace
}  // namespace trivet::data

// Token files of other programs. tests/golden/token_files.py wrote the files, and says what they hold.
#include "data/foreign_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "data/dataset.h"
#include "data/file_pattern.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

std::string golden_tokens(const std::string& name) { return TRIVET_SOURCE_DIR "/tests/golden/token_files/" + name; }

std::vector<int32_t> ids_of(const TokenSequence& file) {
  std::vector<int32_t> ids(file.tokens());
  file.read(0, ids);
  return ids;
}

TEST(GoldenTokenFiles, HoldTheIdsAndDocumentsThatTheirWritersPutIn) {
  std::ifstream expected(golden_tokens("expected.jsonl"));
  int files = 0;
  for (std::string line; std::getline(expected, line); ++files) {
    const auto json = nlohmann::json::parse(line);
    const auto file = open_token_file(golden_tokens(json.at("file")));
    EXPECT_EQ(ids_of(*file), json.at("ids").get<std::vector<int32_t>>()) << line;
    EXPECT_EQ(file->document_ends(), json.at("ends").get<std::vector<int64_t>>()) << line;
    EXPECT_NO_THROW(verify_tokens(golden_tokens(json.at("file")))) << line;
  }
  EXPECT_EQ(files, 15);
}

TEST(GoldenTokenFiles, APatternNamesAllShardsInTheOrderOfTheirNames) {
  DataOptions options;
  options.data.train = golden_tokens("shard_train_*.bin");
  options.data.validation_fraction = 0;
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 50257;
  const Dataset dataset = open_dataset(options);
  EXPECT_THAT(ids_of(*dataset.train), ElementsAre(50256, 1, 2, 3, 50256, 4, 50256, 5, 6, 7, 8, 50256, 9));
  EXPECT_THAT(dataset.train->document_ends(), ElementsAre(4, 6, 9, 11, 13));
  std::vector<int32_t> across(3);
  dataset.train->read(8, across);
  EXPECT_THAT(across, ElementsAre(6, 7, 8));
  const TokenSlice slice(dataset.train, 5, 5);
  EXPECT_THAT(slice.document_ends(), ElementsAre(1, 4, 5)) << "documents are cut where the slice ends";
  options.vocabulary_size = 50256;
  expect_error([&] { ids_of(*open_dataset(options).train); }, ExitCode::Usage,
               golden_tokens("shard_train_000001.bin") + ": token 0 is 50256, outside the vocabulary of 50256 (0 to 50255)");
}

TEST(GoldenTokenFiles, APatternCountsAnIndexAndItsDataOnce) {
  DataOptions options;
  options.data.train = golden_tokens("two*");
  options.data.validation_fraction = 0;
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 10;
  EXPECT_EQ(open_dataset(options).train->tokens(), 9);
}

TEST(FilePattern, AStarStandsForAnyCharacters) {
  EXPECT_TRUE(matches("train_*.bin", "train_000001.bin"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
  EXPECT_TRUE(matches("*.bin", ".bin.bin"));
  EXPECT_FALSE(matches("train_*.bin", "train_000001.idx"));
  EXPECT_FALSE(matches("a*b", "a"));
  EXPECT_FALSE(matches("a*b*c", "a-c-b"));
  EXPECT_FALSE(matches("a", "aa"));
}

TEST(FilePattern, NamesTheFolderThatHasNoSuchFile) {
  const test::TemporaryFolder folder;
  const std::string pattern = folder.at("*.bin");
  expect_error([&] { matching_files(pattern); }, ExitCode::Usage, pattern + ": no file matches");
  expect_error([&] { matching_files(folder.at("no/*.bin")); }, ExitCode::Usage,
               folder.at("no/*.bin") + ": the folder " + folder.at("no") + " cannot be read: No such file or directory");
  EXPECT_THAT(matching_files(folder.at("a.bin")).paths, ElementsAre(folder.at("a.bin"))) << "a name need not exist";
  folder.write("b.bin", "2"), folder.write("a.bin", "1"), folder.write("*", "3"), folder.write(".c.bin", "4");
  std::filesystem::create_directory(folder.at("d.bin"));
  std::filesystem::create_symlink("nowhere", folder.at("a link to nothing"));
  EXPECT_EQ(matching_files(pattern).note, pattern + ": leaves out folders, hidden and empty files, and what ranks printed: " +
                                              folder.at(".c.bin") + ", " + folder.at("d.bin"));
  EXPECT_THAT(matching_files(pattern).paths, ElementsAre(folder.at("a.bin"), folder.at("b.bin")));
  EXPECT_THAT(matching_files(folder.at("*")).paths, ElementsAre(folder.at("*"))) << "a file may have such a name";
}

class BadNumpy : public testing::Test {
 protected:
  // A file with this dictionary, and bytes after it.
  std::string array(const std::string& dictionary, size_t bytes, char version = 1) const {
    std::string content = "\x93NUMPY" + std::string{version, '\0'};
    const auto length = static_cast<uint32_t>(dictionary.size());
    content.append(reinterpret_cast<const char*>(&length), version == 1 ? 2 : 4);
    return content + dictionary + std::string(bytes, '\1');
  }
  void expect(const std::string& content, ExitCode code, const std::string& message) {
    const std::string path = folder_.write("a.npy", content);
    expect_error([&] { open_tokens(path); }, code, path + ": " + message);
  }

  test::TemporaryFolder folder_;
};

TEST_F(BadNumpy, IsRefusedByWhatIsWrong) {
  constexpr ExitCode kWrong = ExitCode::Usage, kDamaged = ExitCode::DataChanged;
  const std::string good = "{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }\n";
  const std::string not_numbers = "its header is not that of a NumPy array of numbers; save the ids with numpy.save";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = good;
    return changed.replace(changed.find(from), from.size(), to);
  };
  EXPECT_EQ(open_tokens(folder_.write("good.npy", array(good, 8)))->tokens(), 4);
  expect("text", kWrong, "is not a NumPy array (it does not start with \"\\x93NUMPY\")");
  expect(array(good, 8).substr(0, 9), kDamaged, "is truncated: its header is not complete");
  expect(array(good, 8).substr(0, 40), kDamaged, "is truncated: its header is not complete");
  expect(array(good, 8, 4), kWrong, "NumPy format version 4; this program reads versions 1 to 3");
  expect(array(std::string(1 << 17, ' '), 8, 2), kWrong, "its header has 131072 bytes; at most 65536 are accepted");
  expect(array(good, 7), kDamaged, "has 75 bytes, but 4 tokens of 2 bytes after the header make 76");
  expect(array(with("<u2", "<f4"), 16), kWrong,
         "numbers of type '<f4' are not accepted; use uint8, uint16, int32, uint32, int64 or uint64, little-endian, as in "
         "numpy.save(path, ids.astype('<u2'))");
  expect(array(with("(4,)", "(2, 2, 1)"), 8), kWrong, "has 3 dimensions; ids have one, or two with a document in each row");
  expect(array(with("(4,)", "()"), 2), kWrong, "has 0 dimensions; ids have one, or two with a document in each row");
  expect(array(with("False, 'shape': (4,)", "True, 'shape': (2, 2)"), 8), kWrong,
         "is stored by columns; save numpy.ascontiguousarray(ids)");
  expect(array(with("(4,)", "(4611686018427387904, 4611686018427387904)"), 8), kDamaged,
         "has 114 bytes, but 72057594037927936 tokens of 2 bytes after the header make 144115188075855978");
  expect(array(with("'<u2'", "[('a', '<u2')]"), 8), kWrong, not_numbers);
  expect(array(with("'shape'", "'shap'"), 8), kWrong, not_numbers);
  expect(array(with("(4,)", "(-4,)"), 8), kWrong, not_numbers);
  expect(array("{'descr': '<u2', 'shape': (4,)}", 8), kWrong, not_numbers);
  expect(array(good + "x", 8), kWrong, not_numbers);
}

TEST_F(BadNumpy, AnIdThatNoVocabularyHolds) {
  const std::string path = folder_.write("wide.npy", array("{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", 8));
  DataOptions options;
  options.data.train = path;
  options.data.validation_fraction = 0;
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 100;
  expect_error([&] { ids_of(*open_dataset(options).train); }, ExitCode::Usage,
               path + ": token 0 is 2147483647, outside the vocabulary of 100 (0 to 99)");
}

TEST(BadMegatronDocuments, MustRiseFromTheFirstSequenceToTheLast) {
  const test::TemporaryFolder folder;
  const std::string data = folder.write("d.bin", file_content(golden_tokens("two.bin")));
  const std::string good = file_content(golden_tokens("two.idx"));
  const auto with = [&](size_t entry, char sequence) {
    std::string changed = good;
    changed[good.size() - 24 + entry * 8] = sequence;
    folder.write("d.idx", changed);
    return open_tokens(data);
  };
  const auto refusal = [&](int entry, int sequence) {
    return folder.at("d.idx") + ": entry " + std::to_string(entry) + " of the document index is sequence " +
           std::to_string(sequence) + "; the entries must rise from 0 to 3, the number of sequences";
  };
  EXPECT_THAT(with(1, 2)->document_ends(), ElementsAre(5, 9));
  EXPECT_THAT(with(1, 1)->document_ends(), ElementsAre(3, 9));
  EXPECT_THAT(with(1, 0)->document_ends(), ElementsAre(9)) << "an empty document does not count";
  expect_error([&] { with(0, 1); }, ExitCode::Usage, refusal(0, 1));
  expect_error([&] { with(1, 4); }, ExitCode::Usage, refusal(1, 4));
  expect_error([&] { with(2, 2); }, ExitCode::Usage, refusal(2, 2));
}

}  // namespace
}  // namespace trivet::data

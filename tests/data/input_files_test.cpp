// Which files of a folder are read, and what is said about the others.
#include "data/input_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>

#include "data/dataset.h"
#include "data/file_pattern.h"
#include "data/folder_walk.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed_text.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kParquet = "PAR1\x15\x04\0\0PAR1"s;

class FoldersOfData : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) const {
    fs::create_directories(fs::path(folder.at("d/" + name)).parent_path());
    folder.write("d/" + name, content);
  }
  InputFiles find(ReadAs read_as = ReadAs::Auto, FolderUse use = FolderUse::Train) const {
    return find_inputs({folder.at("d")}, read_as, use);
  }
  // The names of texts, or of files of tokens, in the folder.
  std::vector<std::string> names(const InputFiles& inputs) const {
    std::vector<std::string> all;
    for (const InputFile& file : inputs.texts) all.push_back(fs::path(file.path).lexically_relative(folder.at("d")).string());
    for (const std::string& file : inputs.tokens) all.push_back(fs::path(file).lexically_relative(folder.at("d")).string());
    return all;
  }
  std::vector<std::string> names(ReadAs read_as = ReadAs::Auto) const { return names(find(read_as)); }
  std::string refusal(FolderUse use = FolderUse::Train, ReadAs read_as = ReadAs::Auto) const {
    try {
      find(read_as, use);
      return "no error";
    } catch (const DataError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::Usage);
      return error.what();
    }
  }

  test::TemporaryFolder folder;
};

TEST_F(FoldersOfData, HiddenFilesAreLeftOutAndLinksFollowedOnce) {
  write("b.txt", "text"), write(".hidden.txt", "no"), write(".git/packed.txt", "no"),
      write(".ipynb_checkpoints/b-checkpoint.txt", "no");
  write("real/a.txt", "text"), write("real/.DS_Store", "no");
  fs::create_directories(folder.at("outside/deep"));
  folder.write("outside/c.txt", "linked"), folder.write("outside/deep/d.txt", "linked");
  fs::create_directory_symlink("../outside", folder.at("d/link"));
  fs::create_directory_symlink("../../outside", folder.at("d/real/again"));
  fs::create_directory_symlink("..", folder.at("d/real/loop"));
  fs::create_directory_symlink("../../d/real", folder.at("outside/deep/back"));
  fs::create_symlink("real/a.txt", folder.at("d/0.txt"));
  fs::create_symlink("nowhere", folder.at("d/broken.txt"));
  ASSERT_EQ(mkfifo(folder.at("d/fifo.txt").c_str(), 0600), 0);
  const InputFiles inputs = find();
  EXPECT_THAT(names(inputs), ElementsAre("b.txt", "link/c.txt", "link/deep/d.txt", "real/a.txt"));
  ASSERT_EQ(inputs.notes.size(), 2u);
  EXPECT_EQ(inputs.notes[0], folder.at("d") + ": reads text: 4 files, b.txt and so on (20 bytes)");
  EXPECT_EQ(inputs.notes[1], folder.at("d") +
                                 ": leaves out links that lead nowhere: broken.txt (0 bytes); other names of what is read: 4 "
                                 "files, 0.txt and so on (0 bytes); pipes and devices: fifo.txt (0 bytes); hidden: 4 entries");
  const FolderWalk with_slash = walk_folder(folder.at("d/"));
  EXPECT_EQ(with_slash.files.size(), 4u);
}

TEST_F(FoldersOfData, AFileWithSeveralNamesIsReadOnce) {
  write("a.txt", "text"), write("c.txt", "more"), write("x.bin", "any");
  fs::create_hard_link(folder.at("d/a.txt"), folder.at("d/b.txt"));
  fs::create_hard_link(folder.at("d/c.txt"), folder.at("d/0"));  // no name of a text
  InputFiles inputs = find();
  EXPECT_THAT(names(inputs), ElementsAre("a.txt", "c.txt"));
  EXPECT_THAT(inputs.notes[0], HasSubstr("reads text: 2 files, a.txt and so on (8 bytes)"));
  EXPECT_THAT(inputs.notes[1], HasSubstr("other names of what is read: b.txt"));
  fs::create_symlink("c.txt", folder.at("d/link.txt"));
  const std::string told = "leaves out " + folder.at("d/link.txt") + ", which is read already under another name";
  const std::vector<std::string> pattern{folder.at("d/c.txt"), folder.at("d/link.txt")},
      with_folder{folder.at("d/link.txt"), folder.at("d")};
  for (const ReadAs read_as : {ReadAs::Auto, ReadAs::Text, ReadAs::UInt16}) {
    inputs = find_inputs(pattern, read_as, FolderUse::Train);
    EXPECT_THAT(names(inputs), ElementsAre("c.txt"));
    EXPECT_THAT(inputs.notes, ElementsAre(told));
  }
  inputs = find_inputs(with_folder, ReadAs::Auto, FolderUse::Prepare);
  EXPECT_THAT(names(inputs), ElementsAre("link.txt", "a.txt"));
  EXPECT_THAT(inputs.notes.back(), HasSubstr("leaves out " + folder.at("d/c.txt")));
}

TEST_F(FoldersOfData, WithoutDataSayWhatTheyHold) {
  fs::create_directories(folder.at("d"));
  fs::create_symlink("nowhere", folder.at("d/b.txt"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("links that lead nowhere: b.txt"), HasSubstr("get the files that the links lead to")));
  fs::remove(folder.at("d/b.txt"));
  write(".a.txt", "text"), write(".git/b.txt", "text");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("It holds hidden: 2 entries"), HasSubstr("are read if they are named")));
  fs::remove_all(folder.at("d"));
  fs::create_directories(folder.at("d/empty"));
  EXPECT_THAT(refusal(), AllOf(HasSubstr("is a folder without data;"), Not(HasSubstr("It holds"))));
}

TEST_F(FoldersOfData, APatternThatMatchesFilesForTestsSaysSo) {
  for (const char* name : {"train.jsonl", "test.jsonl", "valid.jsonl"}) write(name, "{\"text\": \"a\"}\n");
  const std::vector<std::string> all{folder.at("d/test.jsonl"), folder.at("d/train.jsonl"), folder.at("d/valid.jsonl")};
  for (const FolderUse use : {FolderUse::Train, FolderUse::Prepare}) {
    const InputFiles inputs = find_inputs(all, ReadAs::Auto, use);
    EXPECT_EQ(inputs.texts.size(), 3u);
    EXPECT_THAT(inputs.notes,
                ElementsAre(AllOf(HasSubstr("reads training files, such as " + all[1]),
                                  HasSubstr("for tests or validation by their names: " + all[0] + ", " + all[2]))));
  }
  EXPECT_THAT(find_inputs(all, ReadAs::Auto, FolderUse::Validate).notes, ElementsAre());
  EXPECT_THAT(find_inputs({all[1]}, ReadAs::Auto, FolderUse::Train).notes, ElementsAre());
}

TEST_F(FoldersOfData, OfAClonedDataSetTheDataIsReadAndNotItsDescription) {
  const std::string line = "{\"text\": \"alpha beta\"}\n", card = "---\nlicense: mit\n---\n# Card\n";
  write("README.md", card), write("LICENSE.txt", "MIT"), write("dataset_infos.json", "{\"default\": {\"features\": {}}}");
  write("data/a.json.gz", gzip_of(line)), write("data/b.json", line), write(".gitattributes", "*.gz filter=lfs\n");
  const InputFiles inputs = find();
  EXPECT_THAT(names(inputs), ElementsAre("data/a.json.gz", "data/b.json"));
  EXPECT_THAT(inputs.notes[1],
              AllOf(HasSubstr("what comes with the data: 3 files, LICENSE.txt and so on"), HasSubstr("hidden: 1 entry")));
}

TEST_F(FoldersOfData, WhatComesWithDataIsReadOnlyWhereNothingElseIs) {
  const std::string more_than_the_data(5000, 'x');
  write("a.txt", "once upon a time"), write("readme-1.txt", "one of a series");
  write("notice of the day.txt", "read it"), write("b/vocabulary.txt", "words"), write("readmes.jsonl", "{\"text\": \"a\"}");
  write("license-plates.txt", "B AB 123"), write("readme-corpus.txt", "texts"), write("licences_of_bars.txt", "none");
  write("license-mitten.txt", "knitted"), write("readme-enough.txt", "texts"), write("license.plates.txt", "M XY 9");
  const auto data = names();
  for (const char* variant :
       {"LICENSE.txt", "LICENSE.md", "LICENSE-MIT", "LICENSE-APACHE-2.0.txt", "LICENCE_BSD3", "license.mit.txt",
        "LICENSE-CC-BY-4.0", "README", "README.zh.md", "README_zh-CN.md", "README-en.md"}) {
    write(variant, more_than_the_data);
    EXPECT_EQ(names(), data) << variant;
    fs::remove(folder.at("d/"s + variant));
  }
  const std::vector<std::string> about{"README.md",       "LICENSE",      "b/Readme_zh.txt", "LICENSE-MIT.txt.gz",
                                       "merges.txt",      "b/vocab.json", "tokenizer.json",  "dataset_infos.json",
                                       "tokenizer.model", "CITATION.cff", "b/COPYING.txt",   "vocab.txt"};
  for (const std::string& name : about) write(name, more_than_the_data);
  EXPECT_EQ(names(), data);
  EXPECT_THAT(data, testing::SizeIs(11));
  EXPECT_THAT(find().notes[1], HasSubstr("what comes with the data: 12 files, CITATION.cff and so on (60.0 kB)"));
  EXPECT_EQ(names(ReadAs::Text).size(), 11u);
  EXPECT_EQ(names(ReadAs::Bytes).size(), 23u);
  const std::vector<std::string> pattern{folder.at("d/README.md"), folder.at("d/a.txt")};
  EXPECT_THAT(find_inputs(pattern, ReadAs::Auto, FolderUse::Train).notes,
              ElementsAre("reads " + pattern[0] +
                          " as data, too, which by its name only comes with data; if that is not meant, "
                          "name the other files alone"));
  EXPECT_THAT(find_inputs({pattern[0]}, ReadAs::Auto, FolderUse::Train).notes, ElementsAre());
  fs::remove_all(folder.at("d"));
  write("README.md", "# A text"), write("b/README.md", "# Another");
  EXPECT_THAT(names(), ElementsAre("README.md", "b/README.md"));
  write("data.zip", "PK\x03\x04\0"s);
  EXPECT_THAT(refusal(), HasSubstr("is a folder in which nothing is read. It holds a zip archive: data.zip"));
}

TEST_F(FoldersOfData, ATextThatIsThereBothPackedAndNotIsReadOnce) {
  const std::string line = "{\"text\": \"alpha beta\"}\n";
  for (const auto& [one, other] : {std::pair("a.jsonl", "a.jsonl.gz"), {"b/a.txt", "b/a.txt.zst"}, {"c.md.gz", "c.md.zst"}}) {
    write(one, line), write(other, line), write("a/b.txt.gz", line);
    EXPECT_THAT(refusal(), HasSubstr("holds "s + one + " and " + other + ", which differ only in how they are packed")) << one;
    const std::vector<std::string> pattern{folder.at("d/"s + one), folder.at("d/"s + other)};
    EXPECT_THAT(find_inputs(pattern, ReadAs::Auto, FolderUse::Train).notes,
                ElementsAre(HasSubstr("reads " + pattern[0] + " and " + pattern[1] + ", which differ only in how")));
    fs::remove(pattern[1]);
    EXPECT_EQ(refusal(), "no error");
    fs::remove_all(folder.at("d"));
  }
}

TEST_F(FoldersOfData, UnfinishedAndOlderCopiesAreLeftOut) {
  const std::string line = "{\"text\": \"alpha beta, gamma delta, epsilon zeta\"}\n", draft = "{\"text\": \"x\"}\n";
  for (const char* name : {"a.jsonl~", "a.jsonl.bak", "b.jsonl.tmp", "#a.jsonl#"}) write(name, draft);
  write("a.jsonl", line + line);
  EXPECT_THAT(names(), ElementsAre("a.jsonl"));
  EXPECT_THAT(find().notes[1], HasSubstr("unfinished or older copies by their names: 4 files"));
}

// Spark writes a file for each part, also for one without rows.
TEST_F(FoldersOfData, EmptyFilesAreLeftOutAndSaid) {
  const std::string text = "once upon a time there was a text\n";
  write("part-0.txt", text), write("part-1.txt", ""), write("part-2.txt.gz", gzip_of("")), write("_SUCCESS", "");
  EXPECT_THAT(names(), ElementsAre("part-0.txt"));
  EXPECT_THAT(find().notes[1], HasSubstr("leaves out empty: 3 files, _SUCCESS and so on"));
  fs::remove(folder.at("d/part-0.txt"));
  EXPECT_THAT(refusal(), HasSubstr("What to do: get these files again, or leave them out"));
}

// As where they are named alone.
TEST_F(FoldersOfData, TextsThatAreNoTextAreErrorsWithTheirPlace) {
  for (const char* name : {"b.txt", "b.md", "b.jsonl", "b.json"}) {
    write("a.txt", "once upon a time there was a text\n"), write(name, "{\"text\": \"caf\xE9\"}\n");
    EXPECT_THAT(refusal(), HasSubstr("d/"s + name + ": is not UTF-8 at byte 13")) << name;
    fs::remove_all(folder.at("d"));
  }
}

// Spark's and the launcher's files, where a pattern names them.
TEST_F(FoldersOfData, APatternLeavesOutEmptyFilesAndLogs) {
  write("part-0", "a"), write("part-1", ""), write("rank_0.out", "step 1"), write("rank_1.err", "");
  const MatchingFiles found = matching_files(folder.at("d/*"));
  EXPECT_THAT(found.paths, ElementsAre(folder.at("d/part-0")));
  EXPECT_THAT(found.note,
              HasSubstr("leaves out folders, hidden and empty files, and what ranks printed: " + folder.at("d/part-1")));
}

TEST_F(FoldersOfData, ATextNextToTokensMayBeInAnyEncoding) {
  write("notes.txt", "caf\xE9"), write("a.npy", "\x93NUMPY\x01\0\x76\0"s + std::string(200, 'x'));
  EXPECT_THAT(names(), ElementsAre("a.npy"));
}

TEST_F(FoldersOfData, WhatRanksPrintIsNoData) {
  write("a.txt", "once upon a time there was a text\n"), write("rank_0.out", std::string(5000, 'x')),
      write("b/rank_12.err", "step 1");
  write("rank_of_chess.txt", "e4"), write("rank_1.txt", "e4");
  for (const ReadAs read_as : {ReadAs::Auto, ReadAs::Text, ReadAs::Bytes})
    EXPECT_THAT(names(read_as), ElementsAre("a.txt", "rank_1.txt", "rank_of_chess.txt"));
  EXPECT_THAT(find().notes[1], HasSubstr("what ranks have printed, by the names: 2 files"));
}

// Read as text, the objects of JSON would be letters, too.
TEST_F(FoldersOfData, OtherTextsNextToJsonAreNotAdvisedToBeRead) {
  write("a.jsonl", "{\"text\": \"a\"}\n"), write("b.csv", std::string(500, 'x'));
  EXPECT_THAT(refusal(), HasSubstr("or name those that are data, such as \"" + folder.at("d/*.jsonl") + "\""));
}

TEST_F(FoldersOfData, OnlyFilesOfNoKnownKindHoldIdsOfTokens) {
  write("a.txt", "a text");
  EXPECT_THAT(refusal(FolderUse::Train, ReadAs::UInt16), HasSubstr("What to do: leave out data.read_as"));
  write("train.bin", "\x01\0\x02\0\x03\0\x04\0\xFF\xC3"s), write("shard.00000.mds", "\x02\0\0\0"s);
  write("model.safetensors", "\x10\0\0\0\0\0\0\0{\"a\":{}}"s);
  EXPECT_THAT(refusal(FolderUse::Train, ReadAs::UInt16), HasSubstr("most of this folder would be left out"));
  fs::remove(folder.at("d/model.safetensors")), fs::remove(folder.at("d/a.txt"));
  EXPECT_THAT(names(ReadAs::UInt16), ElementsAre("train.bin"));
  write("arrow.bin", "\xFF\xFF\xFF\xFF\x01\0\x02\0"s), write("packed.bin", "\x1F\x9D\x01\0\x02\0"s);
  write("chunk-0-0.bin", "\x01\0\xFF\xC3"s);
  EXPECT_THAT(names(ReadAs::UInt16), ElementsAre("arrow.bin", "chunk-0-0.bin", "packed.bin", "train.bin"))
      << "ids may begin so, and may be called so";
  write("index.json", "{\"chunks\": []}");
  EXPECT_THAT(names(ReadAs::UInt16), ElementsAre("arrow.bin", "packed.bin", "train.bin")) << "chunks of LitData";
  for (const char* name : {"arrow.bin", "packed.bin", "chunk-0-0.bin", "index.json"}) fs::remove(folder.at("d/"s + name));
  write("ids.npy", "\x01\0\x02\0\x03\0\x04\0\xFF\xC3"s);  // as OLMo writes them
  EXPECT_THAT(names(ReadAs::UInt16), ElementsAre("ids.npy", "train.bin"));
  fs::remove(folder.at("d/train.bin")), fs::remove(folder.at("d/shard.00000.mds"));
  EXPECT_THAT(refusal(), HasSubstr("data.read_as \"uint16\""));
}

TEST_F(FoldersOfData, WhereMostWouldBeLeftOutIsRefused) {
  write("README.md", "# Card"), write("data/1.parquet", kParquet), write("data/2.parquet", kParquet);
  EXPECT_THAT(refusal(),
              AllOf(HasSubstr("is a folder in which nothing is read. It holds a Parquet file: 2 files, data/1.parquet"),
                    HasSubstr("'" + folder.at("d/**/*.parquet") + "'")));
  write("a.jsonl", "{\"text\": \"a\"}\n");
  EXPECT_THAT(refusal(), HasSubstr("most of this folder would be left out (24 bytes of 38 bytes). Read would be lines of JSON: "
                                   "a.jsonl (14 bytes). Left out would be a Parquet file: 2 files"));
  write("a.jsonl", "{\"text\": \"a text that is long enough\"}\n");
  EXPECT_THAT(names(), ElementsAre("a.jsonl"));
  write("images/1.png", "\x89PNG\r\n\x1a\n" + std::string(100, '\0'));
  EXPECT_THAT(refusal(), HasSubstr("a PNG image: images/1.png (108 bytes)"));
  fs::remove(folder.at("d/images/1.png"));
  write("b.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5000000\n");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a pointer of Git LFS, not the data: b.jsonl (5.0 MB)"), HasSubstr("git lfs pull")));
  fs::remove_all(folder.at("d"));
  write("a.json", "[{\"instruction\": \"add\", \"input\": \"\", \"output\": \"2\"}]");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("has \"input\", \"instruction\", \"output\", but a document has"),
                               HasSubstr("write \"instruction\", with \"input\" after it, as \"prompt\"")));
  fs::remove_all(folder.at("d"));
  write("a.py", "print(1)"), write("b.py", "print(2)");
  EXPECT_THAT(refusal(), AllOf(HasSubstr("texts that are called *.py: 2 files"), HasSubstr("data.read_as to \"text\"")));
  EXPECT_THAT(names(ReadAs::Text), ElementsAre("a.py", "b.py"));
}

TEST_F(FoldersOfData, FilesForTestsAreNotTrainedOnWithoutAWord) {
  const std::string line = "{\"text\": \"a\"}\n";
  for (const char* held_out : {"test.jsonl", "data/validation-00000-of-00001.jsonl", "valid/a.jsonl", "my_dev.jsonl",
                               "x.eval.json", "fineweb_val_000.jsonl", "TEST/1.jsonl", "testSet.jsonl"}) {
    write(held_out, line), write("other.jsonl", line);
    const InputFiles inputs = find();
    EXPECT_EQ(inputs.texts.size(), 2u);
    EXPECT_THAT(inputs.notes[0],
                AllOf(HasSubstr("1 file for tests or validation by its name: "s + held_out), HasSubstr("data.validation")));
    write("train-1.jsonl", line);
    for (const FolderUse use : {FolderUse::Train, FolderUse::Prepare})
      EXPECT_THAT(refusal(use),
                  AllOf(HasSubstr("holds training files, such as train-1.jsonl, and 1 file for tests or validation"),
                        HasSubstr("\"" + folder.at("d") + "/*train*\""), HasSubstr("data.validation")));
    EXPECT_THAT(refusal(FolderUse::Validate),
                AllOf(HasSubstr("holds files for tests or validation, such as "s + held_out + ", and 1 file for training"),
                      HasSubstr("train-1.jsonl, which would be evaluated on")));
    fs::remove_all(folder.at("d"));
  }
  for (const auto& [held_out, advice] :
       {std::pair("held_out.jsonl", "*held*"), {"val/held-out.jsonl", "val"}, {"a.Test.json", "*Test*"}}) {
    write(held_out, line), write("train.jsonl", line);
    EXPECT_THAT(refusal(FolderUse::Validate),
                HasSubstr("Name the former alone, such as \"" + folder.at("d/"s + advice) + "\""));
    fs::remove_all(folder.at("d"));
  }
  for (const auto& [train, held_out, found, advice] : std::vector<std::array<const char*, 4>>{
           {"en/c4-Train.0.json", "en/c4-validation.0.json", "en/c4-Train.0.json", "en/*Train*"},
           {"train/a.jsonl", "val/a.jsonl", "train/a.jsonl", "train"},
           {"a/training-1/b.jsonl", "a/test/b.jsonl", "a/training-1/b.jsonl", "a/training-1"}}) {
    write(train, line), write(held_out, line);
    const std::string said = refusal(), named = folder.at("d/"s + advice);
    EXPECT_THAT(said, HasSubstr("alone, such as \"" + named + "\"")) << train;
    EXPECT_THAT(names(find_inputs(matching_files(named).paths, ReadAs::Auto, FolderUse::Train)), ElementsAre(found));
    fs::remove_all(folder.at("d"));
  }
  for (const char* name : {"latest.jsonl", "contest.jsonl", "held_the_line_out.jsonl", "values.jsonl", "device.jsonl",
                           "evaluate_me.jsonl", "validity.jsonl"})
    write(name, line);
  write("train.jsonl", line);
  EXPECT_EQ(find().notes.size(), 1u) << "these words only look like it";
}

TEST_F(FoldersOfData, FilesOfTokensAreReadIfThereAreNoTexts) {
  std::string shard(1024, '\0');
  const std::string start("\x88\xD8\x34\x01\x01\0\0\0\x02\0\0\0", 12);
  shard.replace(0, start.size(), start);
  write("web_2.bin", shard + "\x01\0\x02\0"s), write("web_1.bin", shard + "\x03\0\x04\0"s), write("README.md", "# Tokens");
  DataOptions options;
  options.data.train = folder.at("d");
  options.data.validation_fraction = 0;
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 50257;
  const Dataset dataset = open_dataset(options);
  std::vector<int32_t> ids(4);
  dataset.train->read(0, ids);
  EXPECT_THAT(ids, ElementsAre(3, 4, 1, 2));
  EXPECT_THAT(dataset.notes, ElementsAre(HasSubstr("reads files of tokens: 2 files, web_1.bin and so on"),
                                         HasSubstr("leaves out what comes with the data: README.md")));
  write("a.txt", std::string(5000, 'x'));
  EXPECT_THAT(names(), ElementsAre("a.txt"));
  write("a.txt", "x");
  EXPECT_THAT(refusal(), HasSubstr("it holds texts and files of tokens: name those of one kind"));
  EXPECT_THAT(names(find(ReadAs::Auto, FolderUse::Prepare)), ElementsAre("a.txt")) << "tokens may have been made of the texts";
}

}  // namespace
}  // namespace trivet::data

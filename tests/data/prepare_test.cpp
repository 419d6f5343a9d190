#include "engine/data/prepare.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/data/token_file.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

class Prepare : public testing::Test {
 protected:
  PrepareOptions options(const std::string& vocabulary) const {
    PrepareOptions result;
    result.inputs = {folder_.write("a.txt", "hello hello"), folder_.write("b.txt", "\xC3\xA9 hallo\n")};
    result.output = folder_.at("out.tokens");
    result.vocabulary = vocabulary;
    return result;
  }
  std::string text_of(const std::string& path) const {
    const auto file = open_token_file(path);
    std::vector<int32_t> ids(file->tokens());
    file->read(0, ids);
    return tokenizer_from_text(file->info().tokenizer_text, path)->decode(ids);
  }
  test::TemporaryFolder folder_;
};

TEST_F(Prepare, JoinsTheInputsInTheirOrder) {
  for (const std::string vocabulary : {"bytes", "characters"}) {
    PrepareOptions with = options(vocabulary);
    with.replace = true;
    const PrepareResult result = prepare(with);
    EXPECT_EQ(text_of(with.output), "hello hello\xC3\xA9 hallo\n");
    EXPECT_EQ(result.tokens, vocabulary == "bytes" ? 20 : 19);
    EXPECT_EQ(result.text_bytes, 20);
    EXPECT_EQ(result.tokenizer, vocabulary);
    EXPECT_EQ(result.file_bytes, static_cast<int64_t>(std::filesystem::file_size(with.output)));
    verify_tokens(with.output);
  }
}

TEST_F(Prepare, LearnsAVocabularyThatTheTokenFileThenHolds) {
  PrepareOptions with = options("bytes");
  with.train_bpe = 262;
  with.end_of_text = true;
  const PrepareResult result = prepare(with);
  EXPECT_EQ(result.vocabulary_size, 262);
  EXPECT_EQ(text_of(with.output), "hello hello<|endoftext|>\xC3\xA9 hallo\n<|endoftext|>");
  PrepareOptions again = options(with.output);  // the token file serves as a tokenizer
  again.output = folder_.at("again.tokens");
  prepare(again);
  EXPECT_EQ(open_token_file(again.output)->info().tokenizer_text, open_token_file(with.output)->info().tokenizer_text);
}

TEST_F(Prepare, PutsSpecialTokensAroundEachInputIfAsked) {
  PrepareOptions with = options(TRIVET_SOURCE_DIR "/tests/golden/tokenizers/llama3.json");
  with.inputs = {folder_.write("c.txt", "x</s>y"), folder_.write("d.txt", "z")};
  with.end_of_text = true;
  prepare(with);
  const int64_t as_text = open_token_file(with.output)->tokens();
  with.special_tokens = true;
  with.replace = true;
  prepare(with);
  EXPECT_EQ(text_of(with.output), "<s>x</s>y</s><s>z</s>");
  const auto file = open_token_file(with.output);
  std::vector<int32_t> ids(file->tokens());
  file->read(0, ids);
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[2], 1) << "</s> is one token";
  EXPECT_LT(file->tokens(), as_text + 2);
}

TEST_F(Prepare, ReportsProgressThatOnlyGrows) {
  PrepareOptions with = options("characters");
  std::vector<std::string> phases;
  double before = 0;
  prepare(with, [&](std::string_view phase, double done) {
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase), before = 0;
    EXPECT_GE(done, before);
    EXPECT_LE(done, 1);
    before = done;
  });
  EXPECT_EQ(phases, (std::vector<std::string>{"collecting characters", "writing tokens"}));
}

TEST_F(Prepare, RefusesWhatItCannotDoBeforeItStarts) {
  const auto expect = [&](const PrepareOptions& with, const std::string& message) {
    expect_error([&] { prepare(with); }, ExitCode::Usage, message);
  };
  PrepareOptions with = options("bytes");
  with.inputs.push_back(folder_.at("none.txt"));
  expect(with, folder_.at("none.txt") + ": no such file");
  with = options("bytes");
  prepare(with);
  expect(with, with.output + ": exists; give --force to replace it");
  with.inputs = {with.output};
  with.output = folder_.at("other.tokens");
  expect(with, folder_.at("out.tokens") + ": is already a token file; `trivet data show` prints what is in it");
  with = options("bytes");
  with.output = with.inputs[0];
  with.replace = true;
  expect(with, with.output + ": is also the output; name another output");
  with = options("bytes");
  with.output = folder_.at("no/such/folder/out.tokens");
  expect(with, with.output + ": the folder " + folder_.at("no/such/folder") + " does not exist");
  with = options("bpe");
  with.output = folder_.at("other.tokens");
  expect(with,
         "--vocabulary bpe: no such file; use bytes, characters or a tokenizer file; --train-bpe N learns a BPE vocabulary of "
         "N tokens instead");
  with = options("characters");
  with.end_of_text = true;
  with.output = folder_.at("other.tokens");
  expect(with, "--end-of-text: the vocabulary \"characters\" has no <|endoftext|>; leave the flag out or use BPE");
  with = options("bytes");
  with.inputs.clear();
  expect(with, "data prepare: no input; name one or more texts");
  EXPECT_FALSE(std::filesystem::exists(folder_.at("other.tokens")));
}

TEST_F(Prepare, ReplacesOnlyAFile) {
  const std::string fifo = folder_.at("fifo"), directory = folder_.at("directory");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::filesystem::create_directory(directory);
  std::filesystem::create_symlink(fifo, folder_.at("to_fifo"));
  std::filesystem::create_symlink(directory, folder_.at("to_directory"));
  for (const bool replace : {false, true}) {
    for (const std::string kind : {"FIFO", "directory"}) {
      for (const std::string name : {kind == "FIFO" ? "fifo" : "directory", kind == "FIFO" ? "to_fifo" : "to_directory"}) {
        PrepareOptions with = options("bytes");
        with.output = folder_.at(name);
        with.replace = replace;
        expect_error([&] { prepare(with); }, ExitCode::Usage, with.output + ": is a " + kind + "; name a file");
      }
    }
  }
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_.at("to_fifo")));
}

TEST_F(Prepare, NamesTheInputThatCannotBeEncoded) {
  PrepareOptions with = options("characters");
  with.inputs.push_back(folder_.write("bad.txt", "abc\xFF"));
  expect_error(
      [&] { prepare(with); }, ExitCode::Usage,
      folder_.at("bad.txt") + ": the text is not UTF-8 at byte 3 (0xff), so it has no characters; use vocabulary \"bytes\"");
  EXPECT_FALSE(std::filesystem::exists(with.output));
}

}  // namespace
}  // namespace trivet::data

#include "data/dataset.h"
#include "data/data_error.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "data/token_file.h"
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

TEST(Dataset, ValidationThatIsTrainedOnIsTold) {
  const test::TemporaryFolder folder;
  folder.write("b.txt", "other text");
  std::filesystem::create_directory(folder.at("d"));
  for (const char* name : {"d/a.txt", "d/c.txt"}) folder.write(name, "a text that is long enough");
  std::filesystem::create_hard_link(folder.at("d/a.txt"), folder.at("same.txt"));
  const auto notes = [&](const std::string& validation) {
    DataOptions options = options_for(folder.at("d"), VocabularyKind::Bytes);
    options.data.validation = folder.at(validation);
    return fmt::format("{}", fmt::join(open_dataset(options).notes, "\n"));
  };
  const auto told = testing::HasSubstr("is training data, too");
  EXPECT_THAT(notes("b.txt"), testing::Not(told));
  EXPECT_THAT(notes("d/c.txt"), testing::HasSubstr("data.validation: " + folder.at("d/c.txt") + " is training data, too, so"));
  EXPECT_THAT(notes("same.txt"), told);
  EXPECT_THAT(notes("d"), testing::HasSubstr(" and 1 more files are training data, too"));
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

std::string text_of_all(const Dataset& dataset) { return dataset.tokenizer->decode(all_of(*dataset.train)); }

TEST(Dataset, LinesOfJsonBecomeDocumentsWhosePromptsAreIgnored) {
  const test::TemporaryFolder folder;
  DataOptions options = options_for(
      folder.write("a.jsonl", "{\"prompt\": \"2+2=\", \"completion\": \"4\"}\n{\"text\": \"yes\"}\n"), VocabularyKind::Bytes);
  options.data.validation_fraction = 0;
  const Dataset dataset = open_dataset(options);
  EXPECT_EQ(text_of_all(dataset), "2+2=4yes");
  EXPECT_EQ(dataset.train->document_ends(), (std::vector<int64_t>{5, 8}));
  std::vector<int32_t> targets(8, 1);
  dataset.train->ignore(0, targets);
  EXPECT_EQ(targets, (std::vector<int32_t>{-1, -1, -1, -1, 1, 1, 1, 1}));
  options.vocabulary = VocabularyKind::Characters;
  EXPECT_EQ(text_of_all(open_dataset(options)), "2+2=4yes");
}

TEST(Dataset, ConversationsNeedAChatTemplate) {
  const test::TemporaryFolder folder;
  DataOptions options = options_for(folder.write("a.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}, )"
                                                            R"({"role": "assistant", "content": "Ho"}]})"),
                                    VocabularyKind::Bytes);
  options.data.validation_fraction = 0;
  EXPECT_THROW(open_dataset(options), DataError);
  options.data.chat_template = ChatTemplate::Llama2;
  EXPECT_EQ(text_of_all(open_dataset(options)), "<s>[INST] Hi [/INST] Ho </s>");
}

TEST(Dataset, AFolderOrAPatternOfTextsIsReadInTheOrderOfNames) {
  const test::TemporaryFolder folder;
  std::filesystem::create_directories(folder.at("texts/b"));
  folder.write("texts/c.md", "third "), folder.write("texts/a.txt", "first "), folder.write("texts/b/x.txt", "second ");
  folder.write("texts/picture.png", "no text");
  DataOptions options = options_for(folder.at("texts"), VocabularyKind::Bytes);
  options.data.validation_fraction = 0;
  const Dataset dataset = open_dataset(options);
  EXPECT_EQ(text_of_all(dataset), "first second third ");
  EXPECT_EQ(dataset.train->document_ends(), (std::vector<int64_t>{6, 13, 19}));
  folder.write("texts/b.txt", "fourth");
  options.data.train = folder.at("texts/*.txt");
  EXPECT_EQ(text_of_all(open_dataset(options)), "first fourth");
}

TEST(Dataset, WithWholeDocumentsValidationBeginsWithADocument) {
  const test::TemporaryFolder folder;
  folder.write("1.txt", "aaaa"), folder.write("2.txt", "bbbb"), folder.write("3.txt", "cccc");
  DataOptions options = options_for(folder.path(), VocabularyKind::Bytes);
  options.data.validation_fraction = 0.5;
  EXPECT_EQ(open_dataset(options).train->tokens(), 6);
  options.data.packing = Packing::Single;
  const Dataset dataset = open_dataset(options);
  EXPECT_EQ(text_of_all(dataset), "aaaa");
  EXPECT_EQ(dataset.validation->document_ends(), (std::vector<int64_t>{4, 8}));
  options.data.validation_fraction = 0.9;
  EXPECT_THROW(open_dataset(options), DataError) << "no document is left for training";
}

TEST(Dataset, WhatMarksPromptsIsASampleOfItsOwnUnlessPackingIsGiven) {
  const test::TemporaryFolder folder;
  const std::string answer = R"({"prompt": "a", "completion": "bc"})",
                    pair = R"({"prompt": "a", "chosen": "bc", "rejected": "d"})";
  for (const auto& [line, given, expected] :
       std::vector<std::tuple<std::string, Packing, Packing>>{{answer, Packing::Auto, Packing::Single},
                                                              {answer, Packing::Stream, Packing::Stream},
                                                              {answer, Packing::Whole, Packing::Whole},
                                                              {answer, Packing::Single, Packing::Single},
                                                              {R"({"text": "abc"})", Packing::Auto, Packing::Stream}}) {
    DataOptions options = options_for(folder.write("a.jsonl", line + "\n" + line + "\n" + line + "\n"), VocabularyKind::Bytes);
    options.data.packing = given;
    options.data.validation_fraction = 0;
    const Dataset dataset = open_dataset(options);
    EXPECT_EQ(dataset.packing, expected) << line;
    const bool tells = std::ranges::any_of(dataset.notes, [](const std::string& note) {
      return note.ends_with(
          "is a sample of its own, then padding; with data.packing \"isolated\" several share a sample without seeing each "
          "other");
    });
    EXPECT_EQ(tells, given == Packing::Auto && expected == Packing::Single) << line;
  }
  DataOptions pairs = options_for(folder.write("b.jsonl", pair + "\n" + pair + "\n"), VocabularyKind::Bytes);
  pairs.pairs = true;
  EXPECT_EQ(open_dataset(pairs).packing, Packing::Stream) << "each answer has a row of its own anyway";
}

TEST(Dataset, SourcesShareTheTokenizerOfTheFirst) {
  const test::TemporaryFolder folder;
  DataOptions options;
  options.vocabulary = VocabularyKind::Characters;
  options.data.sources = {{folder.write("a.txt", "abcabcabca"), 1}, {folder.write("b.txt", "ccccbbbbaa"), 2}};
  const std::vector<Dataset> datasets = open_sources(options);
  ASSERT_EQ(datasets.size(), 2u);
  EXPECT_EQ(text_of_all(datasets[1]), "ccccbbbba");
  EXPECT_EQ(datasets[1].validation->tokens(), 1) << "a fraction of each source is held out";
  EXPECT_EQ(datasets[1].vocabulary_size, 3);
  options.data.validation = folder.write("c.txt", "cab");
  const std::vector<Dataset> validated = open_sources(options);
  EXPECT_EQ(validated[0].validation->tokens(), 3);
  EXPECT_EQ(validated[0].validation_file, options.data.validation) << "they are no part of the first source";
  EXPECT_EQ(datasets[0].validation_file + validated[1].validation_file, "");
  EXPECT_EQ(validated[1].validation, nullptr);
  EXPECT_EQ(validated[1].train->tokens(), 10);
}

TEST(Dataset, SourcesThatAreTheSameAreRefusedAndSharedFilesTold) {
  const test::TemporaryFolder folder;
  DataOptions options;
  options.source = "c.json";
  std::filesystem::create_directories(folder.at("d"));
  const std::string text = folder.write("d/a.txt", "abcabcabca"), other = folder.write("b.txt", "abc"),
                    link = folder.at("l.txt");
  std::filesystem::create_symlink(text, link);
  for (const auto& [one, two] : {std::pair(text, text), {text, link}, {folder.at("d"), folder.at("d/")}, {"x/*", "x/*"}}) {
    options.data.sources = {{one, 1}, {other, 1}, {two, 2}};
    EXPECT_THAT([&] { open_sources(options); },
                testing::ThrowsMessage<DataError>("c.json: data.sources: " + two +
                                                  " is in the list twice; name it once, with the sum of its weights"));
  }
  options.data.sources = {{folder.at("d"), 1}, {other, 1}};
  EXPECT_EQ(open_sources(options)[0].notes.size(), 1u);
  options.data.sources = {{folder.at("d"), 1}, {other, 1}, {text, 2}};
  EXPECT_EQ(open_sources(options)[0].notes.back(),
            "data.sources: " + text + " is in two of the 3 sources, so what it holds is drawn with the weights of both");
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

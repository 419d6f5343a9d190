#include "data/prepare.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "data/dataset.h"
#include "data/token_file.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using testing::Conditional;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

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
  static std::string tokenizer_file(const std::string& name) { return TRIVET_SOURCE_DIR "/tests/golden/tokenizers/" + name; }
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

TEST_F(Prepare, RefusesInputsWithoutAnyText) {
  for (const char* lines : {R"({"text": ""})", " \n \n"}) {
    PrepareOptions with = options("bytes");
    with.inputs = {folder_.write("empty.jsonl", lines)};
    expect_error([&] { prepare(with); }, ExitCode::Usage,
                 with.inputs[0] + ": has no text, so there is nothing to prepare; name texts that have some");
    EXPECT_FALSE(std::filesystem::exists(with.output));
  }
}

TEST_F(Prepare, LearnsAVocabularyThatTheTokenFileThenHolds) {
  PrepareOptions with = options("bytes");
  with.train_bpe = 262;
  with.end_of_text = true;
  with.piece_bytes = 8;  // a text may be several pieces
  const PrepareResult result = prepare(with);
  EXPECT_EQ(result.vocabulary_size, 262);
  EXPECT_THAT(result.notes, IsEmpty());
  EXPECT_EQ(text_of(with.output), "hello hello<|endoftext|>\xC3\xA9 hallo\n<|endoftext|>");
  PrepareOptions again = options(with.output);  // the token file serves as a tokenizer
  again.output = folder_.at("again.tokens");
  prepare(again);
  EXPECT_EQ(open_token_file(again.output)->info().tokenizer_text, open_token_file(with.output)->info().tokenizer_text);
}

TEST_F(Prepare, SaysThatFewerTokensWereLearned) {
  PrepareOptions with = options("bytes");
  with.train_bpe = 5000;
  const PrepareResult result = prepare(with);
  EXPECT_LT(result.vocabulary_size, 300);
  EXPECT_THAT(result.notes, ElementsAre(testing::StartsWith(std::to_string(result.vocabulary_size) +
                                                            " tokens were learned, not 5000: the texts have no more pairs")));
}

TEST_F(Prepare, AStarStandsForTheFilesThatMatchAsInTraining) {
  PrepareOptions with = options("bytes");
  folder_.write("p-2.txt", "two"), folder_.write("p-1.txt", "one "), folder_.write(".p-3.txt", "hidden");
  with.inputs = {folder_.at("*p-*")};
  const PrepareResult result = prepare(with);
  EXPECT_EQ(text_of(with.output), "one two");
  EXPECT_THAT(result.notes, Contains(testing::HasSubstr("leaves out folders, hidden and empty files")));
  with.output = folder_.at("p-4.tokens");
  EXPECT_THROW(prepare(with), ConfigError) << "the next command would read it";
  for (const std::string name : {"*/a.txt", "**/*.txt"}) {
    with.inputs = {folder_.at(name)};
    expect_error(
        [&] { prepare(with); }, ExitCode::Usage,
        with.inputs[0] + ": a \"*\" stands for characters only after the last \"/\"; name the folder, or each of them");
  }
  with.inputs = {folder_.at("nothing*")};
  expect_error([&] { prepare(with); }, ExitCode::Usage, with.inputs[0] + ": no file matches");
}

// As many guides write them: conversations that were rendered with a template, as plain text.
TEST_F(Prepare, TellsThatMarksOfConversationsAreLetters) {
  std::string tokens;
  const std::vector<std::string> special{"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  for (size_t i = 0; i < special.size(); ++i)
    tokens += fmt::format(R"({}{{"id": {}, "content": "{}", "single_word": false, "lstrip": false, "rstrip": false,
                              "normalized": false, "special": true}})",
                          i == 0 ? "" : ", ", i + 3, special[i]);
  PrepareOptions with = options(folder_.write("tokenizer.json", R"({"version": "1.0", "added_tokens": [)" + tokens + R"(],
      "pre_tokenizer": {"type": "Whitespace"},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
      "vocab": {"[UNK]": 0, "a": 1, "b": 2, "<|endoftext|>": 3, "<|im_start|>": 4, "<|im_end|>": 5}}})"));
  with.inputs = {folder_.write("rendered.txt", "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n")};
  const std::string letters =
      ", read as the letters that it is made of; to read special tokens as tokens, set data.special_tokens "
      "(--special-tokens of `trivet data prepare`)";
  EXPECT_THAT(prepare(with).notes, testing::UnorderedElementsAre("the text has <|im_end|> 2 times" + letters,
                                                                 "the text has <|im_start|> 2 times" + letters));
  with.special_tokens = with.replace = true;
  EXPECT_THAT(prepare(with).notes, IsEmpty());
}

// As apply_chat_template writes the texts of Gemma, and completions that say how they end.
TEST_F(Prepare, TokensThatTheTokenizerAddsAreToldOrAreThereOnce) {
  const std::string vocabulary = folder_.write("framed.json", R"({"version": "1.0", "added_tokens": [
      {"id": 3, "content": "<bos>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 4, "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
      "pre_tokenizer": {"type": "Whitespace"},
      "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [], "special_tokens": {"<bos>": {"id": "<bos>", "ids": [3], "tokens": ["<bos>"]}}},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
      "vocab": {"[UNK]": 0, "a": 1, "b": 2, "<bos>": 3, "<eos>": 4}}})");
  PrepareOptions with = options(vocabulary);
  with.special_tokens = with.replace = true;
  with.inputs = {folder_.write("twice.jsonl", R"({"prompt": "<bos>a", "completion": "b<eos>"})")};
  EXPECT_THAT(prepare(with).notes,
              testing::ElementsAre("1 text begins with <bos>, which the tokenizer puts before each text, too, "
                                   "so that it is there twice; leave it out of the texts"));
  EXPECT_EQ(open_token_file(with.output)->info().tokens, 5) << "<bos> <bos> a b <eos>";
  with.inputs = {folder_.write("once.jsonl", R"({"prompt": "a", "completion": "b"})")};
  EXPECT_THAT(prepare(with).notes, IsEmpty());
  EXPECT_EQ(open_token_file(with.output)->info().tokens, 4) << "<bos> a b <eos>";
}

// As TinyStories is published: one text, in which the token that ends a text stands between the documents.
TEST_F(Prepare, TheEndOfATextInATextIsToldOrEndsADocument) {
  const std::string text = folder_.write("stories.txt", "Once.</s>Twice.\n</s>Thrice.");
  for (const bool special : {false, true}) {
    PrepareOptions with = options(tokenizer_file("llama3.json"));
    with.inputs = {text};
    with.special_tokens = special;
    with.replace = true;
    EXPECT_THAT(
        prepare(with).notes,
        Conditional(special, IsEmpty(), ElementsAre(testing::HasSubstr("the text has </s> 2 times, read as the letters"))));
    DataOptions training;
    training.data.train = text;
    training.data.validation_fraction = 0;
    training.data.special_tokens = special;
    training.vocabulary = VocabularyKind::Tokenizer;
    training.tokenizer_file = with.vocabulary;
    const Dataset dataset = open_dataset(training);
    EXPECT_EQ(dataset.notes.size(), special ? 0u : 1u);
    const auto file = open_token_file(with.output);
    EXPECT_EQ(dataset.train->document_ends(), file->document_ends());
    EXPECT_EQ(file->document_ends().size(), special ? 3u : 1u);
    std::vector<int32_t> ids(static_cast<size_t>(file->tokens())), of_training = ids;
    file->read(0, ids), dataset.train->read(0, of_training);
    EXPECT_EQ(ids, of_training);
    training.data.train = with.output;
    EXPECT_EQ(open_dataset(training).notes.size(), special ? 1u : 0u) << "the key has no effect on tokens";
  }
}

// What a chat ends an answer with is no end of a document; what the tokenizer's template puts after a text is a part of it.
TEST_F(Prepare, DocumentsEndWithWhatEndsTexts) {
  std::filesystem::create_directory(folder_.at("chat"));
  std::filesystem::copy_file(tokenizer_file("llama3.json"), folder_.at("chat/tokenizer.json"));
  folder_.write("chat/tokenizer_config.json", R"({"eos_token": "<s>"})");
  PrepareOptions with = options(folder_.at("chat"));
  with.inputs = {folder_.write("stories.txt", "One.</s>Two.")};
  EXPECT_THAT(prepare(with).notes, ElementsAre(testing::HasSubstr("the text has </s> once")));
  with.special_tokens = with.replace = true;
  EXPECT_EQ(prepare(with).documents, 2);
  with.vocabulary = tokenizer_file("roberta.json");
  with.inputs = {folder_.write("stories.txt", "One.</s>Two.</s>")};
  with.end_of_text = true;
  EXPECT_EQ(prepare(with).documents, 2);
  EXPECT_EQ(text_of(with.output), "<s> One.</s> Two.</s></s>") << "as the tokenizer encodes it by default";
}

TEST_F(Prepare, SpecialTokensOfAVocabularyWithoutThemHaveNoEffect) {
  PrepareOptions with = options("bytes");
  with.special_tokens = true;
  EXPECT_THAT(prepare(with).notes,
              ElementsAre("--special-tokens has no effect: the vocabulary \"bytes\" has no special tokens"));
  DataOptions training;
  training.data.train = with.inputs[0];
  training.data.special_tokens = true;
  EXPECT_THAT(open_dataset(training).notes,
              ElementsAre("data.special_tokens has no effect: the vocabulary \"bytes\" has no special tokens"));
}

TEST_F(Prepare, AChatTemplateWithoutMessagesHasNoEffect) {
  PrepareOptions with = options("bytes");
  with.chat_template = ChatTemplate::Llama2;
  DataOptions training;
  training.data.chat_template = ChatTemplate::Llama2;
  for (const auto& [line, expected] :
       {std::pair(std::string("plain text"), true),
        {R"({"prompt": "a", "completion": "b"})", true},
        {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})", false}}) {
    with.inputs = {folder_.write(line.starts_with('{') ? "c.jsonl" : "c.txt", line + "\n")};
    with.replace = true;
    training.data.train = with.inputs[0];
    training.data.validation_fraction = 0;
    const auto told = [&](const std::vector<std::string>& notes) {
      return std::ranges::any_of(notes, [&](const std::string& note) { return note.ends_with(" no messages"); });
    };
    EXPECT_EQ(told(prepare(with).notes), expected) << line;
    PrepareOptions learns = with;
    learns.train_bpe = 300;
    EXPECT_FALSE(told(prepare(learns).notes)) << "the vocabulary has the tokens of the template";
    EXPECT_EQ(told(open_dataset(training).notes), expected) << line;
  }
  // The line names the file that it is about.
  training.data.validation = folder_.write("d.txt", "text");
  EXPECT_THAT(
      open_dataset(training).notes,
      testing::Contains(training.data.validation + ": data.chat_template has no effect here, because there are no messages"));
}

// One of them marks prompts, so a stream would run conversations together.
TEST_F(Prepare, FilesOfTokensOfWhichOneHasConversationsAreNoStream) {
  PrepareOptions with = options("bytes");
  std::filesystem::create_directory(folder_.at("both"));
  for (const auto& [name, text] : {std::pair("a.txt", "plain text"), {"b.jsonl", R"({"prompt": "ab", "completion": "cd"})"}}) {
    with.inputs = {folder_.write(name, text)};
    with.output = folder_.at("both/" + std::string(1, name[0]) + ".tokens");
    prepare(with);
  }
  DataOptions training;
  training.data.train = folder_.at("both");
  const Dataset both = open_dataset(training);
  EXPECT_EQ(both.packing, Packing::Single);
  EXPECT_TRUE(both.train->marks_prompts());
  training.needs_prompts = true;
  try {
    open_dataset(training);
    FAIL() << "plain text has no prompts";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("a.tokens: marks no prompts"));
  }
  training.needs_prompts = false;
  training.data.train = folder_.at("both/a.tokens");
  EXPECT_EQ(open_dataset(training).packing, Packing::Stream);
}

TEST_F(Prepare, PutsSpecialTokensAroundEachInputIfAsked) {
  PrepareOptions with = options(tokenizer_file("llama3.json"));
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

TEST_F(Prepare, SaysWhatEndsTextsIfTheModelsConfigNamesATokenThatIsNotThere) {
  std::filesystem::copy_file(tokenizer_file("llama3.json"), folder_.at("tokenizer.json"));
  PrepareOptions with = options(folder_.at("tokenizer.json"));
  with.replace = true;
  for (const auto& [id, noted] : {std::pair("50256", true), {"1", false}, {"-1", false}}) {
    folder_.write("config.json", R"({"model_type": "gpt2", "eos_token_id": )" + std::string(id) + "}");
    const auto note = testing::EndsWith(
        "/config.json: eos_token_id: the tokenizer has no token for 50256; texts end with </s> "
        "instead");
    EXPECT_THAT(prepare(with).notes, Conditional(noted, ElementsAre(note), IsEmpty())) << id;
    DataOptions training;
    training.data.train = with.inputs[0];
    training.data.validation_fraction = 0;
    training.vocabulary = VocabularyKind::Tokenizer;
    training.tokenizer_file = folder_.path();
    EXPECT_THAT(open_dataset(training).notes, Conditional(noted, ElementsAre(note), IsEmpty())) << id;
  }
}

// The second would otherwise take the pieces of the first away, or replace its output.
TEST_F(Prepare, RefusesAnOutputThatAnotherPreparationIsMaking) {
  PrepareOptions with = options("bytes");
  with.replace = true;
  int refused = 0;
  prepare(with, [&](const PrepareStatus&) {
    EXPECT_THAT([&] { prepare(with); },
                testing::ThrowsMessage<DataError>(testing::AllOf(
                    testing::StartsWith(fmt::format("{}.parts: is in use: process {} on ", with.output, ::getpid())),
                    testing::HasSubstr(" is preparing the same output; wait until it has ended"))));
    ++refused;
  });
  EXPECT_GT(refused, 1);
  EXPECT_EQ(text_of(with.output), "hello hello\xC3\xA9 hallo\n");
  prepare(with);
  EXPECT_FALSE(std::filesystem::exists(with.output + ".parts"));
}

TEST_F(Prepare, ReportsProgressThatOnlyGrows) {
  PrepareOptions with = options("characters");
  std::vector<std::string> phases;
  double before = 0;
  prepare(with, [&](const PrepareStatus& status) {
    const auto [phase, done, bytes] = status;
    if (phases.empty() || phases.back() != phase) phases.emplace_back(phase), before = 0;
    EXPECT_GE(done, before);
    EXPECT_LE(done, 1);
    before = done;
  });
  EXPECT_EQ(phases, (std::vector<std::string>{"collecting characters", "encoding", "writing tokens"}));
}

// A text of many words, and lines of JSON with the same words.
std::string many_words() {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i * i % 97) + (i % 11 == 0 ? "\n" : " ");
  return text;
}

std::string many_lines() {
  std::string lines;
  for (int i = 0; i < 300; ++i)
    lines += R"({"prompt": "question )" + std::to_string(i) + R"(", "completion": "answer )" + std::to_string(i % 7) + "\"}\n";
  return lines;
}

TEST_F(Prepare, IsTheSameForAnyNumberOfThreadsAndSizeOfPieces) {
  PrepareOptions with = options("characters");
  with.inputs = {folder_.write("words.txt", many_words()), folder_.write("lines.jsonl", many_lines()),
                 folder_.write("short.txt", "word1")};
  with.replace = true;
  prepare(with);
  const std::string expected = folder_.read("out.tokens");
  EXPECT_EQ(open_token_file(with.output)->info().documents, 302);
  for (const size_t piece_bytes : {100, 1000, 7777})
    for (const int threads : {1, 2, 5}) {
      with.piece_bytes = piece_bytes;
      with.threads = threads;
      const PrepareResult result = prepare(with);
      EXPECT_GT(result.pieces, 3);
      EXPECT_EQ(folder_.read("out.tokens"), expected) << piece_bytes << " bytes, " << threads << " threads";
    }
  with.inputs = {folder_.write("no_words.txt", std::string(4000, 'a') + "\xC3\xA9\xC3\xA9")};
  with.piece_bytes = 1000;
  EXPECT_EQ(prepare(with).pieces, 5) << "characters need no ends of words";
  with.piece_bytes = 4001;
  EXPECT_EQ(prepare(with).pieces, 2) << "no character is cut";
  EXPECT_FALSE(std::filesystem::exists(with.output + ".parts"));
}

TEST_F(Prepare, GoesOnWhereAnInterruptedPreparationWas) {
  PrepareOptions with = options("bytes");
  const std::string lines = many_lines();
  with.inputs = {folder_.write("lines.jsonl", lines + "no JSON\n")};
  with.piece_bytes = 1000;
  with.threads = 2;
  expect_error(
      [&] { prepare(with); }, ExitCode::Usage,
      folder_.at("lines.jsonl") + ": line 301: is not JSON: column 2 has \"o JSON\" where something else was expected");
  EXPECT_FALSE(std::filesystem::exists(with.output));
  EXPECT_TRUE(std::filesystem::exists(with.output + ".parts"));
  folder_.write("lines.jsonl", lines);
  const PrepareResult resumed = prepare(with);
  EXPECT_GE(resumed.pieces_done_before, resumed.pieces - 4) << "all but the last one, and those that were under way";
  EXPECT_LT(resumed.pieces_done_before, resumed.pieces);
  EXPECT_FALSE(std::filesystem::exists(with.output + ".parts"));
  const std::string output = folder_.read("out.tokens");
  with.replace = true;
  EXPECT_EQ(prepare(with).pieces_done_before, 0);
  EXPECT_EQ(folder_.read("out.tokens"), output);
}

// Their names follow from the text and the settings, so that anybody could make them.
TEST_F(Prepare, UsesNoPartsThatOthersMayChange) {
  PrepareOptions with = options("bytes");
  with.inputs = {folder_.write("a.txt", "text")};
  const std::string parts = with.output + ".parts";
  std::filesystem::create_directory(parts);
  std::filesystem::permissions(parts, std::filesystem::perms::all);
  expect_error(
      [&] { prepare(with); }, ExitCode::Usage,
      parts +
          ": has mode 777, so that others may write to it, so what it holds may not be what was encoded; remove it, or "
          "choose another output");
  std::filesystem::permissions(parts, std::filesystem::perms::owner_all);
  prepare(with);
}

TEST_F(Prepare, UsesNoPartThatIsDamagedOrOfOtherSettings) {
  PrepareOptions with = options("bytes");
  with.inputs = {folder_.write("lines.jsonl", many_lines() + "no JSON\n")};
  with.piece_bytes = 1000;
  EXPECT_THROW(prepare(with), DataError);
  folder_.write("lines.jsonl", many_lines());
  int damaged = 0;
  for (const auto& part : std::filesystem::directory_iterator(with.output + ".parts")) {
    const std::string name = "out.tokens.parts/" + part.path().filename().string();
    std::string content = folder_.read(name);
    content[content.size() / 2] ^= 1;
    folder_.write(name, content);
    ++damaged;
  }
  EXPECT_GT(damaged, 3);
  EXPECT_EQ(prepare(with).pieces_done_before, 0);
  verify_tokens(with.output);
  with.replace = true;
  const auto pieces_done_after = [&](auto change) {
    folder_.write("lines.jsonl", many_lines() + "no JSON\n");
    EXPECT_THROW(prepare(with), DataError);
    folder_.write("lines.jsonl", many_lines());
    change();
    return prepare(with).pieces_done_before;
  };
  EXPECT_EQ(pieces_done_after([&] { with.vocabulary = "characters"; }), 0) << "the parts have another vocabulary";
  with.vocabulary = tokenizer_file("llama3.json");
  EXPECT_EQ(pieces_done_after([&] { with.special_tokens = true; }), 0) << "the parts have no special tokens";
  EXPECT_GT(pieces_done_after([] {}), 0);
}

// A text and lines of JSON in which special tokens are written.
TEST_F(Prepare, SpecialTokensAreThoseOfEachTextForAnyNumberOfThreads) {
  std::string text, lines;
  for (int i = 0; i < 300; ++i) {
    text += "a few words</s> more" + std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
    lines +=
        R"({"text": "question )" + std::to_string(i) + "<s>a\"}\n" + R"({"prompt": "why </s>", "completion": "so"})" + "\n";
  }
  for (const std::string name : {"llama3.json", "roberta.json", "llama2_converted.json"}) {
    PrepareOptions with = options(tokenizer_file(name));
    with.inputs = {folder_.write("text.txt", text), folder_.write("lines.jsonl", lines)};
    with.special_tokens = with.end_of_text = with.replace = true;
    with.threads = 1;
    prepare(with);
    const std::string expected = folder_.read("out.tokens");

    const auto tokenizer = load_tokenizer(with.vocabulary);
    const SpecialFrame frame = tokenizer->frame();
    const int32_t end = tokenizer->special_id("</s>");
    std::vector<int32_t> ids;
    std::vector<int64_t> ends;
    const auto add = [&](const std::vector<int32_t>& more) { ids.insert(ids.end(), more.begin(), more.end()); };
    const auto finish = [&] {
      add(frame.after);
      if (frame.after.empty()) ids.push_back(end);  // the frame of RoBERTa has it
      ends.push_back(static_cast<int64_t>(ids.size()));
    };
    add(frame.before);
    for (const int32_t id : tokenizer->encode_with_special(text)) {
      ids.push_back(id);
      if (id == end) ends.push_back(static_cast<int64_t>(ids.size()));
    }
    finish();
    const size_t lines_begin = ends.size();
    for (int i = 0; i < 300; ++i) {
      add(frame.before);
      add(tokenizer->encode_with_special("question " + std::to_string(i) + "<s>a"));
      finish();
      add(frame.before);
      add(tokenizer->encode_with_special("why </s>"));
      add(tokenizer->encode_with_special("so"));
      finish();
    }
    const auto file = open_token_file(with.output);
    std::vector<int32_t> written(file->tokens());
    file->read(0, written);
    EXPECT_EQ(written, ids) << name;
    EXPECT_EQ(file->document_ends(), ends) << name;
    std::vector<int32_t> targets = written;
    file->ignore(0, targets);
    const std::vector<int32_t> prompt(targets.begin() + ends[lines_begin], targets.begin() + ends[lines_begin + 1]);
    EXPECT_EQ(prompt.front(), -1) << "the beginning of the frame is ignored with the prompt";
    EXPECT_EQ(prompt.back(), end);

    for (const int threads : {2, 5}) {
      with.piece_bytes = 500;
      with.threads = threads;
      EXPECT_GT(prepare(with).pieces, 20);
      EXPECT_EQ(folder_.read("out.tokens"), expected) << name << ", " << threads << " threads";
    }
  }
}

TEST_F(Prepare, ConversationsHaveSpecialTokensOfOtherPrograms) {
  PrepareOptions with = options(tokenizer_file("llama3.json"));
  with.inputs = {folder_.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Hello</s>"}, )"
                                             R"({"role": "assistant", "content": "x"}]})")};
  with.chat_template = ChatTemplate::Llama2;
  const auto ends_in = [&](bool special_tokens) {
    with.special_tokens = special_tokens;
    with.replace = true;
    EXPECT_EQ(prepare(with).notes.size(), special_tokens ? 0u : 1u) << "that </s> is read as letters";
    const auto file = open_token_file(with.output);
    std::vector<int32_t> ids(file->tokens());
    file->read(0, ids);
    EXPECT_EQ(std::ranges::count(ids, 0), 1) << "<s> is there once, as the template says";
    return std::ranges::count(ids, 1);
  };
  EXPECT_EQ(ends_in(false), 1) << "no content ends a message";
  EXPECT_EQ(ends_in(true), 2);
}

TEST_F(Prepare, ConversationsHaveSpecialTokensOfTheirTemplate) {
  PrepareOptions with = options("bytes");
  with.inputs = {folder_.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Hello hello"}, )"
                                             R"({"role": "assistant", "content": "hello"}]})")};
  with.chat_template = ChatTemplate::ChatMl;
  const PrepareResult as_text = prepare(with);
  EXPECT_EQ(as_text.notes.size(), 2u);
  EXPECT_EQ(as_text.notes.at(0), "the vocabulary has no special token <|im_start|>, so it is written as text");
  with.train_bpe = 262;
  with.replace = true;
  const PrepareResult result = prepare(with);
  EXPECT_TRUE(result.notes.empty());
  EXPECT_EQ(result.documents, 1);
  EXPECT_EQ(text_of(with.output), "<|im_start|>user\nHello hello<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n");
  const auto file = open_token_file(with.output);
  std::vector<int32_t> ids(file->tokens());
  file->read(0, ids);
  EXPECT_EQ(ids[0], 260) << "256 bytes, 3 merges and <|endoftext|> come first";
  file->ignore(0, ids);
  EXPECT_EQ(std::erase(ids, -1), static_cast<size_t>(result.ignored_tokens));
  EXPECT_EQ(tokenizer_from_text(file->info().tokenizer_text, "out.tokens")->decode(ids), "hello<|im_end|>");
}

TEST_F(Prepare, LeavesOutFilesOfAFolderThatAreNoTexts) {
  PrepareOptions with = options("bytes");
  std::filesystem::create_directory(folder_.at("texts"));
  folder_.write("texts/b.txt", "two"), folder_.write("texts/a.txt", "one "), folder_.write("texts/c.csv", "1,2");
  with.inputs = {folder_.at("texts")};
  const PrepareResult result = prepare(with);
  EXPECT_EQ(text_of(with.output), "one two");
  EXPECT_EQ(result.documents, 2);
  EXPECT_EQ(result.notes,
            (std::vector<std::string>{folder_.at("texts") + ": reads text: 2 files, a.txt and so on (7 bytes)",
                                      folder_.at("texts") + ": leaves out texts that are called *.csv: c.csv (3 bytes)"}));
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
  expect(with,
         "--output: " + with.output + " is the same file as an input (a text), which would be overwritten; name another file");
  with = options("bytes");
  with.output = folder_.at("no/such/folder/out.tokens");
  expect(with, with.output + ": " + folder_.at("no/such/folder") + " does not exist");
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
  EXPECT_THROW(prepare(with), DataError) << "it is no text";
  with.read_as = ReadAs::Bytes;
  expect_error(
      [&] { prepare(with); }, ExitCode::Usage,
      folder_.at("bad.txt") + ": the text is not UTF-8 at byte 3 (0xff), so it has no characters; use vocabulary \"bytes\"");
  EXPECT_FALSE(std::filesystem::exists(with.output));
}

}  // namespace
}  // namespace trivet::data

// Pairs of answers, from lines of JSON and token files to rows of samples.
#include "data/pair_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "data/bpe_train.h"
#include "data/document_encoder.h"
#include "data/microbatch_loader.h"
#include "data/mixture.h"
#include "data/prepare.h"
#include "data/referenced_source.h"
#include "data/token_array.h"
#include "data/token_file.h"
#include "data/training_data.h"
#include "engine/config/config.h"
#include "tests/data/expect_error.h"
#include "tests/support/temporary_folder.h"
#include "trainer/open_data.h"

namespace trivet::data {
namespace {

using testing::ElementsAre;

InputPiece lines_of(const std::string& text) { return {.path = "a.jsonl", .text = text, .lines = true, .first_line = 1}; }

EncodedText encoded_pairs(const std::string& text, ChatTemplate chat_template = ChatTemplate::None) {
  return DocumentEncoder(bytes_tokenizer(), {.lines = LineKind::Pair, .chat_template = chat_template}).encode(lines_of(text));
}

std::string text_of(const EncodedText& text, size_t document) {
  const int64_t begin = document == 0 ? 0 : text.document_ends[document - 1];
  return {text.ids.begin() + begin, text.ids.begin() + text.document_ends[document]};
}

// The text with a dash for each byte that the loss ignores.
std::string counted_of(const EncodedText& text, size_t document) {
  std::string counted = text_of(text, document);
  const int64_t begin = document == 0 ? 0 : text.document_ends[document - 1];
  for (size_t i = 0; i < counted.size() && !text.ignored.empty(); ++i)
    if (text.ignored[static_cast<size_t>(begin) + i] != 0) counted[i] = '-';
  return counted;
}

struct PairRows {
  std::vector<int32_t> input, targets;
  bool operator==(const PairRows&) const = default;
};

PairRows rows_of(const SampleSource& source, int64_t sample) {
  const auto places = static_cast<size_t>(2 * source.spec().targets.elements());
  PairRows rows{std::vector<int32_t>(places, 99), std::vector<int32_t>(places, 99)};
  source.fill(sample, 0, std::as_writable_bytes(std::span(rows.input)), rows.targets);
  return rows;
}

std::shared_ptr<TokenArray> array_of(const std::string& lines) {
  return std::make_shared<TokenArray>(encoded_pairs(lines), 256, true);
}

const std::string kTwoPairs = R"({"prompt": "ab", "chosen": "c", "rejected": "def"}
{"prompt": "", "chosen": "xy", "rejected": "zu"})";

TEST(PairLines, AreAPromptWithEachOfItsAnswers) {
  const EncodedText text = encoded_pairs(kTwoPairs);
  ASSERT_EQ(text.document_ends.size(), 4u);
  EXPECT_EQ(text_of(text, 0), "abc");
  EXPECT_EQ(counted_of(text, 0), "--c");
  EXPECT_EQ(counted_of(text, 1), "--def");
  EXPECT_EQ(counted_of(text, 2), "xy");
  EXPECT_EQ(counted_of(text, 3), "zu");
}

TEST(PairLines, OfConversationsCountTheAnswersAfterThePrompt) {
  const std::string hi = R"({"role": "user", "content": "hi"})", yo = R"({"role": "assistant", "content": "yo"})",
                    no = R"({"role": "assistant", "content": "no"})", eh = R"({"role": "assistant", "content": "eh"})",
                    why = R"({"role": "user", "content": "why"})";
  const std::string given =
      fmt::format(R"({{"prompt": [{0}, {1}, {4}], "chosen": [{2}], "rejected": [{3}]}})", hi, yo, no, eh, why);
  const std::string common =
      fmt::format(R"({{"chosen": [{0}, {1}, {4}, {2}], "rejected": [{0}, {1}, {4}, {3}]}})", hi, yo, no, eh, why);
  const std::string as_text = R"({"prompt": "why", )" + common.substr(1);
  for (const std::string& line : {given, common, as_text}) {
    const EncodedText text = encoded_pairs(line, ChatTemplate::ChatMl);
    ASSERT_EQ(text.document_ends.size(), 2u) << line;
    EXPECT_EQ(text_of(text, 0),
              "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n<|im_start|>user\nwhy<|im_end|>\n"
              "<|im_start|>assistant\nno<|im_end|>\n");
    for (const auto& [document, answer] : {std::pair<size_t, std::string>{0, "no<|im_end|>"}, {1, "eh<|im_end|>"}}) {
      std::string counted = counted_of(text, document);
      std::erase(counted, '-');
      EXPECT_EQ(counted, answer) << "the answer in the prompt does not count";
    }
  }
}

// As TRL does it.
TEST(PairLines, OfTextsWithoutAPromptHaveWhatBothBeginWithAsTheirPrompt) {
  const std::tuple<std::string, std::string, std::string> cases[]{
      {"\\n\\nHuman: hi\\n\\nAssistant: Yes, I do", "\\n\\nHuman: hi\\n\\nAssistant: No", "\n\nHuman: hi\n\nAssistant:"},
      {"Q: Yes, I do", "Q: Yes, I can", "Q: Yes, I"},
      {"ab", "cd", ""},
      {"abc", "abcdef", "ab"},
      {"a b", "a b c", "a "},
      {"x\xC3\xA9y", "x\xC3\xA8y", "x"},
      {"x\xC3\xA9", "x\xC3\xA9y", "x"}};
  for (const auto& [chosen, rejected, prompt] : cases) {
    const EncodedText text = encoded_pairs(fmt::format(R"({{"chosen": "{}", "rejected": "{}"}})", chosen, rejected));
    ASSERT_EQ(text.document_ends.size(), 2u) << chosen;
    std::vector<std::string> told;
    if (prompt.empty()) told.emplace_back("1 pair of answers has no prompt: nothing precedes what is compared");
    EXPECT_EQ(text.facts.sentences(), told);
    for (const size_t document : {0, 1}) {
      EXPECT_EQ(text_of(text, document).substr(0, prompt.size()), prompt);
      EXPECT_EQ(counted_of(text, document), std::string(prompt.size(), '-') + text_of(text, document).substr(prompt.size()));
    }
  }
}

TEST(PairLines, WithEqualAnswersAreCountedAndRefusedIfAllAre) {
  const test::TemporaryFolder folder;
  const std::string equal = R"({"prompt": "abc", "chosen": "yes", "rejected": "yes"})",
                    good = R"({"prompt": "ab", "chosen": "c", "rejected": "def"}
{"prompt": "a", "chosen": "xy", "rejected": "zu"})",
                    late = R"({"prompt": "abc", "chosen": "same, x", "rejected": "same, y"})";
  DataOptions options;
  options.pairs = true;
  options.data.validation_fraction = 0;
  const auto said = [&](const std::string& lines, int64_t sequence_length) -> std::string {
    options.data.train = folder.write("a.jsonl", lines);
    try {
      const std::vector<std::string> notes = text_data(open_dataset(options), sequence_length, options.data)->notes();
      return notes.empty() ? "" : notes.back();
    } catch (const DataError& error) {
      return error.what();
    }
  };
  const auto prepared = [&](const std::string& lines) -> std::string {
    PrepareOptions with;
    with.inputs = {folder.write("a.jsonl", lines)}, with.output = folder.at("a.tokens"), with.pairs = with.replace = true;
    try {
      const std::vector<std::string> notes = prepare(with).notes;
      return notes.empty() ? "" : notes.back();
    } catch (const DataError& error) {
      return error.what();
    }
  };
  EXPECT_EQ(said(good, 30), "");
  EXPECT_EQ(said(good + "\n" + equal + "\n" + equal, 30),
            "training pairs: 2 of 4 pairs have equal answers, from which nothing is learned");
  EXPECT_EQ(prepared(good + "\n" + equal), "1 of 3 pairs has equal answers, from which nothing is learned");
  const std::string all = " equal answers, so there is nothing to learn: \"chosen\" and \"rejected\" must differ";
  EXPECT_EQ(said(equal + "\n" + equal, 30), "data: training pairs: all of its 2 pairs have" + all);
  EXPECT_EQ(prepared(equal), folder.at("a.jsonl") + ": its only pair has" + all);
  EXPECT_EQ(said(late, 30), "");
  EXPECT_EQ(said(late, 6), "data: training pairs: its only pair has" + all +
                               ", compared up to where model.sequence_length 6 cuts "
                               "them");
}

TEST(PairLines, EndWithTheEndOfText) {
  const auto tokenizer = train_bpe(WordCounts(), 257);
  const int32_t end = tokenizer->special_id("<|endoftext|>");
  ASSERT_GE(end, 0);
  const EncodedText text = DocumentEncoder(tokenizer, {.lines = LineKind::Pair})
                               .encode(lines_of(R"({"prompt": "", "chosen": "a", "rejected": "b"})"));
  EXPECT_THAT(text.ids, ElementsAre(tokenizer->encode("a")[0], end, tokenizer->encode("b")[0], end));
}

TEST(PairLines, SayWhatIsWrong) {
  const auto refused = [](const std::string& line, const std::string& message,
                          ChatTemplate chat_template = ChatTemplate::None) {
    expect_error([&] { encoded_pairs(kTwoPairs + "\n" + line, chat_template); }, ExitCode::Usage,
                 "a.jsonl: line 3: " + message);
  };
  const std::string user = R"([{"role": "user", "content": "a"}])";
  refused(R"({"prompt": "a", "chosen": "b"})",
          R"(has "chosen", "prompt", but no "rejected"; a pair of answers must have "prompt", "chosen" and "rejected")");
  refused(R"({"prompt": "a", "completion": "b"})",
          R"(has "completion", "prompt", but no "chosen"; a pair of answers must have "prompt", "chosen" and "rejected")");
  refused(R"({"chosen": "a", "rejected": ""})", R"("rejected" is empty; an answer must have a text)");
  refused(R"({"prompt": "a", "chosen": "", "rejected": "b"})", R"("chosen" is empty; an answer must have a text)");
  refused(R"({"prompt": "a", "chosen": "b", "rejected": ""})", R"("rejected" is empty; an answer must have a text)");
  refused(R"({"prompt": "a", "chosen": "b", "rejected": 5})", R"("rejected" is number; it must be a string)");
  refused(R"({"prompt": "a", "chosen": ["b"], "rejected": ["c"]})",
          R"("chosen" is a list of texts; write one text, or a list of objects with "role" and "content")");
  refused(
      R"({"prompt": "", "chosen": "b", "rejected": "cd"})",
      "an answer has no token that the model could be asked for: with an empty prompt, and in a vocabulary without an end of "
      "text, it needs two");
  refused(R"({"chosen": )" + user + R"(, "rejected": )" + user + "}",
          R"(has messages in "chosen", which need a chat template: "chatml", "llama-2" or "llama-3" (data.chat_template, or )"
          "--chat-template of `trivet data prepare`)");
  refused(R"({"chosen": )" + user + R"(, "rejected": )" + user + "}",
          R"("chosen" has no message in which the assistant says something after what both answers begin with)",
          ChatTemplate::ChatMl);
  refused(R"({"prompt": "b", "chosen": )" + user + R"(, "rejected": )" + user + "}",
          R"("prompt" is a text, but not the last message that "chosen" and "rejected" have in common; make it a list of )"
          R"(messages, such as [{"role": "user", "content": ...}])",
          ChatTemplate::ChatMl);
  expect_error(
      [] { DocumentEncoder(bytes_tokenizer(), {.lines = LineKind::Pair}).encode({.path = "a.txt", .text = "a"}); },
      ExitCode::Usage,
      R"(a.txt: is a text, which has no pairs of answers; use lines of JSON (.jsonl) with "prompt", "chosen" and "rejected")");
}

TEST(PairSource, GivesTwoRowsForEachSample) {
  const PairSource source(array_of(kTwoPairs), 4);
  ASSERT_EQ(source.samples(), 2);
  EXPECT_EQ(source.spec().inputs_of(3), (Shape{6, 4}));
  EXPECT_EQ(rows_of(source, 0), (PairRows{{'a', 'b', 0, 0, 'a', 'b', 'd', 'e'}, {-1, 'c', -1, -1, -1, 'd', 'e', 'f'}}));
  EXPECT_EQ(rows_of(source, 1), (PairRows{{'x', 0, 0, 0, 'z', 0, 0, 0}, {'y', -1, -1, -1, 'u', -1, -1, -1}}));
  EXPECT_EQ(source.cut_answers(), 0);
  EXPECT_DOUBLE_EQ(source.padding(), 1 - 8.0 / 16);
}

TEST(PairSource, CutsTheEndsOfLongAnswers) {
  const PairSource source(array_of(kTwoPairs), 3);
  EXPECT_EQ(rows_of(source, 0), (PairRows{{'a', 'b', 0, 'a', 'b', 'd'}, {-1, 'c', -1, -1, 'd', 'e'}}));
  EXPECT_EQ(source.cut_answers(), 1);
}

TEST(PairSource, RefusesPromptsThatLeaveNoPlaceForTheAnswer) {
  const std::string lines = R"({"prompt": "a", "chosen": "c", "rejected": "d"})"
                            "\n"
                            R"({"prompt": "abcd", "chosen": "e", "rejected": "f"})";
  EXPECT_NO_THROW(PairSource(array_of(lines), 4));
  expect_error(
      [&] { PairSource(array_of(lines), 3); }, ExitCode::Usage,
      "data: pair 2: the prompt of the preferred answer fills the 4 tokens that a row reads with model.sequence_length 3, "
      "so that nothing of the answer is left; shorten the prompt, leave the pair out, or use a longer sequence");
}

TEST(PairSource, LoadsRowsAndReferencesIntoMicrobatches) {
  const auto table = std::make_shared<ReferenceTable>(ReferenceTable{-1, -2, -3, -4});
  const auto source = std::make_shared<ReferencedSource>(std::make_shared<PairSource>(array_of(kTwoPairs), 4), table);
  const EvaluationLoader loader(source, 3);
  HostMicrobatch batch;
  loader.fill(0, batch);
  EXPECT_EQ(batch.view.input.shape, (Shape{6, 4}));
  EXPECT_EQ(batch.reference, (std::vector<double>{-1, -2, -3, -4, 0, 0}));
  EXPECT_EQ(batch.view.reference.shape, Shape{6});
  EXPECT_EQ(std::vector<int32_t>(batch.targets.end() - 8, batch.targets.end()), std::vector<int32_t>(8, -1));
  EXPECT_NO_THROW(check(batch.view, source->spec(), 3));
  const MicrobatchLoader steps(source, SampleOrder(2, 1, false), {.micro_batch = 1, .accumulation = 2, .data_size = 1});
  steps.fill(0, 1, batch);
  EXPECT_EQ(batch.view.first_sample, 2) << "rows are numbered, not pairs";
  EXPECT_EQ(batch.reference, (std::vector<double>{-3, -4}));
}

// Documents are those of all rows of a sample, one after another.
std::vector<int32_t> documents_of(const SampleSource& source, int64_t sample) {
  std::vector<int32_t> documents(static_cast<size_t>(2 * source.spec().targets.elements()), 99);
  source.fill_documents(sample, documents);
  return documents;
}

// Inputs of the pairs: 2 and 4, 1 and 1, 3 and 1, 2 and 1. The second still fits into the first sample, the fourth into the
// second.
const std::string kFourPairs = kTwoPairs + R"(
{"prompt": "k", "chosen": "lmn", "rejected": "l"}
{"prompt": "p", "chosen": "qr", "rejected": "s"})";

TEST(PairSource, IsolatedPairsGoIntoTheFirstSampleThatHasRoom) {
  const PairSource source(array_of(kFourPairs), 5, Packing::Isolated);
  ASSERT_EQ(source.samples(), 2);
  EXPECT_EQ(source.pairs(), 4);
  EXPECT_TRUE(source.spec().documents && source.spec().pairs);
  EXPECT_EQ(rows_of(source, 0),
            (PairRows{{'a', 'b', 'x', 0, 0, 'a', 'b', 'd', 'e', 'z'}, {-1, 'c', 'y', -1, -1, -1, 'd', 'e', 'f', 'u'}}));
  EXPECT_EQ(rows_of(source, 1),
            (PairRows{{'k', 'l', 'm', 'p', 'q', 'k', 'p', 0, 0, 0}, {'l', 'm', 'n', 'q', 'r', 'l', 's', -1, -1, -1}}));
  EXPECT_THAT(documents_of(source, 0), ElementsAre(0, 0, 2, 5, 5, 0, 0, 0, 0, 4));
  EXPECT_THAT(documents_of(source, 1), ElementsAre(0, 0, 0, 3, 3, 0, 1, 5, 5, 5));
  std::vector<int64_t> answers(10);
  source.fill_answers(0, answers);
  EXPECT_THAT(answers, ElementsAre(0, -1, 2, -1, -1, 1, -1, -1, -1, 3));
  EXPECT_DOUBLE_EQ(source.padding(), 5.0 / 20);
  EXPECT_TRUE(source.digest().ends_with(" pairs packing isolated")) << source.digest();
}

TEST(PairSource, AnAnswerWithoutAnInputIsNoDocument) {
  EncodedText text;
  text.ids = {1, 2, 3, 4, 5, 6, 7};
  text.document_ends = {2, 4, 5, 7};
  expect_error([&] { PairSource(std::make_shared<TokenArray>(text, 256, true), 4, Packing::Isolated); }, ExitCode::Usage,
               "data: pair 2: an answer has 1 token with its prompt, and a document of data.packing \"isolated\" needs two; "
               "prepare the pairs again with `trivet data prepare --pairs`");
}

// The batch has both sources of a mixture and ends with padding. It says about each answer what it says without packing.
TEST(PairSource, IsolatedPairsAreInMicrobatchesAsTheyAreAlone) {
  constexpr int64_t kLength = 9;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += fmt::format("{{\"prompt\": \"{}\", \"chosen\": \"{}\", \"rejected\": \"{}\"}}\n", std::string(1 + i % 3, 'p'),
                         std::string(1 + i * 7 % 6, static_cast<char>('a' + i % 26)),
                         std::string(1 + i * 5 % 9, static_cast<char>('A' + i % 26)));
  const auto mixture = [&](Packing packing) {
    std::vector<std::shared_ptr<const SampleSource>> sources;
    for (const std::string& part : {kTwoPairs, lines})
      sources.push_back(std::make_shared<PairSource>(array_of(part), kLength, packing));
    const auto joined = std::make_shared<JoinedSource>(sources);
    ReferenceTable table;
    for (int64_t answer = 0; answer < 2 * joined->pairs(); ++answer) table.push_back(-1.0 - static_cast<double>(answer));
    return std::make_shared<ReferencedSource>(joined, std::make_shared<ReferenceTable>(table));
  };
  const auto packed = mixture(Packing::Isolated), alone = mixture(Packing::Stream);
  ASSERT_EQ(packed->pairs(), 42);
  EXPECT_LT(packed->samples(), 35);
  HostMicrobatch batch, expected;
  EvaluationLoader(packed, packed->samples() + 1).fill(0, batch);
  EvaluationLoader(alone, alone->samples()).fill(0, expected);
  EXPECT_NO_THROW(check(batch.view, packed->spec(), packed->samples() + 1));
  const auto* const tokens = reinterpret_cast<const int32_t*>(batch.input.data());
  const auto* const expected_tokens = reinterpret_cast<const int32_t*>(expected.input.data());
  std::multiset<int64_t> found;
  for (size_t at = 0; at < batch.targets.size(); ++at) {
    const auto first = static_cast<size_t>(batch.documents[at]);
    if (first == kLength) {
      EXPECT_EQ(std::tuple(tokens[at], batch.targets[at], batch.reference[at]), std::tuple(0, -1, 0.0));
      continue;
    }
    const size_t begin = at / kLength * kLength + first;
    const auto answer = static_cast<int64_t>(-1 - batch.reference[begin]);
    const size_t of_answer = static_cast<size_t>(answer * kLength + batch.positions[at]);
    EXPECT_EQ(at / kLength % 2, static_cast<size_t>(answer % 2));
    EXPECT_EQ(std::tuple(tokens[at], batch.targets[at]), std::tuple(expected_tokens[of_answer], expected.targets[of_answer]));
    if (at == begin) found.insert(answer);
  }
  EXPECT_EQ(found.size(), 84u);
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), 84u) << "an answer is there twice";
}

class PairFiles : public testing::Test {
 protected:
  Config config(const std::string& train) const {
    Config config;
    config.model.objective = model::Objective::Dpo;
    config.model.sequence_length = 4;
    config.data.train = folder_.at(train);
    config.data.validation_fraction = 0;
    return config;
  }
  void prepare_pairs(bool pairs = true) const {
    PrepareOptions options;
    options.inputs = {folder_.write("a.jsonl", kTwoPairs)};
    options.output = folder_.at("a.tokens");
    options.pairs = pairs;
    options.replace = true;
    prepare(options);
  }
  test::TemporaryFolder folder_;
};

TEST_F(PairFiles, ArePreparedAndGiveTheSameSamples) {
  prepare_pairs();
  verify_tokens(folder_.at("a.tokens"));
  EXPECT_TRUE(open_token_file(folder_.at("a.tokens"))->info().pairs);
  const auto prepared = trainer::open_text_data(config("a.tokens")), lines = trainer::open_text_data(config("a.jsonl"));
  for (int64_t pair = 0; pair < 2; ++pair) EXPECT_EQ(rows_of(*prepared->train(), pair), rows_of(*lines->train(), pair));
  for (const auto* data : {prepared.get(), lines.get()}) EXPECT_TRUE(data->train_digest().ends_with(" pairs"));
  EXPECT_EQ(lines->sizes(), "2 training pairs of answers, with 50.0 % padding, 0 validation pairs");
  Config packed = config("a.jsonl");
  packed.data.packing = Packing::Isolated;
  packed.model.sequence_length = 5;
  EXPECT_EQ(trainer::open_text_data(packed)->sizes(),
            "2 training pairs of answers, in 1 sample with 20.0 % padding, 0 validation pairs");
}

TEST_F(PairFiles, AreDividedBetweenPairs) {
  std::string lines;
  for (const char* pair : {"ab", "cd", "ef", "gh"})
    lines += fmt::format("{{\"prompt\": \"x\", \"chosen\": \"{0}\", \"rejected\": \"{0}{0}\"}}\n", pair);
  folder_.write("four.jsonl", lines);
  Config with = config("four.jsonl");
  for (const double fraction : {0.05, 0.3, 0.45}) {
    with.data.validation_fraction = fraction;
    const auto data = trainer::open_text_data(with);
    EXPECT_EQ(data->train()->samples() + data->validation()->samples(), 4) << fraction;
    EXPECT_EQ(rows_of(*data->train(), 0).targets[0], 'a');
  }
}

TEST_F(PairFiles, AreReadForDpoAndOnlyForIt) {
  prepare_pairs();
  const std::string tokens = folder_.at("a.tokens");
  Config with = config("a.tokens");
  with.model.objective = model::Objective::NextToken;
  expect_error([&] { trainer::open_text_data(with); }, ExitCode::Usage,
               tokens + R"(: holds pairs of answers; set training.objective to "dpo", or prepare texts without --pairs)");
  with = config("b.txt");
  folder_.write("b.txt", "some text");
  expect_error(
      [&] { trainer::open_text_data(with); }, ExitCode::Usage,
      folder_.at("b.txt") +
          R"(: is a text, which has no pairs of answers; use lines of JSON (.jsonl) with "prompt", "chosen" and "rejected")");
}

// What is wrong with the data may be how much of it is held out.
TEST_F(PairFiles, WhatIsHeldOutIsNamedWhereTheRestIsTooLittle) {
  folder_.write("short.txt", "0123456789");
  Config with = config("short.txt");
  with.model.objective = model::Objective::NextToken;
  with.model.sequence_length = 4;
  with.data.validation_fraction = 0.7;
  expect_error([&] { trainer::open_text_data(with)->train(); }, ExitCode::Usage,
               "data: 3 tokens are too few for one sample of sequence_length 4, which needs 5; give more text or make "
               "model.sequence_length at most 2. 7 more tokens are held out for validation (data.validation_fraction)");
  // Where fewer tokens are held out than are left, their number decides: after the advice there is no second refusal.
  with.model.sequence_length = 8;
  with.data.validation_fraction = 0.4;
  expect_error(
      [&] { trainer::open_text_data(with)->train(); }, ExitCode::Usage,
      "data: 6 tokens are too few for one sample of sequence_length 8, which needs 9; give more text or make "
      "model.sequence_length at most 5. 4 more tokens are held out for validation (data.validation_fraction); these need "
      "a model.sequence_length of at most 3");
  with.model.sequence_length = 3;
  EXPECT_EQ(trainer::open_text_data(with)->train()->samples(), 1);
  EXPECT_EQ(trainer::open_text_data(with)->validation()->samples(), 1);
  with.data.validation_fraction = 0;
  with.model.sequence_length = 4;
  EXPECT_EQ(trainer::open_text_data(with)->train()->samples(), 2);
}

TEST_F(PairFiles, FineTuningNeedsPrompts) {
  folder_.write("sft.jsonl", R"({"prompt": "abc", "completion": "defgh"})");
  folder_.write("text.jsonl", R"({"text": "abcdefgh"})");
  Config with = config("sft.jsonl");
  with.model.objective = model::Objective::Sft;
  EXPECT_EQ(trainer::open_text_data(with)->train()->samples(), 2) << "one document, cut";
  with.data.train = folder_.at("text.jsonl");
  expect_error([&] { trainer::open_text_data(with); }, ExitCode::Usage,
               folder_.at("text.jsonl") +
                   R"(: marks no prompts, which training.objective "sft" needs; use lines of JSON (.jsonl) with "prompt" and )"
                   R"("completion", or with "messages", or the objective "next_token", which counts all tokens of a text)");
}

}  // namespace
}  // namespace trivet::data

// Runs `trivet data` as a user does. Token files and tokenizers themselves are tested in tests/data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DataCommand : public testing::Test {
 protected:
  DataCommand() {
    folder.write("a.txt", "0123456789");
    folder.write("b.txt", "abcdefghij");
    prepared = folder.run("data prepare a.txt b.txt --output all.tokens");
  }
  json shown(const std::string& arguments) const {
    const Output output = folder.run("data show all.tokens --json " + arguments);
    EXPECT_EQ(output.code, 0) << arguments << ": " << output.errors;
    return json::parse(output.text);
  }

  Folder folder;
  Output prepared;
};

TEST_F(DataCommand, AVocabularyMayBeASizeOfBpe) {
  const Output learned = folder.run("data prepare a.txt b.txt --output bpe.tokens --vocabulary bpe:260");
  EXPECT_EQ(learned.code, 0) << learned.errors;
  EXPECT_THAT(learned.text, HasSubstr("a BPE vocabulary of 260 tokens, learned from them"));
  for (const char* size : {"bpe:", "bpe:256", "bpe:1e3", "bpe:99999999999"}) {
    const Output refused = folder.run(std::string("data prepare a.txt --output no.tokens --vocabulary ") + size);
    EXPECT_EQ(refused.code, 2) << size;
    EXPECT_THAT(refused.errors, HasSubstr("bpe: needs a size from 257 to 16777216, such as bpe:1024")) << size;
  }
}

TEST_F(DataCommand, PrepareSaysWhatItWroteAndHowToUseIt) {
  EXPECT_EQ(prepared.code, 0) << prepared.errors;
  EXPECT_THAT(prepared.text, HasSubstr("2 inputs -> all.tokens with vocabulary \"bytes\"\n"));
  EXPECT_THAT(prepared.text, HasSubstr("20 bytes of text, 20 tokens (1.00 bytes a token), vocabulary 256, file "));
  EXPECT_THAT(prepared.text,
              HasSubstr("next: \"data\": {\"train\": \"all.tokens\"}, \"model\": {\"vocabulary\": \"bytes\", ...}\n"));
}

TEST_F(DataCommand, PrepareReadsConversationsAndSaysWhatTheLossIgnores) {
  folder.write("chat.jsonl", R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]})");
  const Output refused = folder.run("data prepare chat.jsonl --output chat.tokens");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("chat.jsonl: line 1: has \"messages\", which need a chat template"));
  const Output output = folder.run("data prepare chat.jsonl --output chat.tokens --chat-template llama-2 --threads 2");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("1 document, 20 tokens that the loss ignores; "));
  EXPECT_THAT(output.text, HasSubstr(" MB/s\n"));
  EXPECT_THAT(output.text, HasSubstr("note: the vocabulary has no special token <s>, so it is written as text\n"));
  EXPECT_EQ(folder.run("data prepare a.txt --output b.tokens --chat-template jinja").code, 2);
  const json shown = json::parse(folder.run("data show chat.tokens --json").text);
  EXPECT_EQ(shown["text"], "<s>[INST] Hi [/INST] Yes </s>");
  EXPECT_EQ(shown["ignores_some"], true);
}

TEST_F(DataCommand, PreparesPairsOfAnswersAndSaysHowToUseThem) {
  folder.write("pairs.jsonl", "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"de\"}\n");
  const Output output = folder.run("data prepare pairs.jsonl --pairs --output pairs.tokens");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("\n1 pair of answers, 4 tokens that the loss ignores; "));
  EXPECT_THAT(output.text, HasSubstr("\"vocabulary\": \"bytes\", ...}, \"training\": {\"objective\": \"dpo\", ...}\n"));
  EXPECT_THAT(folder.run("data show pairs.tokens").text, HasSubstr("\npairs       1\n"));
  EXPECT_EQ(json::parse(folder.run("data show pairs.tokens --json").text)["pairs"], true);
  folder.write("more.jsonl", "{\"prompt\": \"ab\", \"completion\": \"c\"}\n");
  const Output refused = folder.run("data prepare pairs.jsonl more.jsonl --pairs --output more.tokens");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("more.jsonl: line 1: has \"completion\", \"prompt\", but no \"chosen\""));
}

TEST_F(DataCommand, ShowPrintsTheTokensThatAreAskedFor) {
  EXPECT_EQ(shown("")["text"], "0123456789abcdefghij");
  EXPECT_EQ(shown("--first 8 --count 4")["text"], "89ab");
  EXPECT_EQ(shown("--first 18 --count 4")["text"], "ij") << "up to the end";
  EXPECT_EQ(shown("--first 100")["text"], "") << "beyond the end";
  EXPECT_EQ(shown("--count 0")["ids"], json::array());
  EXPECT_THAT(folder.run("data show all.tokens --first 19 --verify").text,
              HasSubstr("verified    every token read; no errors found\nfrom 19     \"j\"\n"));
}

}  // namespace
}  // namespace trivet::test

// Runs `trivet generate` as a user does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class Generate : public testing::Test {
 protected:
  Generate() {
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i % 97) + " of a text ";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": "text.txt"}, "training": {"steps": 1}, "train_batch_size": 4,
      "checkpoint": {"directory": "checkpoints"}
    })");
  }
  void train(const std::string& arguments = "") const {
    const Output output = folder.run("train config.json " + arguments);
    ASSERT_EQ(output.code, 0) << output.errors;
  }
  std::string generated(const std::string& arguments) const {
    const Output output = folder.run("generate checkpoints " + arguments);
    EXPECT_EQ(output.code, 0) << arguments << ": " << output.errors;
    return output.text;
  }

  Folder folder;
};

// A random draw belongs to a position in the text, not to a run of the program.
TEST_F(Generate, GoesOnAsIfItHadNotStopped) {
  train();
  const std::string text = generated("--prompt line --tokens 30");
  EXPECT_THAT(text, StartsWith("line"));
  EXPECT_EQ(generated("--prompt '" + text.substr(0, 14) + "' --tokens 20"), text);
  EXPECT_NE(generated("--prompt line --tokens 30 --seed 1"), text);
}

// The first line of a manifest is the checksum of all the others.
std::string with_checksum(const std::string& manifest) {
  const std::string rest = manifest.substr(manifest.find('\n') + 1);
  return fmt::format("{{\"manifest_xxh3\": \"{:016x}\",\n", XXH3_64bits(rest.data(), rest.size())) + rest;
}

// The manifest's checksum is right, but its tokenizer is invalid or a different one.
TEST_F(Generate, AnotherTokenizerInTheCheckpointIsNoticed) {
  train();
  const std::string manifest = "checkpoints/step-00000001/manifest.json", good = folder.read(manifest);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    folder.write(manifest, with_checksum(text));
  };
  with("trivet_tokenizer", "trivet_tokenixer");
  const std::string where = "checkpoints/step-00000001/manifest.json: state: tokenizer";
  for (const std::string command : {"generate checkpoints", "checkpoint verify checkpoints", "train config.json --resume"}) {
    const Output output = folder.run(command);
    EXPECT_EQ(output.code, 15) << command;
    EXPECT_THAT(output.text + output.errors, HasSubstr(where)) << command;
  }
  with("9aefilnotx", "9aefilnotz");
  EXPECT_EQ(folder.run("checkpoint verify checkpoints").code, 0);
  const Output output = folder.run("train config.json --resume --set training.steps=2");
  EXPECT_EQ(output.code, 18);
  EXPECT_THAT(output.errors,
              HasSubstr("text.txt: its tokenizer is not the one that checkpoints/step-00000001 was trained with"));
}

TEST_F(Generate, DrawsNothingThatTheTokenizerDoesNotKnow) {
  ASSERT_EQ(folder.run("data prepare text.txt --vocabulary characters --output text.tokens").code, 0);
  train("--set data.train=text.tokens --set model.vocabulary=500");
  EXPECT_EQ(generated("--prompt line --tokens 60 --top-k 0").size(), 4 + 60 + 1);
}

// A model that has learnt two questions and their answers by heart, in either order.
class Chat : public testing::Test {
 protected:
  void train() const {
    const auto turn = [](const char* question, const char* answer) {
      return fmt::format(R"({{"role": "user", "content": "{}"}}, {{"role": "assistant", "content": "{}"}})", question, answer);
    };
    const std::string a = turn("a", "xx"), b = turn("b", "yyy");
    folder.write("chats.jsonl", fmt::format("{{\"messages\": [{}, {}]}}\n{{\"messages\": [{}, {}]}}\n", a, b, b, a));
    Output output = folder.run("data prepare chats.jsonl --chat-template chatml --train-bpe 270 --output chats.tokens");
    ASSERT_EQ(output.code, 0) << output.errors;
    folder.write("config.json", R"({
      "model": {"layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 64, "vocabulary": "chats.tokens"},
      "data": {"train": "chats.tokens", "packing": "single", "validation_fraction": 0}, "training": {"steps": 120},
      "train_batch_size": 2, "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
      "checkpoint": {"directory": "checkpoints"}
    })");
    output = folder.run("train config.json");
    ASSERT_EQ(output.code, 0) << output.errors;
  }
  // The program's standard input is the file "questions".
  Output chat(const std::string& arguments) const {
    return folder.run_in("sh -c '\"$@\" < questions' chat", "generate checkpoints --chat " + arguments);
  }

  Folder folder;
};

TEST_F(Chat, AnswersEachLineUntilTheTurnEnds) {
  train();
  folder.write("questions", "a\n\nb\r\n");
  const std::string greedy = "--chat-template chatml --temperature 0 ";
  const Output both = chat(greedy);
  EXPECT_EQ(both.code, 0) << both.errors;
  EXPECT_EQ(both.text, "xx\nyyy\n");
  EXPECT_EQ(chat(greedy + "--prompt b").text, "yyy\n") << "reads no further question";
  EXPECT_EQ(chat(greedy + "--tokens 1").text, "x\nyy\n") << "yy is one token";
  folder.write("questions", "");
  EXPECT_EQ(chat(greedy).text, "");
}

// With and without --chat, if the checkpoint says which template its conversations had.
TEST_F(Chat, ATextEndsWhereAnAnswerDoes) {
  train();
  const Output output = folder.run(
      "train config.json --set data.train=chats.jsonl --set data.chat_template=chatml --set checkpoint.directory=templated");
  ASSERT_EQ(output.code, 0) << output.errors;
  const std::string turn = "<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(folder.run("generate templated --temperature 0 --tokens 40 --prompt '" + turn + "'").text, turn + "yyy\n");
}

// The model reads what generate reads of the same conversation written out, and a draw belongs to a position.
TEST_F(Chat, ReadsTheConversationInItsTemplate) {
  train();
  const std::string random = " --tokens 2 --temperature 9 --top-k 0 --seed 3";
  const std::string turn = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n";
  const std::string system = "<|im_start|>system\nbe\n<|im_end|>\n";
  EXPECT_EQ(turn + folder.run("generate checkpoints --chat --chat-template chatml --prompt a" + random).text,
            folder.run("generate checkpoints --prompt '" + turn + "'" + random).text);
  EXPECT_EQ(
      system + turn + folder.run("generate checkpoints --chat --chat-template chatml --prompt a --system 'be\n'" + random).text,
      folder.run("generate checkpoints --prompt '" + system + turn + "'" + random).text);
}

TEST_F(Chat, RefusesWhatHasNoConversations) {
  train();
  const auto refused = [&](const std::string& arguments, const std::string& message) {
    const Output output = folder.run("generate checkpoints " + arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_THAT(output.errors, HasSubstr(message));
  };
  refused("--chat --prompt a",
          "checkpoints: the template of its conversations is not known (the config of its run has no data.chat_template); name "
          "with --chat-template the one");
  refused("--chat --chat-template llama-3 --prompt a",
          "checkpoints: its vocabulary has no token <|eot_id|>, with which an answer of the template \"llama-3\" ends; train "
          "with a vocabulary that has it: trivet data prepare --chat-template llama-3 --train-bpe N");
  refused("--system x", "--chat-template and --system are for conversations; add --chat");
}

}  // namespace
}  // namespace trivet::test

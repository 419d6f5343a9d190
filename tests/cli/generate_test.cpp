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

}  // namespace
}  // namespace trivet::test

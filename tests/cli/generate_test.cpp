// `trivet generate` as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

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

// A draw belongs to a place of the text, not to a run of the program.
TEST_F(Generate, GoesOnAsIfItHadNotStopped) {
  train();
  const std::string text = generated("--prompt line --tokens 30");
  EXPECT_THAT(text, StartsWith("line"));
  EXPECT_EQ(generated("--prompt '" + text.substr(0, 14) + "' --tokens 20"), text);
  EXPECT_NE(generated("--prompt line --tokens 30 --seed 1"), text);
}

TEST_F(Generate, DrawsNothingThatTheTokenizerDoesNotKnow) {
  ASSERT_EQ(folder.run("data prepare text.txt --vocabulary characters --output text.tokens").code, 0);
  train("--set data.train=text.tokens --set model.vocabulary=500");
  EXPECT_EQ(generated("--prompt line --tokens 60 --top-k 0").size(), 4 + 60 + 1);
}

}  // namespace
}  // namespace trivet::test

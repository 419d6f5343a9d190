// `device` on a machine without CUDA: the module does not exist, so what needs it says so and nothing else is affected.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::HasSubstr;
using testing::Not;

class NoModule : public testing::Test {
 protected:
  NoModule() {
    setenv("TRIVET_CUDA_MODULE", "/nowhere/libtrivet_cuda.so", 1);
    std::string text;
    for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i % 97) + "\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 8, "vocabulary": "bytes"},
      "data": {"train": "text.txt"}, "training": {"steps": 2}, "train_batch_size": 4,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.01}}
    })");
  }
  ~NoModule() override { unsetenv("TRIVET_CUDA_MODULE"); }

  Folder folder;
};

TEST_F(NoModule, CudaIsRefusedWithThePlacesThatWereTried) {
  const Output output = folder.run("train config.json --set device=cuda");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(
      output.errors,
      HasSubstr("cuda: the module libtrivet_cuda.so was not found; install the package trivet-cuda, or build with "
                "-DTRIVET_CUDA=ON on a machine with nvcc, or set device to \"cpu\" (/nowhere/libtrivet_cuda.so: cannot open"));
}

TEST_F(NoModule, AutoTakesTheCpuAndSaysWhy) {
  const Output output = folder.run("train config.json --ranks 2 --set device=auto");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("auto: cpu (cuda: the module libtrivet_cuda.so was not found"));
}

TEST_F(NoModule, GenerateComputesWhereItIsTold) {
  ASSERT_EQ(folder.run("train config.json --set checkpoint.directory=steps").code, 0);
  const Output cpu = folder.run("generate steps --tokens 5"), automatic = folder.run("generate steps --tokens 5 --device auto");
  EXPECT_EQ(automatic.text, cpu.text);
  EXPECT_THAT(automatic.errors, HasSubstr("device: auto selected cpu (cuda: the module libtrivet_cuda.so was not found"));
  EXPECT_EQ(cpu.errors, "");
  const Output cuda = folder.run("generate steps --tokens 5 --device cuda");
  EXPECT_EQ(cuda.code, 2);
  EXPECT_THAT(cuda.errors, HasSubstr("libtrivet_cuda.so was not found"));
}

TEST_F(NoModule, TheCpuSaysNothingOfIt) {
  const Output output = folder.run("train config.json");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text + output.errors, Not(HasSubstr("cuda")));
}

TEST_F(NoModule, APlanForGpusNeedsNone) {
  const Output output = folder.run("plan config.json --world-size 4 --set device=cuda");
  EXPECT_EQ(output.code, 0) << output.errors;
}

TEST_F(NoModule, AFileThatIsNoModuleIsNamed) {
  folder.write("broken.so", "not a library");
  setenv("TRIVET_CUDA_MODULE", folder.at("broken.so").c_str(), 1);
  const Output output = folder.run("train config.json --set device=cuda");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, HasSubstr("broken.so"));
}

}  // namespace
}  // namespace trivet::test

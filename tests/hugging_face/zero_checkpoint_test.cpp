// Tests checkpoints of DeepSpeed: tests/golden/zero has some that DeepSpeed wrote, and what its own converters make of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "interchange/foreign/zero_checkpoint.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "tests/model/read_safetensors.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kZero = TRIVET_SOURCE_DIR "/tests/golden/zero/";

class ZeroGolden : public testing::TestWithParam<const char*> {};

TEST_P(ZeroGolden, WeightsAreThoseThatDeepSpeedPutsTogether) {
  const std::string folder = kZero + GetParam();
  const foreign::ModelSource source = foreign::open_zero_checkpoint(real_file_system(), folder, "");
  const auto expected = model::read_safetensors(folder + "/expected.safetensors");
  ASSERT_EQ(expected.size(), 12U);
  for (const auto& [name, tensor] : expected) {
    ASSERT_NE(source.tensors->find(name), nullptr) << name;
    ASSERT_EQ(source.tensors->find(name)->shape, tensor.shape) << name;
    const int64_t elements = tensor.shape.elements();
    // Whole, and from the third element on: parts of ranks end anywhere.
    for (const int64_t first : {int64_t{0}, int64_t{3}}) {
      std::vector<float> values(static_cast<size_t>(elements - first));
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece(name, tensor.shape, first, {values.data(), DType::Float32, {elements - first}});
      source.tensors->read({&piece, 1});
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_EQ(values[i], tensor.values[static_cast<size_t>(first) + i]) << name << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ZeroGolden, testing::Values("stage1-bf16", "stage2-fp16", "stage3-bf16", "universal"),
                         [](const auto& folder) {
                           std::string name = folder.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(ZeroCheckpoint, IsAModelLikeOthers) {
  const PretrainedModel model(real_file_system(), kZero + "stage3-bf16");
  EXPECT_EQ(model.kind(), "llama, DeepSpeed's ZeRO-3 of 3 ranks");
  EXPECT_EQ(model.folder(), kZero + "stage3-bf16");
  EXPECT_EQ(PretrainedModel(real_file_system(), kZero + "universal").kind(), "llama, DeepSpeed's universal checkpoint");
  // The directory of the step, whose config.json is in the one above.
  EXPECT_EQ(PretrainedModel(real_file_system(), kZero + "stage1-bf16/global_step2").kind(),
            "llama, DeepSpeed's ZeRO-1 of 2 ranks");
}

// A golden checkpoint in memory, some of whose files are changed.
class DamagedZeroCheckpoint : public testing::Test {
 protected:
  void copy(const std::string& name) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(kZero + name)) {
      const std::string to = "/ds" + entry.path().string().substr(kZero.size() + name.size());
      if (!entry.is_regular_file()) continue;
      create_directories(files_, to.substr(0, to.rfind('/')));
      write_text(files_, to, read_text(real_file_system(), entry.path().string(), 1 << 20));
    }
  }
  void expect_refused(const std::string& message, const std::string& config = "") {
    EXPECT_THAT([&] { PretrainedModel(open_model(files_, "/ds", "deepspeed", config)); },
                ThrowsMessage<CheckpointError>(HasSubstr(message)));
  }

  support::MemoryFileSystem files_;
  const std::string step_ = "/ds/global_step2/";
};

TEST_F(DamagedZeroCheckpoint, WithoutAConfigNeedsOne) {
  copy("stage1-bf16");
  const std::string config = read_text(files_, "/ds/config.json", 1 << 20);
  files_.remove("/ds/config.json");
  expect_refused(
      "a checkpoint of DeepSpeed does not say of which model it is, and the section \"model\" of a config does not say what "
      "its "
      "tensors are called: copy the config.json of the model, as transformers writes it, into this directory; or name it: "
      "trivet checkpoint import deepspeed /ds --config FILE --output CHECKPOINTS, and begin with --init-from CHECKPOINTS");
  write_text(files_, "/config.json", config);
  const PretrainedModel model(open_model(files_, "/ds", "deepspeed", "/config.json"));
  EXPECT_EQ(model.description().layers, 1);
}

TEST_F(DamagedZeroCheckpoint, ThatLacksAFileIsRefused) {
  copy("stage1-bf16");
  files_.remove(step_ + "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  expect_refused("the optim_states.pt file of rank 0 is absent");
  copy("stage1-bf16");
  files_.remove(step_ + "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt");
  expect_refused("is of 2 ranks, but there are 1 such files");
  files_.remove(step_ + "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt");
  expect_refused("were the weights saved without ZeRO?");
  copy("stage1-bf16");
  files_.remove(step_ + "mp_rank_00_model_states.pt");
  expect_refused("is the checkpoint complete?");
}

TEST_F(DamagedZeroCheckpoint, OfOtherAxesIsRefused) {
  copy("stage1-bf16");
  write_text(files_, step_ + "mp_rank_01_model_states.pt", "");
  expect_refused("is of a second tensor-parallel rank");
  files_.remove(step_ + "mp_rank_01_model_states.pt");
  write_text(files_, step_ + "layer_00-model_00-model_states.pt", "");
  expect_refused("is of a pipeline or of experts");
}

TEST_F(DamagedZeroCheckpoint, WhoseFilesAreOfDifferentRunsIsRefused) {
  copy("stage2-fp16");
  const std::string name = "_pp_rank_1_mp_rank_00_optim_states.pt";
  const std::string other = kZero + "stage3-bf16/global_step2/bf16_zero" + name;
  write_text(files_, step_ + "zero" + name, read_text(real_file_system(), other, 1 << 20));
  expect_refused("is of ZeRO-3, the file of rank 0 of ZeRO-2");
  copy("stage2-fp16");
  write_text(files_, step_ + "bf16_zero" + name, "");
  expect_refused("has two files of rank 1");
}

TEST_F(DamagedZeroCheckpoint, IsRefusedByTheConfigOfAnotherModel) {
  copy("stage2-fp16");
  std::string config = read_text(files_, "/ds/config.json", 1 << 20);
  const std::string hidden = "\"intermediate_size\": 9";
  ASSERT_NE(config.find(hidden), std::string::npos);
  write_text(files_, "/ds/config.json", config.replace(config.find(hidden), hidden.size(), "\"intermediate_size\": 12"));
  expect_refused("has 9 rows, but 0 to 11 are needed");
}

TEST_F(DamagedZeroCheckpoint, NextToTheModelItselfIsNotRead) {
  copy("stage1-bf16");
  const auto format = format_of(files_, "/ds");
  ASSERT_NE(format, nullptr);
  EXPECT_EQ(format->name, "deepspeed");
  write_text(files_, "/ds/model.safetensors", "");
  EXPECT_EQ(format_of(files_, "/ds")->name, "hf");
  EXPECT_EQ(format_of(files_, "/ds/global_step2")->name, "deepspeed");
}

TEST_F(DamagedZeroCheckpoint, ADirectoryOfSomethingElseIsNone) {
  create_directories(files_, "/ds/step-00000001");
  write_text(files_, "/ds/latest", "step-00000001");
  EXPECT_EQ(format_of(files_, "/ds"), nullptr);
  EXPECT_EQ(format_of(files_, "/nothing"), nullptr);
  create_directories(files_, "/ds/zero/stage");
  EXPECT_EQ(format_of(files_, "/ds"), nullptr);
  expect_refused("is no checkpoint of DeepSpeed");
  create_directories(files_, "/ds/other/step");
  write_text(files_, "/ds/other/step/mp_rank_00_model_states.pt", "");
  write_text(files_, "/ds/latest", "other/step");
  EXPECT_EQ(format_of(files_, "/ds"), nullptr);
  expect_refused("is no checkpoint of DeepSpeed");
}

}  // namespace
}  // namespace trivet::hugging_face

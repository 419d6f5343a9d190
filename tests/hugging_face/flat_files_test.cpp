// Tests what is said of files of llama2.c, llm.c and Meta's Llama, and of formats that are not read. What the models compute is
// in golden_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "core/error.h"
#include "interchange/foreign/llama2_c.h"
#include "interchange/foreign/llm_c.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class FlatFileTest : public testing::Test {
 protected:
  FlatFileTest() { files_.create_directory("/m"); }
  static std::string golden(const std::string& name) {
    return read_text(real_file_system(), TRIVET_SOURCE_DIR "/tests/golden/foreign/" + name, 1 << 20);
  }
  // The file with another 32-bit integer at some place of its header.
  static std::string with(std::string text, size_t integer, int32_t value) {
    std::memcpy(text.data() + integer * sizeof value, &value, sizeof value);
    return text;
  }
  PretrainedModel open(const std::string& text, std::string_view format = "") {
    write_text(files_, "/m/model.bin", text);
    return PretrainedModel(open_model(files_, "/m/model.bin", format));
  }
  void expect_refused(const std::string& text, std::string_view format, const std::string& message) {
    EXPECT_THAT([&] { open(text, format); }, ThrowsMessage<Error>(HasSubstr(message)));
  }

  support::MemoryFileSystem files_;
};

TEST_F(FlatFileTest, FormatsAreRecognizedByTheirContent) {
  EXPECT_EQ(open(golden("llama/v0.bin")).kind(), "llama, llama2.c, version 0");
  EXPECT_EQ(open(golden("llama-untied/v1.bin")).kind(), "llama, llama2.c, version 1");
  EXPECT_EQ(open(golden("gpt2/fp32.bin")).kind(), "gpt2, llm.c, version 3");
  EXPECT_EQ(open(golden("gpt2/bf16.bin")).kind(), "gpt2, llm.c, version 5");
  write_text(files_, "/m/model.bin", std::string(1000, 'x'));
  EXPECT_EQ(format_of(files_, "/m/model.bin"), nullptr);
  write_text(files_, "/m/model.bin", "");
  EXPECT_EQ(format_of(files_, "/m/model.bin"), nullptr);
}

TEST_F(FlatFileTest, TheHeaderIsTheModel) {
  const PretrainedModel llama = open(golden("llama-untied/v0.bin"));
  const model::Description& d = llama.description();
  EXPECT_EQ(d.layers, 2);
  EXPECT_EQ(d.hidden_size, 16);
  EXPECT_EQ(d.feed_forward_size, 12);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.key_value_heads, 2);
  EXPECT_EQ(d.vocabulary_size, 17);
  EXPECT_EQ(d.sequence_length, 16);
  EXPECT_EQ(d.norm_epsilon, 1e-5);
  EXPECT_FALSE(d.tied_embedding);
  EXPECT_TRUE(open(golden("llama/v1.bin")).description().tied_embedding);
  const PretrainedModel gpt2 = open(golden("gpt2/bf16.bin"));
  EXPECT_EQ(gpt2.description().vocabulary_size, 17);
  EXPECT_EQ(gpt2.description().dropout, 0);
}

TEST_F(FlatFileTest, OtherVersionsAreRefused) {
  expect_refused(with(golden("llama/v1.bin"), 1, 2), "", "version 2 is not accepted (2 is in 8 bits)");
  expect_refused(with(golden("gpt2/fp32.bin"), 1, 1), "", "version 1 is not accepted; write it with a newer llm.c");
  expect_refused(with(golden("gpt2/fp32.bin"), 0, 20240803), "", "it begins with 20240803, a GPT-2 with 20240326");
}

TEST_F(FlatFileTest, AFileThatDoesNotFitItsHeaderIsRefused) {
  const std::string old = golden("llama/v0.bin"), gpt2 = golden("gpt2/fp32.bin");
  expect_refused(old + "1234", "llama2.c", "its header describes " + std::to_string(old.size()) + " bytes, the file has");
  expect_refused(old.substr(0, 20), "llama2.c", "has 20 bytes; its header alone has 28");
  for (size_t bytes = 28; bytes < old.size(); bytes += 1 + bytes / 7)
    expect_refused(old.substr(0, bytes), "llama2.c", "it ends too early");
  expect_refused(gpt2 + "1234", "llm.c", "its header describes");
  expect_refused(gpt2.substr(0, gpt2.size() - 4), "llm.c", "it ends too early: a tensor [8]");
  expect_refused(with(gpt2, 7, 16), "llm.c", "its embedding has 16 rows, fewer than the vocabulary of 17");
  expect_refused(with(old, 0, -4), "llama2.c", "dim is -4; use 1 to");
  expect_refused(with(old, 2, 1 << 20), "llama2.c", "n_layers is 1048576; use 1 to 10000");
  expect_refused(with(old, 3, 3), "llama2.c", "dim 16 is not 3 heads of an even size");
  expect_refused(with(old, 3, 16), "llama2.c", "dim 16 is not 16 heads of an even size");
  expect_refused(with(old, 4, 3), "llama2.c", "4 heads are no multiple of n_kv_heads 3");
  expect_refused(with(old, 1, 1 << 30), "llama2.c", "it ends too early");
}

TEST_F(FlatFileTest, IsImportedWithTheTokenizerOfItsFolder) {
  write_text(files_, "/m/tokenizer.json", "{}");
  const Imported imported = import_model(files_, open(golden("llama/v1.bin")), "/out");
  EXPECT_EQ(imported.step, "/out/step-00000000");
  ASSERT_EQ(imported.notes.size(), 1U);
  EXPECT_THAT(imported.notes[0], HasSubstr("the tokenizer was left out: /m/tokenizer.json"));
}

class MetaLlamaTest : public testing::Test {
 protected:
  MetaLlamaTest() {
    files_.create_directory("/m");
    for (const std::string name : {"params.json", "consolidated.00.pth", "consolidated.01.pth"})
      write_text(files_, "/m/" + name,
                 read_text(real_file_system(), TRIVET_SOURCE_DIR "/tests/golden/foreign/llama-untied/meta/" + name, 1 << 20));
  }
  void params(const std::string& from, const std::string& to) {
    std::string text = read_text(files_, "/m/params.json", 1 << 20);
    ASSERT_NE(text.find(from), std::string::npos);
    write_text(files_, "/m/params.json", text.replace(text.find(from), from.size(), to));
  }
  void expect_refused(const std::string& message) {
    EXPECT_THAT([&] { PretrainedModel(files_, "/m"); }, ThrowsMessage<Error>(HasSubstr(message)));
  }
  support::MemoryFileSystem files_;
};

TEST_F(MetaLlamaTest, SaysWhatIsNotInTheFolder) {
  const PretrainedModel model(files_, "/m");
  EXPECT_EQ(model.kind(), "llama, Meta's format");
  EXPECT_EQ(model.description().vocabulary_size, 17);
  EXPECT_EQ(model.description().sequence_length, 4096);
  ASSERT_EQ(model.notes().size(), 1U);
  EXPECT_EQ(model.notes()[0], "params.json does not say how long sequences may be: at most 4096 was taken");
  params("\"norm_eps\"", "\"rope_theta\": 500000.0, \"norm_eps\"");
  EXPECT_EQ(PretrainedModel(files_, "/m").description().sequence_length, 8192);
}

// As transformers converts Llama 3.1.
TEST_F(MetaLlamaTest, ReadsTheScalingOfLlama31) {
  params("\"norm_eps\"", "\"rope_theta\": 500000.0, \"use_scaled_rope\": true, \"norm_eps\"");
  const PretrainedModel model(files_, "/m");
  EXPECT_EQ(model.description().sequence_length, 131072);
  EXPECT_EQ(model.description().rotary_scaling, (model::RotaryScaling{model::RotaryScalingType::Llama3, 8, 1, 4, 8192}));
  EXPECT_THAT(model.notes(),
              testing::Contains("rotary frequencies are scaled by 8 as in Llama 3.1; if the model has another factor, add "
                                "\"rope_scaling_factor\" to params.json"));
  params("\"norm_eps\"", "\"rope_scaling_factor\": 32, \"rope_high_freq_factor\": 5, \"norm_eps\"");
  const PretrainedModel stated(files_, "/m");
  EXPECT_EQ(stated.description().rotary_scaling, (model::RotaryScaling{model::RotaryScalingType::Llama3, 32, 1, 5, 8192}));
  EXPECT_EQ(stated.notes().size(), 1U);
  params("\"use_scaled_rope\": true", "\"use_scaled_rope\": false");
  EXPECT_EQ(PretrainedModel(files_, "/m").description().rotary_scaling, model::RotaryScaling{});
}

TEST_F(MetaLlamaTest, RefusesWhatDoesNotFit) {
  files_.remove("/m/consolidated.01.pth");
  expect_refused("tensor \"tok_embeddings.weight\" is bfloat16 [17, 8] in consolidated.00.pth, which does not fit 16 columns");
}

TEST_F(MetaLlamaTest, RefusesOtherParams) {
  params("\"norm_eps\"", "\"rope_scaling_factor\": 0.5, \"norm_eps\"");
  expect_refused("params.json: rope_scaling_factor: 0.5 is not accepted; use at least 1");
  params("\"rope_scaling_factor\": 0.5", "\"rope_high_freq_factor\": 1");
  expect_refused("params.json: rope_high_freq_factor: 1 is not accepted; use more than 1");
  params("\"rope_high_freq_factor\": 1", "\"moe_args\": true");
  expect_refused("params.json: moe_args: true is not accepted; this key of the model is not known here");
  params("\"moe_args\": true, ", "");
  params("\"n_layers\": 2", "\"n_layers\": 3");
  expect_refused("tensor \"layers.2.attention_norm.weight\" is absent from consolidated.00.pth");
  params("\"n_layers\": 3", "\"n_layers\": 1");
  expect_refused("tensor \"layers.1.attention.wk.weight\" is no part of a model");
  params("\"n_layers\": 1", "\"n_layers\": 2");
  params("\"n_kv_heads\": 2", "\"n_kv_heads\": 4");
  expect_refused("tensor \"layers.0.attention.wk.weight\" has 8 rows in all files, but 16 are needed");
}

TEST(UnreadableFormats, AreRefusedWithWhatConvertsThem) {
  support::MemoryFileSystem files;
  for (const std::string folder : {"/megatron", "/iteration", "/iteration/mp_rank_00", "/torch_dist", "/empty"})
    files.create_directory(folder);
  write_text(files, "/megatron/latest_checkpointed_iteration.txt", "100");
  write_text(files, "/torch_dist/.metadata", "");
  write_text(files, "/weights.safetensors", "");
  const auto expect_refused = [&](const std::string& path, const std::string& message) {
    EXPECT_THAT([&] { format_of(files, path); }, ThrowsMessage<CheckpointError>(HasSubstr(message))) << path;
  };
  expect_refused("/megatron", "is a checkpoint of Megatron-LM, which is not read: convert it");
  expect_refused("/iteration", "is a checkpoint of Megatron-LM, which is not read: convert it");
  expect_refused("/torch_dist", "format_utils dcp_to_torch /torch_dist pytorch_model.bin");
  expect_refused("/weights.safetensors", "is a file of weights alone");
  EXPECT_EQ(format_of(files, "/empty"), nullptr);
  // A config.json next to such files does not make them a model.
  write_text(files, "/torch_dist/config.json", "{}");
  EXPECT_THAT([&] { open_model(files, "/torch_dist", "hf"); }, ThrowsMessage<CheckpointError>(HasSubstr("dcp_to_torch")));
}

}  // namespace
}  // namespace trivet::hugging_face

// Weights in MXFP4, whose elements follow a closed formula: sign, 2 bits of exponent and 1 of fraction, times a power of two.
// The model that transformers computes with such weights is tests/golden/hf/gpt-oss-mxfp4.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "interchange/hugging_face/export.h"
#include "interchange/hugging_face/import.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "tests/hugging_face/small_models.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::HasSubstr, testing::ThrowsMessage;

struct StoredTensor {
  DType dtype;
  Shape shape;
  std::vector<uint8_t> bytes;
};
using StoredTensors = std::map<std::string, StoredTensor>;

std::string file_of_bytes(const StoredTensors& tensors) {
  checkpoint::SafetensorsHeader header;
  for (const auto& [name, tensor] : tensors) header.tensors.push_back({name, tensor.dtype, tensor.shape, 0, 0});
  std::string file = checkpoint::layout_safetensors(header);
  for (const auto& entry : header.tensors) {
    const std::vector<uint8_t>& bytes = tensors.at(entry.name).bytes;
    file.append(bytes.begin(), bytes.end());
  }
  return file;
}

// Two rows of three blocks. All pairs of elements come up, and the smallest and largest scale.
StoredTensors packed_tensor() {
  StoredTensors tensors{{"w_blocks", {DType::UInt8, {2, 3, 16}, {}}},
                        {"w_scales", {DType::UInt8, {2, 3}, {0, 127, 254, 1, 120, 130}}}};
  for (int i = 0; i < 96; ++i) tensors.at("w_blocks").bytes.push_back(static_cast<uint8_t>(i * 37 + 5));
  return tensors;
}

double element(const StoredTensors& tensors, size_t i) {
  const int bits = tensors.at("w_blocks").bytes[i / 2] >> (i % 2 == 0 ? 0 : 4) & 15,
            scale = tensors.at("w_scales").bytes[i / 32];
  const int exponent = bits >> 1 & 3;
  const double fraction = (bits & 1) / 2.0, size = exponent == 0 ? fraction : (1 + fraction) * std::exp2(exponent - 1);
  return ((bits & 8) != 0 ? -size : size) * std::exp2(scale - 127);
}

class Mxfp4 : public testing::Test {
 protected:
  void write(const StoredTensors& tensors, const std::string& config = "{}") {
    write_model(files, "/model", config, file_of_bytes(tensors));
  }
  void expect_refused(const StoredTensors& tensors, const std::string& message) {
    write(tensors);
    ModelFiles model(files, "/model");
    EXPECT_THAT([&] { model.join_mxfp4(); }, ThrowsMessage<CheckpointError>(HasSubstr(message)));
  }
  support::MemoryFileSystem files;
};

TEST_F(Mxfp4, EveryRangeOfElementsFollowsTheFormula) {
  const StoredTensors tensors = packed_tensor();
  write(tensors);
  ModelFiles model(files, "/model");
  const uint64_t apart = model.digest();
  EXPECT_THAT(model.join_mxfp4(), testing::ElementsAre("w"));
  EXPECT_THAT(model.names(), testing::ElementsAre("w"));
  EXPECT_NE(model.digest(), apart);
  const checkpoint::TensorInfo* const info = model.find("w");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->dtype, DType::Float32);
  EXPECT_EQ(info->shape, (Shape{2, 96}));
  for (int64_t first = 0; first < 192; ++first)
    for (const int64_t count : {int64_t{1}, int64_t{2}, int64_t{31}, int64_t{65}, 192 - first}) {
      if (first + count > 192) continue;
      std::vector<float> values(static_cast<size_t>(count));
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece("w", {2, 96}, first, {values.data(), DType::Float32, {count}});
      model.read({&piece, 1});
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(values[static_cast<size_t>(i)], static_cast<float>(element(tensors, static_cast<size_t>(first + i))))
            << first + i;
    }
}

TEST_F(Mxfp4, ReadsMoreElementsThanAreConvertedAtOnce) {
  StoredTensors tensors{{"w_blocks", {DType::UInt8, {3, 4096, 16}, {}}}, {"w_scales", {DType::UInt8, {3, 4096}, {}}}};
  for (int64_t i = 0; i < int64_t{3} * 4096 * 16; ++i) tensors.at("w_blocks").bytes.push_back(static_cast<uint8_t>(i * i >> 3));
  for (int64_t i = 0; i < int64_t{3} * 4096; ++i) tensors.at("w_scales").bytes.push_back(static_cast<uint8_t>(100 + i % 50));
  write(tensors);
  ModelFiles model(files, "/model");
  model.join_mxfp4();
  std::vector<float> values(393216 - 5);
  const checkpoint::Piece piece = checkpoint::whole_box_piece("w", {3, 131072}, 5, {values.data(), DType::Float32, {393211}});
  model.read({&piece, 1});
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<float>(element(tensors, i + 5))) << i;
}

TEST_F(Mxfp4, BrokenPairsAreNamed) {
  StoredTensors tensors = packed_tensor();
  tensors.erase("w_scales");
  expect_refused(tensors,
                 "tensor \"w_blocks\" of /model/model.safetensors is one of two tensors of MXFP4, and \"w_scales\" is absent");
  tensors = packed_tensor();
  tensors.erase("w_blocks");
  expect_refused(tensors, "is one of two tensors of MXFP4, and \"w_blocks\" is absent");
  tensors = packed_tensor();
  tensors.at("w_scales").shape = {3, 2};
  expect_refused(tensors,
                 "tensor \"w_blocks\" of /model/model.safetensors uint8 [2, 3, 16] and its scales uint8 [3, 2] are not MXFP4");
  tensors = packed_tensor();
  tensors.at("w_blocks").shape = {2, 6, 8};
  expect_refused(tensors, "are not MXFP4");
  tensors = packed_tensor();
  tensors.at("w_scales") = {DType::Float32, {2, 3}, std::vector<uint8_t>(24)};
  expect_refused(tensors, "and its scales float32 [2, 3] are not MXFP4");
}

// The golden model, whose matrices are square: a wrong order of dims would be no error.
const std::string kPacked = TRIVET_SOURCE_DIR "/tests/golden/hf/gpt-oss-mxfp4/";

TEST_F(Mxfp4, TheConfigMustSayWhatTheFilesHold) {
  create_directories(files, "/model");
  create_directories(files, "/plain");
  const std::string config = read_text(real_file_system(), kPacked + "config.json", 1 << 20);
  write_text(files, "/model/model.safetensors", read_text(real_file_system(), kPacked + "model.safetensors", 1 << 20));
  const size_t at = config.find("\"quantization_config\""), end = config.find('}', at) + 2;
  write_text(files, "/model/config.json", config.substr(0, at) + config.substr(end));
  EXPECT_THAT(
      [&] { PretrainedModel(files, "/model"); },
      ThrowsMessage<CheckpointError>("/model: quantization_config: is absent, but experts are in MXFP4; is the config.json of "
                                     "another model?"));
  std::string oss = small_later("gpt_oss");
  oss.insert(oss.rfind('}'), R"(, "quantization_config": {"quant_method": "mxfp4"})");
  write_text(files, "/plain/config.json", oss);
  write_text(files, "/plain/model.safetensors", file_of(small_gpt_oss_tensors()));
  EXPECT_THAT([&] { PretrainedModel(files, "/plain"); },
              ThrowsMessage<CheckpointError>(
                  "/plain: quantization_config: says that experts are in MXFP4, but no tensor is; remove the "
                  "key"));
}

// Published files have blocks and scales in several files, perhaps apart. An adapter is added to what they mean.
TEST_F(Mxfp4, PartsLieInSeveralFilesAndMayBeAdapted) {
  const std::string config = read_text(real_file_system(), kPacked + "config.json", 1 << 20),
                    whole = read_text(real_file_system(), kPacked + "model.safetensors", 1 << 20);
  write_model(files, "/whole", config, whole);
  const checkpoint::SafetensorsHeader header =
      checkpoint::parse_safetensors_header(whole, static_cast<int64_t>(whole.size()), "model.safetensors");
  StoredTensors apart[2];
  std::string map;
  for (const checkpoint::TensorEntry& tensor : header.tensors) {
    const bool second = tensor.name.ends_with("_scales");
    const auto begin = whole.begin() + header.data_start + tensor.begin;
    apart[second ? 1 : 0][tensor.name] = {tensor.dtype, tensor.shape, {begin, begin + tensor.end - tensor.begin}};
    map += (map.empty() ? "\"" : ", \"") + tensor.name + "\": \"" + (second ? "b" : "a") + ".safetensors\"";
  }
  create_directories(files, "/parts");
  write_text(files, "/parts/config.json", config);
  write_text(files, "/parts/a.safetensors", file_of_bytes(apart[0]));
  write_text(files, "/parts/b.safetensors", file_of_bytes(apart[1]));
  write_text(files, "/parts/model.safetensors.index.json", "{\"weight_map\": {" + map + "}}");
  create_directories(files, "/adapter");
  write_text(
      files, "/adapter/adapter_config.json",
      R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["q_proj"], "base_model_name_or_path": "/parts"})");
  const std::string module = "base_model.model.model.layers.0.self_attn.q_proj.lora_";
  write_text(files, "/adapter/adapter_model.safetensors",
             file_of({{module + "A.weight", {2, 64}}, {module + "B.weight", {12, 2}}}));
  const PretrainedModel one(files, "/whole"), parts(files, "/parts"), adapted(files, "/adapter");
  const auto read = [](const PretrainedModel& model, const std::string& name) {
    const Shape shape = model.weights().find(name)->shape;
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece(name, shape, 0, {values.data(), DType::Float32, {shape.elements()}});
    model.weights().read({&piece, 1});
    return values;
  };
  const std::string experts = "blocks.0.mlp.experts.gate_up.weight", attention = "blocks.0.attention.qkv.weight";
  EXPECT_EQ(read(one, experts), read(parts, experts));
  EXPECT_EQ(read(one, experts), read(adapted, experts));
  EXPECT_EQ(read(one, attention), read(parts, attention));
  EXPECT_NE(read(one, attention), read(adapted, attention));
}

// An export has ordinary weights, so its config.json must not say otherwise.
TEST_F(Mxfp4, AnExportIsNotQuantized) {
  write_model(files, "/model", read_text(real_file_system(), kPacked + "config.json", 1 << 20),
              read_text(real_file_system(), kPacked + "model.safetensors", 1 << 20));
  const PretrainedModel before(files, "/model");
  import_model(files, before, "/checkpoints", files);
  EXPECT_EQ(export_model(files, "/checkpoints", {.output = "/out", .like = "/model"}).dtype, DType::BFloat16);
  const PretrainedModel after(files, "/out");
  for (const std::string kind : {"gate_up", "down"}) {
    const std::string name = "blocks.0.mlp.experts." + kind + ".weight";
    const Shape shape = before.weights().find(name)->shape;
    std::vector<float> old(static_cast<size_t>(shape.elements())), now(old.size());
    for (const auto& [model, values] : {std::pair(&before, &old), std::pair(&after, &now)}) {
      const checkpoint::Piece piece =
          checkpoint::whole_box_piece(name, shape, 0, {values->data(), DType::Float32, {shape.elements()}});
      model->weights().read({&piece, 1});
    }
    EXPECT_EQ(old, now) << name;  // bfloat16 has them exactly
  }
}

TEST_F(Mxfp4, AScaleThatIsNoNumberIsNotImported) {
  std::string weights = read_text(real_file_system(), kPacked + "model.safetensors", 1 << 20);
  int64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof header);
  const checkpoint::SafetensorsHeader parsed =
      checkpoint::parse_safetensors_header(weights, static_cast<int64_t>(weights.size()), "model.safetensors");
  const checkpoint::TensorEntry* const scales = parsed.find("model.layers.0.mlp.experts.down_proj_scales");
  ASSERT_NE(scales, nullptr);
  weights[static_cast<size_t>(8 + header + scales->begin)] = static_cast<char>(255);
  write_model(files, "/model", read_text(real_file_system(), kPacked + "config.json", 1 << 20), weights);
  const PretrainedModel model(files, "/model");
  EXPECT_THAT([&] { import_model(files, model, "/out", files); },
              ThrowsMessage<Error>(HasSubstr(
                  "tensor \"model.layers.0.mlp.experts.down_proj\" of /model/model.safetensors has an element that is nan")));
}

}  // namespace
}  // namespace trivet::hugging_face

// Reads the models that transformers wrote (tests/golden/hf_reference.py), some with adapters that PEFT wrote, and those that
// other programs wrote (tests/golden/foreign_models.py), and compares what they compute with what transformers computes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "core/file_system.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "tests/model/read_safetensors.h"
#include "tests/model/whole_model.h"

namespace trivet::hugging_face {
namespace {

const std::string kFolder = TRIVET_SOURCE_DIR "/tests/golden/";

// A model, and the folder of what it computes.
struct Golden {
  std::string model, folder;
};
void PrintTo(const Golden& golden, std::ostream* out) { *out << golden.model; }

std::vector<Golden> golden_models() {
  std::vector<Golden> all;
  for (const std::string kind : {"hf/", "adapters/"})
    for (const auto& entry : std::filesystem::directory_iterator(kFolder + kind)) {
      const std::string folder = kind + entry.path().filename().string();
      all.push_back({folder, folder});
    }
  for (const auto& folder : std::filesystem::directory_iterator(kFolder + "foreign"))
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (const std::string name = entry.path().filename().string(); name != "golden.safetensors") {
        const std::string in = "foreign/" + folder.path().filename().string();
        all.push_back({in + "/" + name, in});
      }
  std::ranges::sort(all, {}, &Golden::model);
  return all;
}

// Compares the norm of each parameter's gradient. A tensor of ours may consist of several of theirs. One that is no parameter
// there, a bias for the choice of experts, has none.
void expect_gradients(model::WholeModel& whole, const PretrainedModel& pretrained,
                      const std::map<std::string, model::GoldenTensor>& golden) {
  const Architecture& architecture = pretrained.architecture();
  const bool fused = architecture.fused_weights && std::ranges::any_of(golden, [](const auto& entry) {
                       return entry.first.ends_with(".experts.gate_up_proj");
                     });
  const auto table = (fused ? architecture.fused_weights : architecture.weights)(pretrained.description());
  for (const std::string& name : whole.parameter_names()) {
    double expected = 0, squares = 0;
    std::set<std::string> tensors;
    for (const checkpoint::TheirRows& rows : table.at(name)) tensors.insert(rows.tensor);
    for (const std::string& tensor : tensors)
      if (const auto norm = golden.find("gradient_norm " + tensor); norm != golden.end())
        expected += std::pow(norm->second.values.at(0), 2);
    for (const double value : model::values_of(whole.gradient(name))) squares += value * value;
    EXPECT_NEAR(std::sqrt(squares), std::sqrt(expected), 1e-4 * std::sqrt(expected) + 1e-7) << name;
  }
}

class GoldenModel : public testing::TestWithParam<Golden> {};

TEST_P(GoldenModel, LogitsLossAndGradientAreThoseOfTransformers) {
  const PretrainedModel pretrained(real_file_system(), kFolder + GetParam().model);
  auto golden = model::read_safetensors(kFolder + GetParam().folder + "/golden.safetensors");
  const Shape shape = golden.at("tokens").shape;
  model::Description description = pretrained.description();
  description.sequence_length = description.type == model::Type::Gpt ? description.sequence_length : shape[1];
  model::WholeModel whole(description, DType::Float32, Device::Cpu);
  for (const std::string& name : whole.parameter_names()) {
    const TensorView weight = whole.weight(name);
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece(name, weight.shape, 0, {weight.data, DType::Float32, {weight.elements()}});
    pretrained.weights().read({&piece, 1});
  }
  const auto numbers = [&](const std::string& name) {
    const auto& values = golden.at(name).values;
    return std::vector<int32_t>(values.begin(), values.end());
  };
  const model::Batch batch{shape[0], shape[1], numbers("tokens"), numbers("targets")};
  const std::vector<double> logits = whole.logits(batch), &expected = golden.at("logits").values;
  ASSERT_EQ(logits.size(), expected.size());
  for (size_t i = 0; i < logits.size(); ++i) ASSERT_NEAR(logits[i], expected[i], 1e-5) << "logit " << i;
  EXPECT_NEAR(whole.train(batch), golden.at("loss").values[0], 1e-5);
  double squares = 0;
  for (const std::string& name : whole.parameter_names())
    for (const double value : model::values_of(whole.gradient(name))) squares += value * value;
  EXPECT_NEAR(std::sqrt(squares), golden.at("gradient_norm").values[0], 1e-4);
  if (std::ranges::any_of(golden, [](const auto& entry) { return entry.first.starts_with("gradient_norm "); }))
    expect_gradients(whole, pretrained, golden);
}

INSTANTIATE_TEST_SUITE_P(Architectures, GoldenModel, testing::ValuesIn(golden_models()), [](const auto& model) {
  std::string name = model.param.model;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name.starts_with("hf") ? name.substr(2) : name;
});

}  // namespace
}  // namespace trivet::hugging_face

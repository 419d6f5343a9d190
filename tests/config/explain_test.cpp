#include "engine/config/explain.h"

#include <filesystem>

#include "tests/config/support.h"

namespace trivet {
namespace {

const ExplainedKey& find(const std::vector<ExplainedKey>& keys, const std::string& path) {
  for (const ExplainedKey& key : keys)
    if (key.path == path) return key;
  throw std::logic_error("no key " + path);
}

TEST(Explain, SaysWhereEachValueComesFrom) {
  const auto keys = explain(parse_config("{\n  \"zero_optimization\": {\"stage\": 2}\n}", "a.json", {"train_batch_size=8"}));
  EXPECT_EQ(find(keys, "zero_optimization.stage").value, "2");
  EXPECT_EQ(find(keys, "zero_optimization.stage").origin, "a.json:2:25");
  EXPECT_EQ(find(keys, "train_batch_size").origin, "--set");
  EXPECT_EQ(find(keys, "gradient_clipping").value, "1.0");
  EXPECT_EQ(find(keys, "gradient_clipping").origin, "default");
  EXPECT_EQ(find(keys, "zero_optimization.stage3_max_live_parameters").without_effect,
            "takes effect only when zero_optimization.stage is 3");
}

TEST(Explain, ShowsOnlyParametersOfTheChosenOptimizer) {
  const auto keys = explain(parse_config(R"({"optimizer": {"type": "SGD"}})", "a.json"));
  EXPECT_EQ(find(keys, "optimizer.params.momentum").value, "0.0");
  EXPECT_THROW(find(keys, "optimizer.params.betas"), std::logic_error);
}

TEST(Explain, TheJsonIsReadBackToTheSameConfig) {
  int files = 0;
  for (const auto& file : std::filesystem::directory_iterator(TRIVET_SOURCE_DIR "/configs")) {
    ++files;
    const Config config = load_config(file.path().string());
    const std::string json = explain_as_json(config);
    const Config again = parse_config(json, "explained.json");
    EXPECT_TRUE(diff(config, again).empty()) << file.path();
    EXPECT_EQ(explain_as_json(again), json) << file.path();
  }
  EXPECT_GE(files, 6);
}

TEST(Explain, AnEmptyConfigIsReadBackToo) {
  const Config config = parse_config("{}", "a");
  EXPECT_EQ(explain_as_json(parse_config(explain_as_json(config), "b")), explain_as_json(config));
}

TEST(Diff, NamesWhatDiffersDefaultsIncluded) {
  const Config a = parse_config(R"({"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}})", "a");
  const Config b =
      parse_config(R"({"optimizer": {"type": "SGD", "params": {"lr": 0.2}}, "zero_optimization": {"stage": 3}})", "b");
  std::string text;
  for (const auto& [path, before, after] : diff(a, b)) text += path + ": " + before + " -> " + after + "\n";
  EXPECT_EQ(text,
            "optimizer.type: \"AdamW\" -> \"SGD\"\n"
            "optimizer.params.lr: 0.1 -> 0.2\n"
            "optimizer.params.betas: [0.9, 0.999] -> -\n"
            "optimizer.params.eps: 1e-08 -> -\n"
            "optimizer.params.bias_correction: true -> -\n"
            "optimizer.params.adam_w_mode: true -> -\n"
            "optimizer.params.momentum: - -> 0.0\n"
            "optimizer.params.dampening: - -> 0.0\n"
            "optimizer.params.nesterov: - -> false\n"
            "zero_optimization.stage: 0 -> 3\n"
            "zero_optimization.overlap_comm: false -> true\n");
}

}  // namespace
}  // namespace trivet

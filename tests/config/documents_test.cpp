// The JSON Schema and docs/config.md say what the key table says.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/config/deepspeed.h"
#include "engine/config/key_table.h"
#include "engine/config/reference.h"
#include "engine/config/schema.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

TEST(ConfigReference, DocsConfigMdIsUpToDate) {
  EXPECT_TRUE(read_file(TRIVET_SOURCE_DIR "/docs/config.md") == config_reference())
      << "docs/config.md does not match the key table; run trivet config reference > docs/config.md";
}

TEST(DeepSpeedReference, DocsDeepspeedMdIsUpToDate) {
  EXPECT_TRUE(read_file(TRIVET_SOURCE_DIR "/docs/deepspeed.md") == deepspeed_reference())
      << "docs/deepspeed.md does not match the key table; run trivet config reference --deepspeed > docs/deepspeed.md";
}

// Whoever opens one of the pages for newcomers finds the others without reading on.
TEST(PagesForNewcomers, NameEachOtherBeforeTheirFirstSection) {
  const std::vector<std::string> pages{"from_the_trainer.md", "deepspeed.md", "hugging_face.md", "ddp.md"};
  for (size_t page = 1; page < pages.size(); ++page) {
    const std::string text = read_file(TRIVET_SOURCE_DIR "/docs/" + pages[page]);
    const std::string start = text.substr(0, text.find("\n## "));
    for (const std::string& other : pages) {
      if (other == pages[page]) continue;
      EXPECT_NE(start.find("](" + other + ")"), std::string::npos) << pages[page] << ": " << other;
    }
  }
}

TEST(DeepSpeedReference, SaysWhatBecomesOfEachKey) {
  const std::string text = deepspeed_reference();
  for (const char* row :
       {"| `stage` | `0` | same | the default |",
        "| `sub_group_size` | `1000000000` | different; DeepSpeed: at stage 3 only | the default |",
        "| `graph_harvesting` | `false` | not used: use cuda_graph | the default |",
        "| `prescale_gradients` | `false` | no effect: the result is the same mean; only its rounding differs | the default |",
        "| `sparse_gradients` | `false` | refused | the default |",
        "| `max_iter` | `100` | refused: Trivet does not have eigenvalues of layers |  |",
        "| `zero_optimization.max_live_parameters` | `zero_optimization.stage3_max_live_parameters` |"})
    EXPECT_NE(text.find(row), std::string::npos) << row;
  EXPECT_EQ(text.find("`hidden_size`"), std::string::npos) << "a key of Trivet";
}

TEST(ConfigReference, NamesEveryKey) {
  const std::string text = config_reference();
  for (const config::KeyEntry& entry : config::key_table().entries())
    EXPECT_NE(text.find(fmt::format("| `{}` |", entry.name())), std::string::npos) << entry.path;
}

nlohmann::json schema_at(const nlohmann::json& root, const std::string& path) {
  nlohmann::json node = root;
  size_t start = 0;
  while (true) {
    const size_t dot = path.find('.', start);
    node = node.at("properties").at(path.substr(start, dot - start));
    if (dot == std::string::npos) return node;
    start = dot + 1;
  }
}

int count_keys(const nlohmann::json& schema, const std::string& section = "") {
  if (!schema.contains("properties")) return 1;
  int keys = 0;
  for (const auto& [name, property] : schema["properties"].items()) {
    const std::string path = section.empty() ? name : section + "." + name;
    if (!config::key_table().other_names().contains(path)) keys += count_keys(property, path);
  }
  return keys;
}

TEST(ConfigSchema, HasEveryKeyOfTheTableAndNoOther) {
  const nlohmann::json schema = nlohmann::json::parse(config_schema());
  EXPECT_EQ(count_keys(schema), static_cast<int>(config::key_table().entries().size()));
  for (const config::KeyEntry& entry : config::key_table().entries()) {
    const nlohmann::json key = schema_at(schema, entry.path);
    EXPECT_EQ(key.at("default"), nlohmann::json::parse(entry.default_json)) << entry.path;
    EXPECT_TRUE(key.at("description").get<std::string>().starts_with(entry.meaning)) << entry.path;
  }
}

TEST(ConfigSchema, StatesTypesRangesAndNames) {
  const nlohmann::json schema = nlohmann::json::parse(config_schema());
  const nlohmann::json stage = schema_at(schema, "zero_optimization.stage");
  EXPECT_EQ(stage["type"], "integer");
  EXPECT_EQ(stage["minimum"], 0);
  EXPECT_EQ(stage["maximum"], 3);
  EXPECT_EQ(schema_at(schema, "model.type")["enum"], (nlohmann::json{"gpt", "llama", "sequential"}));
  EXPECT_EQ(schema_at(schema, "model.dropout")["maximum"], 0.99);
  EXPECT_EQ(schema_at(schema, "model.norm_epsilon")["exclusiveMinimum"], 0);
  EXPECT_EQ(schema["properties"]["zero_optimization"]["additionalProperties"], false);
}

}  // namespace
}  // namespace trivet

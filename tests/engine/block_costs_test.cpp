// costs.json: how it is written, when it is refused, and how it assigns blocks to stages.
#include "engine/timeline/block_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "engine/make_plan.h"
#include "tests/support/temporary_folder.h"

namespace trivet::timeline {
namespace {

using pipeline::Op;
using testing::HasSubstr;
using testing::ThrowsMessage;

class CostsFile : public testing::Test {
 protected:
  void write(const std::string& text) const { std::ofstream(path) << text; }
  std::string refusal(const std::string& text) const {
    write(text);
    try {
      read_block_costs(path, names);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }

  const test::TemporaryFolder folder;
  const std::string path = folder.at("costs.json");
  const std::vector<std::string> names{"embedding", "blocks.0", "head"};
};

TEST_F(CostsFile, IsReadAsItIsWritten) {
  const std::vector<BlockCosts> costs{{"embedding", {{Op::Forward, 0.5}, {Op::Backward, 0.25}}},
                                      {"blocks.0", {{Op::Forward, 8}, {Op::BackwardInput, 4}, {Op::BackwardWeight, 2}}},
                                      {"head", {{Op::Loss, 16}}}};
  write(to_json(costs, 2));
  const std::vector<BlockCosts> read = read_block_costs(path, names);
  ASSERT_EQ(read.size(), 3u);
  for (size_t block = 0; block < 3; ++block) {
    EXPECT_EQ(read[block].name, costs[block].name);
    EXPECT_EQ(read[block].ms, costs[block].ms);
  }
  EXPECT_EQ(read[1].total_ms(), 14);
  EXPECT_THAT(to_json(costs, 2), HasSubstr("\"loss\": 0.016")) << "the file is in seconds";
}

TEST_F(CostsFile, IsRefusedForWhatIsWrong) {
  const std::string head = R"({"name": "head", "loss": 1})", all = R"({"blocks": [{"name": "embedding", "forward": 1}, )";
  EXPECT_THAT(refusal("{"), HasSubstr("is not JSON: it ends at column 2 in the middle of a value"));
  EXPECT_THAT(refusal(R"({"blocks": [1e999]})"), HasSubstr("is not JSON: the number 1e999 is too large"));
  EXPECT_THAT(refusal("[]"), HasSubstr("has no list \"blocks\""));
  EXPECT_THAT(refusal(R"({"blocks": []})"), HasSubstr("has 0 blocks, the model has 3"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.1", "forward": 1}, )" + head + "]}"),
              HasSubstr("has \"blocks.1\" as block 1, where the model has \"blocks.0\""));
  EXPECT_THAT(refusal(all + "7, " + head + "]}"), HasSubstr("has 7 as block 1"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.0", "forwards": 1}, )" + head + "]}"),
              HasSubstr("has \"forwards\" in block \"blocks.0\", which is not a kind of work"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.0", "forward": -1}, )" + head + "]}"),
              HasSubstr("has -1 as \"forward\" of block \"blocks.0\", which is not a time in seconds"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.0", "forward": 1e308}, )" + head + "]}"),
              HasSubstr("which is not a time in seconds"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.0", "forward": "1"}, )" + head + "]}"),
              HasSubstr("which is not a time in seconds"));
  EXPECT_THAT(refusal(all + R"({"name": "blocks.0"}, )" + head + "]}"), HasSubstr("has no times for block \"blocks.0\""));
  EXPECT_THAT(refusal(all + R"({"name": "\u001b[31m"}, )" + head + "]}"), HasSubstr("has \"\\u001b[31m\" as block 1"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("the file is nested deeper than 16 levels; use costs.json"));
  std::filesystem::resize_file(path, (16 << 20) + 1);
  EXPECT_THAT(
      [&] { read_block_costs(path, names); },
      ThrowsMessage<ConfigError>(HasSubstr("the file has 16777217 bytes; costs of blocks may have at most 16777216; use")));
  std::filesystem::remove(path);
  try {
    read_block_costs(path, names);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), "pipeline.partition: \"cost:" + path +
                                "\": the file cannot be read: No such file or directory; use costs.json of a run of this model "
                                "with timeline.step");
  }
}

TEST_F(CostsFile, DealsTheBlocksToStages) {
  Config config;
  config.model.layers = 3;
  config.model.hidden_size = 16;
  config.model.heads = 2;
  config.model.sequence_length = 8;
  config.batch.micro_batch_size = 1;
  config.parallel.pipeline = 2;
  const model::Model model = model::build(model::with_vocabulary(config.model, 17));
  std::vector<BlockCosts> costs;
  for (const std::string& name : model.names) costs.push_back({name, {{Op::Forward, 1}}});
  costs[0].ms[Op::Backward] = 3;
  write(to_json(costs, 1));
  config.pipeline.cost_file = path;
  EXPECT_EQ(make_plan(config, model, 2).stages.first_blocks, (std::vector<int>{0, 1, 5}));
}

}  // namespace
}  // namespace trivet::timeline

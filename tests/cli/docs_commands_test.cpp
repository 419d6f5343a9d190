// The commands of a page of docs/ work as they stand there, on a small model and data of the kinds that the page names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/padded_model.h"
#include "tests/cli/program.h"

namespace trivet::test {
namespace {

struct Block {
  std::string language, text;
};

std::vector<Block> blocks_of(const std::string& page) {
  std::ifstream file(std::string(TRIVET_SOURCE_DIR "/docs/") + page);
  std::vector<Block> blocks;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("```")) {
      if (inside) blocks.back().text += line + "\n";
      continue;
    }
    inside = !inside;
    if (inside) blocks.push_back({line.substr(3), ""});
  }
  return blocks;
}

// "trivet plan tune.json    memory before the run": what stands after two blanks is an explanation.
std::vector<std::string> commands_in(const std::vector<Block>& blocks) {
  std::vector<std::string> commands;
  for (const Block& block : blocks) {
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with("trivet ")) commands.push_back(line.substr(7, line.find("  ") - 7));
  }
  return commands;
}

TEST(CommandsOfDocs, WhoComesFromTheTrainerGetsAModel) {
  const Folder folder;
  write_padded_model(folder, "model", 7);
  std::string chats;
  for (int i = 0; i < 40; ++i)
    chats += R"({"messages": [{"role": "user", "content": "a b a"}, {"role": "assistant", "content": "b a"}]})"
             "\n";
  for (const char* name : {"chats.jsonl", "held_out.jsonl"}) folder.write(name, chats);
  const std::vector<Block> blocks = blocks_of("from_the_trainer.md");
  for (const Block& block : blocks)
    if (block.language == "json") {
      folder.write("tune.json", block.text);
      auto of_deepspeed = nlohmann::json::parse(block.text);
      for (const char* added : {"model", "data", "training", "checkpoint"}) EXPECT_EQ(of_deepspeed.erase(added), 1);
      folder.write("ds_config.json", of_deepspeed.dump());
    }
  const std::vector<std::string> commands = commands_in(blocks);
  EXPECT_GE(commands.size(), 8);
  for (const std::string& command : commands) {
    const Output output = folder.run(command);
    EXPECT_EQ(output.code, 0) << command << "\n" << output.errors;
  }
  EXPECT_EQ(nlohmann::json::parse(folder.read("tuned/config.json")).at("model_type"), "qwen2");
}

}  // namespace
}  // namespace trivet::test

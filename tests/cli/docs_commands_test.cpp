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

// "$ trivet plan tune.json    memory before the run": a prompt comes before a command, and an explanation after two blanks.
std::vector<std::string> commands_in(const std::vector<Block>& blocks) {
  std::vector<std::string> commands;
  for (const Block& block : blocks) {
    std::istringstream lines(block.text);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("$ ")) line.erase(0, 2);
      if (line.starts_with("trivet ")) commands.push_back(line.substr(7, line.find("  ") - 7));
    }
  }
  return commands;
}

// The texts in `quotes` with which cells of a page's tables begin.
std::vector<std::string> quoted_cells_of(const std::string& page) {
  std::ifstream file(std::string(TRIVET_SOURCE_DIR "/docs/") + page);
  std::vector<std::string> cells;
  for (std::string line; std::getline(file, line);)
    for (size_t at = line.find("| `"); line.starts_with('|') && at != std::string::npos; at = line.find("| `", at + 1))
      cells.push_back(line.substr(at + 3, line.find('`', at + 3) - at - 3));
  return cells;
}

std::string replaced(std::string text, const std::string& old, const std::string& by) {
  const size_t at = text.find(old);
  return at == std::string::npos ? text : text.replace(at, old.size(), by);
}

void expect_each_works(const Folder& folder, const std::vector<std::string>& commands, size_t least) {
  EXPECT_GE(commands.size(), least);
  for (const std::string& command : commands) {
    const Output output = folder.run(command);
    EXPECT_EQ(output.code, 0) << command << "\n" << output.errors;
  }
}

void write_small_job(const Folder& folder) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a small text of letters ";
  folder.write("text.txt", text);
  folder.write("gpt.json",
               R"({"model": {"layers": 1, "hidden_size": 16, "heads": 2, "sequence_length": 16}, "train_batch_size": 16,
    "data": {"train": "text.txt"}, "training": {"steps": 3},
    "autotuning": {"tuner_type": "gridsearch", "tuner_num_trials": 1, "start_profile_step": 1, "end_profile_step": 2}})");
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
  expect_each_works(folder, commands_in(blocks), 8);
  EXPECT_EQ(nlohmann::json::parse(folder.read("tuned/config.json")).at("model_type"), "qwen2");
}

// Hosts of other names cannot be reached here, so that launchers only say what they would start.
TEST(CommandsOfDocs, WhoRunsAClusterSeesWhatWouldStart) {
  const Folder folder;
  write_small_job(folder);
  std::vector<std::string> commands = commands_in(blocks_of("many_hosts.md"));
  for (const std::string& cell : quoted_cells_of("many_hosts.md"))
    if (cell.starts_with("trivet ")) commands.push_back(replaced(cell.substr(7), " ...", " trivet train gpt.json"));
  std::vector<std::string> launches, examinations;
  for (std::string command : commands) {
    if (command.starts_with("doctor ")) examinations.push_back(command + " --quick");
    for (const auto& [word, value] : {std::pair("_rank N", "_rank 0"), {"addr A", "addr node1"}, {"port P", "port 29500"}})
      command = replaced(command, word, value);
    const bool can_run = command.find("──") == std::string::npos && command.find("launcher openmpi") == std::string::npos &&
                         command.find("launcher mpich") == std::string::npos;  // a drawing; MPI may not be installed
    if (!command.starts_with("launch ") || !can_run) continue;
    const bool prints_a_file = command.find("--emit") != std::string::npos;
    launches.push_back(prints_a_file ? command.substr(0, command.find(" > "))
                                     : replaced(command, "launch", "launch --dry-run"));
  }
  folder.write("hosts", "node1 slots=4\nnode2 slots=4\nnode3 slots=4\n");
  expect_each_works(folder, launches, 6);
  folder.write("hosts", "localhost slots=4\n");
  expect_each_works(folder, examinations, 1);
}

TEST(CommandsOfDocs, WhoDoesResearchWatchesAndComparesRuns) {
  const Folder folder;
  write_small_job(folder);
  std::vector<std::string> commands;
  for (const char* run : {"second", "1", "2", "4"})
    commands.push_back(std::string("train gpt.json --set run.directory=runs/") + run);
  for (const std::string& cell : quoted_cells_of("watching.md")) {
    if (cell.starts_with("--set ") || cell.starts_with("--metrics ")) commands.push_back("train gpt.json " + cell);
    if (cell.starts_with("trivet "))
      commands.push_back(replaced(replaced(cell.substr(7), "...", "gpt.json"), "1000:2000", "1:2"));
  }
  for (const std::string& command : commands_in(blocks_of("watching.md"))) commands.push_back(command);
  expect_each_works(folder, commands, 13);
  expect_each_works(folder, commands_in(blocks_of("tuning.md")), 3);
}

}  // namespace
}  // namespace trivet::test

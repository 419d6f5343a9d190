// Defaults and ranges of keys are compared with keys.txt and not with the key table, which would always agree with itself.
#include <algorithm>
#include <cmath>

#include "engine/config/explain.h"
#include "engine/config/key_table.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

struct Row {
  std::string key, value, numbers, needs;

  std::vector<std::string> overrides() const {
    std::vector<std::string> all;
    if (needs.empty()) return all;
    all.push_back(needs);
    if (needs.starts_with("scheduler.type")) all.push_back("training.steps=10");
    if (needs.ends_with("OneCycle"))
      for (const char* required : {"scheduler.params.cycle_min_lr", "scheduler.params.cycle_max_lr"})
        if (key != required) all.push_back(std::string(required) + "=0");
    return all;
  }
  bool has_numbers() const { return numbers != "-"; }
  bool is_integer() const { return numbers.at(0) == 'i'; }
  std::string least() const { return numbers.substr(2, numbers.find(',') - 2); }
  std::string most() const { return numbers.substr(numbers.find(',') + 1, numbers.size() - numbers.find(',') - 2); }
  bool with_least() const { return numbers.at(1) == '['; }
  bool with_most() const { return numbers.back() == ']'; }
};

std::vector<Row> rows() {
  std::istringstream lines(read_file(TRIVET_SOURCE_DIR "/tests/config/keys.txt"));
  std::vector<Row> all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Row row;
    if (line.starts_with("#") || !(words >> row.key >> row.value >> row.numbers)) continue;
    words >> row.needs;
    all.push_back(row);
  }
  EXPECT_GT(all.size(), 120u);
  return all;
}

// Whether the parser accepts this value of this key, whatever it says of other keys.
bool accepts(const Row& row, const std::string& value) {
  std::vector<std::string> overrides = row.overrides();
  overrides.push_back(row.key + "=" + value);
  return trivet::refusal("{}", overrides).find(row.key + ": " + value + " is not accepted; use ") == std::string::npos;
}

std::string value_of(const Config& config, const std::string& path) {
  const auto keys = explain(config);
  const auto found = std::ranges::find(keys, path, &ExplainedKey::path);
  return found == keys.end() ? "not there" : found->value;
}

TEST(KeyValues, OfKeysThatAreNotGivenAreTheWrittenDefaults) {
  for (const Row& row : rows()) {
    const bool required = row.key == "scheduler.params.cycle_min_lr" || row.key == "scheduler.params.cycle_max_lr";
    if (required) continue;
    std::string value = value_of(parse_config("{}", "a", row.overrides()), row.key);
    std::erase(value, ' ');
    EXPECT_EQ(value, row.value) << row.key;
  }
}

TEST(KeyValues, AreAcceptedUpToTheWrittenLimitsAndNotBeyond) {
  int limits = 0;
  for (const Row& row : rows()) {
    if (!row.has_numbers()) continue;
    const auto beyond = [&](const std::string& limit, int direction) {
      if (row.is_integer()) return std::to_string(std::stoll(limit) + direction);
      return config::number_json(std::stod(limit) + direction * 1e-3);
    };
    EXPECT_EQ(accepts(row, row.least()), row.with_least()) << row.key << "=" << row.least();
    EXPECT_FALSE(accepts(row, beyond(row.least(), -1))) << row.key;
    EXPECT_TRUE(accepts(row, beyond(row.least(), 1))) << row.key;
    ++limits;
    if (row.most().empty()) {
      EXPECT_TRUE(accepts(row, "1000000")) << row.key;
      continue;
    }
    EXPECT_EQ(accepts(row, row.most()), row.with_most()) << row.key << "=" << row.most();
    EXPECT_FALSE(accepts(row, beyond(row.most(), 1))) << row.key;
    EXPECT_TRUE(accepts(row, beyond(row.most(), -1))) << row.key;
  }
  EXPECT_GT(limits, 60);
}

// Every key that works is in keys.txt, except for aliases.
TEST(KeyValues, CoverAllKeysThatWork) {
  const std::vector<Row> written = rows();
  for (const config::KeyEntry& entry : config::key_table().entries()) {
    if (entry.effect != config::Effect::Works || !entry.alias_of.empty()) continue;
    EXPECT_NE(std::ranges::find(written, entry.path, &Row::key), written.end()) << entry.path;
  }
}

TEST(KeyValues, DependOnTheKindsThatAreChosen) {
  struct ChosenKind {
    std::string choice, key, value;
  };
  std::vector<ChosenKind> cases{{"model.type=gpt", "model.tied_embedding", "true"},
                                {"model.type=llama", "model.tied_embedding", "false"},
                                {"zero_optimization.stage=0", "zero_optimization.overlap_comm", "false"},
                                {"zero_optimization.stage=1", "zero_optimization.overlap_comm", "false"},
                                {"zero_optimization.stage=2", "zero_optimization.overlap_comm", "false"},
                                {"zero_optimization.stage=3", "zero_optimization.overlap_comm", "true"}};
  for (const char* type : {"Adam", "AdamW", "SGD", "Lion", "Lamb", "Muon"})
    cases.push_back({std::string("optimizer.type=") + type, "optimizer.params.lr", "0.001"});
  cases.push_back({"optimizer.type=Adagrad", "optimizer.params.lr", "0.01"});
  for (const char* type : {"Adam", "AdamW", "Lamb", "Muon"})
    cases.push_back({std::string("optimizer.type=") + type, "optimizer.params.eps", "1e-08"});
  cases.push_back({"optimizer.type=Adagrad", "optimizer.params.eps", "1e-10"});
  cases.insert(cases.end(), {{"optimizer.type=SGD", "optimizer.params.momentum", "0.0"},
                             {"optimizer.type=SGD", "optimizer.params.nesterov", "false"},
                             {"optimizer.type=Muon", "optimizer.params.momentum", "0.95"},
                             {"optimizer.type=Muon", "optimizer.params.nesterov", "true"}});
  for (const char* type : {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"})
    cases.push_back({std::string("scheduler.type=") + type, "scheduler.params.warmup_num_steps", "1000"});
  for (const char* type : {"Constant", "Linear", "Cosine"})
    cases.push_back({std::string("scheduler.type=") + type, "scheduler.params.warmup_num_steps", "0"});
  cases.push_back({"scheduler.type=WarmupLR", "scheduler.params.warmup_max_lr", "0.0"});
  cases.push_back({"scheduler.type=WarmupDecayLR", "scheduler.params.warmup_max_lr", "0.001"});
  for (const ChosenKind& c : cases) {
    const Config config = parse_config("{}", "a", {c.choice, "training.steps=2000"});
    EXPECT_EQ(value_of(config, c.key), c.value) << c.choice << ": " << c.key;
  }
  // A value that is given stays, whatever the kind.
  EXPECT_EQ(value_of(parse_config("{}", "a", {"zero_optimization.stage=3", "zero_optimization.overlap_comm=false"}),
                     "zero_optimization.overlap_comm"),
            "false");
}

}  // namespace
}  // namespace trivet

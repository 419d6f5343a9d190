#include "engine/config/key_table.h"

#include <algorithm>
#include <set>

#include "engine/config/explain.h"
#include "engine/config/json_reader.h"
#include "tests/config/support.h"

namespace trivet::config {
namespace {

TEST(KeyTable, EveryKeyHasAMeaningAndADefaultOfItsType) {
  for (const KeyEntry& entry : key_table().entries()) {
    EXPECT_FALSE(entry.meaning.empty()) << entry.path;
    EXPECT_NO_THROW(read_json(entry.default_json, entry.path)) << entry.path;
    EXPECT_EQ(entry.effect == Effect::Inert, !entry.reason.empty()) << entry.path;
    EXPECT_EQ(entry.effect == Effect::Works, entry.set && entry.get) << entry.path;
  }
}

TEST(KeyTable, NoKeyIsThereTwiceAndNoneIsAlsoASection) {
  std::set<std::string> paths;
  for (const KeyEntry& entry : key_table().entries()) {
    EXPECT_TRUE(paths.insert(entry.path).second) << entry.path;
    EXPECT_FALSE(key_table().is_section(entry.path)) << entry.path;
  }
}

TEST(KeyTable, ASelectorAndItsValuesExist) {
  for (const KeyEntry& entry : key_table().entries()) {
    if (entry.selected_by.empty()) continue;
    const KeyEntry* selector = key_table().find(entry.selector);
    ASSERT_TRUE(selector && selector->selects) << entry.path;
    for (const std::string& name : entry.selected_by)
      EXPECT_NE(std::find(selector->names.begin(), selector->names.end(), name), selector->names.end())
          << entry.path << " " << name;
  }
}

// Each key alone, at its default, changes nothing, even if it is not implemented. key_values_test.cpp checks that the defaults
// are right.
TEST(KeyTable, EveryKeyGivenAtItsDefaultIsAcceptedAndChangesNothing) {
  int given = 0;
  for (const KeyEntry& entry : key_table().entries()) {
    const Feature* feature = key_table().feature_around(entry.path);
    if (feature && feature->on_when_empty) continue;   // its section is refused, whatever is in it
    if (entry.name() == "warmup_num_steps") continue;  // WarmupLR has a default of its own
    std::vector<std::string> overrides;
    if (!entry.selected_by.empty()) overrides.push_back(entry.selector + "=" + entry.selected_by.front());
    if (!entry.selected_by.empty() && entry.selected_by.front() == "OneCycle")
      overrides.insert(overrides.end(), {"scheduler.params.cycle_min_lr=0", "scheduler.params.cycle_max_lr=0"});
    if (!entry.selected_by.empty() && entry.selector == "scheduler.type") overrides.push_back("training.steps=10");
    std::vector<std::string> with = overrides;
    with.push_back(entry.path + "=" + entry.default_json);
    EXPECT_EQ(trivet::refusal("{}", with), "accepted") << entry.path;
    const auto differences = diff(parse_config("{}", "a", overrides), parse_config("{}", "b", with));
    EXPECT_TRUE(differences.empty()) << entry.path << ": " << differences.front().before << " -> " << differences.front().after;
    ++given;
  }
  EXPECT_GT(given, 350);
}

TEST(KeyTable, AKeyThatIsNotImplementedIsRefusedByNameAtAnyOtherValue) {
  int refused = 0, features = 0;
  for (const KeyEntry& entry : key_table().entries()) {
    if (entry.effect != Effect::NotImplemented) continue;
    std::string other = "[1]";
    if (entry.type == KeyType::Bool) other = entry.default_json == "true" ? "false" : "true";
    if (entry.type == KeyType::Integer) other = "77";
    if (entry.type == KeyType::Number) other = "0.77";
    if (entry.type == KeyType::String) other = "\"other\"";
    if (entry.type == KeyType::Object) other = "{\"other\": 1}";
    std::vector<std::string> overrides;  // switch on the section and those around it
    for (std::string section = entry.section(); !section.empty();
         section = section.find('.') == std::string::npos ? "" : section.substr(0, section.rfind('.')))
      if (key_table().find(section + ".enabled")) overrides.push_back(section + ".enabled=true");
    overrides.push_back(entry.path + "=" + other);
    const std::string message = trivet::refusal("{}", overrides);
    if (const Feature* feature = key_table().feature_around(entry.path)) {
      const std::string what = "--set: " + feature->section + ": " + feature->name +
                               (feature->why_removed.empty() ? " is a feature of DeepSpeed" : " was removed: ");
      if (!feature->changes_weights) {
        EXPECT_EQ(message, "accepted") << entry.path;
      } else if (entry.name() != feature->switch_key) {
        EXPECT_TRUE(message.starts_with(what)) << entry.path << ": " << message;
      }
      ++features;
      continue;
    }
    EXPECT_NE(message.find("--set: " + entry.path + ": "), std::string::npos) << message;
    EXPECT_NE(message.find("known to DeepSpeed but not implemented by Trivet"), std::string::npos) << message;
    ++refused;
  }
  EXPECT_GT(refused, 20);
  EXPECT_GT(features, 80);
}

}  // namespace
}  // namespace trivet::config

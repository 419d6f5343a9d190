// The cases are in bad_configs.txt, so that the messages can be read as a user reads them.
#include <gmock/gmock.h>

#include <ctime>
#include <utility>

#include "tests/config/support.h"

namespace trivet {
namespace {

struct Case {
  std::string name, config, message;
};

std::string without_last_newlines(std::string text, size_t count) {
  for (; count > 0 && text.ends_with('\n'); --count) text.pop_back();
  return text;
}

std::vector<Case> read_cases() {
  const std::string text = read_file(TRIVET_SOURCE_DIR "/tests/config/bad_configs.txt") + "\n";
  std::vector<Case> cases;
  const std::string start = "\n### ", middle = "\n---\n";
  for (size_t at = text.find(start); at != std::string::npos;) {
    const size_t next = text.find(start, at + 1);
    const std::string block = text.substr(at + start.size(), next - at - start.size());
    const size_t name_end = block.find('\n'), config_end = block.find(middle, name_end);
    cases.push_back({block.substr(0, name_end),
                     config_end > name_end ? block.substr(name_end + 1, config_end - name_end - 1) : "",
                     without_last_newlines(block.substr(config_end + middle.size()), 3)});
    at = next;
  }
  return cases;
}

TEST(BadConfigs, EachIsRefusedWithItsMessage) {
  const std::vector<Case> cases = read_cases();
  EXPECT_GE(cases.size(), 110u);
  for (const Case& bad : cases) EXPECT_EQ(refusal(bad.config), bad.message) << bad.name;
}

TEST(BadConfigs, NoneIsAccepted) {
  for (const Case& bad : read_cases()) EXPECT_NE(refusal(bad.config), "accepted") << bad.name;
}

// A config that is cut at any byte is refused with the position. It is never accepted and never a crash.
TEST(BadConfigs, AConfigCutAnywhereIsRefused) {
  const std::string whole = read_file(TRIVET_SOURCE_DIR "/configs/llama_char.json");
  const size_t end = whole.rfind('}');
  for (size_t cut = 0; cut <= end; ++cut)
    EXPECT_TRUE(refusal(whole.substr(0, cut)).starts_with("bad.json:")) << cut << ": " << refusal(whole.substr(0, cut));
}

TEST(BadConfigs, AFileOfMoreThan1MiBIsNotParsed) {
  EXPECT_EQ(refusal("{}" + std::string(size_t{1} << 20, ' ')),
            "bad.json: has 1048578 bytes; a config may have at most 1048576");
}

TEST(BadConfigs, AnOverrideIsNamedAsTheSource) {
  EXPECT_EQ(refusal("{}", {"zero_optimization.stage=4"}), "--set: zero_optimization.stage: 4 is not accepted; use 0 to 3");
  EXPECT_EQ(refusal("{}", {"zero_optimization.stag=1"}), "--set: zero_optimization.stag: unknown key; did you mean \"stage\"?");
  // The name continues that of a key of the section, but it is one of the top level.
  EXPECT_EQ(refusal("{}", {"training.steps_per_print=5"}),
            "--set: training.steps_per_print: unknown key; it belongs at the top level");
  EXPECT_EQ(refusal("{}", {"model.torch_dtype=bfloat16"}),
            "--set: model.torch_dtype: unknown key; bf16.enabled or fp16.enabled says it, at the top level; without them "
            "float32 trains");
  // Two edits would make it "from" or "lora".
  EXPECT_EQ(refusal("{}", {"model.norm=1"}), "--set: model.norm: unknown key; did you mean \"norm_epsilon\"?");
  EXPECT_EQ(refusal("{}", {"train_batch_size=eight"}),
            "--set: train_batch_size: \"eight\" is not accepted; an integer is expected");
  EXPECT_EQ(refusal("{}", {"train_batch_size"}),
            "--set train_batch_size: key=value is expected, such as --set zero_optimization.stage=2");
  for (const std::string key : {".training.steps", "training..steps", "training.", ".", "training. .steps"})
    EXPECT_EQ(refusal("{}", {key + "=1"}),
              "--set " + key + "=1: a part of the key is empty; name it, as in --set zero_optimization.stage=2");
  EXPECT_EQ(refusal("{}", {"=1"}), "--set =1: the key is empty; name it, as in --set zero_optimization.stage=2");
}

// Every known name was once copied for a comparison with such a key, each as long as the key.
TEST(BadConfigs, ALongKeyCostsNoMoreThanReadingIt) {
  const std::string name(1'000'000, 'a');
  const std::clock_t before = std::clock();
  EXPECT_THAT(refusal("{\"" + name + "\": 1}"), testing::EndsWith("...: unknown key; `trivet config schema` lists all keys"));
  EXPECT_EQ(refusal("{\"" + name + "\": {\"a\": \"b\"}}"), "accepted");
  EXPECT_EQ(refusal("{\"" + name + "\": \"b\"}"), "accepted");
  EXPECT_THAT(refusal("{\"training\": {\"" + name + "\": 1}}"), testing::HasSubstr("...: unknown key"));
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 2);  // it was 4
}

// The names near to each of them were once looked for in the whole table, which took a third of a millisecond.
TEST(BadConfigs, ManyUnknownKeysCostLittleTime) {
  const std::vector<std::pair<std::string, std::string>> kinds{
      {"gradient_clippin", "1"}, {"k", "1"}, {"k", "\"a\""}, {"k", "{\"a\": 1}"}};
  const std::clock_t before = std::clock();
  for (const auto& [name, value] : kinds) {
    std::string text = "{\"aio\": {";
    for (int i = 0; i < 10000; ++i) text += "\"" + name + std::to_string(i) + "\": " + value + ", ";
    text += "}, ";
    for (int i = 0; i < 10000; ++i) text += "\"" + name + std::to_string(i) + "\": " + value + ", ";
    EXPECT_THAT(refusal(text + "}"), testing::AnyOf("accepted", testing::HasSubstr(": unknown key")));
  }
  const double seconds = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds, 4);  // it was 20
}

TEST(BadConfigs, AFolderIsNoConfig) {
  try {
    load_config(TRIVET_SOURCE_DIR);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
    EXPECT_STREQ(error.what(), TRIVET_SOURCE_DIR ": is a folder; name a file");
  }
}

}  // namespace
}  // namespace trivet

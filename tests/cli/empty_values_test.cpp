// A value that is empty, such as "$HOSTS" in a script where HOSTS is not set, must not count as one that was not given.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>

#include "cli/usage.h"
#include "core/error.h"
#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

using testing::HasSubstr;

// What is wrong with the words of a program that takes values in every way.
std::string problem_with(std::vector<std::string> words) {
  CLI::App program("A small program.", "small");
  std::string text;
  std::vector<std::string> texts;
  bool flag = false;
  CLI::App* fit = program.add_subcommand("fit", "Fit");
  fit->add_option("points", texts, "files");
  fit->add_option("-k,--kind", text, "kind");
  fit->add_option("--log", text, "log")->expected(0, 1);
  fit->add_option("--set", texts, "settings")->take_all()->allow_extra_args(false);
  fit->add_option("--system", text, "may be empty");
  fit->add_flag("-q,--quiet", flag, "quiet");
  program.add_subcommand("start", "Start")->prefix_command()->add_option("-n,--number", text, "number");
  words.insert(words.begin(), "small");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  try {
    check_no_empty_values(program, static_cast<int>(pointers.size()), pointers.data());
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(EmptyValues, AreRefusedWithTheNameOfTheFlag) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> refused{
      {{"fit", "--kind", ""},
       "fit: --kind: an empty value is not accepted; give it a value, or leave it out; see small fit --help"},
      {{"fit", "--kind="}, "--kind: an empty value"},
      {{"fit", "-k", ""}, "-k: an empty value"},
      {{"fit", "a", "--log", ""}, "--log: an empty value"},
      {{"fit", "--log="}, "--log: an empty value"},
      {{"fit", "--set", "a=1", "--set", ""}, "--set: an empty value"},
      {{"fit", ""}, "\"\": an empty value"},
      {{"fit", "a", "", "b"}, "\"\": an empty value"},
      {{"fit", "-q", ""}, "\"\": an empty value"},
      {{"start", "-n", "", "program"}, "-n: an empty value"},
      {{"start", "--number=", "program"}, "--number: an empty value"},
      {{"start", ""}, "\"\": an empty value"}};
  for (const auto& [words, message] : refused) EXPECT_THAT(problem_with(words), HasSubstr(message)) << words.back();
}

TEST(EmptyValues, AreLeftAloneWhereTheyMeanSomething) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"fit", "a", "--kind", "line", "--log", "--set", "key=", "-q"},
                                             {"fit", "--system", ""},
                                             {"fit", "--kind", "--log="},
                                             {"start", "-n", "1", "program", "", "--number", ""},
                                             {"start", "--", "program", ""},
                                             {"fit", "--kind"}})
    EXPECT_EQ(problem_with(words), "") << words.back();
}

TEST(EmptyValues, OfThisProgramsFlagsAreRefused) {
  const test::Folder folder;
  for (const char* arguments :
       {"train c.json --init-from ''", "train c.json --metrics ''", "train c.json --resume ''", "train ''",
        "train --config=", "replay c.json --checkpoints ''", "tune c.json --profile ''", "data prepare a --output ''",
        "data prepare a --output b --vocabulary ''", "plan c.json --html ''", "doctor --hosts ''", "doctor --directory ''",
        "report '' a", "generate '' --prompt a", "checkpoint export hf a --output b --like ''", "bench comm --profile ''",
        "demo --directory="}) {
    const test::Output output = folder.run(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_THAT(output.errors, HasSubstr("an empty value is not accepted")) << arguments;
  }
}

}  // namespace
}  // namespace trivet::cli

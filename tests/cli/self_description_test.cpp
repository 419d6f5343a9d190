// Man pages and shell completions, made from a small command line and from the program's own.
#include <gmock/gmock.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cli/self_description/command_tree.h"
#include "cli/self_description/completion.h"
#include "cli/self_description/man_page.h"
#include "tests/cli/program.h"

namespace trivet::cli {
namespace {

using test::Folder;
using test::Output;

// A program with each kind of thing that the program has.
class SmallProgram {
 public:
  SmallProgram() {
    CLI::App* fit = program.add_subcommand("fit", "Fit a curve. It isn't hard");
    fit->footer("Reads stdin.\n\nExamples:\n  small fit --kind line\n  small fit -q\n");
    fit->add_option("points", text_, "file of points")->required();
    fit->add_option("-k,--kind", text_, "kind of curve: which one")->check(CLI::IsMember({"line", "arc"}));
    fit->add_option("--log", text_, "write a log")->required();
    fit->add_option("--count", number_, "how many")->capture_default_str();
    fit->add_option("--draw", text_, "draw it")->expected(0, 1);
    fit->add_flag("-q,--quiet", quiet_, "print nothing");
    fit->add_flag("--secret", quiet_, "for tests")->group("");
    CLI::App* set = program.add_subcommand("set", "Sets of points");
    set->require_subcommand(1);
    CLI::App* show = set->add_subcommand("show", "Show a set");
    show->add_option("sets", text_, "sets to show");
    show->add_subcommand("all", "Show every set");
    program.add_subcommand("hidden", "For other programs")->group("");
  }
  Command describe() const { return describe_command(program); }
  CLI::App program{"A small program.", "small"};

 private:
  std::string text_;
  int number_ = 7;
  bool quiet_ = false;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_installed(const char* shell) { return std::system((std::string("command -v ") + shell + " >/dev/null").c_str()) == 0; }

// What a shell offers for the last of `words`, with the script that the program prints for it.
std::vector<std::string> offers(const Folder& folder, const std::string& shell, const std::string& words) {
  EXPECT_EQ(folder.run("completion " + shell, "script").code, 0);
  std::string command;
  if (shell == "bash")
    command = "bash --norc -c 'source ./script; COMP_WORDS=(" + words +
              "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _trivet; printf \"%s\\n\" \"${COMPREPLY[@]}\"'";
  else if (shell == "zsh")
    command =
        "zsh -fc 'compdef() {}; compadd() { shift; print -l -- $@ }; _files() { print FILES }; "
        "_describe() { local -a names=(${${(P)${@[-1]}}%%:*}); print -l -- ${(M)names:#${words[CURRENT]}*} }; "
        "source ./script; words=(" +
        words + "); CURRENT=$#words; _trivet'";
  else
    command = "fish --no-config -c 'source ./script; complete -C \"" + words + "\"' | cut -f 1";
  EXPECT_EQ(std::system(("cd '" + folder.path() + "' && " + command + " > offers").c_str()), 0);
  auto lines = lines_of(folder.read("offers"));
  lines.erase(std::remove(lines.begin(), lines.end(), ""), lines.end());
  return lines;
}

TEST(CommandTree, HoldsWhatIsNotHidden) {
  const SmallProgram small;
  const Command command = small.describe();
  ASSERT_EQ(command.commands.size(), 2u);
  const Command& fit = command.commands[0];
  EXPECT_EQ(fit.name, "small fit");
  ASSERT_EQ(fit.positionals.size(), 1u);
  EXPECT_EQ(fit.positionals[0].names, std::vector<std::string>{"points"});
  EXPECT_TRUE(fit.positionals[0].required);
  ASSERT_EQ(fit.options.size(), 6u);  // --help is the first
  EXPECT_EQ(fit.options[1].names, (std::vector<std::string>{"-k", "--kind"}));
  EXPECT_EQ(fit.options[1].choices, (std::vector<std::string>{"line", "arc"}));
  EXPECT_EQ(fit.options[2].value, "TEXT");
  EXPECT_EQ(fit.options[3].value, "INT");
  EXPECT_EQ(fit.options[3].description, "how many [default: 7]");
  EXPECT_FALSE(fit.options[3].value_is_optional);
  EXPECT_TRUE(fit.options[4].value_is_optional);
  EXPECT_EQ(fit.options[5].value, "");
  EXPECT_FALSE(fit.options[5].value_is_optional);
  EXPECT_EQ(command.commands[1].commands[0].name, "small set show");
}

TEST(ManPages, DescribeACommandAndWhatIsBelowIt) {
  const SmallProgram small;
  const auto pages = man_pages(small.describe(), "1.2");
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages[0].file, "small.1");
  EXPECT_EQ(pages[1].file, "small-fit.1");
  EXPECT_EQ(pages[1].text,
            ".TH SMALL\\-FIT 1 \"\" \"trivet 1.2\" \"Trivet\"\n"
            ".SH NAME\n"
            "small\\-fit \\- Fit a curve\n"
            ".SH SYNOPSIS\n"
            "\\fBsmall fit\\fR [\\fIoptions\\fR] \\fIpoints\\fR\n"
            ".SH DESCRIPTION\n"
            ".PP\nFit a curve. It isn\\(aqt hard\n"
            ".PP\nReads stdin.\n"
            ".SH ARGUMENTS\n"
            ".TP\n\\fIpoints\\fR\nfile of points\n"
            ".SH OPTIONS\n"
            ".TP\n\\fB\\-h\\fR, \\fB\\-\\-help\\fR\nPrint this help message and exit\n"
            ".TP\n\\fB\\-k\\fR, \\fB\\-\\-kind\\fR \\fITEXT\\fR\nkind of curve: which one\n.br\nAccepted: line, arc\n"
            ".TP\n\\fB\\-\\-log\\fR \\fITEXT\\fR\nwrite a log (required)\n"
            ".TP\n\\fB\\-\\-count\\fR \\fIINT\\fR\nhow many [default: 7]\n"
            ".TP\n\\fB\\-\\-draw\\fR [\\fITEXT\\fR]\ndraw it\n"
            ".TP\n\\fB\\-q\\fR, \\fB\\-\\-quiet\\fR\nprint nothing\n"
            ".SH EXAMPLES\n"
            ".PP\n.EX\n  small fit \\-\\-kind line\n  small fit \\-q\n.EE\n"
            ".SH SEE ALSO\n"
            ".BR trivet (1)\n");
  EXPECT_THAT(
      pages[2].text,
      testing::HasSubstr(
          ".SH SHOW\n\\fBsmall set show\\fR [\\fIoptions\\fR] [\\fIsets\\fR] [\\fIcommand\\fR ...]\n.PP\nShow a set\n"));
  EXPECT_THAT(pages[2].text,
              testing::HasSubstr(".SH ALL\n\\fBsmall set show all\\fR [\\fIoptions\\fR]\n.PP\nShow every set\n"));
}

TEST(ManPages, KeepTextThatRoffWouldTakeForARequest) {
  CLI::App program(".first\n.second\n'third \\ and. fourth", "small");
  const auto pages = man_pages(describe_command(program), "1");
  EXPECT_THAT(pages[0].text, testing::HasSubstr(".PP\n\\&.first\n\\&.second\n\\(aqthird \\e and. fourth\n"));
}

TEST(ManPages, KeepExamplesAsTheyAreTyped) {
  CLI::App program("Examples", "small");
  program.add_subcommand("fit", "Fit")->footer("Example: cd ~/fits; small fit --name 'a^b' `date`");
  const auto pages = man_pages(describe_command(program), "1");
  EXPECT_THAT(pages[1].text,
              testing::HasSubstr(".EX\ncd \\(ti/fits; small fit \\-\\-name \\(aqa\\(hab\\(aq \\(gadate\\(ga\n.EE\n"));
}

TEST(ManPages, SayWhetherACommandMustFollow) {
  const SmallProgram small;
  EXPECT_THAT(man_pages(small.describe(), "1")[2].text,
              testing::HasSubstr(".SH SYNOPSIS\n\\fBsmall set\\fR [\\fIoptions\\fR] \\fIcommand\\fR ...\n"));
}

TEST(ManPages, AreWrittenForEveryCommandOfTheProgram) {
  const Folder folder;
  const Output output = folder.run("man-pages .");
  ASSERT_EQ(output.code, 0) << output.errors;
  const std::string page = folder.read("trivet.1");
  const Output bash = folder.run("completion bash");
  for (const std::string& name : offers(folder, "bash", "trivet \"\"")) {
    EXPECT_THAT(page, testing::HasSubstr("\\fBtrivet\\-" + name + "\\fR(1)")) << name;
    EXPECT_TRUE(std::filesystem::exists(folder.path() + "/trivet-" + name + ".1")) << name;
  }
  EXPECT_THAT(folder.read("trivet-config.1"), testing::HasSubstr("\\fBtrivet config check\\fR"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/trivet-launch-agent.1"));
}

TEST(ManPages, InADirectoryThatDoesNotExistAreRefused) {
  const Output output = Folder().run("man-pages nowhere");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.errors, "trivet: error: nowhere/trivet.1: cannot be written: No such file or directory\n");
}

class Completion : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!is_installed(GetParam())) GTEST_SKIP() << GetParam() << " is not installed";
  }
  std::vector<std::string> offers_for(const std::string& words) const { return offers(folder_, GetParam(), words); }
  bool is_fish() const { return std::string(GetParam()) == "fish"; }
  // fish takes a line, the others take words.
  std::string nothing() const { return is_fish() ? "" : "\"\""; }

 private:
  const Folder folder_{};
};

TEST_P(Completion, OffersSubcommands) {
  const auto all = offers_for("trivet " + nothing());
  EXPECT_THAT(all, testing::IsSupersetOf({"train", "launch", "config", "demo", "completion"}));
  EXPECT_THAT(all, testing::Not(testing::Contains("launch-agent")));
  EXPECT_THAT(offers_for("trivet config " + nothing()),
              testing::UnorderedElementsAre("check", "explain", "diff", "schema", "reference"));
}

TEST_P(Completion, OffersOptionsOfTheCommandThatWasTyped) {
  EXPECT_THAT(offers_for("trivet generate --"), testing::IsSupersetOf({"--prompt", "--temperature", "--device"}));
  EXPECT_THAT(offers_for("trivet config explain --"),
              testing::UnorderedElementsAre("--help", "--set", "--init-from", "--long", "--json"));
}

TEST_P(Completion, FollowsTheCommandThatIsLaunched) {
  EXPECT_THAT(offers_for("trivet launch --num_gpus 2 trivet generate --dev"), testing::Contains("--device"));
  EXPECT_THAT(offers_for("trivet launch --num_gpus 2 trivet config " + nothing()), testing::Contains("explain"));
}

TEST_P(Completion, OffersTheAcceptedValues) {
  EXPECT_THAT(offers_for("trivet generate --device " + nothing()), testing::UnorderedElementsAre("cpu", "cuda", "auto"));
  EXPECT_THAT(offers_for("trivet completion " + nothing()), testing::UnorderedElementsAre("bash", "zsh", "fish"));
}

TEST_P(Completion, OffersCommandsAndFilesWhereBothMayStand) {
  const auto offered = offers_for("trivet report " + nothing());
  EXPECT_THAT(offered, testing::Contains("scaling"));
  EXPECT_THAT(offered, testing::Contains(std::string(GetParam()) == "zsh" ? "FILES" : "script"));
}

INSTANTIATE_TEST_SUITE_P(Shells, Completion, testing::Values("bash", "zsh", "fish"),
                         [](const auto& shell) { return std::string(shell.param); });

TEST(BashCompletion, KeepsTheBeginningOfTheWord) {
  const Folder folder;
  EXPECT_EQ(offers(folder, "bash", "trivet ge"), std::vector<std::string>{"generate"});
  EXPECT_EQ(offers(folder, "bash", "trivet generate --dev"), std::vector<std::string>{"--device"});
  EXPECT_EQ(offers(folder, "bash", "trivet generate --device = cu"), std::vector<std::string>{"cuda"});
}

TEST(BashCompletion, LeavesFileNamesToBash) {
  const Folder folder;
  EXPECT_EQ(offers(folder, "bash", "trivet train --metrics \"\""), std::vector<std::string>{});
  EXPECT_EQ(offers(folder, "bash", "trivet train \"\""), std::vector<std::string>{});
}

TEST(FishCompletion, QuotesDescriptions) {
  const SmallProgram small;
  EXPECT_THAT(fish_completion(small.describe()),
              testing::HasSubstr("complete -c trivet -n 'test (__trivet_command) = \"small\"' -f -a fit -d 'Fit a curve. It "
                                 "isn\\'t hard'\n"));
}

TEST(FishCompletion, TakesTheNextWordOnlyForAValueThatIsNotOptional) {
  const SmallProgram small;
  const std::string script = fish_completion(small.describe());
  EXPECT_THAT(script, testing::HasSubstr("\"small fit\"' -l log -r -d 'write a log'\n"));
  EXPECT_THAT(script, testing::HasSubstr("\"small fit\"' -s k -l kind -x -a 'line arc' -d"));
  EXPECT_THAT(script, testing::HasSubstr("\"small fit\"' -l draw -d 'draw it'\n"));
}

TEST(ZshCompletion, QuotesDescriptions) {
  const SmallProgram small;
  EXPECT_THAT(zsh_completion(small.describe()), testing::HasSubstr("'fit:Fit a curve. It isn'\\''t hard'"));
}

}  // namespace
}  // namespace trivet::cli

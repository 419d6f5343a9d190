#include "core/output_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "core/error.h"
#include "core/named_files.h"
#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

bool is_page_of_test(std::string_view beginning) { return beginning.starts_with("page"); }

class OutputGuardTest : public testing::Test {
 protected:
  OutputGuardTest() {
    folder_.write("c.json", "{}");
    fs::create_directories(at("texts/more"));
    fs::create_directories(at("elsewhere"));
    folder_.write("texts/a.txt", "a");
    folder_.write("texts/more/b.txt", "b");
    folder_.write("elsewhere/d.txt", "d");
    fs::create_symlink(at("elsewhere"), at("texts/linked"));
    fs::create_symlink("c.json", at("link"));
    fs::create_symlink(at("texts/not-there.html"), at("dangling"));
    fs::create_symlink(at("texts"), at("way"));
    fs::create_hard_link(at("c.json"), at("hard"));
    fs::create_hard_link(at("texts/more/b.txt"), at("hard.txt"));
    folder_.write("own.html", "page of an earlier run");
    folder_.write("other.html", "somebody's");
    folder_.write("empty.html", "");
  }
  std::string at(const std::string& name) const { return folder_.at(name); }

  // What is said of an output; empty: it is accepted.
  std::string refusal(const std::string& name, Force force = Force::No) const {
    OutputGuard guard(force);
    guard.reads(at("c.json"), "the config");
    guard.reads_data(at("texts"), "data.train");
    guard.reads(at("no-such-file"), "nothing");
    guard.reads("", "nothing");
    try {
      guard.check({.path = at(name), .key = "--html", .what = "a page", .is_own = is_page_of_test});
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }

  const test::TemporaryFolder folder_;
};

TEST_F(OutputGuardTest, NoNameOfAnInputIsAnOutputWithOrWithoutForce) {
  for (const char* name : {"c.json", "./texts/../c.json", "link", "hard"})
    for (const Force force : {Force::No, Force::Yes, Force::NotOffered})
      EXPECT_THAT(refusal(name, force), HasSubstr("is the same file as an input (the config), which would be overwritten"))
          << name;
  for (const char* name : {"texts/a.txt", "texts/more/b.txt", "texts/linked/d.txt", "elsewhere/d.txt", "hard.txt", "way/a.txt"})
    EXPECT_THAT(refusal(name, Force::Yes), HasSubstr("is the same file as an input (data.train)")) << name;
  EXPECT_EQ(folder_.read("c.json"), "{}");
}

TEST_F(OutputGuardTest, WhatWouldBecomeDataIsNoOutput) {
  for (const char* name : {"texts/new.html", "texts/more/new.html", "texts/linked/new.html", "elsewhere/new.html",
                           "way/new.html", "dangling", "texts/new-folder/../new.html"})
    EXPECT_THAT(refusal(name, Force::Yes), HasSubstr("lies in a folder whose files are read (data.train)")) << name;
  EXPECT_EQ(refusal("new.html"), "");
  EXPECT_EQ(refusal("texts.html"), "");
}

// Some outputs are written under PATH.tmp first.
TEST_F(OutputGuardTest, NorIsTheUnfinishedOutputAnInput) {
  folder_.write("page.html.tmp", "{}");
  OutputGuard guard;
  guard.reads(at("page.html.tmp"), "the config");
  EXPECT_THROW(guard.check({.path = at("page.html"), .key = "--html", .what = "a page"}), ConfigError);
}

TEST_F(OutputGuardTest, FilesOfOthersAreReplacedOnlyByForce) {
  EXPECT_THAT(refusal("other.html"),
              HasSubstr("exists, and is not a page; name another file, or replace this one with --force"));
  EXPECT_THAT(refusal("other.html", Force::NotOffered), HasSubstr("name another file, or remove this one"));
  EXPECT_EQ(refusal("other.html", Force::Yes), "");
  for (const char* name : {"own.html", "empty.html", "not-there/new.html"}) EXPECT_EQ(refusal(name), "") << name;
  EXPECT_THAT(refusal("elsewhere/.."), HasSubstr("is a folder; name a file"));
}

TEST_F(OutputGuardTest, AFifoIsOnlyWrittenWhereItIs) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  EXPECT_THAT(refusal("fifo", Force::Yes), HasSubstr("is a FIFO; name a file"));
  EXPECT_NO_THROW(OutputGuard().check({.path = at("fifo"), .key = "--metrics", .what = "metrics", .in_place = true}));
  EXPECT_NO_THROW(OutputGuard().check({.path = "/dev/null", .key = "--metrics", .what = "metrics", .in_place = true}));
}

TEST_F(OutputGuardTest, APatternOfDataTakesTheFilesThatMatch) {
  OutputGuard guard;
  guard.reads_matching(
      at("elsewhere"), [](std::string_view name) { return name.ends_with(".txt"); }, "data.train");
  const auto refusal_of = [&](const char* name) {
    try {
      guard.check({.path = at(name), .key = "--metrics", .what = "metrics"});
      return std::string();
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(refusal_of("elsewhere/d.txt"), HasSubstr("is the same file as an input"));
  EXPECT_THAT(refusal_of("texts/linked/new.txt"), HasSubstr("has a name that data.train matches"));
  EXPECT_EQ(refusal_of("elsewhere/new.jsonl"), "");
}

TEST_F(OutputGuardTest, FoldersAreCheckedByTheNamesOfTheirFiles) {
  OutputGuard guard;
  guard.reads(at("c.json"), "the config");
  guard.reads_data(at("texts"), "data.train");
  const auto check = [&](const std::string& folder, const std::vector<std::string>& names) {
    guard.check_files_in(folder, names, {.path = "", .key = "run.directory", .what = "a page", .is_own = is_page_of_test});
  };
  EXPECT_THROW(check(folder_.path(), {"c.json"}), ConfigError);
  EXPECT_THROW(check(at("own.html"), {}), ConfigError) << "it is no folder";
  EXPECT_THROW(guard.check_names_in(at("own.html"), {"step-*"}, "checkpoint.directory"), ConfigError);
  EXPECT_THROW(check(folder_.path(), {"other.html"}), ConfigError);
  EXPECT_THROW(check(folder_.path(), {"*.html"}), ConfigError);
  EXPECT_THROW(check(at("texts/new-folder"), {}), ConfigError);
  EXPECT_NO_THROW(check(folder_.path(), {"own.html", "plan.json"}));
  EXPECT_NO_THROW(check(at("not-there"), {"c.json"}));
  EXPECT_THROW(guard.check_folder(folder_.path(), "--output"), ConfigError);
  EXPECT_NO_THROW(guard.check_folder(at("not-there"), "--output"));
  EXPECT_THROW(guard.check_folder(at("own.html"), "--output"), ConfigError) << "it is no folder";
}

// Later outputs, and whether they may be where `first` is.
TEST_F(OutputGuardTest, NoTwoOutputsAreOneFileOrLieInEachOther) {
  fs::create_hard_link(at("own.html"), at("second-name.html"));
  fs::create_symlink(at("elsewhere"), at("other-way"));
  struct Two {
    std::string first, second;
    bool accepted;
  };
  for (const Two& two : std::vector<Two>{{"x", "x", false},
                                         {"x", "./elsewhere/../x", false},
                                         {"elsewhere/x", "other-way/x", false},
                                         {"own.html", "second-name.html", false},
                                         {"x", "x/under", false},
                                         {"x/under", "x", false},
                                         {"run/", "run/page.html", false},
                                         {"run/page.html", "run/", false},
                                         {"run/", "run/step-3/m", false},
                                         {"run/", "run/", false},
                                         {"run", "run/", false},
                                         {"run/", "run/m.jsonl", true},
                                         {"run/", "run2/", true},
                                         {"x", "y", true},
                                         {"/dev/shm/trivet-guard", "/dev/shm/trivet-guard", false},
                                         {"/dev/stdout", "/dev/stdout", true},
                                         {"/dev/null", "/dev/null", true}}) {
    OutputGuard guard(Force::Yes);
    const auto add = [&](const std::string& name, const std::string& key) {
      const std::string path = name.starts_with('/') ? name : at(name);
      if (name.ends_with('/'))
        guard.check_names_in(path, {"page.html", "*.csv", "step-*"}, key);
      else
        guard.check({.path = path, .key = key, .what = "files", .in_place = true});
    };
    add(two.first, "--first");
    EXPECT_NO_THROW(add(two.first, "--first")) << "again, for the same output";
    try {
      add(two.second, "--second");
      EXPECT_TRUE(two.accepted) << two.first << " and " << two.second;
    } catch (const ConfigError& error) {
      EXPECT_FALSE(two.accepted) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("is also written by --first; name another place for one of them"));
      EXPECT_THAT(error.what(), testing::StartsWith("--second: "));
    }
  }
}

// The ranks know what their launcher reads and writes, also under names in which separators occur.
TEST_F(OutputGuardTest, FilesOfTheLauncherAreInputsAndOutputs) {
  const std::vector<NamedFile> files{{"--hostfile", at("c.json")}, {"the program", at("texts//a.txt")}, {"odd", at("a:b\nc,")}};
  const std::vector<NamedFile> read = named_files(list_of_named_files(files));
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[0].name, "--hostfile");
  EXPECT_EQ(read[1].path, at("texts/a.txt"));
  EXPECT_EQ(read[2].path, at("a:b\nc,"));
  for (const char* list : {"", "//", "///", "a", "a//", "//b"}) EXPECT_LE(named_files(list).size(), 1u) << list;
  ::setenv(kLauncherInputs, list_of_named_files(files).c_str(), 1);
  ::setenv(kLauncherOutputs, list_of_named_files({{"--enable_each_rank_log", at("lg/rank_0.out")}}).c_str(), 1);
  OutputGuard guard(Force::Yes);
  ::unsetenv(kLauncherInputs);
  ::unsetenv(kLauncherOutputs);
  const auto refusal_of = [&](const std::string& name) -> std::string {
    try {
      guard.check({.path = at(name), .key = "--metrics", .what = "metrics"});
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal_of("hard"), HasSubstr("is the same file as an input (--hostfile of trivet launch)"));
  EXPECT_THAT(refusal_of("way/a.txt"), HasSubstr("is the same file as an input (the program of trivet launch)"));
  EXPECT_THAT(refusal_of("lg/rank_0.out"), HasSubstr("is also written by --enable_each_rank_log of trivet launch"));
  EXPECT_EQ(refusal_of("lg/rank_1.out"), "");
  fs::create_directory(at("lg"));
  // A log among the data would be read with them the next time.
  EXPECT_NO_THROW(guard.reads_data(at("texts"), "data.train"));
  EXPECT_THROW(guard.reads_data(at("lg"), "data.train"), ConfigError);
  EXPECT_THROW(guard.reads_matching(
                   at("lg"), [](std::string_view name) { return name.ends_with(".out"); }, "data.train"),
               ConfigError);
}

TEST_F(OutputGuardTest, AFileThatIsNotThereHasAFolder) {
  const fs::path before = fs::current_path();
  fs::current_path(at("texts"));
  OutputGuard guard;
  guard.reads_matching(
      "", [](std::string_view name) { return name.ends_with(".evaluation.jsonl"); }, "data.train");
  guard.reads_data(at("texts/more"), "data.validation");
  EXPECT_THROW(guard.check({.path = "m.evaluation.jsonl", .key = "--metrics", .what = "metrics"}), ConfigError);
  EXPECT_NO_THROW(guard.check({.path = "m.jsonl", .key = "--metrics", .what = "metrics"}));
  fs::current_path("more");
  EXPECT_THROW(guard.check({.path = "m.jsonl", .key = "--metrics", .what = "metrics"}), ConfigError);
  fs::current_path(before);
}

}  // namespace
}  // namespace trivet

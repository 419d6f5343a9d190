#include "core/module_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

using testing::ElementsAre;

constexpr uid_t kStranger = 54321;

// A program, and a module of it in lib/trivet.
class ModuleNextToAProgram : public testing::Test {
 protected:
  ModuleNextToAProgram() {
    std::filesystem::create_directories(folder.at("bin"));
    std::filesystem::create_directories(folder.at("lib/trivet"));
    folder.write("bin/program", "");
    folder.write("lib/trivet/libmodule.so", "");
  }
  std::string refusal() const { return refusal_of_module(folder.at("bin/program"), folder.at("lib/trivet/libmodule.so")); }
  bool give(const char* name) const { return ::lchown(folder.at(name).c_str(), kStranger, kStranger) == 0; }

  const test::TemporaryFolder folder;
};

TEST_F(ModuleNextToAProgram, IsOpenedIfItBelongsToThisUser) { EXPECT_EQ(refusal(), ""); }

TEST_F(ModuleNextToAProgram, IsNotOpenedIfItIsMissing) {
  std::filesystem::remove(folder.at("lib/trivet/libmodule.so"));
  EXPECT_EQ(refusal(), folder.at("lib/trivet/libmodule.so") + ": cannot open shared object file: No such file or directory");
}

TEST_F(ModuleNextToAProgram, IsNotOpenedIfAnotherUserPutItThere) {
  for (const char* part : {"lib", "lib/trivet", "lib/trivet/libmodule.so"}) {
    if (!give(part)) GTEST_SKIP() << "only root can give files to another user";
    EXPECT_EQ(refusal(),
              folder.at("lib/trivet/libmodule.so") + ": is not opened, because " + folder.at(part) + " belongs to user 54321");
    ASSERT_EQ(::lchown(folder.at(part).c_str(), ::geteuid(), ::getegid()), 0);
  }
}

TEST_F(ModuleNextToAProgram, IsOpenedIfItBelongsToTheOwnerOfTheProgram) {
  for (const char* part : {"lib", "lib/trivet", "lib/trivet/libmodule.so", "bin/program"})
    if (!give(part)) GTEST_SKIP() << "only root can give files to another user";
  EXPECT_EQ(refusal(), "");
}

// A pipe would keep dlopen waiting.
TEST_F(ModuleNextToAProgram, IsNotOpenedIfOthersMayWriteToItOrItIsNoFile) {
  const std::string module = folder.at("lib/trivet/libmodule.so"), start = module + ": is not opened, because ";
  ::chmod(folder.at("lib/trivet").c_str(), 0777);
  EXPECT_EQ(refusal(), start + folder.at("lib/trivet") + " has mode 777, so that others may write to it");
  ::chmod(folder.at("lib/trivet").c_str(), 01777);
  EXPECT_EQ(refusal(), "");
  ::chmod(module.c_str(), 0666);
  EXPECT_EQ(refusal(), start + module + " has mode 666, so that others may write to it");
  std::filesystem::remove(module);
  std::filesystem::create_symlink("/dev/zero", module);
  EXPECT_EQ(refusal(), start + "it is not a regular file");
  std::filesystem::create_directory(folder.at("open"));
  ::chmod(folder.at("open").c_str(), 0777);
  folder.write("open/other.so", "");
  std::filesystem::remove(module);
  std::filesystem::create_symlink(folder.at("open/other.so"), module);
  EXPECT_EQ(refusal(), start + "it is in " + folder.at("open") + ", which has mode 777, so that others may write to it");
  std::filesystem::remove(module);
  ASSERT_EQ(::mkfifo(module.c_str(), 0600), 0);
  EXPECT_EQ(refusal(), start + "it is not a regular file");
}

// Whoever owns a folder above the program can change the program, too.
TEST_F(ModuleNextToAProgram, MayBeInAFolderOfAnotherUserThatTheProgramIsInToo) {
  if (!give(".")) GTEST_SKIP() << "only root can give files to another user";
  EXPECT_EQ(refusal(), "");
}

TEST(ModuleFile, IsLookedForNextToTheProgramAndWhereItIsInstalled) {
  EXPECT_THAT(module_folders("/usr/bin/trivet"), ElementsAre("/usr/bin", "/usr/lib/trivet"));
}

TEST(ModuleFile, ThatIsMissingIsReportedWithEveryPlace) {
  const OpenedModule opened = open_module({.file = "libtrivet_none.so", .variable = "TRIVET_NONE_MODULE", .entry = "none"});
  EXPECT_EQ(opened.place, "");
  EXPECT_EQ(opened.entry, nullptr);
  EXPECT_THAT(opened.failures, testing::HasSubstr("/lib/trivet/libtrivet_none.so: cannot open shared object file"));
  EXPECT_THAT(opened.failures,
              testing::HasSubstr("; " TRIVET_INSTALLED_MODULES "/libtrivet_none.so: cannot open shared object file"));
  EXPECT_THAT(opened.failures, testing::HasSubstr("; libtrivet_none.so: cannot open shared object file"));
}

}  // namespace
}  // namespace trivet

// Result files that are written as a whole or not at all.
#include "core/replace_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/temporary_folder.h"

namespace trivet {
namespace {

TEST(ReplaceFile, LeavesFilesOfOthersAndFollowsNoLink) {
  namespace fs = std::filesystem;
  const test::TemporaryFolder folder;
  folder.write("old", "precious");
  folder.write("mine.tmp", "mine");
  fs::create_symlink(folder.at("old"), folder.at("linked.tmp"));
  fs::create_directory(folder.at("inside"));
  for (const char* name : {"mine", "linked"}) {
    replace_file(real_file_system(), folder.at(name), std::string("new ") + name);
    EXPECT_EQ(read_text(real_file_system(), folder.at(name), 100), std::string("new ") + name);
    EXPECT_FALSE(fs::is_symlink(folder.at(name)));
  }
  EXPECT_EQ(read_text(real_file_system(), folder.at("mine.tmp"), 100), "mine");
  EXPECT_EQ(read_text(real_file_system(), folder.at("old"), 100), "precious");
  EXPECT_THROW(replace_file(real_file_system(), folder.at("inside"), "x"), FileError);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 6);
}

}  // namespace
}  // namespace trivet

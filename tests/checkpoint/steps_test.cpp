// Which steps a directory of checkpoints holds.
#include "engine/checkpoint/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/memory_file_system.h"

namespace trivet::checkpoint {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_in(FileSystem& files, const std::string& directory) {
  std::vector<std::string> names;
  for (const StepDirectory& step : list_steps(files, directory)) names.push_back(step.name);
  return names;
}

// A step that was moved aside to make room counts only until another one takes its place.
TEST(ListSteps, TakesAStepThatWasMovedAsideOnlyWhereNoneHasTakenItsPlace) {
  trivet::support::MemoryFileSystem files;
  files.create_directory("/run");
  for (const std::string& name : {step_directory_name(5), displaced_name(5), displaced_name(7), step_directory_name(3)})
    files.create_directory("/run/" + name);
  EXPECT_THAT(names_in(files, "/run"), ElementsAre(step_directory_name(3), step_directory_name(5), displaced_name(7)));
}

// Steps are sorted by number, not by name. Other entries of the directory are not steps.
TEST(ListSteps, AreInOrderOfTheirNumbers) {
  trivet::support::MemoryFileSystem files;
  files.create_directory("/run");
  for (const char* name : {"step-00000020", "step-100000000", "step-00000009", "step-9", "step-0000000x", "latest", "step-"})
    files.create_directory(std::string("/run/") + name);
  write_text(files, "/run/step-00000030", "a file");
  EXPECT_THAT(names_in(files, "/run"), ElementsAre("step-00000009", "step-00000020", "step-100000000"));
  EXPECT_THAT(names_in(files, "/nowhere"), ElementsAre());
}

}  // namespace
}  // namespace trivet::checkpoint

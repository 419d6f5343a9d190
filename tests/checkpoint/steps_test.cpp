// Which steps a directory of checkpoints holds.
#include "engine/checkpoint/steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
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
  EXPECT_THAT(names_in(files, "/run"), ElementsAre("step-00000009", "step-00000020", "step-100000000"));
  EXPECT_THAT(names_in(files, "/nowhere"), ElementsAre());
  // If it were passed over, the run would go on from an earlier step, and the next save would replace it.
  write_text(files, "/run/step-00000030", "a file");
  EXPECT_THAT([&] { list_steps(files, "/run"); },
              ::testing::ThrowsMessage<CheckpointError>(::testing::HasSubstr("/run/step-00000030: it is a link or a file")));
}

// Anything else is a path of its own, even if there is nothing.
TEST(FollowName, OnlyTheTwoNamesAreFollowed) {
  trivet::support::MemoryFileSystem files;
  files.create_directory("/run");
  for (const char* name : {"best", "latest", "worst"}) write_text(files, std::string("/run/") + name, "step-00000020\n");
  EXPECT_EQ(follow_name(files, "/run/best"), "/run/step-00000020");
  EXPECT_EQ(follow_name(files, "/run/latest"), "/run/step-00000020");
  EXPECT_EQ(follow_name(files, "/run/worst"), "/run/worst");
  EXPECT_EQ(follow_name(files, "/run"), "/run");
  EXPECT_EQ(follow_name(files, "/nowhere/best"), "/nowhere/best");
  files.create_directory("/run/inner");
  files.create_directory("/run/inner/best");  // somebody's directory of checkpoints
  EXPECT_EQ(follow_name(files, "/run/inner/best"), "/run/inner/best");
  EXPECT_TRUE(names_step(files, "/run/best"));
  for (const char* other : {"/run/worst", "/run", "/nowhere/best", "/run/inner/best"})
    EXPECT_FALSE(names_step(files, other)) << other;
}

TEST(FollowName, RefusesWhatIsNotTheNameOfAStep) {
  trivet::support::MemoryFileSystem files;
  files.create_directory("/run");
  for (const char* text : {"../step-00000020", "", "step-20", "step-00000020\n\n", "step-00000020/../x"}) {
    write_text(files, "/run/best", text);
    try {
      follow_name(files, "/run/best");
      ADD_FAILURE() << text;
    } catch (const CheckpointError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::CheckpointCorrupt);
      EXPECT_THAT(error.what(), ::testing::HasSubstr("is not the name of a step, such as step-00000200"));
    }
    EXPECT_FALSE(names_step(files, "/run/best")) << text;
  }
  write_text(files, "/run/best", std::string(65, 'x'));
  EXPECT_THROW(follow_name(files, "/run/best"), CheckpointError);
}

}  // namespace
}  // namespace trivet::checkpoint

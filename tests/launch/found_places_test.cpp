// Every place in which the program looks for a file that nobody has named: whatever others can put there is not obeyed.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "cli/launch/hostfile.h"
#include "cli/launch/hosts/exported_environment.h"
#include "comm/nccl_network.h"
#include "core/error.h"
#include "core/module_file.h"
#include "tests/launch/launched_job.h"
#include "tests/support/temporary_folder.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;
using testing::AnyOf;
using testing::HasSubstr;

// Looks for the file in the folder. Returns the reason why it is not used; empty: it is.
struct LookedForPlace {
  const char* file;
  const char* content;
  std::function<std::string(const std::string& folder)> look;
};

std::string reason_of(const std::function<void()>& look) {
  try {
    look();
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

std::vector<LookedForPlace> looked_for_places() {
  return {
      {".deepspeed_env", "A=1\n",
       [](const std::string& folder) { return reason_of([&] {
                                         exported_environment({{"HOME", folder}});
                                       }); }},
      {".deepspeed_env", "A=1\n",
       [](const std::string& folder) {
         const fs::path before = fs::current_path();
         fs::current_path(folder);
         const std::string reason = reason_of([] { exported_environment({{"HOME", "/no/such/folder"}}); });
         fs::current_path(before);
         return reason;
       }},
      {"my_env", "A=1\n",
       [](const std::string& folder) {
         return reason_of([&] { exported_environment({{"DS_ENV_FILE", folder + "/my_env"}}); });
       }},
      {"hostfile", "a slots=1\n",
       [](const std::string& folder) { return reason_of([&] { parse_usual_hostfile(folder + "/hostfile"); }); }},
      {".nccl.conf", "NCCL_DEBUG=INFO\n",
       [](const std::string& folder) { return reason_of([&] { comm::check_nccl_files(comm::nccl_files(folder)); }); }},
      {"libtrivet_ucx.so", "",
       [](const std::string& folder) { return refusal_of_module("/nowhere/bin/program", folder + "/libtrivet_ucx.so"); }},
  };
}

TEST(PlacesOfFoundFiles, AreReadIfTheyAreTheUsersOwn) {
  for (const LookedForPlace& place : looked_for_places()) {
    const test::TemporaryFolder folder;
    ::chmod(folder.write(place.file, place.content).c_str(), 0644);
    EXPECT_EQ(place.look(folder.path()), "") << place.file;
  }
}

TEST(PlacesOfFoundFiles, AreNotObeyedIfOthersCouldHavePutThemThere) {
  const std::vector<std::pair<const char*, std::function<void(const std::string&, const std::string&)>>> hostile{
      {"pipe", [](const std::string&, const std::string& file) { ::mkfifo(file.c_str(), 0600); }},
      {"link to a device", [](const std::string&, const std::string& file) { fs::create_symlink("/dev/zero", file); }},
      {"writable for all",
       [](const std::string&, const std::string& file) {
         std::ofstream(file) << "a slots=1\n";
         ::chmod(file.c_str(), 0666);
       }},
      {"folder writable for all",
       [](const std::string& folder, const std::string& file) {
         std::ofstream(file) << "a slots=1\n";
         ::chmod(folder.c_str(), 0777);
       }},
      {"file of somebody else",
       [](const std::string& folder, const std::string& file) {
         std::ofstream(file) << "LD_PRELOAD=/tmp/x.so\n";
         ::chmod(folder.c_str(), 01777);
         if (::lchown(file.c_str(), 54321, 54321) != 0) ::chmod(file.c_str(), 0666);  // only root can give files away
       }},
      {"link of somebody else",
       [](const std::string& folder, const std::string& file) {
         std::ofstream(folder + "/target") << "a slots=1\n";
         fs::create_symlink(folder + "/target", file);
         ::chmod(folder.c_str(), 01777);
         if (::lchown(file.c_str(), 54321, 54321) != 0) ::chmod((folder + "/target").c_str(), 0666);
       }},
  };
  for (const LookedForPlace& place : looked_for_places())
    for (const auto& [name, make] : hostile) {
      const test::TemporaryFolder folder;
      make(folder.path(), folder.at(place.file));
      EXPECT_THAT(place.look(folder.path()), AnyOf(HasSubstr("found and not named"), HasSubstr("is not opened, because"),
                                                   HasSubstr("; name a regular file that nobody but you and root can change")))
          << name << " as " << place.file;
    }
}

// What a stranger leaves where root starts a job must neither be obeyed nor keep a process from ending.
TEST(PlacesOfFoundFiles, EndALaunchWithTheReason) {
  const test::TemporaryFolder home;
  std::ofstream(home.at("hosts")) << "far slots=1\n";
  ASSERT_EQ(::mkfifo(home.at(".deepspeed_env").c_str(), 0600), 0);
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {test::kTrivet, "launch", "--hostfile", home.at("hosts"), "/bin/true"},
           {test::kTrivet, "launch", "--hostfile", home.at("hosts"), "--launcher", "pdsh", "/bin/true"},
           {test::kTrivet, "doctor", "--quick", "--hosts", home.at("hosts")}}) {
    test::LaunchedProcess job(words, {{"HOME", home.path()}, {test::kMark, home.path()}});
    EXPECT_EQ(job.wait(), 2) << job.output();
    EXPECT_THAT(job.output(), HasSubstr(home.at(".deepspeed_env") + ": is not a regular file; it was found and not named"));
    EXPECT_TRUE(test::becomes_true([&] { return test::processes_with(test::kMark, home.path()).empty(); }));
  }
}

}  // namespace
}  // namespace trivet::cli

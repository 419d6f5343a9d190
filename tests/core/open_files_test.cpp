#include "core/open_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

#include "core/bounded_file.h"
#include "core/error.h"
#include "core/file_system.h"

namespace trivet {
namespace {

// While it lives, this process can open no more files.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 0;
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(OpenFiles, ThatTheLimitIsReachedIsNotTheFilesFault) {
  const auto code_of = [](const auto& open) {
    const NoMoreFiles none;
    try {
      open();
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("/dev/null: cannot be opened: Too many open files; raise the limit of open "
                                                   "files (ulimit -n, now 0)"));
      return error.exit_code();
    }
    return ExitCode::Done;
  };
  EXPECT_EQ(code_of([] { read_bounded("/dev/null", 10, "a config"); }), ExitCode::OutOfMemory);
  EXPECT_EQ(code_of([] { real_file_system().open("/dev/null"); }), ExitCode::OutOfMemory);
  EXPECT_NO_THROW(check_open_files("x", ENOENT));
}

}  // namespace
}  // namespace trivet

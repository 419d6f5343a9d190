#include "core/module_file.h"

#include <gmock/gmock.h>

namespace trivet {
namespace {

using testing::ElementsAre;

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

#include "report/monitor/loss_bits.h"

#include <gmock/gmock.h>

#include <sstream>

#include "core/error.h"
#include "report/monitor/jsonl.h"

namespace trivet::monitor {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string line_with(int64_t step, uint32_t bits) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss_bits = bits;
  return to_json_line(metrics);
}

std::map<int64_t, uint32_t> read(const std::string& text) {
  std::istringstream lines(text);
  return read_loss_bits(lines, "m.jsonl", 2, 3);
}

TEST(LossBits, AreReadFromTheLinesOfTheRequestedSteps) {
  EXPECT_THAT(read(line_with(1, 0xffffffff) + line_with(2, 0x7fc00000) + line_with(3, 1) + line_with(4, 2)),
              ElementsAre(Pair(2, 0x7fc00000), Pair(3, 1)));
}

TEST(LossBits, OfAStepWithoutTargetsAreLeftOut) {
  StepMetrics none;
  none.step = 2;
  none.without_targets = true;
  EXPECT_THAT(read(line_with(1, 1) + to_json_line(none) + line_with(3, 8)), ElementsAre(Pair(3, 8)));
}

TEST(LossBits, OfALineThatIsIncompleteAreLeftOut) {
  EXPECT_THAT(read(line_with(2, 7) + line_with(3, 8).substr(0, 20)), ElementsAre(Pair(2, 7)));
}

TEST(LossBits, OfOtherTextAreRefusedByLine) {
  for (const std::string& wrong : {std::string("text\n"), "\n" + line_with(3, 1), std::string(5000, 'x') + "\n"}) try {
      read(line_with(2, 7) + wrong);
      FAIL() << wrong;
    } catch (const DataError& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::Usage);
      EXPECT_THAT(error.what(), HasSubstr("m.jsonl:2: \""));
    }
}

}  // namespace
}  // namespace trivet::monitor

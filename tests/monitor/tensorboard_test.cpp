#include "report/monitor/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/error.h"
#include "tests/data/files.h"
#include "tests/monitor/event_bytes.h"
#include "tests/support/temporary_folder.h"

namespace trivet::monitor {
namespace {

using data::file_content;
using test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2)
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(at, 2)), nullptr, 16));
  return bytes;
}

// The files of events in a folder, in the order of their names.
std::vector<std::string> event_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

StepMetrics tensorboard_step(int64_t step, double loss) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.samples = 8 * step;
  metrics.loss = loss;
  metrics.lr = 0.001;
  metrics.grad_norm = 2;
  metrics.targets_per_second = 8000;
  metrics.step_ms = 64;
  metrics.memory_bytes = 1 << 20;
  return metrics;
}

// Steps `done` + 1 to `last`; the loss of step N is 10 * run + N.
void train_with_tensorboard(const std::string& path, int run, int64_t done, int64_t last) {
  TensorBoardMonitor monitor(path, "job");
  monitor.on_start({.facts = {{"model", "gpt"}}, .steps_done = done, .samples_done = 8 * done, .total_steps = last});
  for (int64_t step = done + 1; step <= last; ++step) monitor.on_step(tensorboard_step(step, 10.0 * run + double(step)));
  monitor.on_evaluation({.step = last, .loss = 0.5, .samples = 8 * last});
}

// [tag] The values of the steps that TensorBoard shows: it reads the files in order, and what a session's start declares void
// is removed.
std::map<std::string, std::map<int64_t, float>> shown_scalars(const std::string& folder) {
  std::map<std::string, std::map<int64_t, float>> shown;
  for (const std::string& path : event_files(folder))
    for (const std::string& event : records_of(file_content(path))) {
      const auto step = static_cast<int64_t>(field_of(event, 2).integer);
      if (field_of(field_of(event, 7).bytes, 1).integer == 1)
        for (auto& [tag, values] : shown) values.erase(values.lower_bound(step), values.end());
      for (const Field& value : fields_of(field_of(event, 5).bytes))
        if (const std::string text = field_of(value.bytes, 8).bytes; text.empty())
          shown[field_of(value.bytes, 1).bytes][step] = as_float(field_of(value.bytes, 2));
    }
  return shown;
}

// The bytes are those of TensorFlow's own writer for these values.
TEST(EventFile, HasTheBytesOfTheFormat) {
  const Scalar loss{"train/loss", 2.5};
  EXPECT_EQ(framed_record(scalars_event(1700000001.5, 1, {&loss, 1})), bytes_of_hex("200000000000000029eda95009000060"
                                                                                    "40fc54d94110012a130a110a0a747261"
                                                                                    "696e2f6c6f737315000020400c53709e"));
  EXPECT_EQ(text_event(1700000002, 0, "config/text_summary", "**hello** config"),
            bytes_of_hex("0900008040fc54d9412a3f0a3d0a13636f6e6669672f746578745f73756d6d6172794a0a0a080a0474657874"
                         "1200421a080712041202080142102a2a68656c6c6f2a2a20636f6e666967"));
}

TEST(EventFile, DeclaresItsVersionAndWhereItStarts) {
  const std::string first = first_event(5);
  EXPECT_EQ(field_of(first, 3).bytes, "brain.Event:2");
  EXPECT_EQ(std::bit_cast<double>(field_of(first, 1).integer), 5.0);
  const std::string start = session_start_event(5, 300);
  EXPECT_EQ(field_of(start, 2).integer, 300u);
  EXPECT_EQ(field_of(field_of(start, 7).bytes, 1).integer, 1u);
}

TEST(TensorBoardMonitor, WritesTheTagsOfDeepSpeedAtTheNumberOfSamples) {
  const TemporaryFolder folder;
  train_with_tensorboard(folder.at("out"), 0, 0, 2);
  const auto shown = shown_scalars(folder.at("out/job"));
  EXPECT_THAT(shown.at("Train/Samples/train_loss"), ElementsAre(Pair(8, 1.0f), Pair(16, 2.0f)));
  EXPECT_THAT(shown.at("Train/Samples/lr"), ElementsAre(Pair(8, 0.001f), Pair(16, 0.001f)));
  EXPECT_THAT(shown.at("Train/Samples/grad_norm"), ElementsAre(Pair(8, 2.0f), Pair(16, 2.0f)));
  EXPECT_THAT(shown.at("Train/Samples/eval_loss"), ElementsAre(Pair(16, 0.5f)));
  EXPECT_THAT(shown.at("Train/Samples/tokens_per_second"), ElementsAre(Pair(8, 8000.0f), Pair(16, 8000.0f)));
  EXPECT_EQ(shown.count("Train/Samples/loss_scale"), 0u);
}

TEST(TensorBoardMonitor, ARunOnImagesHasImagesPerSecond) {
  const TemporaryFolder folder;
  TensorBoardMonitor monitor(folder.at("out"), "job");
  monitor.on_start({.total_steps = 1, .targets = kImages});
  monitor.on_step({.step = 1, .samples = 8, .targets_per_second = 250});
  const auto shown = shown_scalars(folder.at("out/job"));
  EXPECT_THAT(shown.at("Train/Samples/images_per_second"), ElementsAre(Pair(8, 250.0f)));
  EXPECT_EQ(shown.count("Train/Samples/tokens_per_second"), 0u);
}

TEST(TensorBoardMonitor, AResumedRunBeginsANewFileAndReplacesTheStepsThatItRepeats) {
  const TemporaryFolder folder;
  train_with_tensorboard(folder.at("out"), 1, 0, 4);
  train_with_tensorboard(folder.at("out"), 2, 2, 3);  // from the checkpoint of step 2
  EXPECT_EQ(event_files(folder.at("out/job")).size(), 2u);
  EXPECT_THAT(shown_scalars(folder.at("out/job")).at("Train/Samples/train_loss"),
              ElementsAre(Pair(8, 11.0f), Pair(16, 12.0f), Pair(24, 23.0f)));
}

TEST(TensorBoardMonitor, AFolderThatCannotBeWrittenIsNamed) {
  TensorBoardMonitor monitor("/proc/no/such", "job");
  try {
    monitor.on_start({});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("/proc/no/such/job/events.out.tfevents."));
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
  }
}

// The Python that TRIVET_TENSORBOARD_PYTHON names, or python3, if it has the package.
std::string python_with_tensorboard() {
  const char* named = std::getenv("TRIVET_TENSORBOARD_PYTHON");
  const std::string python = named ? named : "python3";
  return std::system(("'" + python + "' -c 'import tensorboard' > /dev/null 2>&1").c_str()) == 0 ? python : "";
}

TEST(TensorBoardMonitor, TensorBoardItselfReadsWhatAResumedRunLeft) {
  const std::string python = python_with_tensorboard();
  if (python.empty())
    GTEST_SKIP() << "needs a Python that has the package tensorboard: python3, or the one that TRIVET_TENSORBOARD_PYTHON names";
  const TemporaryFolder folder;
  train_with_tensorboard(folder.at("out"), 1, 0, 4);
  train_with_tensorboard(folder.at("out"), 2, 2, 3);
  folder.write("read.py", R"(
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1])
events.Reload()
print(sorted(events.Tags()["scalars"]))
print([(e.step, e.value) for e in events.Scalars("Train/Samples/train_loss")])
print([(e.step, e.value) for e in events.Scalars("Train/Samples/eval_loss")])
text = [e for tag in events.Tags()["tensors"] for e in events.Tensors(tag)][-1]
print(text.tensor_proto.string_val[0].decode().strip())
)");
  const std::string command = "'" + python + "' " + folder.at("read.py") + " " + folder.at("out/job") + " > " +
                              folder.at("found") + " 2> " + folder.at("errors");
  ASSERT_EQ(std::system(command.c_str()), 0) << folder.read("errors");
  EXPECT_EQ(folder.read("found"),
            "['Train/Samples/eval_loss', 'Train/Samples/grad_norm', 'Train/Samples/lr', 'Train/Samples/memory_bytes', "
            "'Train/Samples/step_ms', 'Train/Samples/tokens_per_second', 'Train/Samples/train_loss']\n"
            "[(8, 11.0), (16, 12.0), (24, 23.0)]\n"
            "[(24, 0.5)]\n"
            "model  gpt\n");
}

}  // namespace
}  // namespace trivet::monitor

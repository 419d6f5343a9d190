// What a run leaves for people to look at, and the page that shows it while it is going.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "core/folder_claim.h"
#include "report/read_run.h"
#include "tests/cli/running_program.h"
#include "tests/report/run_examples.h"

namespace trivet::test {
namespace {

using report::get;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Watching : public testing::Test {
 protected:
  Watching() {
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "line " + std::to_string(i * i % 97) + " of a text\n";
    folder.write("text.txt", text);
    folder.write("config.json", R"({
      "model": {"type": "gpt", "layers": 1, "hidden_size": 32, "heads": 2, "sequence_length": 16, "vocabulary": "characters"},
      "data": {"train": "text.txt"}, "training": {"steps": 6, "seed": 3, "evaluate_every": 3}, "steps_per_print": 1,
      "train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
      "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
      "checkpoint": {"directory": "checkpoints", "every_steps": 3}
    })");
  }

  Output train(const std::string& more) { return folder.run("train config.json --set run.directory=runs/one " + more); }

  // The port and the token of the address that a run printed.
  std::pair<int, std::string> address() const {
    const std::string out = folder.read("out"), before = "watch   http://127.0.0.1:", token = "/?token=";
    const size_t port = out.find(before) + before.size(), secret = out.find(token, port) + token.size();
    return {std::stoi(out.substr(port)), out.substr(secret, 32)};
  }

  Folder folder;
};

TEST_F(Watching, TheFolderOfARunHoldsWhatMadeItAndWhatItMeasured) {
  const Output run = folder.run_in("TRIVET_SECRET_FILE=/etc/secret TRIVET_JOB_ID=ab12 HOME=/nowhere",
                                   "train config.json --ranks 2 --set run.directory=runs/one --set timeline.step=2");
  ASSERT_EQ(run.code, 0) << run.errors;
  EXPECT_THAT(run.text, HasSubstr("\nreport  runs/one/report.html\n"));
  EXPECT_THAT(folder.read("runs/one/config.json"), HasSubstr("\"train_batch_size\": 4"));
  EXPECT_THAT(folder.read("runs/one/plan.txt"), StartsWith("mesh      data 2, 2 ranks\n"));
  EXPECT_THAT(folder.read("runs/one/plan.json"), HasSubstr("\"model_flops_per_step\""));
  const std::string start = folder.read("runs/one/starts.jsonl");
  for (const char* part :
       {"\"config.json\",\"--ranks\",\"2\",\"--set\",\"run.directory=runs/one\"", "\"OMP_NUM_THREADS\":\"1\"",
        "\"TRIVET_JOB_ID\":\"ab12\"", "\"trivet\":\"0.1.0\"", "\"hosts\":[\"", "\"threads_per_rank\":1"})
    EXPECT_THAT(start, HasSubstr(part));
  for (const char* part : {"secret", "HOME", "/nowhere"}) EXPECT_THAT(start, Not(HasSubstr(part)));
  EXPECT_THAT(folder.read("runs/one/metrics.jsonl"), HasSubstr("{\"step\": 6, "));
  EXPECT_THAT(folder.read("runs/one/metrics.evaluation.jsonl"), HasSubstr("{\"step\": 6, "));
  EXPECT_THAT(folder.read("runs/one/events.jsonl"), HasSubstr("{\"event\":\"checkpoint\","));
  EXPECT_THAT(folder.read("runs/one/timeline/ranks.json"), HasSubstr("\"rank\": 1"));
  const std::string page = folder.read("runs/one/report.html");
  for (const char* part :
       {"<dd>6 of 6</dd><dd class=\"more\">complete</dd>", "<h2>Memory, planned and measured</h2>",
        "<h2>Communication of one step, planned</h2>", "data:image/svg+xml;base64,", "<h2>Ranks in the recorded step</h2>",
        "<td>checkpoint</td><td>its save began</td>", "<h2>Predictions after step 6</h2>"})
    EXPECT_THAT(page, HasSubstr(part));
}

// The validation data begin at the last tenth of the text, and samples have 16 tokens.
TEST_F(Watching, TheEndsOfValidationSamplesAreShownWithTheMostProbableTokens) {
  ASSERT_EQ(train("--ranks 2 --set training.evaluate_every=6").code, 0);
  const auto shown = report::read_run(folder.at("runs/one")).predictions;
  EXPECT_EQ(shown.step, 6);
  ASSERT_EQ(shown.samples.size(), 4u);
  const std::string text = folder.read("text.txt");
  for (const auto& sample : shown.samples) {
    EXPECT_EQ(sample.before.size(), 1u);  // the other 15 are targets, too
    EXPECT_EQ(sample.target.size(), 16u);
    EXPECT_EQ(sample.predicted.size(), 16u);
    EXPECT_THAT(text, HasSubstr(sample.before + sample.target));
  }
}

// The answers of a sample, with what is asked between them left out, and no padding.
TEST_F(Watching, WholeAnswersAreShown) {
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += R"({"prompt": "ab", "completion": "an answer"})"
             "\n";
  folder.write("answers.jsonl", lines);
  ASSERT_EQ(train("--set data.train=answers.jsonl --set training.objective=sft --set model.sequence_length=16 "
                  "--set model.vocabulary=bytes --set training.evaluate_every=6")
                .code,
            0);
  const auto shown = report::read_run(folder.at("runs/one")).predictions;
  ASSERT_EQ(shown.samples.size(), 4u);
  for (const auto& sample : shown.samples) {
    EXPECT_EQ(sample.before, "ab");
    EXPECT_EQ(sample.target, "an answer");
  }
}

TEST_F(Watching, AFolderThatHoldsARunIsContinuedOrRefusedButNeverReplaced) {
  ASSERT_EQ(train("--set training.steps=3").code, 0);
  const Output refused = train("--ranks 2 --set checkpoint.directory=others");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors,
              HasSubstr("run.directory: \"runs/one\" holds an earlier run; continue it with --resume, use another "
                        "folder, or remove this one"));
  ASSERT_EQ(train("--resume").code, 0);
  const std::string starts = folder.read("runs/one/starts.jsonl");
  EXPECT_EQ(std::count(starts.begin(), starts.end(), '\n'), 2);
  const std::string metrics = folder.read("runs/one/metrics.jsonl");
  EXPECT_EQ(std::count(metrics.begin(), metrics.end(), '\n'), 6);
  EXPECT_THAT(folder.read("runs/one/report.html"), HasSubstr("start number 2"));
}

TEST_F(Watching, AnIncompleteLineOfAKilledRunDoesNotSpoilTheResumedOne) {
  ASSERT_EQ(train("--set training.steps=3").code, 0);
  for (const char* name : {"runs/one/events.jsonl", "runs/one/starts.jsonl"}) {
    const std::string text = folder.read(name);
    folder.write(name, text.substr(0, text.size() - 7));
  }
  const Output resumed = train("--resume");
  ASSERT_EQ(resumed.code, 0) << resumed.errors;
  EXPECT_THAT(resumed.errors, Not(HasSubstr("is not written")));
  EXPECT_EQ(folder.run("report runs/one").code, 0);
}

TEST_F(Watching, ARunWithoutACheckpointToResumeKeepsTheFilesOfTheEarlierOne) {
  ASSERT_EQ(train("--set training.steps=3").code, 0);
  const std::string metrics = folder.read("runs/one/metrics.jsonl"), predictions = folder.read("runs/one/predictions.json");
  const std::string config = folder.read("runs/one/config.json"), plan = folder.read("runs/one/plan.json");
  const Output anew = train("--resume --set checkpoint.directory=others");
  ASSERT_EQ(anew.code, 0) << anew.errors;
  EXPECT_THAT(anew.errors, HasSubstr("holds a run of which there is no checkpoint to resume; its files are now in "
                                     "\"runs/one/earlier-1\""));
  EXPECT_EQ(folder.read("runs/one/earlier-1/metrics.jsonl"), metrics);
  EXPECT_THAT(predictions, HasSubstr("\"step\""));
  EXPECT_EQ(folder.read("runs/one/earlier-1/predictions.json"), predictions);
  EXPECT_THAT(folder.read("runs/one/earlier-1/starts.jsonl"), HasSubstr("\"command\""));
  EXPECT_EQ(folder.read("runs/one/earlier-1/config.json"), config);
  EXPECT_NE(folder.read("runs/one/config.json"), config) << "it names the other directory of checkpoints";
  EXPECT_EQ(folder.read("runs/one/earlier-1/plan.json"), plan);
  EXPECT_THAT(folder.read("runs/one/metrics.jsonl"), HasSubstr("{\"step\": 6, "));
  ASSERT_EQ(train("--resume --set checkpoint.directory=third").code, 0);
  EXPECT_THAT(folder.read("runs/one/earlier-2/metrics.jsonl"), HasSubstr("{\"step\": 6, "));
}

TEST_F(Watching, TwoRunsAtATimeAreNotInOneFolder) {
  ASSERT_EQ(train("--set training.steps=3").code, 0);
  const std::string metrics = folder.read("runs/one/metrics.jsonl");
  const FolderClaim live(real_file_system(), folder.at("runs/one"));
  const Output refused = train("--resume --set checkpoint.directory=others");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("run.directory: \"runs/one\" is the folder of a run that is going on (process "));
  EXPECT_EQ(folder.read("runs/one/metrics.jsonl"), metrics);
  EXPECT_EQ(folder.run_in("TRIVET_EPOCH=1", "train config.json --set run.directory=runs/one --resume").code, 0);
}

// It may have been lost before its first checkpoint, and is then not asked to resume.
TEST_F(Watching, AJobThatItsLauncherStartsAgainIsTheSameRun) {
  const std::string command = "train config.json --set run.directory=runs/one --set checkpoint.directory=";
  ASSERT_EQ(folder.run(command + "first").code, 0);
  const Output again = folder.run_in("TRIVET_EPOCH=1", command + "second");
  EXPECT_EQ(again.code, 0) << again.errors;
}

TEST_F(Watching, AFolderThatCannotBeMadeIsNamed) {
  const Output run = folder.run("train config.json --set run.directory=text.txt/run");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.errors, HasSubstr("run.directory: \"text.txt/run\" cannot be created: Not a directory"));
}

TEST_F(Watching, ReportShowsOneRunOrSeveralAndNamesWhatIsNone) {
  ASSERT_EQ(train("").code, 0);
  ASSERT_EQ(folder.run("train config.json --metrics two.jsonl --set checkpoint.directory=others").code, 0);
  const Output report = folder.run("report runs/one two.jsonl -o both.html");
  EXPECT_EQ(report.text, "both.html\n") << report.errors;
  EXPECT_THAT(folder.read("both.html"), HasSubstr("<td>two.jsonl</td>"));
  EXPECT_EQ(folder.run("report runs/one").text, "runs/one/report.html\n");
  EXPECT_EQ(folder.run("report runs/one/metrics.jsonl").text, "runs/one/report.html\n");
  EXPECT_EQ(folder.run("report two.jsonl").text, "report.html\n");
  EXPECT_EQ(folder.run("report runs/one two.jsonl").text, "report.html\n");
  EXPECT_EQ(folder.run("report runs/one two.jsonl -o some.html --smooth 2 --steps 4: --log").code, 0);
  for (const char* part :
       {"<figcaption>Loss, logarithmic</figcaption>", "mean of the last 2 steps", "The steps from 4 on are drawn."})
    EXPECT_THAT(folder.read("some.html"), HasSubstr(part));
  const Output outside = folder.run("report runs/one --steps 7:9");
  EXPECT_EQ(outside.code, 2);
  EXPECT_THAT(outside.errors, HasSubstr("--steps: \"7:9\" has no step of a run; the runs have the steps 1 to 6"));
  const Output none = folder.run("report checkpoints");
  EXPECT_EQ(none.code, 2);
  EXPECT_THAT(none.errors, HasSubstr("checkpoints/metrics.jsonl: there is no such file"));
  const Output nowhere = folder.run("report runs/one -o no/such/page.html");
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.errors, HasSubstr("--output: "));
  folder.write("runs/one/report.html", "mine");
  EXPECT_EQ(folder.run("report runs/one/metrics.jsonl").code, 2);
  EXPECT_EQ(folder.read("runs/one/report.html"), "mine");
}

TEST_F(Watching, TensorBoardFilesAreWhereTheConfigSays) {
  ASSERT_EQ(train("--set tensorboard.enabled=true --set tensorboard.output_path=tb --set tensorboard.job_name=mine").code, 0);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder.at("tb/mine"))) {
    EXPECT_THAT(entry.path().filename().string(), StartsWith("events.out.tfevents."));
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST_F(Watching, ARunIsServedWhileItTrainsToWhoeverHasTheToken) {
  RunningProgram program(folder, {"train", "config.json", "--ranks", "2", "--set", "training.steps=100000000", "--set",
                                  "run.directory=runs/one", "--serve"});
  ASSERT_TRUE(program.wait_for("out", "\n       2 ")) << folder.read("err");
  const auto [port, token] = address();
  report::Client silent(port);  // holds a connection until the end
  EXPECT_THAT(get(port, "/"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(get(port, "/?token=" + token), HasSubstr("of 100,000,000</dd><dd class=\"more\">running"));
  EXPECT_THAT(get(port, "/content?token=" + token),
              HasSubstr("kept as <code>" + folder.at("runs/one/report.html") + "</code>"));
  EXPECT_THAT(get(port, "/metrics?token=" + token), HasSubstr("\ntrivet_loss{run=\"one\"} "));
  const std::string in_use =
      folder.run("train config.json --set checkpoint.directory=others --serve " + std::to_string(port)).errors;
  EXPECT_THAT(in_use, HasSubstr("cannot be listened on: Address already in use"));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait(), 128 + SIGTERM);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.at("runs/one")))
    if (entry.is_regular_file()) {
      EXPECT_THAT(folder.read(std::filesystem::relative(entry.path(), folder.path())), Not(HasSubstr(token))) << entry.path();
    }
}

}  // namespace
}  // namespace trivet::test

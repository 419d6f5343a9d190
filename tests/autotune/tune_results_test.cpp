#include "autotune/tune/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "autotune/tune/html_report.h"
#include "autotune/tune/result_key.h"
#include "core/error.h"
#include "engine/config/load.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/memory_file_system.h"

namespace trivet::autotune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::ThrowsMessage;
using trivet::support::Fault;
using trivet::support::FaultyFileSystem;
using trivet::support::MemoryFileSystem;

class Results : public ::testing::Test {
 protected:
  Results() : config(document.config()) {
    space.trials = enumerate(document, 2).trials;
    for (TrialConfig& trial : space.trials) trial.train_batch_size = 4, trial.model_flops = 1e9, trial.memory_bytes = 1 << 20;
    space.kept = {"parallel.tensor 1"};
    space.refused = {{"why <not>", 3, "z9"}};
    report = {.config = &config, .space = &space, .hardware = "2 x a processor", .world_size = 2, .seconds = 1.5};
  }

  TrialRecord record(size_t trial, double seconds) const {
    return {.trial = &space.trials[trial], .result = {.seconds = seconds}, .predicted_seconds = 0.25};
  }

  std::string read(const std::string& path) { return read_text(files, path, 1 << 20); }
  bool exists(const std::string& path) { return files.kind(path) != EntryKind::Missing; }

  const ConfigDocument document{R"({"train_batch_size": 4, "model": {"layers": 2, "hidden_size": 16, "heads": 2},
      "parallel": {"tensor": 1, "pipeline": 1}, "autotuning": {"results_dir": "/a/results", "exps_dir": "/exps"}})",
                                "gpt.json",
                                {}};
  Config config;
  TuningSpace space;
  TuningReport report;
  MemoryFileSystem files;
};

TEST_F(Results, AFinishedTrialIsFoundWithItsKeyAndAnInterruptedOneIsNot) {
  ResultFolders folders(files, config.autotuning, false);
  folders.begin(space.trials[0], document, 2);
  EXPECT_THAT(read("/exps/z0_gas2_tmbspg1.json"), HasSubstr("\"train_micro_batch_size_per_gpu\": 1"));
  EXPECT_FALSE(folders.find(space.trials[0], "key"));
  folders.end(record(0, 0.125), document, "key", 2);
  ASSERT_TRUE(folders.find(space.trials[0], "key"));
  EXPECT_EQ(folders.find(space.trials[0], "key")->result, (TrialResult{.seconds = 0.125}));
  EXPECT_FALSE(folders.find(space.trials[0], "another key"));
  EXPECT_FALSE(folders.find(space.trials[1], "key"));
  EXPECT_EQ(read("/a/results/z0_gas2_tmbspg1/metrics.json"),
            "{\n  \"throughput\": 32.0,\n  \"latency\": 0.125,\n  \"FLOPS_per_gpu\": 4000000000.0\n}\n");
}

TEST_F(Results, OfATrialThatDidNotRunTheReasonIsKept) {
  ResultFolders folders(files, config.autotuning, false);
  TrialRecord failed = record(1, 0);
  failed.result = {TrialStatus::OutOfMemory, 0, "rank 1: no memory"};
  folders.end(failed, document, "key", 2);
  EXPECT_EQ(folders.find(space.trials[1], "key")->result, failed.result);
  EXPECT_EQ(read("/a/results/z0_gas1_tmbspg2/stderr.log"), "rank 1: no memory\n");
  EXPECT_FALSE(exists("/a/results/z0_gas1_tmbspg2/metrics.json"));
}

// Tuning may be killed between any two system calls. Results that are found later are complete.
TEST_F(Results, StoppedAnywhereATrialHasEndedOrHasNot) {
  for (int64_t call = 1;; ++call) {
    MemoryFileSystem memory;
    FaultyFileSystem faulty(memory, Fault::StopMidWrite, call);
    bool stopped = false;
    try {
      ResultFolders folders(faulty, config.autotuning, false);
      folders.begin(space.trials[0], document, 2);
      folders.end(record(0, 0.125), document, "key", 2);
    } catch (const trivet::support::Stopped&) {
      stopped = true;
    }
    ResultFolders again(memory, config.autotuning, false);
    const auto found = again.find(space.trials[0], "key");
    if (found) {
      EXPECT_EQ(found->result, (TrialResult{.seconds = 0.125})) << call;
      EXPECT_EQ(memory.kind("/a/results/z0_gas2_tmbspg1/metrics.json"), EntryKind::File) << call;
    }
    if (!stopped) {
      EXPECT_TRUE(found);
      EXPECT_GT(call, 10);
      break;
    }
  }
}

TEST_F(Results, OverwritingRemovesWhatATuningWroteAndNothingElse) {
  ResultFolders folders(files, config.autotuning, false);
  folders.begin(space.trials[0], document, 2);
  folders.end(record(0, 0.125), document, "key", 2);
  report.records = {record(0, 0.125)};
  folders.write(report, document, "trivet train x");
  write_text(files, "/a/results/z0_gas2_tmbspg1/mine.txt", "n");
  write_text(files, "/a/results/notes.txt", "n");
  write_text(files, "/exps/notes.json", "[1]");
  ResultFolders(files, config.autotuning, true);
  EXPECT_FALSE(exists("/a/results/z0_gas2_tmbspg1/exp.json"));
  EXPECT_FALSE(exists("/a/results/z0_gas2_tmbspg1/ds_config.json"));
  EXPECT_TRUE(exists("/a/results/z0_gas2_tmbspg1/mine.txt"));
  EXPECT_FALSE(exists("/exps/z0_gas2_tmbspg1.json"));
  EXPECT_FALSE(exists("/a/results/ds_config_optimal.json"));
  EXPECT_FALSE(exists("/a/results/report.html"));
  EXPECT_TRUE(exists("/a/results/notes.txt"));
  EXPECT_TRUE(exists("/exps/notes.json"));
}

// DeepSpeed's folders have the same names, and its experiments have a name and a config, too.
TEST_F(Results, ThoseOfAnotherProgramAreRefused) {
  create_directories(files, "/a/results/z0_gas2_tmbspg1");
  write_text(files, "/a/results/z0_gas2_tmbspg1/exp.json", R"({"name": "z0_gas2_tmbspg1", "ds_config": {}})");
  for (const bool overwrite : {false, true})
    EXPECT_THAT(
        [&] { ResultFolders(files, config.autotuning, overwrite); },
        ThrowsMessage<ConfigError>(HasSubstr("autotuning.results_dir: /a/results holds results that trivet tune did not "
                                             "write (z0_gas2_tmbspg1); name another folder")));
  EXPECT_TRUE(exists("/a/results/z0_gas2_tmbspg1/exp.json"));
  files.remove("/a/results/z0_gas2_tmbspg1/exp.json");
  write_text(files, "/exps/z0_gas2_tmbspg1.json", R"({"name": "z0_gas2_tmbspg1", "ds_config": {}})");
  EXPECT_THAT(
      [&] { ResultFolders(files, config.autotuning, true); },
      ThrowsMessage<ConfigError>(HasSubstr("autotuning.exps_dir: /exps holds experiments that trivet tune did not write "
                                           "(z0_gas2_tmbspg1.json); name another folder")));
}

TEST_F(Results, ARecordWithImpossibleValuesIsNotFound) {
  ResultFolders folders(files, config.autotuning, false);
  TrialRecord fourth = record(0, 0.125);
  fourth.order = 4;
  folders.end(fourth, document, "key", 2);
  const std::string path = "/a/results/z0_gas2_tmbspg1/exp.json", good = read(path);
  ASSERT_TRUE(folders.find(space.trials[0], "key"));
  EXPECT_EQ(folders.find(space.trials[0], "key")->order, 4);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    EXPECT_NE(text.find(from), std::string::npos) << from;
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text : {with("\"key\": \"key\"", "\"key\": 3"), with("\"seconds\": 0.125", "\"seconds\": 0"),
                                  with("\"seconds\": 0.125", "\"second\": 1"), with("\"ok\"", "\"fine\""), std::string("{")}) {
    write_text(files, path, text);
    EXPECT_FALSE(folders.find(space.trials[0], "key")) << text;
  }
}

TEST_F(Results, AFullDiskIsSaidWithWhatToDo) {
  FaultyFileSystem full(files, Fault::DiskFull, 1);
  EXPECT_THAT([&] { ResultFolders(full, config.autotuning, true); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr("autotuning: results cannot be written: "),
                                               HasSubstr("make room, or name other folders (results_dir, exps_dir)"))));
}

TEST_F(Results, TheBestIsTheFastestByTheMetric) {
  TrialRecord failed = record(2, 0);
  failed.result.status = TrialStatus::Failed;
  report.records = {record(0, 0.5), record(1, 0.25), failed, record(3, 1.0)};
  for (const TuningMetric metric : {TuningMetric::Throughput, TuningMetric::Latency, TuningMetric::Flops}) {
    config.autotuning.metric = metric;
    ASSERT_TRUE(report.best());
    EXPECT_EQ(report.best()->trial, &space.trials[1]) << name_of(metric);
  }
  report.records = {failed};
  EXPECT_EQ(report.best(), nullptr);
}

// The fastest of many that were measured once is often one that was lucky.
TEST_F(Results, TheBestIsOneOfThoseThatWereMeasuredAgainAndKeepsItsMeasurements) {
  TrialRecord settled = record(1, 0.25);
  settled.measured = {0.2, 0.25, 0.3};
  report.records = {record(0, 0.125), settled, record(2, 1.0)};
  EXPECT_EQ(report.best()->trial, &space.trials[1]);
  EXPECT_EQ(spread_text(settled.measured), "3 measurements: 200.00 to 300.00 ms");
  EXPECT_THAT(summary_text(report), HasSubstr(space.trials[1].name));
  EXPECT_THAT(report_html(report), HasSubstr("3 measurements"));
  ResultFolders folders(files, config.autotuning, false);
  folders.end(settled, document, "key", 2);
  EXPECT_EQ(folders.find(space.trials[1], "key")->measured, settled.measured);
}

TEST_F(Results, NamesTrialsThatMayBeAsGoodAsTheBest) {
  config.autotuning.metric = TuningMetric::Latency;
  const auto settled = [&](int64_t trial, std::vector<double> measured) {
    TrialRecord one = record(trial, measured[1]);
    one.measured = std::move(measured);
    return one;
  };
  const std::string touches = space.trials[2].name, inside = space.trials[3].name;
  report.records = {settled(0, {0.1, 0.2, 0.3}), settled(1, {0.31, 0.32, 0.33}), settled(2, {0.3, 0.4, 0.5}),
                    settled(3, {0.15, 0.25, 0.35}), record(4, 0.05)};
  EXPECT_EQ(report.best()->trial, &space.trials[0]);
  EXPECT_THAT(report.as_good_as_best(), ElementsAre(touches, inside));
  EXPECT_THAT(summary_text(report), HasSubstr("\nas good: " + touches + ", " + inside +
                                              ": their measurements overlap those of the best, so that another tuning may name "
                                              "one of them\n"));
  report.records.erase(report.records.begin() + 2, report.records.begin() + 4);
  EXPECT_THAT(report.as_good_as_best(), IsEmpty());
}

TEST_F(Results, TheSummaryHasARowForEachStageAndTheReasons) {
  TrialRecord large = record(3, 0);
  large.result = {TrialStatus::DoesNotFit, 0, "needs more"};
  report.records = {large, record(0, 0.5), record(1, 0.25), record(2, 1.0)};
  report.ended = "enough";
  EXPECT_EQ(summary_text(report),
            "tuning_space    num_experiments         best_metric_val  best_exp_name\n"
            "z0                            2          16.0 samples/s  z0_gas1_tmbspg2\n"
            "z1                            1           4.0 samples/s  z1_gas2_tmbspg1\n"
            "global                        3          16.0 samples/s  z0_gas1_tmbspg2\n"
            "\n"
            "metric throughput, 3 of 8 configs, 1.5 s on 2 ranks (2 x a processor)\n"
            "ok 3, out of memory 0, failed 0, do not fit by their plan 1, reused from an earlier tuning 0\n"
            "ended: enough\n"
            "kept as given: parallel.tensor 1\n"
            "3 configs refused, such as z9: why <not>\n");
}

TEST_F(Results, TheReportDrawsTheCurveAndListsAllTrials) {
  report.records = {record(0, 0.5), record(1, 0.25), record(2, 1.0)};
  const std::string page = report_html(report);
  EXPECT_THAT(page, HasSubstr("Throughput, samples/s. best so far: 8 at trial 1, 16 at trial 3; from 8 to 16. each trial: 8 at "
                              "trial 1, 4 at trial 3; from 4 to 16"));
  EXPECT_THAT(page, HasSubstr("<p>Not ended"));
  EXPECT_THAT(page, HasSubstr("<tr class=\"best\"><td>2</td><td>z0_gas1_tmbspg2</td><td>16.0 samples/s</td><td>250.00</td>"
                              "<td>250.00</td><td>1.0</td><td>best</td>"));
  EXPECT_THAT(page, AllOf(HasSubstr("why &lt;not&gt;"), Not(HasSubstr("http"))));
}

TEST(ResultKey, ChangesWithWhatATimeDependsOnAndNotWithTheRest) {
  const auto key = [](const std::string& rest, const std::string& hardware = "cpu", int ranks = 2, int64_t vocabulary = 64) {
    return result_key(parse_config("{\"train_batch_size\": 4" + rest + "}", "a.json"), vocabulary, hardware, ranks);
  };
  const std::string plain = key("");
  EXPECT_EQ(plain.size(), 16u);
  EXPECT_EQ(key(", \"steps_per_print\": 7, \"autotuning\": {\"tuner_type\": \"random\"}, \"training\": {\"steps\": 9}"), plain);
  EXPECT_NE(key(", \"model\": {\"layers\": 3}"), plain);
  EXPECT_NE(key(", \"bf16\": {\"enabled\": true}"), plain);
  EXPECT_NE(key(", \"autotuning\": {\"end_profile_step\": 6}"), plain);
  EXPECT_NE(key("", "gpu"), plain);
  EXPECT_NE(key("", "cpu", 4), plain);
  EXPECT_NE(key("", "cpu", 2, 65), plain);
}

}  // namespace
}  // namespace trivet::autotune

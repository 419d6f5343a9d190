// The files that a tuning leaves, under the names that users of DeepSpeed's autotuner look for:
//
//   exps_dir/NAME.json                what a trial is to run, written before it runs
//   results_dir/NAME/exp.json         the same, and how it ended; a trial without it was interrupted and is run again
//   results_dir/NAME/ds_config.json   its config
//   results_dir/NAME/metrics.json     throughput, latency, FLOPS_per_gpu of a trial that ran
//   results_dir/NAME/stderr.log       why a trial failed
//   results_dir/summary.txt           best by ZeRO stage, refused configs
//   results_dir/report.html           curve and table (html_report.h)
//   results_dir/ds_config_optimal.json, cmd_optimal.txt
//
// Every file is either complete or absent. Only rank 0 has a ResultFolders. It throws ConfigError for folders that cannot be
// written to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/tune/trial.h"
#include "autotune/tune/tuning_space.h"
#include "core/file_system.h"

namespace trivet::autotune {

// A trial that has ended, or that was not run because it does not fit by its plan.
struct TrialRecord {
  const TrialConfig* trial = nullptr;
  TrialResult result;            // with the median of `measured` as its time
  double predicted_seconds = 0;  // per step, before the first trial corrected anything
  bool reused = false;           // from an earlier tuning
  int64_t order = 0;             // among the trials that ended, from 1; 0: it was not run
  // Seconds of each measurement: the best trials are measured again, because the fastest of many is often one that was lucky.
  std::vector<double> measured = {};
};

// "3 measurements: 53.10 to 57.42 ms"; empty if there was only one.
std::string spread_text(const std::vector<double>& measured);

struct TuningReport {
  const Config* config = nullptr;
  const TuningSpace* space = nullptr;
  std::vector<TrialRecord> records;  // in the order in which they ended
  std::string hardware;
  int world_size = 1;
  std::string ended;   // why it ended; empty: it continues
  double seconds = 0;  // duration of the tuning so far
  // The fastest trial; only those that were measured more than once count, if there are any. Null: none ran.
  const TrialRecord* best() const;
  // The names of trials that were measured more than once and whose measurements overlap those of the best.
  std::vector<std::string> as_good_as_best() const;
};

// "a, b: their measurements overlap those of the best, so that another tuning may name one of them"; empty without names.
std::string ties_text(const std::vector<std::string>& as_good_as_best);

// The file of the best config.
std::string optimal_config(const AutotuningConfig& tuning);

struct EarlierTrial {
  int64_t order = 0;  // among the trials of its tuning
  TrialResult result;
  std::vector<double> measured = {};  // TrialRecord
};

class ResultFolders {
 public:
  // With `overwrite`, removes what an earlier tuning wrote, and nothing else. Throws ConfigError if results_dir holds results
  // of another program, such as DeepSpeed.
  ResultFolders(FileSystem& files, const AutotuningConfig& tuning, bool overwrite);

  // Returns how the trial ended in an earlier tuning with the same key; none without such a result or a valid file.
  std::optional<EarlierTrial> find(const TrialConfig& trial, const std::string& key);
  void begin(const TrialConfig& trial, const ConfigDocument& document, int world_size);
  void end(const TrialRecord& record, const ConfigDocument& document, const std::string& key, int world_size);
  // Writes summary.txt, report.html and, if there is a best trial, ds_config_optimal.json and cmd_optimal.txt with `command`.
  void write(const TuningReport& report, const ConfigDocument& document, const std::string& command);

 private:
  void refuse_foreign();
  void remove_earlier();
  void clear_trial(const std::string& folder);
  void write_atomically(const std::string& path, const std::string& text);

  FileSystem& files_;
  std::string results_, experiments_;
};

// The table of summary.txt.
std::string summary_text(const TuningReport& report);

}  // namespace trivet::autotune

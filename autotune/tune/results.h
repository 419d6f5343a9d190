// What a tuning leaves behind, under the names that users of DeepSpeed's autotuner look for:
//
//   exps_dir/NAME.json                what a trial was asked to run, before it runs
//   results_dir/NAME/exp.json         the same, and how it ended: a trial without it was interrupted, and is run again
//   results_dir/NAME/ds_config.json   its config
//   results_dir/NAME/metrics.json     throughput, latency, FLOPS_per_gpu of a trial that ran
//   results_dir/NAME/stderr.log       why one did not
//   results_dir/summary.txt           best by ZeRO stage, refused configs
//   results_dir/report.html           curve and table (report.h)
//   results_dir/ds_config_optimal.json, cmd_optimal.txt
//
// Every file is there whole or not at all. Only rank 0 has one of these. Errors: ConfigError for folders
// that cannot be written.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/tune/trial.h"
#include "autotune/tune/tuning_space.h"
#include "core/file_system.h"

namespace trivet::autotune {

// A trial that has ended, or whose plan said that it need not begin.
struct TrialRecord {
  const TrialConfig* trial = nullptr;
  TrialResult result;
  double predicted_seconds = 0;  // of a step, before the first trial corrected anything
  bool reused = false;           // of an earlier tuning
};

struct TuningReport {
  const Config* config = nullptr;
  const TuningSpace* space = nullptr;
  std::vector<TrialRecord> records;  // in the order in which they ended
  std::string hardware;
  int world_size = 1;
  std::string ended;                // why it ended; empty: it goes on
  double seconds = 0;               // that the tuning took until now
  const TrialRecord* best() const;  // null: none ran
};

// The best config's file.
std::string optimal_config(const AutotuningConfig& tuning);

struct EarlierTrial {
  int64_t order = 0;  // of its tuning's trials
  TrialResult result;
};

class ResultFolders {
 public:
  // `overwrite`: what an earlier tuning wrote is removed, and nothing else. Throws ConfigError where results_dir holds results
  // of another program's, DeepSpeed's among them.
  ResultFolders(FileSystem& files, const AutotuningConfig& tuning, bool overwrite);

  // How it ended before, with the same key; none where the file says anything that cannot be.
  std::optional<EarlierTrial> find(const TrialConfig& trial, const std::string& key);
  void begin(const TrialConfig& trial, const ConfigDocument& document, int world_size);
  void end(const TrialRecord& record, const ConfigDocument& document, const std::string& key, int64_t order, int world_size);
  // summary.txt, report.html and, with a best trial, ds_config_optimal.json and cmd_optimal.txt; `command` trains with a
  // config.
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

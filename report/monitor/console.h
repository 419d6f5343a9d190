// Prints a run for a person to watch.
//
//   model   gpt, 4 layers x 128, 809,856 parameters
//   data    input.txt, 1,003,854 train / 111,540 validation characters
//
//    step     loss     grad       lr       tok/s    step ms       mem       left
//       1   4.1837    5.528  1.0e-05       8,930       86.0    17 MiB
//      50   2.8655    1.407  5.0e-04      14,210       54.0    17 MiB       0:51
//      50   validation loss 2.8321 over 111,540 tokens in 0.8 s
//      50   validation loss 0.0512, accuracy 98.41 % over 10,000 images in 0.8 s        (if the model chooses classes)
//      61   skipped: overflow at step 61: the loss scale goes from 32768 to 16384
//   done    1,000 steps in 0:54, loss 4.1837 -> 2.0301, validation 2.0460 (best 2.0460 at step 1000), 14,402 tok/s, 1 skipped
//
// The first step, every `steps_per_print`-th step and the last step leave a line. On a terminal, the line of the current step
// is redrawn in place (\r) between those. Averages leave out the first step, which is slow because it touches memory for the
// first time.
#pragma once

#include <chrono>
#include <optional>
#include <ostream>
#include <string>

#include "report/monitor/monitor.h"

namespace trivet::monitor {

struct ConsoleOptions {
  bool terminal = false;  // draw a live line
  bool color = false;
  int64_t steps_per_print = 10;
  int columns = 120;            // the live line is cut here
  double redraw_seconds = 0.1;  // at least this long between redraws
};

// Finds out whether stdout is a terminal, and its width. A terminal gets color unless NO_COLOR is set or TERM is "dumb".
ConsoleOptions options_for_stdout(int64_t steps_per_print);

class Console : public Monitor {
 public:
  // `out` must outlive the console.
  Console(std::ostream& out, const ConsoleOptions& options) : out_(out), options_(options) {}
  ~Console() override;
  void on_start(const RunStart& start) override;
  void on_step(const StepMetrics& metrics) override;
  void on_evaluation(const Evaluation& evaluation) override;
  void on_note(const std::pair<std::string, std::string>& note) override;
  void on_end(const RunEnd& end) override;

 private:
  std::string row(const StepMetrics& metrics) const;
  std::string time_left(const StepMetrics& metrics) const;
  std::string summary() const;
  void count(const StepMetrics& metrics);
  void print_line(const std::string& text, const char* style = "");
  void draw_live(const std::string& text);
  bool stays(const StepMetrics& metrics) const;

  std::ostream& out_;
  ConsoleOptions options_;
  TargetWords words_ = kTokens;
  int64_t total_steps_ = 0, skipped_ = 0, without_targets_ = 0, steps_ = 0;
  bool shows_tokens_read_ = false;
  bool live_ = false;  // a live line is on the screen
  std::chrono::steady_clock::time_point drawn_{};
  // The counted_ members leave out the first step of this run.
  int64_t counted_steps_ = 0, counted_targets_ = 0, counted_tokens_read_ = 0;
  double counted_ms_ = 0, all_ms_ = 0;
  std::optional<double> first_loss_, last_loss_, best_validation_, last_validation_;
  int64_t best_step_ = 0;
};

}  // namespace trivet::monitor

#include "report/monitor/console.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <string_view>

#include "core/log.h"
#include "report/monitor/number_text.h"

namespace trivet::monitor {
namespace {

constexpr const char* kBold = "\x1b[1m";
constexpr const char* kYellow = "\x1b[33m";
constexpr const char* kReset = "\x1b[0m";
constexpr const char* kClearLine = "\r\x1b[K";

std::string fact(const std::pair<std::string, std::string>& line) {
  return fmt::format("{:<7} {}", line.first, escape_control(line.second));
}

// Only an overflow of gradients is called one. A loss that is not finite says something about the weights. After an overflow
// the scale may stay, because of fp16.hysteresis or because it is fixed.
std::string why_skipped(const StepMetrics& metrics) {
  if (metrics.without_targets) return "no sample of this step has a target, so there is nothing to learn and no loss";
  if (!std::isfinite(metrics.loss)) return fmt::format("the loss is {}", std::abs(metrics.loss));
  if (metrics.loss_scale == 0) return "the gradients overflowed";
  const std::string overflow = fmt::format("overflow at step {}: the loss scale", with_commas(metrics.step));
  return metrics.next_loss_scale == metrics.loss_scale
             ? fmt::format("{} stays {}", overflow, metrics.loss_scale)
             : fmt::format("{} goes from {} to {}", overflow, metrics.loss_scale, metrics.next_loss_scale);
}

double per_second(int64_t count, double ms) { return static_cast<double>(count) / ms * 1000; }

// "0.102 / -0.310, margin 0.412"
std::string rewards_text(const Rewards& rewards) {
  return fmt::format("{:.3f} / {:.3f}, margin {:.3f}", rewards.chosen, rewards.rejected, rewards.margin());
}

}  // namespace

ConsoleOptions options_for_stdout(int64_t steps_per_print) {
  ConsoleOptions options{.terminal = ::isatty(STDOUT_FILENO) == 1, .steps_per_print = steps_per_print};
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  if (dumb) options.terminal = false;
  options.color = options.terminal && (no_color == nullptr || *no_color == '\0');
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) options.columns = size.ws_col;
  return options;
}

Console::~Console() {
  if (live_) out_ << '\n' << std::flush;  // a run that failed: leave the last state on the screen
}

void Console::on_start(const RunStart& start) {
  total_steps_ = start.total_steps;
  words_ = start.targets;
  shows_tokens_read_ = start.learns_answers;
  for (const auto& line : start.facts) print_line(fact(line));
  if (!start.address.empty()) print_line(fact({"watch", start.address}));
  if (start.steps_done > 0) print_line(fact({"resumed", fmt::format("after step {}", with_commas(start.steps_done))}));
  if (!start.facts.empty()) print_line("");
  std::string header = fmt::format("{:>8} {:>8} {:>8} {:>8} {:>11} {:>10} {:>9} {:>10}", "step", "loss", "grad", "lr",
                                   fmt::format("{}/s", words_.short_many), "step ms", "mem", "left");
  if (shows_tokens_read_) header += fmt::format(" {:>11}", "read/s");
  if (words_ == kPairs) header += fmt::format(" {:>8} {:>8} {:>8} {:>6}", "chosen", "rejected", "margin", "acc %");
  if (start.has_experts) header += fmt::format(" {:>8} {:>6}", "fullest", "idle");
  print_line(header, kBold);
}

void Console::on_step(const StepMetrics& metrics) {
  count(metrics);
  if (metrics.skipped) {
    print_line(fmt::format("{:>8}   skipped: {}", with_commas(metrics.step), why_skipped(metrics)), kYellow);
    return;
  }
  if (stays(metrics)) {
    print_line(row(metrics));
  } else if (options_.terminal) {
    draw_live(row(metrics));
  }
}

void Console::on_evaluation(const Evaluation& evaluation) {
  if (evaluation.without_targets)
    return print_line(
        fmt::format("{:>8}   no validation loss: no sample that was evaluated has a target", with_commas(evaluation.step)));
  last_validation_ = evaluation.loss;
  if (!best_validation_ || std::isnan(*best_validation_) || evaluation.loss < *best_validation_)
    best_validation_ = evaluation.loss, best_step_ = evaluation.step;
  std::string accuracy;
  if (const auto share = evaluation.accuracy()) accuracy = fmt::format(", accuracy {:.2f} %", 100 * *share);
  if (evaluation.rewards) accuracy += fmt::format(", rewards {}", rewards_text(*evaluation.rewards));
  print_line(fmt::format("{:>8}   validation loss {:.4f}{} over {} {} in {:.1f} s", with_commas(evaluation.step),
                         evaluation.loss, accuracy, with_commas(evaluation.targets), words_.many, evaluation.ms / 1000));
}

void Console::on_note(const std::pair<std::string, std::string>& note) { print_line(fact(note)); }

void Console::on_end(const RunEnd& end) {
  print_line(fact({"done", summary()}));
  for (const auto& line : end.facts) print_line(fact(line));
}

void Console::count(const StepMetrics& metrics) {
  ++steps_;
  all_ms_ += metrics.step_ms;
  if (steps_ > 1) ++counted_steps_, counted_targets_ += metrics.targets, counted_ms_ += metrics.step_ms;
  if (steps_ > 1) counted_tokens_read_ += metrics.tokens_read;
  if (metrics.without_targets) ++without_targets_;
  if (metrics.skipped) {
    ++skipped_;
    return;
  }
  if (!first_loss_) first_loss_ = metrics.loss;
  last_loss_ = metrics.loss;
}

bool Console::stays(const StepMetrics& metrics) const {
  const bool every = options_.steps_per_print > 0 && metrics.step % options_.steps_per_print == 0;
  return steps_ == 1 || every || metrics.step == total_steps_;
}

std::string Console::row(const StepMetrics& metrics) const {
  std::string text = fmt::format("{:>8} {:>8.4f} {:>8.3f} {:>8.1e} {:>11} {:>10.1f} {:>9} {:>10}", with_commas(metrics.step),
                                 metrics.loss, metrics.grad_norm, metrics.lr, rate(metrics.targets_per_second), metrics.step_ms,
                                 memory_size(metrics.memory_bytes), time_left(metrics));
  if (shows_tokens_read_) text += fmt::format(" {:>11}", rate(per_second(metrics.tokens_read, metrics.step_ms)));
  if (const auto& rewards = metrics.rewards)
    text += fmt::format(" {:>8.3f} {:>8.3f} {:>8.3f} {:>6.1f}", rewards->chosen, rewards->rejected, rewards->margin(),
                        100 * metrics.accuracy().value_or(0));
  if (!metrics.experts.empty()) text += fmt::format(" {:>7.2f}x {:>6}", metrics.fullest_expert(), metrics.idle_experts());
  return text;
}

std::string Console::time_left(const StepMetrics& metrics) const {
  if (counted_steps_ == 0) return "";
  const auto remaining = static_cast<double>(total_steps_ - metrics.step);
  return duration(counted_ms_ / static_cast<double>(counted_steps_) * remaining / 1000);
}

std::string Console::summary() const {
  std::string text = fmt::format("{} steps in {}", with_commas(steps_), duration(all_ms_ / 1000));
  if (first_loss_) text += fmt::format(", loss {:.4f} -> {:.4f}", *first_loss_, *last_loss_);
  const bool all_skipped = steps_ > 0 && skipped_ == steps_;  // then all evaluations are of the same weights
  if (last_validation_) text += fmt::format(", validation {:.4f}", *last_validation_);
  if (last_validation_ && !all_skipped)
    text += fmt::format(" (best {:.4f} at step {})", *best_validation_, with_commas(best_step_));
  if (counted_ms_ > 0) text += fmt::format(", {} {}/s", rate(per_second(counted_targets_, counted_ms_)), words_.short_many);
  if (counted_tokens_read_ > counted_targets_)
    text += fmt::format(" learned of {} read", rate(per_second(counted_tokens_read_, counted_ms_)));
  text += fmt::format(", {} skipped", with_commas(skipped_));
  if (all_skipped && without_targets_ < steps_) text += ", which is all of them: nothing was learned";
  if (without_targets_ == 0) return text;
  return text + (without_targets_ == steps_ ? ", all for lack of targets: nothing was learned"
                                            : fmt::format(", {} of them for lack of targets", with_commas(without_targets_)));
}

void Console::print_line(const std::string& text, const char* style) {
  if (live_) out_ << kClearLine;
  live_ = false;
  const bool styled = options_.color && *style != '\0';
  out_ << (styled ? style : "") << text << (styled ? kReset : "") << '\n' << std::flush;
}

void Console::draw_live(const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (live_ && std::chrono::duration<double>(now - drawn_).count() < options_.redraw_seconds) return;
  out_ << kClearLine << text.substr(0, options_.columns - 1) << std::flush;
  live_ = true;
  drawn_ = now;
}

}  // namespace trivet::monitor

#include "report/prometheus.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/monitor/number_text.h"
#include "report/run_charts.h"

namespace trivet::report {
namespace {

std::string sample_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string label_value(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

class Exposition {
 public:
  explicit Exposition(const std::string& run) : label_(fmt::format("run=\"{}\"", label_value(run))) {}

  Exposition& gauge(const std::string& name, const std::string& help, double value) {
    return family(name, "gauge", help).sample(name, "", value);
  }
  Exposition& counter(const std::string& name, const std::string& help, double value) {
    return family(name, "counter", help).sample(name, "", value);
  }
  Exposition& family(const std::string& name, const char* type, const std::string& help) {
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
    return *this;
  }
  Exposition& sample(const std::string& name, const std::string& more_labels, double value) {
    text_ += fmt::format("{}{{{}{}}} {}\n", name, label_, more_labels, sample_text(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string label_, text_;
};

// A metric of throughput has the name of what is counted, because its values have no other unit.
std::string name_of_targets(const RunData& run, const char* rest) {
  return fmt::format("trivet_{}_{}", run.targets.many, rest);
}

void add_step(Exposition& out, const RunData& run) {
  const StepPoint& last = run.steps.last();
  const auto of_targets = [&](const std::string& name, const std::string& help, double value) {
    if (!last.without_targets) out.gauge(name, help, value);
  };
  out.gauge("trivet_step", "Number of the last step.", static_cast<double>(last.step));
  of_targets("trivet_loss", "Mean loss of the last step.", last.loss);
  out.gauge("trivet_learning_rate", "Learning rate of the last step.", last.lr);
  of_targets("trivet_gradient_norm", "Norm of the gradients of the last step, before clipping.", last.grad_norm);
  of_targets(name_of_targets(run, "per_second"),
             fmt::format("{} per second in the last step, of all ranks.", monitor::with_capital(run.targets.many)),
             last.targets_per_second);
  out.gauge("trivet_memory_bytes", "Peak of rank 0's memory.", last.memory_bytes);
  if (last.loss_scale != 0) out.gauge("trivet_loss_scale", "Loss scale of the last step.", last.loss_scale);
  if (const double percent = utilization_percent(run.plan, last.step_ms); percent > 0)
    out.gauge("trivet_model_flops_utilization_ratio", "Model FLOPs of the last step out of what the devices can do.",
              percent / 100);
}

void add_counters(Exposition& out, const RunData& run, const StepCounters& counters) {
  out.counter(name_of_targets(run, "total"),
              fmt::format("{} trained on since the program started.", monitor::with_capital(run.targets.many)),
              static_cast<double>(counters.targets))
      .counter("trivet_skipped_steps_total", "Steps skipped since the program started.", static_cast<double>(counters.skipped))
      .counter("trivet_steps_without_targets_total", "Steps since the program started in which no target was counted.",
               static_cast<double>(counters.without_targets));
  const std::string name = "trivet_step_duration_seconds";
  out.family(name, "histogram", "Time of a step.");
  int64_t below = 0;
  for (size_t i = 0; i < counters.within.size(); ++i) {
    below += counters.within[i];
    const std::string bound = i < StepCounters::kBounds.size() ? sample_text(StepCounters::kBounds[i]) : "+Inf";
    out.sample(name + "_bucket", fmt::format(",le=\"{}\"", bound), static_cast<double>(below));
  }
  out.sample(name + "_sum", "", counters.seconds).sample(name + "_count", "", static_cast<double>(counters.steps));
}

}  // namespace

void StepCounters::add(double step_seconds, int64_t step_targets, bool was_skipped) {
  ++within[static_cast<size_t>(std::ranges::lower_bound(kBounds, step_seconds) - kBounds.begin())];
  seconds += step_seconds;
  ++steps;
  targets += step_targets;
  if (was_skipped) ++skipped;
}

std::string to_prometheus(const RunData& run, const StepCounters& counters) {
  Exposition out(run.name);
  out.gauge("trivet_steps_planned", "Number of the step at which the run ends.", static_cast<double>(run.total_steps));
  if (!run.steps.empty()) add_step(out, run);
  if (!run.evaluations.empty() && !run.evaluations.last().without_targets)
    out.gauge("trivet_validation_loss", "Loss of the last evaluation.", run.evaluations.last().loss);
  if (std::isfinite(run.best_validation_loss))
    out.gauge("trivet_best_validation_loss", "Lowest validation loss so far.", run.best_validation_loss);
  if (!run.evaluations.empty() && std::isfinite(run.evaluations.last().accuracy))
    out.gauge("trivet_validation_accuracy_ratio", "Right answers out of all in the last evaluation.",
              run.evaluations.last().accuracy);
  double checkpoint = 0, planned = 0;
  for (const Note& note : run.notes)
    if (note.what == "checkpoint") checkpoint = std::max(checkpoint, static_cast<double>(note.step));
  for (const NamedValue& part : run.plan.memory) planned += part.value;
  out.gauge("trivet_checkpoint_step", "Step of the last checkpoint whose save began; 0: none.", checkpoint)
      .gauge("trivet_memory_planned_bytes", "Planned memory of the rank that needs most.", planned);
  add_counters(out, run, counters);
  return out.text();
}

}  // namespace trivet::report

#include "report/live_run.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>

#include "report/run_page.h"

namespace trivet::report {
namespace {

constexpr size_t kMostLivePoints = 4000;
constexpr std::chrono::seconds kBetweenLooks{3};  // a page that is looked at asks every two seconds

// 128 bits that nobody can guess, as hexadecimal digits.
std::string random_word() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error(errno, std::generic_category(), "random bytes for the token of --serve");
  std::string word;
  for (const unsigned char byte : bytes) word += fmt::format("{:02x}", byte);
  return word;
}

// Takes the same time wherever the two differ, so that a token cannot be found digit by digit.
bool same_secret(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

StepPoint step_point(const monitor::StepMetrics& metrics) {
  const auto if_counted = [&](double value) {
    return metrics.without_targets ? std::numeric_limits<double>::quiet_NaN() : value;
  };
  return {.step = metrics.step,
          .loss = if_counted(metrics.loss),
          .lr = metrics.lr,
          .grad_norm = if_counted(metrics.grad_norm),
          .targets_per_second = if_counted(metrics.targets_per_second),
          .step_ms = metrics.step_ms,
          .memory_bytes = static_cast<double>(metrics.memory_bytes),
          .loss_scale = metrics.loss_scale,
          .fullest = metrics.experts.empty() ? 0 : metrics.fullest_expert(),
          .skipped = metrics.skipped,
          .without_targets = metrics.without_targets};
}

RunData prepared(RunData run) {
  run.steps = ThinnedSeries<StepPoint>(kMostLivePoints);
  run.evaluations = ThinnedSeries<EvaluationPoint>(kMostLivePoints);
  run.state = RunState::Running;
  return run;
}

nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

std::string to_json(const RunData& run) {
  nlohmann::ordered_json json{{"run", run.name}, {"total_steps", run.total_steps}, {"ended", run.state == RunState::Ended}};
  json["steps"] = nlohmann::ordered_json::array();
  for (const StepPoint& point : run.steps.points())
    json["steps"].push_back({{"step", point.step},
                             {"loss", finite_or_null(point.loss)},
                             {"lr", finite_or_null(point.lr)},
                             {"grad_norm", finite_or_null(point.grad_norm)},
                             {"step_ms", point.step_ms},
                             {std::string(run.targets.many) + "_per_second", finite_or_null(point.targets_per_second)},
                             {"memory_bytes", point.memory_bytes},
                             {"skipped", point.skipped},
                             {"without_targets", point.without_targets}});
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const EvaluationPoint& point : run.evaluations.points()) {
    json["evaluations"].push_back({{"step", point.step}, {"loss", finite_or_null(point.loss)}});
    if (std::isfinite(point.accuracy)) json["evaluations"].back()["accuracy"] = point.accuracy;
  }
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

HttpResponse page_response(std::string body, const std::string& policy) {
  return {.status = 200, .type = "text/html; charset=utf-8", .body = std::move(body), .policy = policy};
}

}  // namespace

LiveRun::LiveRun(int port, RunData run)
    : token_(random_word()),
      run_(prepared(std::move(run))),
      server_(port, [this](const HttpRequest& request) { return answer(request); }) {}

LiveRun::~LiveRun() {
  std::unique_lock lock(mutex_);
  make_changes();
  const bool is_watched = last_look_ && std::chrono::steady_clock::now() - *last_look_ < kBetweenLooks;
  if (run_.state == RunState::Ended && is_watched) end_shown_.wait_for(lock, kBetweenLooks, [this] { return end_is_shown_; });
}

std::string LiveRun::address() const { return fmt::format("http://127.0.0.1:{}/?token={}", server_.port(), token_); }

void LiveRun::on_start(const monitor::RunStart& start) {
  change([this, start] {
    run_.facts = start.facts;
    run_.total_steps = start.total_steps;
    run_.targets = start.targets;
    step_ = start.steps_done;
  });
}

void LiveRun::on_step(const monitor::StepMetrics& metrics) {
  change([this, metrics] {
    step_ = metrics.step;
    counters_.add(metrics.step_ms / 1e3, metrics.targets, metrics.skipped);
    if (metrics.without_targets) ++counters_.without_targets;
    add(run_, step_point(metrics));
  });
}

void LiveRun::on_evaluation(const monitor::Evaluation& evaluation) {
  EvaluationPoint point{.step = evaluation.step, .loss = evaluation.loss, .without_targets = evaluation.without_targets};
  if (evaluation.without_targets) point.loss = std::numeric_limits<double>::quiet_NaN();
  if (const auto accuracy = evaluation.accuracy()) point.accuracy = *accuracy;
  change([this, point] { add(run_, point); });
}

void LiveRun::on_predictions(const monitor::ShownPredictions& predictions) {
  change([this, predictions] { run_.predictions = predictions; });
}

void LiveRun::on_note(const std::pair<std::string, std::string>& note) {
  change([this, note] { add(run_, Note{step_, note.first, note.second}); });
}

void LiveRun::on_checkpoint(int64_t step) {
  change([this, step] { add(run_, checkpoint_note(step)); });
}

void LiveRun::on_end(const monitor::RunEnd& end) {
  change([this, end] {
    run_.state = RunState::Ended;
    run_.end_facts = end.facts;
    run_.memory = end.memory;
  });
}

// The server's thread may have to wait for a processor while it holds the lock, because its priority is the lowest.
void LiveRun::change(std::function<void()> change) {
  waiting_.push_back(std::move(change));
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) make_changes();
}

void LiveRun::make_changes() {
  for (const auto& each : waiting_) each();
  waiting_.clear();
}

RunData LiveRun::copy_of_run(bool is_page) {
  const std::lock_guard lock(mutex_);
  if (is_page) last_look_ = std::chrono::steady_clock::now();
  if (is_page && run_.state == RunState::Ended) end_is_shown_ = true;
  end_shown_.notify_all();
  return run_;
}

HttpResponse LiveRun::answer(const HttpRequest& request) {
  if (!same_secret(request.token, token_)) return refusal(401);
  if (request.path == "/metrics") {
    const std::lock_guard lock(mutex_);
    return {.status = 200, .type = kPrometheusType, .body = to_prometheus(run_, counters_), .policy = ""};
  }
  const RunData run = copy_of_run(request.path == "/content" || request.path == "/");
  if (request.path == "/metrics.json") return {.status = 200, .type = "application/json", .body = to_json(run), .policy = ""};
  if (request.path == "/content") return page_response(page_content({&run, 1}), "");
  if (request.path != "/") return refusal(404);
  const std::string nonce = random_word();
  return page_response(to_live_page(run, nonce), live_policy(nonce));
}

}  // namespace trivet::report

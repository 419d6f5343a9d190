// Shows a run while it is going, to a browser and to Prometheus on the same host (docs/watching.md).
//
//   GET /              the page of the run, which keeps itself up to date
//   GET /content       what is in that page
//   GET /metrics       Prometheus's text format
//   GET /metrics.json  the steps and evaluations that the page draws
//
// All of them need the token that is in the address, as "?token=..." or as "Authorization: Bearer ...".
//
// The training never waits for the server: while the server copies what it shows, changes are kept, and made with the next one.
// A run that has ended waits a few seconds for a page that somebody looks at, so that the page learns how it ended.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "report/http_server.h"
#include "report/monitor/monitor.h"
#include "report/prometheus.h"
#include "report/run_data.h"

namespace trivet::report {

class LiveRun : public monitor::Monitor {
 public:
  // `port` as for HttpServer. `run`: what is known before the run starts.
  LiveRun(int port, RunData run);
  ~LiveRun() override;

  // "http://127.0.0.1:41234/?token=...". Whoever knows it can watch the run.
  std::string address() const;

  void on_start(const monitor::RunStart& start) override;
  void on_step(const monitor::StepMetrics& metrics) override;
  void on_evaluation(const monitor::Evaluation& evaluation) override;
  void on_predictions(const monitor::ShownPredictions& predictions) override;
  void on_note(const std::pair<std::string, std::string>& note) override;
  void on_checkpoint(int64_t step) override;
  void on_end(const monitor::RunEnd& end) override;

 private:
  HttpResponse answer(const HttpRequest& request);
  RunData copy_of_run(bool is_page);
  void change(std::function<void()> change);
  void make_changes();

  const std::string token_;
  std::vector<std::function<void()>> waiting_;  // changes that could not be made yet; the training thread alone uses it
  std::mutex mutex_;                            // guards what follows, up to the server
  RunData run_;
  StepCounters counters_;
  int64_t step_ = 0;
  std::optional<std::chrono::steady_clock::time_point> last_look_;  // when a page was answered last
  bool end_is_shown_ = false;                                       // a page was told how the run ended
  std::condition_variable end_shown_;
  HttpServer server_;  // last: its thread uses all of the above
};

}  // namespace trivet::report

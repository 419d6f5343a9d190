#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <thread>

#include "core/error.h"
#include "report/http_connection.h"
#include "report/http_server.h"
#include "report/live_run.h"
#include "report/prometheus.h"
#include "tests/report/run_examples.h"

namespace trivet::report {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

int status_of(const std::string& head) { return parse_request(head).status; }

TEST(HttpRequest, HasAPathAndATokenInItsAddressOrItsHeaders) {
  const HttpRequest in_address = parse_request("GET /metrics?a=1&token=abc&b HTTP/1.1\r\nHost: x\r\n\r\n").request;
  EXPECT_EQ(in_address.path, "/metrics");
  EXPECT_EQ(in_address.token, "abc");
  EXPECT_EQ(parse_request("GET / HTTP/1.1\r\nAUTHORIZATION:  bearer def\r\n\r\n").request.token, "def");
  EXPECT_EQ(parse_request("GET / HTTP/1.0\r\nAuthorization: Basic def\r\n\r\n").request.token, "");
  EXPECT_EQ(parse_request("GET /?nottoken=abc HTTP/1.1\r\n\r\n").request.token, "");
}

TEST(HttpRequest, OnlyGetOfHttp1IsAccepted) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 200);
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status_of("HEAD / HTTP/1.1\r\n\r\n"), 405);
  EXPECT_EQ(status_of("GET / HTTP/2\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET http://127.0.0.1/ HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /\r\n\r\n"), 400);
  EXPECT_EQ(status_of("\r\n\r\n"), 400);
  EXPECT_EQ(status_of(""), 400);
}

TEST(HttpResponse, CannotBeStoredFramedOrExtended) {
  const std::string bytes = to_bytes({.body = "hello"});
  EXPECT_THAT(bytes, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(bytes, HasSubstr("Content-Length: 5\r\n"));
  EXPECT_THAT(bytes, HasSubstr("Cache-Control: no-store\r\n"));
  EXPECT_THAT(bytes, HasSubstr("Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\n"));
  EXPECT_TRUE(bytes.ends_with("\r\n\r\nhello"));
  EXPECT_THAT(to_bytes(refusal(401)), HasSubstr("WWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(to_bytes(refusal(405)), HasSubstr("Allow: GET\r\n"));
}

HttpResponse say_path(const HttpRequest& request) { return {.body = "path " + request.path}; }

TEST(HttpConnection, IsToldThatItWasTooSlowAndThenEnded) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
  HttpConnection connection{OwnedDescriptor(ends[0])};
  const OwnedDescriptor browser(ends[1]);
  EXPECT_TRUE(connection.advance(say_path));  // there is nothing to read yet
  EXPECT_TRUE(connection.expire());
  EXPECT_TRUE(connection.advance(say_path));
  char answer[1024] = "";
  EXPECT_GT(::recv(browser.get(), answer, sizeof(answer) - 1, 0), 0);
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 408 "));
  EXPECT_FALSE(connection.expire());
}

TEST(HttpServer, AnswersOnTheLoopbackInterface) {
  const HttpServer server(0, say_path);
  EXPECT_THAT(get(server.port(), "/a?b"), HasSubstr("\r\n\r\npath /a"));
}

// All of 127.0.0.0/8 leads to this host, so a server that listened on every interface would be there, too.
TEST(HttpServer, ListensOnOneAddressAlone) {
  const HttpServer server(0, say_path);
  EXPECT_THROW(Client(server.port(), INADDR_LOOPBACK + 1), std::runtime_error);
}

TEST(HttpServer, ARequestMayArriveInPieces) {
  const HttpServer server(0, say_path);
  Client client(server.port());
  for (const char* piece : {"GET /pie", "ces HTTP/1.1\r", "\n\r", "\n"}) client.send(piece);
  EXPECT_THAT(client.receive(), HasSubstr("path /pieces"));
}

TEST(HttpServer, ARequestThatIsTooLongIsRefused) {
  const HttpServer server(0, say_path);
  Client endless(server.port());
  endless.send("GET / HTTP/1.1\r\nA: " + std::string(kMostRequestBytes, 'a'));
  EXPECT_THAT(endless.receive(), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(get(server.port(), "/", "A: " + std::string(kMostRequestBytes, 'a') + "\r\n"), StartsWith("HTTP/1.1 431 "));
}

// Each of them holds a connection; the oldest has to leave when there are too many.
TEST(HttpServer, ClientsThatSayNothingKeepNobodyOut) {
  const HttpServer server(0, say_path);
  std::vector<std::unique_ptr<Client>> silent;
  for (int i = 0; i < 40; ++i) silent.push_back(std::make_unique<Client>(server.port()));
  EXPECT_THAT(get(server.port(), "/here"), HasSubstr("path /here"));
  EXPECT_EQ(silent.front()->receive(), "");
}

TEST(HttpServer, WhatAHandlerThrowsIsAnsweredAndTheServerGoesOn) {
  const HttpServer server(0, [](const HttpRequest& request) -> HttpResponse {
    if (request.path == "/bad") throw std::runtime_error("no");
    return {.body = "good"};
  });
  EXPECT_THAT(get(server.port(), "/bad"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(get(server.port(), "/"), HasSubstr("good"));
}

TEST(HttpServer, ALargeAnswerArrivesWhole) {
  const HttpServer server(0, [](const HttpRequest&) -> HttpResponse { return {.body = std::string(5'000'000, 'x')}; });
  EXPECT_GT(get(server.port(), "/").size(), 5'000'000u);
}

TEST(HttpServer, APortThatIsInUseIsNamed) {
  const HttpServer server(0, say_path);
  try {
    const HttpServer second(server.port(), say_path);
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    const std::string port = std::to_string(server.port());
    EXPECT_THAT(error.what(), StartsWith("--serve " + port + ": 127.0.0.1:" + port + " cannot be listened on: "));
  }
}

// The handler is called when the server is already ending; its answer is larger than what a socket holds.
TEST(HttpServer, AnAnswerThatWasBegunIsSentBeforeTheEnd) {
  std::atomic<bool> asked = false;
  auto server = std::make_unique<HttpServer>(0, [&](const HttpRequest&) -> HttpResponse {
    asked = true;
    return {.body = std::string(8'000'000, 'x')};
  });
  Client client(server->port());
  client.send("GET / HTTP/1.1\r\n\r\n");
  while (!asked) std::this_thread::yield();
  std::thread end([&] { server.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_GT(client.receive().size(), 8'000'000u);
  end.join();
}

TEST(HttpServer, EndsWhileClientsAreConnected) {
  auto server = std::make_unique<HttpServer>(0, say_path);
  Client client(server->port());
  client.send("GET / HT");
  server.reset();
  client.receive();  // would wait for ever if the connection were still open
}

monitor::StepMetrics live_step(int64_t step) {
  monitor::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 2.5;
  metrics.targets = 100;
  metrics.step_ms = 50;
  metrics.targets_per_second = 2000;
  metrics.memory_bytes = 4096;
  metrics.skipped = step == 2;
  return metrics;
}

struct LiveExample {
  LiveRun run{0, named()};
  int port = std::stoi(run.address().substr(std::string("http://127.0.0.1:").size()));
  std::string token = run.address().substr(run.address().find("token=") + 6);

  static RunData named() {
    RunData data;
    data.name = "demo";
    data.report_path = "/runs/demo/report.html";
    return data;
  }
  LiveExample() {
    run.on_start({.facts = {{"model", "gpt"}}, .total_steps = 10});
    for (int64_t step = 1; step <= 3; ++step) run.on_step(live_step(step));
    run.on_evaluation({.step = 3, .loss = 2.25});
    run.on_note({"warning", "slow"});
    run.on_checkpoint(3);
  }
};

TEST(LiveRun, NothingIsShownWithoutTheToken) {
  const LiveExample example;
  EXPECT_EQ(example.token.size(), 32u);
  for (const std::string path : {"/", "/content", "/metrics", "/metrics.json", "/other"}) {
    std::string wrong = example.token;
    wrong.back() = wrong.back() == 'a' ? 'b' : 'a';
    for (const std::string& query : {std::string(), std::string("?token="), "?token=" + wrong, "?token=" + example.token + "0",
                                     "?token=" + example.token.substr(1)}) {
      const std::string answer = get(example.port, path + query);
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << path << query;
      EXPECT_THAT(answer, Not(HasSubstr("demo")));
    }
  }
  EXPECT_THAT(get(example.port, "/other?token=" + example.token), StartsWith("HTTP/1.1 404 "));
}

TEST(LiveRun, ShowsAccuracyAndPredictionsOfARunOnImages) {
  LiveExample example;
  example.run.on_start({.facts = {}, .total_steps = 10, .targets = monitor::kImages});
  example.run.on_evaluation({.step = 3, .loss = 2, .targets = 8, .correct = 6});
  example.run.on_predictions({.step = 3, .samples = {{.sample = 5, .png = "x", .target = "7", .predicted = "1"}}});
  const std::string content = get(example.port, "/content?token=" + example.token);
  EXPECT_THAT(content, HasSubstr("<dt>Images per second</dt>"));
  EXPECT_THAT(content, HasSubstr("<dt>Validation accuracy</dt><dd>75.00 %</dd>"));
  EXPECT_THAT(content, HasSubstr("<img alt=\"Validation image 5\""));
  const std::string json = get(example.port, "/metrics.json?token=" + example.token);
  EXPECT_THAT(json, HasSubstr("\"images_per_second\":2000.0"));
  EXPECT_THAT(json, HasSubstr(R"({"step":3,"loss":2.0,"accuracy":0.75})"));
  const std::string metrics = get(example.port, "/metrics?token=" + example.token);
  EXPECT_THAT(metrics, HasSubstr("\ntrivet_images_per_second{run=\"demo\"} 2000\n"));
  EXPECT_THAT(metrics, HasSubstr("# HELP trivet_images_total Images trained on since the program started.\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntrivet_images_total{run=\"demo\"} 300\n"));
  EXPECT_THAT(metrics, HasSubstr("\ntrivet_validation_accuracy_ratio{run=\"demo\"} 0.75\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("okens")));
}

TEST(LiveRun, TokensOfTwoRunsDiffer) {
  const LiveExample first, second;
  EXPECT_NE(first.token, second.token);
}

TEST(LiveRun, ThePageMayRunOnlyItsOwnScript) {
  const LiveExample example;
  const std::string page = get(example.port, "/?token=" + example.token);
  EXPECT_THAT(page, HasSubstr("<dd>3 of 10</dd><dd class=\"more\">running, 0:0"));
  EXPECT_THAT(page, HasSubstr("<td>3</td><td>checkpoint</td><td>its save began</td>"));
  EXPECT_THAT(page, HasSubstr("<td>3</td><td>warning</td><td>slow</td>"));
  const size_t nonce = page.find("script-src 'nonce-");
  ASSERT_NE(nonce, std::string::npos);
  EXPECT_THAT(page, HasSubstr("<script nonce=\"" + page.substr(nonce + 18, 32) + "\">"));
  EXPECT_THAT(get(example.port, "/content?token=" + example.token), Not(HasSubstr("<script")));
}

TEST(LiveRun, SaysHowFarTheRunIsAndHowItEnded) {
  struct Case {
    int64_t steps;
    std::optional<monitor::RunEnd> end;
    std::string state, text;
  };
  const std::vector<Case> cases{
      {9, std::nullopt, "running", "running, "},
      {10, std::nullopt, "done", "all steps done</dd>"},
      {10, monitor::RunEnd{}, "ended", "complete</dd>"},
      {9, monitor::RunEnd{{{"stopped", "early, after step 9 of 10"}}}, "ended", "complete: stopped early</dd>"},
      {9, monitor::RunEnd{{{"stopped", "by signal 15 after step 9 of 10"}}}, "ended", "stopped before its end</dd>"}};
  for (const Case& each : cases) {
    LiveExample example;
    example.run.on_step(live_step(each.steps));
    if (each.end) example.run.on_end(*each.end);
    const std::string content = get(example.port, "/content?token=" + example.token);
    EXPECT_THAT(content, HasSubstr("data-state=\"" + each.state + "\"")) << each.text;
    EXPECT_THAT(content, HasSubstr("of 10</dd><dd class=\"more\">" + each.text));
    EXPECT_THAT(content, HasSubstr(each.end ? "This page is kept as <code>/runs/demo/report.html</code>"
                                            : "When the run ends, this page is kept as <code>/runs/demo/report.html</code>"));
  }
}

TEST(LiveRun, WaitsForAPageThatIsLookedAtToShowTheEnd) {
  auto example = std::make_unique<LiveExample>();
  const int port = example->port;
  const std::string content = "/content?token=" + example->token;
  get(port, content);
  example->run.on_end({.facts = {}, .memory = {}});
  const std::jthread end([&] { example.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_THAT(get(port, content), HasSubstr("data-state=\"ended\""));
}

TEST(LiveRun, EndsAtOnceIfNobodyLooks) {
  auto example = std::make_unique<LiveExample>();
  get(example->port, "/metrics?token=" + example->token);
  example->run.on_end({.facts = {}, .memory = {}});
  const auto begin = std::chrono::steady_clock::now();
  example.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
}

TEST(LiveRun, GivesItsFiguresAsJson) {
  LiveExample example;
  example.run.on_end({.facts = {}, .memory = {}});
  const std::string json = get(example.port, "/metrics.json?token=" + example.token);
  EXPECT_THAT(json, HasSubstr(R"({"run":"demo","total_steps":10,"ended":true,"steps":[{"step":1,"loss":2.5,)"));
  EXPECT_THAT(json, HasSubstr(R"("evaluations":[{"step":3,"loss":2.25}]})"));
}

// Steps that end while the server copies what it shows are added later.
TEST(LiveRun, NoStepIsLostWhileItIsRead) {
  LiveExample example;
  std::atomic<bool> was_read = false;
  int64_t steps = 3;
  std::thread training([&] {
    while (steps < 20'000 || (!was_read && steps < 1'000'000)) example.run.on_step(live_step(++steps));
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(
        get(example.port, "/content", "Authorization: Bearer " + example.token + "\r\n").ends_with("</table>\n</div>\n"));
  was_read = true;
  training.join();
  example.run.on_checkpoint(steps);
  const std::string metrics = get(example.port, "/metrics?token=" + example.token);
  EXPECT_THAT(metrics, HasSubstr(fmt::format("trivet_step{{run=\"demo\"}} {}\n", steps)));
  EXPECT_THAT(metrics, HasSubstr(fmt::format("trivet_step_duration_seconds_count{{run=\"demo\"}} {}\n", steps)));
}

TEST(Prometheus, HasNoMeanOfAStepWithoutTargets) {
  RunData run;
  run.name = "one";
  StepPoint point = point_of(3, std::nan(""));
  point.without_targets = point.skipped = true;
  add(run, point);
  add(run, EvaluationPoint{.step = 3, .loss = std::nan(""), .without_targets = true});
  StepCounters counters;
  counters.without_targets = 1;
  const std::string text = to_prometheus(run, counters);
  for (const char* name : {"trivet_loss", "trivet_gradient_norm", "trivet_tokens_per_second", "trivet_validation_loss",
                           "trivet_best_validation_loss"})
    EXPECT_THAT(text, testing::Not(HasSubstr(name))) << name;
  EXPECT_THAT(text, HasSubstr("\ntrivet_steps_without_targets_total{run=\"one\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("\ntrivet_learning_rate{run=\"one\"} 0.001\n"));
}

TEST(Prometheus, HasTheTextOfTheFormat) {
  RunData run;
  run.name = "a \"b\" \\ c";
  run.total_steps = 10;
  StepPoint point = point_of(3, std::nan(""));
  point.skipped = true;
  run.steps.add(point);
  StepCounters counters;
  counters.add(0.05, 100, false);
  counters.add(0.2, 100, true);
  counters.add(3600, 100, false);
  EXPECT_EQ(to_prometheus(run, counters), R"(# HELP trivet_steps_planned Number of the step at which the run ends.
# TYPE trivet_steps_planned gauge
trivet_steps_planned{run="a \"b\" \\ c"} 10
# HELP trivet_step Number of the last step.
# TYPE trivet_step gauge
trivet_step{run="a \"b\" \\ c"} 3
# HELP trivet_loss Mean loss of the last step.
# TYPE trivet_loss gauge
trivet_loss{run="a \"b\" \\ c"} NaN
# HELP trivet_learning_rate Learning rate of the last step.
# TYPE trivet_learning_rate gauge
trivet_learning_rate{run="a \"b\" \\ c"} 0.001
# HELP trivet_gradient_norm Norm of the gradients of the last step, before clipping.
# TYPE trivet_gradient_norm gauge
trivet_gradient_norm{run="a \"b\" \\ c"} 1.5
# HELP trivet_tokens_per_second Tokens per second in the last step, of all ranks.
# TYPE trivet_tokens_per_second gauge
trivet_tokens_per_second{run="a \"b\" \\ c"} 1000
# HELP trivet_memory_bytes Peak of rank 0's memory.
# TYPE trivet_memory_bytes gauge
trivet_memory_bytes{run="a \"b\" \\ c"} 1048576
# HELP trivet_checkpoint_step Step of the last checkpoint whose save began; 0: none.
# TYPE trivet_checkpoint_step gauge
trivet_checkpoint_step{run="a \"b\" \\ c"} 0
# HELP trivet_memory_planned_bytes Planned memory of the rank that needs most.
# TYPE trivet_memory_planned_bytes gauge
trivet_memory_planned_bytes{run="a \"b\" \\ c"} 0
# HELP trivet_tokens_total Tokens trained on since the program started.
# TYPE trivet_tokens_total counter
trivet_tokens_total{run="a \"b\" \\ c"} 300
# HELP trivet_skipped_steps_total Steps skipped since the program started.
# TYPE trivet_skipped_steps_total counter
trivet_skipped_steps_total{run="a \"b\" \\ c"} 1
# HELP trivet_steps_without_targets_total Steps since the program started in which no target was counted.
# TYPE trivet_steps_without_targets_total counter
trivet_steps_without_targets_total{run="a \"b\" \\ c"} 0
# HELP trivet_step_duration_seconds Time of a step.
# TYPE trivet_step_duration_seconds histogram
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.005"} 0
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.01"} 0
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.025"} 0
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.05"} 1
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.1"} 1
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.25"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="0.5"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="1"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="2.5"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="10"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="60"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="600"} 2
trivet_step_duration_seconds_bucket{run="a \"b\" \\ c",le="+Inf"} 3
trivet_step_duration_seconds_sum{run="a \"b\" \\ c"} 3600.25
trivet_step_duration_seconds_count{run="a \"b\" \\ c"} 3
)");
}

}  // namespace
}  // namespace trivet::report

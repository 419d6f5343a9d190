// Runs for tests of pages, the text of an error, and a browser's side of a connection.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "report/run_data.h"

namespace trivet::report {

inline StepPoint point_of(int64_t step, double loss) {
  return {.step = step,
          .loss = loss,
          .lr = 0.001,
          .grad_norm = 1.5,
          .targets_per_second = 1000,
          .step_ms = 100,
          .memory_bytes = double(1 << 20)};
}

// A run of three steps with an evaluation, a checkpoint and a plan of 2 GFLOP per step on 2 ranks of 40 GFLOP/s.
inline RunData small_run() {
  RunData run;
  run.name = "runs/small";
  run.state = RunState::Ended;
  run.total_steps = 3;
  for (int64_t step = 1; step <= 3; ++step) run.steps.add(point_of(step, 5 - double(step)));
  add(run, EvaluationPoint{.step = 2, .loss = 3.5});
  run.notes.push_back(checkpoint_note(2));
  run.plan = {.ranks = 2, .flops_per_step = 2e9, .peak_flops = 4e10, .memory = {{"parameters", 2 << 20}}, .communication = {}};
  return run;
}

// The same as a run on images, of which 7 in 10 are recognized at the end. `png`: the bytes of an image.
inline RunData small_image_run(const std::string& png = "png") {
  RunData run = small_run();
  run.name = "runs/images";
  run.targets = monitor::kImages;
  run.evaluations = ThinnedSeries<EvaluationPoint>();
  add(run, EvaluationPoint{.step = 1, .loss = 3.6, .accuracy = 0.75});
  add(run, EvaluationPoint{.step = 3, .loss = 3.4, .accuracy = 0.7});
  run.predictions = {.step = 3,
                     .samples = {{.sample = 17, .right = false, .png = png, .target = "7", .predicted = "1"},
                                 {.sample = 4, .right = true, .png = png, .target = "two", .predicted = "two"}}};
  return run;
}

// What the user is told.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
    return error.what();
  }
  return "no error";
}

// A connection to a server on this host.
class Client {
 public:
  explicit Client(int port, in_addr_t host = INADDR_LOOPBACK) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(host);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
      throw std::runtime_error("no connection");
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& bytes) { (void)!::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  // Everything until the server ends the connection.
  std::string receive() {
    std::string all;
    char buffer[4096];
    for (ssize_t count; (count = ::recv(socket_, buffer, sizeof(buffer), 0)) > 0;)
      all.append(buffer, static_cast<size_t>(count));
    return all;
  }

 private:
  int socket_;
};

// The answer to a GET, as bytes.
inline std::string get(int port, const std::string& target, const std::string& headers = "") {
  Client client(port);
  client.send("GET " + target + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + "\r\n");
  return client.receive();
}

}  // namespace trivet::report

#include "cli/launch/hosts/host_agent.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "cli/launch/pipe.h"
#include "cli/launch/program.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr size_t kLongestComplaint = 1 << 12;
// A program that has closed its output usually ends at once.
constexpr int kLooks = 100;
constexpr std::chrono::milliseconds kBetweenLooks{10};

// Shells that allow no login say so on standard output.
std::string last_line_of(std::string text) {
  text.erase(text.find_last_not_of(" \r\n") + 1);
  return text.substr(text.rfind('\n') + 1);
}

}  // namespace

HostAgent::HostAgent(const std::vector<std::string>& command, const comm::Environment& environment) {
  auto [their_input, input] = make_pipe("to another host");
  auto [output, their_output] = make_pipe("to another host");
  auto [error, their_error] = make_pipe("to another host");
  pid_ = start({.file = find_program(command[0], path_of(environment)),
                .arguments = command,
                .environment = environment,
                .input = their_input.number(),
                .output = their_output.number(),
                .error = their_error.number()});
  input_ = std::move(input);
  output_ = std::move(output);
  error_ = std::move(error);
  make_non_blocking(error_);
  channel_.emplace(AgentChannel::Side::Launcher, output_.number(), input_.number());
}

HostAgent::~HostAgent() {
  if (status_) return;
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void HostAgent::send(const Control& control) { channel_->send({AgentMessage::Kind::Control, encode(control)}); }

void HostAgent::add_to(std::vector<pollfd>& entries) const {
  channel_->add_to(entries);
  if (error_) entries.push_back({error_.number(), POLLIN, 0});
}

void HostAgent::step() {
  channel_->step();
  char buffer[4096];
  while (error_) {
    const ssize_t got = ::read(error_.number(), buffer, sizeof buffer);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (got <= 0) error_.reset();
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] != '\n') error_text_ += buffer[i];
      if (buffer[i] == '\n' || error_text_.size() >= kLongestComplaint) end_complaint();
    }
    if (got <= 0) end_complaint();
  }
}

// ssh ends its own lines as terminals do.
void HostAgent::end_complaint() {
  if (error_text_.ends_with('\r')) error_text_.pop_back();
  if (!error_text_.empty()) complaints_.push_back(std::exchange(error_text_, {}));
}

std::optional<std::string> HostAgent::next_complaint() {
  if (complaints_.empty()) return std::nullopt;
  last_complaint_ = std::move(complaints_.front());
  complaints_.pop_front();
  return last_complaint_;
}

bool HostAgent::found_no_program() const {
  return !build() && status_ && WIFEXITED(*status_) && (WEXITSTATUS(*status_) == 126 || WEXITSTATUS(*status_) == 127);
}

std::string HostAgent::why_it_ended() {
  step();
  while (next_complaint()) {
  }
  if (last_complaint_.empty() && !build()) last_complaint_ = last_line_of(channel_->preamble());
  for (int i = 0; i < kLooks && !status_; ++i) {
    int status = 0;
    if (::waitpid(pid_, &status, WNOHANG) == pid_)
      status_ = status;
    else
      std::this_thread::sleep_for(kBetweenLooks);
  }
  std::string how = "its connection has ended";
  if (status_ && WIFSIGNALED(*status_)) how = fmt::format("its agent was killed by signal {}", WTERMSIG(*status_));
  if (status_ && WIFEXITED(*status_)) how = fmt::format("exit code {}", WEXITSTATUS(*status_));
  return last_complaint_.empty() ? how : fmt::format("{} ({})", printable(last_complaint_), how);
}

}  // namespace trivet::cli

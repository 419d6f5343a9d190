#include "cli/launch/hosts/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "cli/launch/hosts/agent_channel.h"
#include "cli/launch/hosts/agent_messages.h"
#include "cli/launch/hosts/host_inspection.h"
#include "cli/launch/job.h"
#include "cli/launch/output.h"
#include "cli/launch/pipe.h"
#include "cli/launch/running_time.h"
#include "comm/socket.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::seconds;

// kFirstTask: until the launcher has said what to do; --host-timeout applies from then on.
constexpr seconds kFirstTask{30}, kConnecting{10}, kTimeToSayAll{10};
// The most bytes that ranks print to a stream before they wait for the launcher to pass them on.
constexpr int64_t kMostUnprinted = int64_t{1} << 20;
constexpr size_t kReadFromRanksAtOnce = size_t{1} << 16;
// The time that the beginning of a line waits for its end. Without that, lines of several hosts would mix.
constexpr std::chrono::milliseconds kLineMayTake{100};

// The launcher's end of standard input and output, under numbers that nothing else uses.
class Channel {
 public:
  Channel() : in_(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)), out_(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3)) {
    const Descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    ::dup2(null.number(), STDIN_FILENO);
    ::dup2(null.number(), STDOUT_FILENO);
  }
  void close() {
    in_.reset();
    out_.reset();
  }
  AgentChannel* operator->() { return &messages_; }
  const AgentChannel* operator->() const { return &messages_; }

 private:
  Descriptor in_, out_;
  AgentChannel messages_{AgentChannel::Side::Agent, in_.number(), out_.number()};
};

// The output of the ranks to one of the two streams.
struct Stream {
  AgentMessage::Kind kind;
  Pipe pipe = {};
  std::string line = {};  // has no end yet
  Clock::time_point line_began_at = {};
  int64_t unprinted = 0;

  bool is_to_be_read() const { return pipe.reading && unprinted < kMostUnprinted; }
};

class Agent final : public LauncherSide {
 public:
  // Until all ranks have ended, or nobody wants them any more.
  void run();
  void fail(const Error& error);

  void in_guardian() override { channel_.close(); }
  void guardian_runs() override;
  void add_to(std::vector<pollfd>& entries) const override;
  int patience_ms() const override;
  void step() override;
  std::vector<int> orders() override;
  void hear(const std::string& event) override { channel_->send({AgentMessage::Kind::Event, event}); }
  bool is_abandoned() const override { return channel_->has_ended() || running_.so_far() - heard_at_ > patience_; }
  JobOutcome when_abandoned() const override;

 private:
  void send(const Control& control) { channel_->send({AgentMessage::Kind::Control, encode(control)}); }
  void exchange_messages();
  std::optional<Control> wait_for_control();
  void prepare(const HostTask& task);
  void listen(const Address& where);
  void reach(const Address& where);
  void start(const Address& where);
  void take_output_over();
  // Returns whether there was anything to read.
  bool read(Stream& stream);
  void pass_on(Stream& stream, size_t count);
  void obey(const Control& control);
  void say_all();

  Channel channel_;
  RunningTime running_{2 * kAliveEvery};
  RunningTime::Duration heard_at_{0};
  Clock::time_point said_alive_at_ = Clock::now(), told_guardian_at_ = Clock::now();
  Clock::duration patience_ = kFirstTask;  // with a launcher that says nothing
  HostTask task_;
  comm::Environment environment_;
  Meeting meeting_;
  bool started_ = false;
  Stream output_{AgentMessage::Kind::Output}, error_{AgentMessage::Kind::Error};
  std::vector<int> orders_;
};

void Agent::exchange_messages() {
  running_.look();
  channel_->step();
  if (Clock::now() - said_alive_at_ < kAliveEvery) return;
  said_alive_at_ = Clock::now();
  send({.alive = true});
}

// None: the launcher is gone.
std::optional<Control> Agent::wait_for_control() {
  heard_at_ = running_.look();  // the launcher's messages since this host was looked at have not been read yet
  while (!is_abandoned()) {
    exchange_messages();
    if (const auto message = channel_->next()) {
      heard_at_ = running_.so_far();
      const Control control = decode_control(message->text);
      if (!control.alive) return control;
      continue;
    }
    std::vector<pollfd> entries;
    channel_->add_to(entries);
    ::poll(entries.data(), entries.size(), patience_ms());
  }
  return std::nullopt;
}

void Agent::fail(const Error& error) {
  if (started_)
    send({.ended = JobOutcome{static_cast<int>(error.exit_code()), error.what()}});
  else
    send({.failed = error.what()});
  say_all();
}

void Agent::run() {
  while (!started_) {
    const auto control = wait_for_control();
    if (!control || control->order) return;
    if (control->task) prepare(*control->task);
    if (control->listen) listen(*control->listen);
    if (control->reach) reach(*control->reach);
    if (control->start) start(*control->start);
  }
}

void Agent::prepare(const HostTask& task) {
  task_ = task;
  patience_ = seconds(task.request.host_timeout_s);
  environment_ = comm::current_environment();
  for (const auto& [name, value] : task.environment) environment_[name] = value;
  environment_["PWD"] = task.directory;
  if (::chdir(task.directory.c_str()) != 0) {
    const std::string why = fmt::format("{}: {}", printable(task.directory), std::strerror(errno));
    HostReport report = inspect_host(task, environment_);
    report.problems = {why};
    send({.report = std::move(report)});
    return;
  }
  send({.report = inspect_host(task, environment_)});
}

void Agent::listen(const Address& where) {
  try {
    meeting_.listener = comm::listen_on(where.host, where.port);
    send({.listening = comm::port_of(meeting_.listener)});
  } catch (const Error& error) {
    send({.failed = error.what()});
  }
}

void Agent::reach(const Address& where) {
  try {
    comm::connect_to(where.host, where.port, {Clock::now() + kConnecting});
    send({.reached = ""});
  } catch (const Error& error) {
    send(
        {.reached = fmt::format("cannot connect to {}:{}, where rank 0 will listen; give its host's address in this network as "
                                "--master_addr, or open the port in the firewall ({})",
                                where.host, where.port, error.what())});
  }
}

void Agent::start(const Address& where) {
  started_ = true;
  // The other hosts have tried to connect; rank 0 would take these connections for strangers.
  while (meeting_.listener && comm::accept_from(meeting_.listener)) {
  }
  meeting_.job_id = task_.job_id;
  meeting_.address = where.host;
  meeting_.port = where.port;
  meeting_.secret = hold_secret(task_.secret);
  task_.request.master_address = where.host;
  task_.request.master_port = where.port;
  const auto ranks = lay_out_here(task_.request, task_.on, environment_);
  take_output_over();
  const JobOutcome outcome = run_ranks({.request = task_.request,
                                        .ranks = ranks,
                                        .inherited = environment_,
                                        .job_id = task_.job_id,
                                        .meet = [this] { return std::move(meeting_); },
                                        .speaker = "trivet launch: " + task_.on.host.name,
                                        .announces = true,
                                        .launcher_silence = seconds(task_.request.host_timeout_s)},
                                       *this);
  // The guardian has ended, so this is all. It is at most what a pipe holds.
  for (Stream* stream : {&output_, &error_}) {
    while (read(*stream)) {
    }
    pass_on(*stream, stream->line.size());
  }
  send({.ended = outcome});
  say_all();
}

void Agent::take_output_over() {
  output_.pipe = make_pipe("for what ranks print");
  make_non_blocking(output_.pipe.reading);
  ::dup2(output_.pipe.writing.number(), STDOUT_FILENO);
  if (!task_.one_output) {
    error_.pipe = make_pipe("for what ranks print");
    make_non_blocking(error_.pipe.reading);
  }
  ::dup2((task_.one_output ? output_ : error_).pipe.writing.number(), STDERR_FILENO);
}

void Agent::guardian_runs() {
  meeting_ = {};
  heard_at_ = running_.look();
}

// The launcher hears this when it goes on. This host is as good as before then, and its ranks can start here again.
JobOutcome Agent::when_abandoned() const {
  return {static_cast<int>(ExitCode::PeerLost),
          fmt::format("nothing was heard from the launcher for {} s, as if it were stopped; all ranks there were killed",
                      task_.request.host_timeout_s)};
}

std::vector<int> Agent::orders() {
  if (Clock::now() - told_guardian_at_ >= kAliveEvery) {
    told_guardian_at_ = Clock::now();
    orders_.push_back(kStillHere);
  }
  return std::exchange(orders_, {});
}

void Agent::add_to(std::vector<pollfd>& entries) const {
  channel_->add_to(entries);
  for (const Stream* stream : {&output_, &error_})
    if (stream->is_to_be_read()) entries.push_back({stream->pipe.reading.number(), POLLIN, 0});
}

int Agent::patience_ms() const {
  const bool in_a_line = !output_.line.empty() || !error_.line.empty();
  return static_cast<int>((in_a_line ? kLineMayTake : kAliveEvery).count());
}

void Agent::step() {
  exchange_messages();
  while (const auto message = channel_->next()) {
    heard_at_ = running_.so_far();
    obey(decode_control(message->text));
  }
  for (Stream* stream : {&output_, &error_}) {
    if (stream->is_to_be_read()) read(*stream);
    if (!stream->line.empty() && Clock::now() - stream->line_began_at >= kLineMayTake) pass_on(*stream, stream->line.size());
  }
  channel_->step();
}

void Agent::obey(const Control& control) {
  if (control.order) orders_.push_back(*control.order);
  if (!control.printed) return;
  output_.unprinted -= (*control.printed)[0];
  error_.unprinted -= (*control.printed)[1];
}

bool Agent::read(Stream& stream) {
  char text[kReadFromRanksAtOnce];
  const ssize_t got = stream.pipe.reading ? ::read(stream.pipe.reading.number(), text, sizeof text) : 0;
  if (got <= 0) return false;
  if (stream.line.empty()) stream.line_began_at = Clock::now();
  stream.line.append(text, static_cast<size_t>(got));
  pass_on(stream, stream.line.size() < kReadFromRanksAtOnce ? stream.line.rfind('\n') + 1 : stream.line.size());
  return true;
}

// The first `count` bytes of what has no end yet.
void Agent::pass_on(Stream& stream, size_t count) {
  if (count == 0) return;
  channel_->send({stream.kind, stream.line.substr(0, count)});
  stream.unprinted += static_cast<int64_t>(count);
  stream.line.erase(0, count);
  stream.line_began_at = Clock::now();
}

void Agent::say_all() {
  const auto end = Clock::now() + kTimeToSayAll;
  while (channel_->unsent_bytes() > 0 && Clock::now() < end) {
    channel_->step();
    std::vector<pollfd> entries;
    channel_->add_to(entries);
    if (channel_->unsent_bytes() > 0) ::poll(entries.data(), entries.size(), 100);
  }
}

}  // namespace

void run_agent() {
  ignore_signals_of_outputs();
  Agent agent;
  try {
    agent.run();
  } catch (const Error& error) {
    agent.fail(error);
  } catch (const std::exception& error) {
    agent.fail(Error(ExitCode::Internal, error.what()));
  }
}

}  // namespace trivet::cli

#include "cli/standard_streams.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#include <ext/stdio_sync_filebuf.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/launch/output.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

using StreamsClock = std::chrono::steady_clock;

constexpr std::chrono::seconds kNobodyReads{2}, kLastLine{1};
constexpr int kLookMs = 100;

// A FILE that writes to an Output: the place of `stdout` or `stderr`, and the buffer of std::cout or std::cerr on top of it.
class StreamInPlace {
 public:
  StreamInPlace(FILE*& place, std::ostream& stream, int buffering, void* cookie, cookie_write_function_t* take)
      : place_(place), stream_(stream), before_(place) {
    std::fflush(before_);
    file_ = ::fopencookie(cookie, "w", {nullptr, take, nullptr, nullptr});
    if (file_ == nullptr) return;  // no memory: the streams stay as they are
    std::setvbuf(file_, nullptr, buffering, BUFSIZ);
    buffer_.emplace(file_);
    place_ = file_;
    buffer_before_ = stream_.rdbuf(&*buffer_);
  }
  ~StreamInPlace() {
    if (file_ == nullptr) return;
    stream_.rdbuf(buffer_before_);
    place_ = before_;
    std::fclose(file_);
  }
  StreamInPlace(const StreamInPlace&) = delete;
  StreamInPlace& operator=(const StreamInPlace&) = delete;

 private:
  FILE*& place_;
  std::ostream& stream_;
  FILE *before_, *file_ = nullptr;
  std::optional<__gnu_cxx::stdio_sync_filebuf<char>> buffer_;
  std::streambuf* buffer_before_ = nullptr;
};

class StandardStreams {
 public:
  StandardStreams();
  ~StandardStreams() { close(false); }
  StandardStreams(const StandardStreams&) = delete;
  StandardStreams& operator=(const StandardStreams&) = delete;

  // Puts the streams of before back, and writes what waits: until it is taken, or until nobody reads.
  void close(bool waits_for_reader);
  const Output& output() const { return output_; }

 private:
  struct Target {
    StandardStreams& streams;
    Output& output;
  };
  static ssize_t take(void* target, const char* text, size_t size);
  void add(Output& output, std::string_view text);
  void empty_queues();
  size_t waiting_bytes() const;
  std::vector<pollfd> awaited() const;
  void flush();
  void report_fault(const Output& output, const char* name, bool& reported);

  const bool one_output_ = are_the_same_file(STDOUT_FILENO, STDERR_FILENO);
  Output output_{STDOUT_FILENO}, separate_error_{STDERR_FILENO};
  Output& error_ = one_output_ ? output_ : separate_error_;
  Target to_output_{*this, output_}, to_error_{*this, error_};
  bool output_fault_reported_ = false, error_fault_reported_ = false;
  StreamsClock::time_point progress_at_ = StreamsClock::now();  // when nothing waited, or something was taken
  std::mutex mutex_;                                            // for all of the above
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
  std::optional<StreamInPlace> out_, err_;
};

StandardStreams::StandardStreams() {
  ignore_signals_of_outputs();
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for other threads
  thread_ = std::thread([this] { empty_queues(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  out_.emplace(stdout, std::cout, _IOLBF, &to_output_, &StandardStreams::take);
  err_.emplace(stderr, std::cerr, _IONBF, &to_error_, &StandardStreams::take);
}

ssize_t StandardStreams::take(void* target, const char* text, size_t size) {
  const Target& to = *static_cast<Target*>(target);
  to.streams.add(to.output, {text, size});
  return static_cast<ssize_t>(size);
}

void StandardStreams::add(Output& output, std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (waiting_bytes() == 0) progress_at_ = StreamsClock::now();
  output.add(text);
  flush();
  if (waiting_bytes() > 0) changed_.notify_one();
}

void StandardStreams::empty_queues() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    changed_.wait(lock, [this] { return closing_ || waiting_bytes() > 0; });
    if (closing_) return;
    std::vector<pollfd> entries = awaited();
    lock.unlock();
    ::poll(entries.data(), entries.size(), kLookMs);
    lock.lock();
    flush();
  }
}

size_t StandardStreams::waiting_bytes() const { return output_.waiting_bytes() + separate_error_.waiting_bytes(); }

std::vector<pollfd> StandardStreams::awaited() const {
  std::vector<pollfd> entries;
  output_.add_to(entries);
  separate_error_.add_to(entries);
  return entries;
}

void StandardStreams::flush() {
  const size_t before = waiting_bytes();
  output_.flush();
  separate_error_.flush();
  if (waiting_bytes() < before || waiting_bytes() == 0) progress_at_ = StreamsClock::now();
  report_fault(output_, "standard output", output_fault_reported_);
  report_fault(separate_error_, "standard error", error_fault_reported_);
}

void StandardStreams::report_fault(const Output& output, const char* name, bool& reported) {
  if (reported || output.fault().empty()) return;
  reported = true;
  error_.add(fmt::format("trivet: {} cannot be written: {}; the command goes on, and what it prints there is lost\n", name,
                         output.fault()));
  error_.flush();
}

void StandardStreams::close(bool waits_for_reader) {
  if (!thread_.joinable()) return;
  out_.reset();
  err_.reset();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_one();
  thread_.join();
  flush();
  while (waiting_bytes() > 0 && (waits_for_reader || StreamsClock::now() - progress_at_ < kNobodyReads)) {
    std::vector<pollfd> entries = awaited();
    ::poll(entries.data(), entries.size(), kLookMs);
    flush();
  }
  const size_t lost = output_.dropped_bytes() + separate_error_.dropped_bytes() + waiting_bytes();
  if (lost == 0) return;
  error_.add(fmt::format("trivet: {} bytes of output were dropped: nobody read them\n", lost));
  error_.flush_within(kLastLine);
}

}  // namespace

void print_without_waiting(Printing what, const std::function<void()>& command) {
  StandardStreams streams;
  command();
  streams.close(what == Printing::Result);
  if (what == Printing::Result && !streams.output().fault().empty() && !streams.output().reader_has_gone())
    throw Error(ExitCode::Usage,
                "the command has ended its work, but its result, which it prints, is lost: standard output cannot "
                "be written: " +
                    streams.output().fault());
}

}  // namespace trivet::cli

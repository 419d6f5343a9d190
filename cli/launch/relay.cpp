#include "cli/launch/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/launch/pipe.h"

namespace trivet::cli {
namespace {

constexpr size_t kLongestLine = 1 << 16, kReadAtOnce = 1 << 16;
constexpr std::chrono::milliseconds kLastLines{1000};

bool is_pipe(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode));
}

}  // namespace

Relay::Relay(std::string speaker)
    : speaker_(std::move(speaker)), output_(std::make_unique<Output>(STDOUT_FILENO)), error_(output_.get()) {
  if (are_the_same_file(STDOUT_FILENO, STDERR_FILENO)) return;
  separate_error_ = std::make_unique<Output>(STDERR_FILENO);
  error_ = separate_error_.get();
}

Relay::Streams Relay::streams_of(int rank) {
  Streams streams;
  if (rank > 0) {
    streams.output = add(rank, *output_);
    streams.error = add(rank, *error_);
    return streams;
  }
  if (is_pipe(STDOUT_FILENO)) streams.output = add(rank, *output_);
  if (is_pipe(STDERR_FILENO))
    streams.error = streams.output && error_ == output_.get() ? Descriptor(::fcntl(streams.output.number(), F_DUPFD_CLOEXEC, 0))
                                                              : add(rank, *error_);
  return streams;
}

Descriptor Relay::add(int rank, Output& target) {
  Pipe pipe = make_pipe(fmt::format("for what rank {} prints", rank));
  make_non_blocking(pipe.reading);
  sources_.push_back({std::move(pipe.reading), rank == 0 ? "" : fmt::format("[rank {}] ", rank), &target, {}});
  return std::move(pipe.writing);
}

void Relay::say(const std::string& text) {
  error_->add(speaker_ + ": " + text + "\n");
  error_->flush();
}

void Relay::pass_on(Target target, std::string_view text) { (target == Target::Output ? output_.get() : error_)->add(text); }

bool Relay::has_room(Target target) const { return !(target == Target::Output ? output_.get() : error_)->is_full(); }

bool Relay::is_to_be_read(const Source& source, bool ranks_are_to_end) {
  return source.pipe && (ranks_are_to_end || !source.target->is_full());
}

void Relay::add_to(std::vector<pollfd>& entries, bool ranks_are_to_end) const {
  for (const Source& source : sources_)
    if (is_to_be_read(source, ranks_are_to_end)) entries.push_back({source.pipe.number(), POLLIN, 0});
  output_->add_to(entries);
  if (separate_error_) separate_error_->add_to(entries);
}

void Relay::step(bool ranks_are_to_end) {
  for (Source& source : sources_)
    if (is_to_be_read(source, ranks_are_to_end)) read(source);
  output_->flush();
  if (separate_error_) separate_error_->flush();
  report_fault(*output_, "standard output", output_fault_reported_);
  report_fault(*error_, "standard error", error_fault_reported_);
}

void Relay::report_fault(const Output& output, const char* name, bool& reported) {
  if (reported || output.fault().empty()) return;
  reported = true;
  say(fmt::format("{} cannot be written: {}; the job continues, and what it prints there is lost", name, output.fault()));
}

void Relay::read(Source& source) {
  char buffer[16384];
  std::string out;
  for (size_t total = 0; total < kReadAtOnce;) {
    const ssize_t got = ::read(source.pipe.number(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) end(source, out);
      break;
    }
    total += got;
    if (source.prefix.empty()) {
      out.append(buffer, got);
      continue;
    }
    for (ssize_t i = 0; i < got; ++i) {
      source.line += buffer[i];
      if (buffer[i] != '\n' && source.line.size() < kLongestLine) continue;
      out += source.prefix + source.line + (buffer[i] == '\n' ? "" : "\n");
      source.line.clear();
    }
  }
  source.target->add(out);
}

// The last line may lack its newline.
void Relay::end(Source& source, std::string& out) {
  if (!source.line.empty()) out += source.prefix + source.line + "\n";
  source.line.clear();
  source.pipe.reset();
}

void Relay::close() {
  for (Source& source : sources_) {
    std::string out;
    end(source, out);
    source.target->add(out);
  }
  step(true);
  error_->flush_within(kLastLines);
}

bool Relay::has_open_pipes() const {
  return std::any_of(sources_.begin(), sources_.end(), [](const Source& source) { return static_cast<bool>(source.pipe); });
}

size_t Relay::waiting_bytes() const {
  return output_->waiting_bytes() + (separate_error_ ? separate_error_->waiting_bytes() : 0);
}

size_t Relay::dropped_bytes() const {
  return output_->dropped_bytes() + (separate_error_ ? separate_error_->dropped_bytes() : 0);
}

}  // namespace trivet::cli

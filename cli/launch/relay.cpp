#include "cli/launch/relay.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace trivet::cli {
namespace {

constexpr size_t kLongestLine = 1 << 16;

}  // namespace

void write_all(int descriptor, const std::string& text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(descriptor, text.data() + done, text.size() - done);
    if (written < 0 && errno == EAGAIN) {
      pollfd entry{descriptor, POLLOUT, 0};
      ::poll(&entry, 1, 1000);
    } else if (written < 0 && errno != EINTR) {
      return;  // nobody reads any more: no reason to end the training
    } else if (written > 0) {
      done += static_cast<size_t>(written);
    }
  }
}

comm::Descriptor Relay::add(int rank, int target) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw ConfigError(fmt::format("cannot make a pipe for rank {}: {}; see ulimit -n", rank, std::strerror(errno)));
  }
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  sources_.push_back({comm::Descriptor(ends[0]), fmt::format("[rank {}] ", rank), target, {}});
  return comm::Descriptor(ends[1]);
}

void Relay::add_to(std::vector<pollfd>& entries) const {
  for (const Source& source : sources_) {
    if (source.pipe) entries.push_back({source.pipe.number(), POLLIN, 0});
  }
}

void Relay::step() {
  for (Source& source : sources_) {
    if (source.pipe) read(source);
  }
}

void Relay::read(Source& source) {
  char buffer[16384];
  std::string out;
  for (;;) {
    const ssize_t got = ::read(source.pipe.number(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) source.pipe.reset();
      break;
    }
    for (ssize_t i = 0; i < got; ++i) {
      source.line += buffer[i];
      if (buffer[i] != '\n' && source.line.size() < kLongestLine) continue;
      out += source.prefix + source.line + (buffer[i] == '\n' ? "" : "\n");
      source.line.clear();
    }
  }
  write_all(source.target, out);
}

void Relay::finish() {
  step();
  for (Source& source : sources_) {
    if (!source.line.empty()) write_all(source.target, source.prefix + source.line + "\n");
    source.line.clear();
    source.pipe.reset();
  }
}

}  // namespace trivet::cli

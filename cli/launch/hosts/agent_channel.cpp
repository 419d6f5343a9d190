#include "cli/launch/hosts/agent_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "comm/member.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

constexpr size_t kHeaderBytes = 5, kLongestMessage = size_t{4} << 20, kLongestPreamble = size_t{64} << 10;

size_t length_of(std::string_view bytes) {
  size_t length = 0;
  for (int i = 0; i < 4; ++i) length |= size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  return length;
}

}  // namespace

AgentChannel::AgentChannel(Side side, int reading, int writing) : reading_(reading), writing_(writing) {
  for (const int descriptor : {reading, writing}) ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) | O_NONBLOCK);
  if (side == Side::Launcher) return;
  build_ = comm::build_digest();
  out_ = std::string(kGreeting) + *build_ + "\n";
}

void AgentChannel::send(const AgentMessage& message) {
  if (message.text.size() > kLongestMessage)
    throw Error(ExitCode::Usage, fmt::format("launch: a message for another host has {} bytes; at most {} can be sent",
                                             message.text.size(), kLongestMessage));
  for (int i = 0; i < 4; ++i) out_.push_back(static_cast<char>(message.text.size() >> (8 * i)));
  out_.push_back(static_cast<char>(message.kind));
  out_ += message.text;
}

void AgentChannel::add_to(std::vector<pollfd>& entries) const {
  if (!ended_) entries.push_back({reading_, POLLIN, 0});
  if (!out_.empty()) entries.push_back({writing_, POLLOUT, 0});
}

void AgentChannel::step() {
  char buffer[1 << 16];
  while (!ended_) {
    const ssize_t got = ::read(reading_, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      ended_ = true;
      break;
    }
    in_.append(buffer, static_cast<size_t>(got));
    if (static_cast<size_t>(got) < sizeof buffer) break;
  }
  if (!build_) look_for_greeting();
  while (!out_.empty()) {
    const ssize_t written = ::write(writing_, out_.data(), out_.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno != EAGAIN) out_.clear();  // nobody reads any more; reading finds the end, too
    if (written <= 0) break;
    out_.erase(0, static_cast<size_t>(written));
  }
}

void AgentChannel::look_for_greeting() {
  const size_t found = in_.find(kGreeting);
  // Without it, everything but what may be its beginning is somebody else's.
  const size_t foreign = found != std::string::npos ? found : in_.size() - std::min(in_.size(), kGreeting.size() - 1);
  preamble_ += in_.substr(0, foreign);
  if (preamble_.size() > kLongestPreamble) preamble_.erase(0, preamble_.size() - kLongestPreamble);
  in_.erase(0, foreign);
  const size_t end = found != std::string::npos ? in_.find('\n', kGreeting.size()) : std::string::npos;
  if (end == std::string::npos) return;
  build_ = in_.substr(kGreeting.size(), end - kGreeting.size());
  in_.erase(0, end + 1);
}

std::optional<AgentMessage> AgentChannel::next() {
  if (!build_ || in_.size() < kHeaderBytes) return std::nullopt;
  const size_t length = length_of(in_);
  const auto kind = static_cast<uint8_t>(in_[4]);
  if (length > kLongestMessage || kind < static_cast<uint8_t>(AgentMessage::Kind::Control) ||
      kind > static_cast<uint8_t>(AgentMessage::Kind::Error))
    throw CommError(ExitCode::Rendezvous, "sent bytes that are not a message");
  if (in_.size() < kHeaderBytes + length) return std::nullopt;
  AgentMessage message{static_cast<AgentMessage::Kind>(kind), in_.substr(kHeaderBytes, length)};
  in_.erase(0, kHeaderBytes + length);
  return message;
}

}  // namespace trivet::cli

// Messages between the launcher and the agent that it started on a host. They pass through the standard input and output of the
// program that runs the agent there, such as ssh:
//
//   uint32 bytes of the text (little endian) | uint8 kind | text
//
// The agent first writes a greeting: kGreeting, its build, and an end of line. Earlier text was printed by a shell on
// that host and is no message. The launcher sends nothing before it knows that the agent is of its own build.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::cli {

struct AgentMessage {
  enum class Kind : uint8_t {
    Control = 1,  // JSON (agent_messages.h)
    Event,        // the end or the loss of a rank (to_message of RankEnd and comm::Loss)
    Output,       // text that ranks have printed to standard output
    Error,        // and to standard error
  };
  Kind kind = Kind::Control;
  std::string text;
};

// The interval at which each side says that it is alive.
inline constexpr std::chrono::milliseconds kAliveEvery{1000};

inline constexpr std::string_view kGreeting = "\ntrivet agent ";

// One side of the channel. Nothing waits: what cannot be written yet is kept.
class AgentChannel {
 public:
  enum class Side { Launcher, Agent };
  // Does not own the descriptors, and makes them non-blocking.
  AgentChannel(Side side, int reading, int writing);

  void send(const AgentMessage& message);
  size_t unsent_bytes() const { return out_.size(); }

  void add_to(std::vector<pollfd>& entries) const;
  // Reads what has arrived, and writes what the other side takes.
  void step();
  // The next message that has arrived. Throws CommError (Rendezvous) if the other side sent anything else.
  std::optional<AgentMessage> next();
  // True once the other side has closed its end; messages may still be waiting.
  bool has_ended() const { return ended_; }
  // Returns the text that came before the greeting.
  const std::string& preamble() const { return preamble_; }
  // The build of the agent; none before the greeting.
  const std::optional<std::string>& build() const { return build_; }

 private:
  void look_for_greeting();

  const int reading_, writing_;
  std::string in_, out_, preamble_;
  std::optional<std::string> build_;
  bool ended_ = false;
};

}  // namespace trivet::cli

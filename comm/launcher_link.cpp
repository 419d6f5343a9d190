#include "comm/launcher_link.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <system_error>

#include "comm/member.h"

namespace trivet::comm {
namespace {

constexpr size_t kLongestCause = 400;

// Takes the number before the next space off `text`, and the space with it.
std::optional<int> take_number(std::string_view& text, int least, int most) {
  int value = 0;
  const size_t length = std::min(text.find(' '), text.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + length, value);
  if (error != std::errc() || end != text.data() + length || value < least || value > most) return std::nullopt;
  text.remove_prefix(std::min(length + 1, text.size()));
  return value;
}

}  // namespace

std::string to_message(const Loss& loss) {
  return fmt::format("lost {} {} {} {}", loss.by, loss.rank, static_cast<int>(loss.code), loss.cause.substr(0, kLongestCause));
}

std::optional<Loss> loss_from_message(std::string_view message) {
  constexpr std::string_view kStart = "lost ";
  if (!message.starts_with(kStart)) return std::nullopt;
  message.remove_prefix(kStart.size());
  const auto by = take_number(message, 0, kMaxRanks), rank = take_number(message, 0, kMaxRanks),
             code = take_number(message, 1, 125);
  if (!by || !rank || !code) return std::nullopt;
  return Loss{*by, *rank, static_cast<ExitCode>(*code), std::string(message.substr(0, kLongestCause))};
}

bool is_launcher_link(int descriptor) {
  int domain = 0, type = 0;
  socklen_t size = sizeof domain;
  return ::getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
         ::getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

void tell_launcher(int descriptor, const Loss& loss) noexcept {
  if (descriptor < 0) return;
  try {
    const std::string message = to_message(loss);
    ::send(descriptor, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  } catch (const std::exception&) {  // out of memory: the launcher then names a rank by the order in which the ranks ended
  }
}

LauncherWatch::LauncherWatch(int descriptor, std::function<void()> on_gone) : stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) throw std::system_error(errno, std::generic_category(), "cannot watch the launcher");
  thread_ = std::thread([descriptor, stop = stop_.number(), on_gone = std::move(on_gone)] {
    pollfd entries[] = {{stop, POLLIN, 0}, {descriptor, 0, 0}};
    while (::poll(entries, 2, -1) < 0 && errno == EINTR) {
    }
    if (entries[0].revents == 0 && entries[1].revents != 0) on_gone();
  });
}

LauncherWatch::~LauncherWatch() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.number(), &one, sizeof one);
  thread_.join();
}

}  // namespace trivet::comm

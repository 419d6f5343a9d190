#include "report/http_connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace trivet::report {
namespace {

bool may_be_tried_again() { return errno == EAGAIN || errno == EINTR; }

}  // namespace

OwnedDescriptor::~OwnedDescriptor() {
  if (number_ >= 0) ::close(number_);
}

short HttpConnection::events() const { return state_ == State::Answering ? POLLOUT : POLLIN; }

bool HttpConnection::advance(const Handler& handler) {
  if (state_ == State::Asking) return read_request(handler);
  if (state_ == State::Answering) return write_answer();
  return drain();
}

bool HttpConnection::expire() {
  if (state_ != State::Asking) return false;
  answer(refusal(408));
  return true;
}

bool HttpConnection::read_request(const Handler& handler) {
  char buffer[2048];
  const ssize_t count = ::recv(descriptor(), buffer, sizeof(buffer), 0);
  if (count <= 0) return count < 0 && may_be_tried_again();
  bytes_.append(buffer, static_cast<size_t>(count));
  if (bytes_.size() > kMostRequestBytes)
    answer(refusal(431));
  else if (is_complete(bytes_))
    answer(response_to(handler));
  return true;
}

HttpResponse HttpConnection::response_to(const Handler& handler) const {
  const ParsedRequest parsed = parse_request(bytes_);
  if (parsed.status != 200) return refusal(parsed.status);
  try {
    return handler(parsed.request);
  } catch (...) {  // the program goes on whatever happens here
    return refusal(500);
  }
}

void HttpConnection::answer(const HttpResponse& response) {
  bytes_ = to_bytes(response);
  state_ = State::Answering;
  deadline_ = std::chrono::steady_clock::now() + kPatience;
}

bool HttpConnection::write_answer() {
  const ssize_t count = ::send(descriptor(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL);
  if (count < 0) return may_be_tried_again();
  sent_ += static_cast<size_t>(count);
  if (sent_ < bytes_.size()) return true;
  ::shutdown(descriptor(), SHUT_WR);
  state_ = State::Draining;
  return true;
}

// Closing while there are unread bytes would make the other side lose the answer.
bool HttpConnection::drain() {
  char buffer[2048];
  const ssize_t count = ::recv(descriptor(), buffer, sizeof(buffer), 0);
  return count > 0 || (count < 0 && may_be_tried_again());
}

}  // namespace trivet::report

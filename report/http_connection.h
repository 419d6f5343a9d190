// One connection of the server (http_server.h): a request that arrives, then its answer that leaves, then whatever else the
// other side sends, until it closes.
//
//   Asking --complete, too long or too slow--> Answering --all sent--> Draining
//
// It never waits: the server calls advance() when its descriptor is ready. Owns the descriptor.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "report/http_request.h"

namespace trivet::report {

class OwnedDescriptor {
 public:
  explicit OwnedDescriptor(int number) : number_(number) {}
  OwnedDescriptor(OwnedDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  OwnedDescriptor& operator=(OwnedDescriptor&&) = delete;
  ~OwnedDescriptor();
  int get() const { return number_; }

 private:
  int number_;  // -1: none
};

class HttpConnection {
 public:
  using Handler = std::function<HttpResponse(const HttpRequest&)>;
  static constexpr std::chrono::seconds kPatience{5};  // until a request is complete, and then until its answer is read

  explicit HttpConnection(OwnedDescriptor socket) : socket_(std::move(socket)) {}  // a socket that does not block

  int descriptor() const { return socket_.get(); }
  short events() const;  // for poll
  bool is_answering() const { return state_ == State::Answering; }
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }

  // Both return whether the connection goes on. advance: it is ready. expire: the deadline is over.
  bool advance(const Handler& handler);
  bool expire();

 private:
  enum class State : uint8_t { Asking, Answering, Draining };

  bool read_request(const Handler& handler);
  bool write_answer();
  bool drain();
  HttpResponse response_to(const Handler& handler) const;
  void answer(const HttpResponse& response);

  OwnedDescriptor socket_;
  State state_ = State::Asking;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + kPatience;
  std::string bytes_;  // the request, later the answer
  size_t sent_ = 0;
};

}  // namespace trivet::report

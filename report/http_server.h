// Answers GET requests on the loopback interface, in a thread of its own with the lowest priority, so that a program which
// computes is not disturbed.
//
// Bounded: at most 16 connections, of which the oldest ends when a 17th begins; 8 KiB per request; 5 seconds until a request is
// complete, and until its answer is read. A connection has one request. Signals are left to the program's other threads.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "report/http_request.h"

namespace trivet::report {

class HttpServer {
 public:
  // Called in the server's thread. Exceptions are answered with 500.
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Listens on 127.0.0.1:`port`; 0: any port that is free. Throws ConfigError if that is not possible.
  HttpServer(int port, Handler handler);
  ~HttpServer();  // sends the answers that were begun, for 5 seconds at most, and ends the connections
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  class Loop;

  int port_ = 0;
  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace trivet::report

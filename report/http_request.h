// Parses a browser's request: without a body, of at most 8 KiB.
#pragma once

#include <string>
#include <string_view>

namespace trivet::report {

inline constexpr size_t kMostRequestBytes = 8192;

struct HttpRequest {
  std::string path;   // "/metrics", without what follows a "?"
  std::string token;  // from "?token=..." or "Authorization: Bearer ..."; empty: none
};

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
  std::string policy;  // for Content-Security-Policy; empty: nothing may be loaded
};

// Checks whether `bytes` end a request's head.
bool is_complete(std::string_view bytes);

struct ParsedRequest {
  int status = 200;  // 400: it is no request, 405: its method is not GET, 505: its version is not HTTP/1
  HttpRequest request;
};
ParsedRequest parse_request(std::string_view head);

// The response as bytes. The connection ends after it.
std::string to_bytes(const HttpResponse& response);

// A response without content: 400, 401, 404 ...
HttpResponse refusal(int status);

}  // namespace trivet::report

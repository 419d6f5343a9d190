#include "report/http_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>

namespace trivet::report {
namespace {

constexpr std::string_view kHeadEnd = "\r\n\r\n", kLineEnd = "\r\n";

std::string_view reason_of(int status) {
  static const std::map<int, std::string_view> reasons{{200, "OK"},
                                                       {400, "Bad Request"},
                                                       {401, "Unauthorized"},
                                                       {404, "Not Found"},
                                                       {405, "Method Not Allowed"},
                                                       {408, "Request Timeout"},
                                                       {431, "Request Header Fields Too Large"},
                                                       {500, "Internal Server Error"},
                                                       {505, "HTTP Version Not Supported"}};
  const auto found = reasons.find(status);
  return found == reasons.end() ? "" : found->second;
}

// Takes the text up to `separator` off the front; all of it if there is none.
std::string_view take(std::string_view& text, std::string_view separator) {
  const size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + separator.size());
  return part;
}

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

// Tokens have no characters that an address would need to escape.
std::string token_of_query(std::string_view query) {
  while (!query.empty()) {
    std::string_view parameter = take(query, "&");
    if (take(parameter, "=") == "token") return std::string(parameter);
  }
  return "";
}

std::string token_of_headers(std::string_view lines) {
  constexpr std::string_view kBearer = "Bearer ";
  while (!lines.empty()) {
    std::string_view line = take(lines, kLineEnd);
    if (!same_name(take(line, ":"), "Authorization")) continue;
    while (line.starts_with(' ')) line.remove_prefix(1);
    if (same_name(line.substr(0, kBearer.size()), kBearer)) return std::string(line.substr(kBearer.size()));
  }
  return "";
}

}  // namespace

bool is_complete(std::string_view bytes) { return bytes.find(kHeadEnd) != std::string_view::npos; }

ParsedRequest parse_request(std::string_view head) {
  std::string_view line = take(head, kLineEnd);
  const std::string_view method = take(line, " "), target = take(line, " "), version = line;
  if (method.empty() || !target.starts_with('/') || !version.starts_with("HTTP/")) return {400, {}};
  if (!version.starts_with("HTTP/1.")) return {505, {}};
  if (method != "GET") return {405, {}};
  std::string_view query = target;
  ParsedRequest parsed;
  parsed.request.path = take(query, "?");
  parsed.request.token = token_of_query(query);
  if (parsed.request.token.empty()) parsed.request.token = token_of_headers(head);
  return parsed;
}

std::string to_bytes(const HttpResponse& response) {
  std::string head = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nContent-Security-Policy: {}; frame-ancestors "
      "'none'\r\n",
      response.status, reason_of(response.status), response.type, response.body.size(),
      response.policy.empty() ? "default-src 'none'" : response.policy);
  if (response.status == 401) head += "WWW-Authenticate: Bearer\r\n";
  if (response.status == 405) head += "Allow: GET\r\n";
  return head + "\r\n" + response.body;
}

HttpResponse refusal(int status) {
  HttpResponse response;
  response.status = status;
  response.body = fmt::format("{} {}\n", status, reason_of(status));
  return response;
}

}  // namespace trivet::report

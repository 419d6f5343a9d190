#include "cli/launch/hosts/remote_command.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      c == quote ? static_cast<void>(quote = 0) : word.push_back(c);
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (in_word) words.push_back(std::exchange(word, {}));
      in_word = false;
    } else {
      word.push_back(c);
      in_word = true;
    }
  }
  if (quote != 0) throw ConfigError(fmt::format("--launcher_args {}: the quote {} has no end", printable(text), quote));
  if (in_word) words.push_back(word);
  return words;
}

std::vector<std::string> ssh_command(const LaunchRequest& request, const std::string& host, const std::string& command) {
  std::vector<std::string> words{"ssh", "-T",
                                 "-o",  "BatchMode=yes",
                                 "-o",  "ConnectTimeout=10",
                                 "-o",  fmt::format("ServerAliveInterval={}", request.host_timeout_s / 3),
                                 "-o",  "ServerAliveCountMax=3"};
  if (request.ssh_port > 0) words.insert(words.end(), {"-p", std::to_string(request.ssh_port)});
  for (std::string& word : words_of(request.launcher_arguments)) words.push_back(std::move(word));
  words.insert(words.end(), {host, command});
  return words;
}

}  // namespace trivet::cli

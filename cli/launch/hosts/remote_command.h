// Command lines that run something on other hosts.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/hostfile.h"
#include "cli/launch/request.h"

namespace trivet::cli {

// Splits at white space; single and double quotes hold words together, as in --launcher_args "-o 'ProxyCommand nc %h %p'".
// Throws ConfigError for a quote without its end.
std::vector<std::string> words_of(const std::string& text);

// ssh with the options of the request: `command` runs through the login shell of the user on that host. It never asks for a
// password, and ends within --host-timeout if the host does not answer any more.
std::vector<std::string> ssh_command(const LaunchRequest& request, const std::string& host, const std::string& command);

}  // namespace trivet::cli

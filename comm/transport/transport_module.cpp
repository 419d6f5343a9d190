#include "comm/transport/transport_module.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "core/module_file.h"

namespace trivet::comm {
namespace {

std::string upper(std::string name) {
  for (char& letter : name)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return name;
}

// Sets variables that libraries read when they are loaded, except those that the user has set.
void set_environment() {
  ::setenv("UCX_ERROR_SIGNALS", "", 0);                             // UCX would replace the program's signal handlers
  if (!std::getenv("UCX_TLS")) ::setenv("UCX_MEM_EVENTS", "n", 0);  // its hooks in mmap and munmap are of no use to TCP
  ::setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
  ::setenv("UCX_LOG_LEVEL", "fatal", 0);  // Trivet reports lost connections
}

}  // namespace

const TransportModule& transport_module(const std::string& chosen) {
  const std::string name = chosen == "auto" ? "ucx" : chosen;
  const ModuleFile file{.file = fmt::format("libtrivet_{}.so", name),
                        .variable = fmt::format("TRIVET_{}_MODULE", upper(name)),
                        .entry = kTransportModuleEntry};
  set_environment();
  const OpenedModule opened = open_module(file);
  if (opened.place.empty())
    throw CommError(
        ExitCode::Rendezvous,
        fmt::format("comm: this job runs on several hosts, and the module {} for messages between them could "
                    "not be opened; install the package trivet-{}, or lib{}0 and build with lib{}-dev installed{} ({})",
                    file.file, name, name, name,
                    chosen == "auto" ? ", or choose the other transport: communication.transport \"gloo\"" : "",
                    opened.failures));
  const auto entry = reinterpret_cast<const TransportModule* (*)()>(opened.entry);
  const TransportModule* module = entry ? entry() : nullptr;
  if (!module || std::string_view(module->interface) != kTransportInterface)
    throw CommError(ExitCode::VersionSkew,
                    fmt::format("comm: {} is for \"{}\", but this program is \"{}\"; install both from "
                                "the same build",
                                opened.place, module ? module->interface : "no version of Trivet", kTransportInterface));
  return *module;
}

}  // namespace trivet::comm

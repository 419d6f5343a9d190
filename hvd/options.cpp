#include "hvd/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hvd {
namespace {

constexpr double kMostSeconds = 1e6;
constexpr std::string_view kPrefix = "HOROVOD_";
constexpr std::array<std::string_view, 7> kUsed{"HOROVOD_FUSION_THRESHOLD",
                                                "HOROVOD_CYCLE_TIME",
                                                "HOROVOD_CACHE_CAPACITY",
                                                "HOROVOD_STALL_CHECK_TIME_SECONDS",
                                                "HOROVOD_STALL_CHECK_DISABLE",
                                                "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
                                                "HOROVOD_TIMELINE"};

// The number that a variable holds, if it is set and not empty.
std::optional<double> number_in(const comm::Environment& environment, const std::string& name, double most) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  const std::string& text = found->second;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= most))
    throw ConfigError(fmt::format("{}: \"{}\" is not accepted; use a number from 0 to {}", name, printable(text), most));
  return value;
}

std::chrono::milliseconds seconds_in(const comm::Environment& environment, const std::string& name,
                                     std::chrono::milliseconds otherwise) {
  const auto seconds = number_in(environment, name, kMostSeconds);
  return seconds ? std::chrono::milliseconds(static_cast<int64_t>(*seconds * 1000)) : otherwise;
}

// "0" and "" turn off what is not here, which is accepted.
void check_unavailable(const comm::Environment& environment) {
  for (const char* name : {"HOROVOD_AUTOTUNE", "HOROVOD_ELASTIC"})
    if (const auto found = environment.find(name); found != environment.end() && !found->second.empty() && found->second != "0")
      throw ConfigError(fmt::format("{}: \"{}\" is not accepted: Trivet does not have this feature; unset the variable", name,
                                    printable(found->second)));
}

std::vector<std::string> unused_in(const comm::Environment& environment) {
  std::vector<std::string> names;
  for (const auto& [name, value] : environment)
    if (name.starts_with(kPrefix) && !value.empty() && std::find(kUsed.begin(), kUsed.end(), name) == kUsed.end())
      names.push_back(printable(name));
  return names;
}

}  // namespace

void check_launcher(const comm::Environment& environment, int world_size) {
  const auto size = number_in(environment, "HOROVOD_SIZE", 1e6);
  if (size && *size != world_size)
    throw ConfigError(fmt::format(
        "HOROVOD_SIZE is {}, but this process has found a job of {}: Horovod's own launchers cannot start this program; use "
        "trivet launch, mpirun, srun or torchrun",
        *size, world_size == 1 ? "1 rank" : fmt::format("{} ranks", world_size)));
}

Options options_from_environment(const comm::Environment& environment) {
  check_unavailable(environment);
  Options options;
  if (const auto bytes = number_in(environment, "HOROVOD_FUSION_THRESHOLD", 1e12))
    options.fusion_threshold_bytes = static_cast<int64_t>(*bytes);
  if (const auto ms = number_in(environment, "HOROVOD_CYCLE_TIME", 1e6))
    options.cycle_time = std::chrono::microseconds(static_cast<int64_t>(*ms * 1000));
  if (const auto entries = number_in(environment, "HOROVOD_CACHE_CAPACITY", 1e6))
    options.cache_capacity = static_cast<int>(*entries);
  options.stall_check_time = seconds_in(environment, "HOROVOD_STALL_CHECK_TIME_SECONDS", options.stall_check_time);
  if (number_in(environment, "HOROVOD_STALL_CHECK_DISABLE", 1).value_or(0) != 0) options.stall_check_time = {};
  options.stall_shutdown_time = seconds_in(environment, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", options.stall_shutdown_time);
  if (const auto found = environment.find("HOROVOD_TIMELINE"); found != environment.end() && found->second != "DYNAMIC")
    options.timeline = found->second;
  options.unused_variables = unused_in(environment);
  return options;
}

}  // namespace trivet::hvd

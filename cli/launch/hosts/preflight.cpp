#include "cli/launch/hosts/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/printable.h"

namespace trivet::cli {
namespace {

constexpr double kClockDifference = 5;  // seconds: files of one job would appear to come from the future

std::string gibibytes(int64_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (int64_t{1} << 30)); }

std::string ranks_of(const HostRanks& on) {
  return on.first_rank == on.last_rank() ? std::to_string(on.first_rank) : fmt::format("{}-{}", on.first_rank, on.last_rank());
}

}  // namespace

void add_problem(HostState& host, ExitCode code, std::string text) {
  if (host.problems.empty()) host.code = code;
  host.problems.push_back(std::move(text));
}

void compare_reports(std::vector<HostState>& hosts) {
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (!hosts[i].report) continue;
    const HostReport& report = *hosts[i].report;
    for (size_t j = 0; j < i; ++j) {
      if (!hosts[j].report || hosts[j].report->host_name != report.host_name || hosts[j].report->boot_id != report.boot_id)
        continue;
      add_problem(hosts[i], ExitCode::Usage, fmt::format("is the same host as {}; name it once", hosts[j].on.host.name));
      break;
    }
    if (std::abs(hosts[i].clock_ahead_s) > kClockDifference)
      add_problem(hosts[i], ExitCode::Usage,
                  fmt::format("its clock is {:.0f} s {} the launcher's; synchronize the clocks (NTP)",
                              std::abs(hosts[i].clock_ahead_s), hosts[i].clock_ahead_s > 0 ? "ahead of" : "behind"));
  }
}

std::string table_of(const std::vector<HostState>& hosts) {
  size_t widest = 4;
  for (const HostState& host : hosts) widest = std::max(widest, host.on.host.name.size());
  std::string out = fmt::format("{:{}}  {:>9}  {:>5}  {:>11}  {:>11}  {:>9}  problem\n", "host", widest, "ranks", "cores",
                                "memory free", "disk free", "clock");
  for (const HostState& host : hosts) {
    const auto& report = host.report;
    out +=
        fmt::format("{:{}}  {:>9}  {:>5}  {:>11}  {:>11}  {:>9}  {}\n", host.on.host.name, widest, ranks_of(host.on),
                    report ? std::to_string(report->cores) : "-", report ? gibibytes(report->memory_bytes) : "-",
                    report ? gibibytes(report->disk_bytes) : "-", report ? fmt::format("{:+.1f} s", host.clock_ahead_s) : "-",
                    host.problems.empty() ? "" : host.problems[0]);
    for (size_t i = 1; i < host.problems.size(); ++i) out += fmt::format("{:{}}{}\n", "", widest + 57, host.problems[i]);
  }
  return out;
}

std::optional<Error> error_of(const std::vector<HostState>& hosts) {
  const auto has_problem = [](const HostState& host) { return !host.problems.empty(); };
  const auto first = std::find_if(hosts.begin(), hosts.end(), has_problem);
  if (first == hosts.end()) return std::nullopt;
  return Error(first->code, fmt::format("launch: {} of {} hosts cannot run their ranks; the first is {}: {}",
                                        std::count_if(hosts.begin(), hosts.end(), has_problem), hosts.size(),
                                        first->on.host.name, first->problems[0]));
}

}  // namespace trivet::cli

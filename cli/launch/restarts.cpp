#include "cli/launch/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/launch/train_command.h"
#include "engine/config/load.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

bool would_fail_again(int exit_code) {
  return std::any_of(kWouldFailAgain.begin(), kWouldFailAgain.end(),
                     [&](ExitCode code) { return static_cast<int>(code) == exit_code; });
}

// 0 if that many ranks cannot train it.
int64_t batch_of(const Config& config, int ranks) {
  const int64_t of_one_model = config.parallel.tensor * config.parallel.pipeline * config.parallel.context;
  if (ranks % of_one_model != 0) return 0;
  try {
    return resolve_batch(config.batch, ranks / of_one_model, config.source).train_batch_size;
  } catch (const ConfigError&) {
    return 0;
  }
}

// At most `most` ranks; 0 if none can train the same batch as `before`.
int ranks_with_the_same_batch(const Config& config, int before, int most) {
  const int64_t batch = batch_of(config, before);
  for (int ranks = most; ranks > 0; --ranks)
    if (batch_of(config, ranks) == batch) return ranks;
  return 0;
}

std::vector<Host> first_slots(const std::vector<HostRanks>& hosts, int ranks) {
  std::vector<Host> kept;
  for (const HostRanks& on : hosts) {
    if (ranks == 0) break;
    kept.push_back(on.host);
    kept.back().slots.resize(std::min<size_t>(kept.back().slots.size(), ranks));
    ranks -= static_cast<int>(kept.back().slots.size());
  }
  return kept;
}

bool holds_a_step(const std::string& directory) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

// A run that began with --resume OTHER goes on from its own checkpoints as soon as it has some.
std::vector<std::string> resuming(const TrainCommand& command, const Config& config, bool owns_steps) {
  std::vector<std::string> program{command.program, "train", command.config};
  for (const std::string& override : command.overrides) program.insert(program.end(), {"--set", override});
  const bool has_own = owns_steps && !config.checkpoint.directory.empty() && holds_a_step(config.checkpoint.directory);
  for (size_t i = 0; i < command.others.size(); ++i) {
    if (has_own && command.others[i].starts_with("--resume")) {
      const bool has_value = i + 1 < command.others.size() && !command.others[i + 1].starts_with("-");
      if (command.others[i] == "--resume" && has_value) ++i;
      continue;
    }
    program.push_back(command.others[i]);
  }
  if (has_own) program.emplace_back("--resume");
  return program;
}

}  // namespace

JobStart first_start(const LaunchRequest& request, const std::vector<HostRanks>& hosts) {
  JobStart start{.request = request, .hosts = hosts};
  const auto command = train_command(request.program);
  if (!command || request.max_restarts == 0) return start;
  const std::string directory = load_config(command->config, command->overrides).checkpoint.directory;
  const auto& words = command->others;
  const auto resume = std::find(words.begin(), words.end(), "--resume");
  const bool resumes = resume != words.end() && (resume + 1 == words.end() || (resume + 1)->starts_with("-"));
  start.owns_steps = resumes || directory.empty() || !holds_a_step(directory);
  return start;
}

std::optional<JobStart> start_again(const JobStart& before, const JobOutcome& outcome) {
  if (outcome.exit_code == 0 || outcome.ended_by_signal || would_fail_again(outcome.exit_code)) return std::nullopt;
  if (before.request.restart >= before.request.max_restarts) return std::nullopt;
  JobStart next{.request = before.request, .hosts = {}, .owns_steps = before.owns_steps};
  ++next.request.restart;
  next.request.lost_hosts.insert(next.request.lost_hosts.end(), outcome.lost_hosts.begin(), outcome.lost_hosts.end());
  try {
    next.hosts = hosts_of_job(next.request);
  } catch (const ConfigError&) {  // too few hosts are left
    return std::nullopt;
  }
  if (const auto command = train_command(before.request.program)) {
    Config config;
    try {
      config = load_config(command->config, command->overrides);
    } catch (const ConfigError&) {  // changed in the meantime
      return std::nullopt;
    }
    const int ranks = ranks_with_the_same_batch(config, before.hosts[0].world_size, next.hosts[0].world_size);
    if (ranks == 0) return std::nullopt;
    next.hosts = deal_ranks(first_slots(next.hosts, ranks));
    next.request.program = resuming(*command, config, before.owns_steps);
  }
  if (next.hosts[0].host.name != before.hosts[0].host.name) next.request.master_address.clear();
  return next;
}

std::string describe(const JobStart& start) {
  const int ranks = start.hosts[0].world_size;
  return fmt::format("restart {} of {}, on {} host{} with {} rank{}", start.request.restart, start.request.max_restarts,
                     start.hosts.size(), start.hosts.size() == 1 ? "" : "s", ranks, ranks == 1 ? "" : "s");
}

}  // namespace trivet::cli

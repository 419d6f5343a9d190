#include "cli/launch/restarts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "cli/launch/train_command.h"
#include "engine/config/load.h"
#include "engine/mesh.h"
#include "engine/sharing.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::minutes kQuickFailure{1};

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

// Checks whether mics_shard_size and zero_hpz_partition_size fit this number of ranks.
bool can_be_sharded(const Config& config, int ranks) {
  try {
    sharding_of(config, Mesh(config.parallel, ranks));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Returns a number of ranks, at most `most`; 0 if none can train the same batch as `before`.
int ranks_with_the_same_batch(const Config& config, int before, int most) {
  const int64_t batch = batch_of(config, before);
  if (batch == 0) return 0;
  for (int ranks = most; ranks > 0; --ranks)
    if (batch_of(config, ranks) == batch && can_be_sharded(config, ranks)) return ranks;
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

// Checks whether a start continues from the job's own steps. If every host has a directory of its own, or steps in
// memory, this host's may lack what the others have; a restart then takes --resume in any case, which starts at step 1
// if there is no step. A run that began with --resume OTHER cannot be told to look for both.
bool resumes_from_own(const TrainCommand& command, const Config& config, const JobStart& start) {
  if (!start.owns_steps || config.checkpoint.directory.empty()) return false;
  const bool from_other = std::any_of(command.others.begin(), command.others.end(),
                                      [](const std::string& word) { return word.starts_with("--resume"); });
  const bool per_host = config.checkpoint.replicas > 0 || config.checkpoint.saves_to_memory();
  return holds_a_step(config.checkpoint.directory) ||
         (config.checkpoint.saves_to_memory() && holds_a_step(config.checkpoint.memory.directory)) ||
         (per_host && start.request.restart > 0 && !from_other);
}

// A run that began with --resume OTHER goes on from its own checkpoints as soon as it has some.
std::vector<std::string> resuming(const TrainCommand& command, const Config& config, const JobStart& start) {
  std::vector<std::string> program{command.program, "train", command.config};
  for (const std::string& override : command.overrides) program.insert(program.end(), {"--set", override});
  const bool has_own = resumes_from_own(command, config, start);
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

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Checks whether the start counts for --max_restarts; not if the job was only ended to take a host in.
bool is_counted(const JobOutcome& outcome) { return outcome.returned_hosts.empty() || !outcome.lost_hosts.empty(); }

int hosts_wanted(const JobStart& job) {
  return job.request.nodes > 0 ? job.request.nodes : static_cast<int>(job.candidates.size());
}

std::vector<Host> present_hosts(const JobStart& job) {
  std::vector<Host> present = job.candidates;
  std::erase_if(present, [&](const Host& host) { return contains(job.absent, host.name); });
  return present;
}

// Throws ConfigError if too few hosts are left.
std::vector<HostRanks> hosts_that_are_left(const JobStart& job) {
  const std::vector<Host> present = present_hosts(job);
  const int wanted = hosts_wanted(job), left = static_cast<int>(present.size());
  const int least = job.request.min_nodes > 0 ? job.request.min_nodes : wanted;
  if (left < least)
    throw ConfigError(fmt::format("{} of {} hosts are left, and {}", left, job.candidates.size(),
                                  job.request.min_nodes > 0 ? fmt::format("--min_nodes is {}", least)
                                                            : fmt::format("the job needs {} (--min_nodes)", least)));
  return choose_hosts(present, std::min(left, wanted), job.request);
}

// A job is only ended for a host that has come back if it then goes on from where it was, with more ranks.
std::vector<Host> hosts_to_await(const JobStart& job, const Config& config) {
  if (config.checkpoint.directory.empty() || static_cast<int>(present_hosts(job).size()) >= hosts_wanted(job)) return {};
  JobStart complete = job;
  complete.absent.clear();
  const int most = hosts_that_are_left(complete)[0].world_size;
  if (ranks_with_the_same_batch(config, job.most_ranks, most) <= job.hosts[0].world_size) return {};
  std::vector<Host> awaited = job.candidates;
  std::erase_if(awaited,
                [&](const Host& host) { return !contains(job.absent, host.name) || contains(job.given_up, host.name); });
  return awaited;
}

// Fewer ranks and another program, if it is `trivet train`. Throws ConfigError if none can train with the same batch.
void fit_to_config(JobStart& next) {
  const auto command = train_command(next.request.program);
  if (!command) return;
  const Config config = load_config(command->config, command->overrides);
  const int left = next.hosts[0].world_size;
  const int ranks = ranks_with_the_same_batch(config, next.most_ranks, left);
  if (ranks == 0)
    throw ConfigError(
        fmt::format("no number of ranks up to {} can train with the batch of {} ranks; give train_batch_size, and not "
                    "gradient_accumulation_steps",
                    left, next.most_ranks));
  next.hosts = deal_ranks(first_slots(next.hosts, ranks));
  next.request.program = resuming(*command, config, next);
  next.request.awaited_hosts = hosts_to_await(next, config);
}

}  // namespace

void check_min_nodes(const LaunchRequest& request, int hosts) {
  if (request.min_nodes > hosts)
    throw ConfigError(
        fmt::format("--min_nodes {}: the job has only {} host{}", request.min_nodes, hosts, hosts == 1 ? "" : "s"));
}

JobStart first_start(const LaunchRequest& request, const std::vector<Host>& candidates,
                     const std::vector<std::string>& absent) {
  JobStart start{.request = request, .candidates = candidates, .absent = absent, .hosts = {}};
  start.hosts = absent.empty() ? choose_hosts(candidates, request.nodes, request) : hosts_that_are_left(start);
  start.most_ranks = choose_hosts(candidates, request.nodes, request)[0].world_size;
  start.first_host = start.hosts[0].host.name;
  start.address_of_first = request.master_address;
  check_min_nodes(request, static_cast<int>(start.hosts.size()));
  const auto command = train_command(request.program);
  if (!command || request.max_restarts == 0) return start;
  const CheckpointConfig saves = load_config(command->config, command->overrides).checkpoint;
  const auto& words = command->others;
  const auto resume = std::find(words.begin(), words.end(), "--resume");
  const bool resumes = resume != words.end() && (resume + 1 == words.end() || (resume + 1)->starts_with("-"));
  const bool others_steps = holds_a_step(saves.directory) || (saves.saves_to_memory() && holds_a_step(saves.memory.directory));
  start.owns_steps = resumes || saves.directory.empty() || !others_steps;
  if (!absent.empty()) fit_to_config(start);
  return start;
}

NextStart start_again(const JobStart& before, const JobOutcome& outcome) {
  if (outcome.ended_by_signal) return {.why_not = "the launcher was told to end the job"};
  // A host that has just joined may lack something that the others have.
  const bool because_of_taken_in = !before.taken_in.empty() && (would_fail_again(outcome.exit_code) ||
                                                                outcome.exit_code == static_cast<int>(ExitCode::Rendezvous));
  // Without the hosts that have no room for their files of a checkpoint, the others can go on.
  const bool lacked_room = outcome.exit_code == static_cast<int>(ExitCode::CheckpointNotWritten) && !outcome.lost_hosts.empty();
  if (would_fail_again(outcome.exit_code) && !because_of_taken_in && !lacked_room)
    return {.why_not = fmt::format("what ends with exit code {} would only happen again", outcome.exit_code)};
  JobStart next = before;
  next.request.awaited_hosts.clear();
  ++next.request.restart;
  if (is_counted(outcome)) ++next.failures;
  if (next.failures > next.request.max_restarts)
    return {.why_not = fmt::format("it has started again {} time{} (--max_restarts)", before.failures,
                                   before.failures == 1 ? "" : "s")};
  next.taken_in = outcome.returned_hosts;
  if (because_of_taken_in) {
    next.given_up.insert(next.given_up.end(), before.taken_in.begin(), before.taken_in.end());
    next.absent.insert(next.absent.end(), before.taken_in.begin(), before.taken_in.end());
  }
  std::erase_if(next.absent, [&](const std::string& name) { return contains(outcome.returned_hosts, name); });
  next.absent.insert(next.absent.end(), outcome.lost_hosts.begin(), outcome.lost_hosts.end());
  // Before there is no restart, hosts that were replaced are tried again: nobody has looked for them.
  const int needed = next.request.min_nodes > 0 ? next.request.min_nodes : hosts_wanted(next);
  if (static_cast<int>(present_hosts(next).size()) < needed)
    std::erase_if(next.absent, [&](const std::string& name) {
      return !contains(outcome.lost_hosts, name) && !contains(next.given_up, name);
    });
  try {
    next.hosts = hosts_that_are_left(next);
    fit_to_config(next);
  } catch (const ConfigError& error) {  // also thrown for a config that has changed in the meantime
    return {.why_not = error.what()};
  }
  next.request.master_address = next.hosts[0].host.name == next.first_host ? next.address_of_first : "";
  return {.start = std::move(next)};
}

int quick_failures_after(int before, const JobOutcome& outcome, std::chrono::steady_clock::duration ran) {
  if (!outcome.lost_hosts.empty() || !is_counted(outcome)) return before;
  return ran < kQuickFailure ? before + 1 : 0;
}

std::chrono::seconds pause_before_start(int quick_failures) {
  return std::chrono::seconds(quick_failures <= 1 ? 0 : std::min(30, 1 << std::min(quick_failures - 2, 5)));
}

std::string describe(const JobStart& start, const JobOutcome& outcome) {
  const int ranks = start.hosts[0].world_size;
  const std::string where = fmt::format("on {} host{} with {} rank{}", start.hosts.size(), start.hosts.size() == 1 ? "" : "s",
                                        ranks, ranks == 1 ? "" : "s");
  if (!is_counted(outcome)) return "it starts again " + where;
  return fmt::format("restart {} of {}, {}", start.failures, start.request.max_restarts, where);
}

}  // namespace trivet::cli

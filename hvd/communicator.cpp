#include "hvd/communicator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "core/log.h"
#include "core/printable.h"
#include "hvd/channel.h"

namespace trivet::hvd {
namespace {

constexpr int64_t kHostBytes = 256;  // length of a host's name

std::string set_name(int id) { return id == 0 ? "" : fmt::format("set{}", id); }

void check_set(const std::vector<int>& ranks, int size) {
  bool ascending = !ranks.empty() && ranks.front() >= 0 && ranks.back() < size;
  for (size_t i = 1; i < ranks.size(); ++i) ascending = ascending && ranks[i - 1] < ranks[i];
  if (!ascending) throw ConfigError(fmt::format("hvd: a process set needs ascending ranks from 0 to {}, each once", size - 1));
}

}  // namespace

Communicator::Communicator(comm::World& world, const Options& options) : world_(world), options_(options) { start(options); }

Communicator::Communicator(std::unique_ptr<comm::World> world, const Options& options)
    : owned_world_(std::move(world)), world_(*owned_world_), options_(options) {
  start(options);
}

void Communicator::start(const Options& options) {
  check_options(world_.group(), options);
  find_hosts(world_.group());
  std::vector<int> all(world_.size());
  std::iota(all.begin(), all.end(), 0);
  if (world_.rank() == 0 && !options.unused_variables.empty())
    Log(0).warning(fmt::format("hvd: {} in the environment: not used here; docs/horovod.md lists the variables that are",
                               fmt::join(options.unused_variables, ", ")));
  try {
    if (!options.timeline.empty()) start_timeline(options.timeline);
    open_ = true;
    add_process_set(all);
    for (const auto& ranks : options.process_sets) add_process_set(ranks);
  } catch (const std::exception& error) {
    world_.abort(error.what());  // ends the waits of the threads that have started
    throw;
  }
}

Communicator::~Communicator() {
  if (open_) world_.abort("it left Horovod's interface without shutdown()");
}

void Communicator::shutdown() {
  if (!open_) return;
  // First all sets, then the waits: another rank may be waiting for this one in any of them.
  for (auto& [id, channel] : channels_) channel->leave();
  for (auto& [id, channel] : channels_) channel->shut_down();
  channels_.clear();
  open_ = false;
  timeline_.close();
  if (owned_world_) owned_world_->close();
}

// These decide which operations the ranks run, so they must be equal.
void Communicator::check_options(comm::ProcessGroup& group, const Options& options) const {
  struct Field {
    const char* name;
    int64_t value;
  };
  const std::vector<Field> fields{{"fusion_threshold_bytes (HOROVOD_FUSION_THRESHOLD)", options.fusion_threshold_bytes},
                                  {"cache_capacity (HOROVOD_CACHE_CAPACITY)", options.cache_capacity},
                                  {"the number of process_sets", int64_t(options.process_sets.size())}};
  for (const Field& field : fields)
    if (field.value < 0) throw ConfigError(fmt::format("hvd: {}: {} is not accepted; use at least 0", field.name, field.value));
  std::vector<int64_t> own, all(fields.size() * group.size());
  for (const Field& field : fields) own.push_back(field.value);
  const auto stream = make_inline_stream();
  group.all_gather(view(own), view(all), *stream);
  stream->synchronize();
  for (int rank = 0; rank < group.size(); ++rank)
    for (size_t i = 0; i < fields.size(); ++i)
      if (const int64_t value = all[rank * fields.size() + i]; value != all[i])
        throw ConfigError(fmt::format("hvd: {} is {} on rank 0 and {} on rank {}; set the same on all ranks", fields[i].name,
                                      all[i], value, rank));
}

void Communicator::find_hosts(comm::ProcessGroup& group) {
  const int size = group.size(), self = group.rank();
  std::string own = world_.host(), all(size * kHostBytes, '\0');
  own.resize(kHostBytes);
  const auto stream = make_inline_stream();
  group.all_gather({own.data(), DType::UInt8, {kHostBytes}}, {all.data(), DType::UInt8, {size * kHostBytes}}, *stream);
  stream->synchronize();
  std::map<std::string, int> ranks_on;
  std::vector<int> local(size);
  for (int rank = 0; rank < size; ++rank) local[rank] = ranks_on[all.substr(rank * kHostBytes, kHostBytes)]++;
  local_rank_ = local[self];
  local_size_ = ranks_on[own];
  cross_rank_ = static_cast<int>(std::count(local.begin(), local.begin() + self, local_rank_));
  cross_size_ = static_cast<int>(std::count(local.begin(), local.end(), local_rank_));
  for (const auto& [host, count] : ranks_on) homogeneous_ = homogeneous_ && count == local_size_;
}

int Communicator::rank(const ProcessSet& set) const { return set.global() ? world_.rank() : set.own_rank; }
int Communicator::size(const ProcessSet& set) const {
  return set.global() ? world_.size() : static_cast<int>(set.ranks.size());
}

Channel& Communicator::channel(const ProcessSet& set) const {
  if (!open_) throw ConfigError("hvd: this call needs a Communicator that was not shut down");
  const auto found = channels_.find(set.id);
  if (found == channels_.end())
    throw ConfigError(fmt::format("hvd: rank {} is not in process set {}, or the set was removed", world_.rank(), set.id));
  return *found->second;
}

ProcessSet Communicator::add_process_set(const std::vector<int>& ranks) {
  if (!open_) throw ConfigError("hvd: add_process_set() was called after shutdown()");
  check_set(ranks, world_.size());
  const int id = next_set_++;
  auto group = world_.group().subgroup(ranks, fmt::format("hvd.{}", id));
  ProcessSet set{.id = id, .ranks = ranks, .own_rank = group ? group->rank() : -1};
  sets_[id] = set;
  if (group)
    channels_[id] =
        std::make_unique<Channel>(ChannelParts{.group = std::move(group),
                                               .world_ranks = ranks,
                                               .options = options_,
                                               .timeline = timeline_,
                                               .name = set_name(id),
                                               .abort = [this](const std::string& reason) { world_.abort(reason); }});
  return set;
}

ProcessSet Communicator::process_set(int id) const {
  const auto found = sets_.find(id);
  if (found == sets_.end()) throw ConfigError(fmt::format("hvd: there is no process set {}", id));
  return found->second;
}

void Communicator::remove_process_set(const ProcessSet& set) {
  if (set.global()) throw ConfigError("hvd: the process set of all ranks cannot be removed");
  if (set.included()) channel(set).shut_down();
  channels_.erase(set.id);
  sets_.erase(set.id);
}

void Communicator::start_timeline(const std::string& path) {
  if (world_.rank() == 0) timeline_.open(path);
}
void Communicator::stop_timeline() { timeline_.close(); }

std::unique_ptr<Communicator> init(const Options& options, const comm::WorldOptions& world_options) {
  const comm::Environment environment = comm::current_environment();
  const comm::Place place = comm::place_from_environment(environment);
  check_launcher(environment, place.world_size);
  return std::make_unique<Communicator>(comm::connect(place, world_options), options);
}

void run(int ranks, const std::function<void(Communicator&)>& body, const Options& options,
         const comm::WorldOptions& world_options) {
  // The first failure is kept here: when a Communicator is destroyed, the other ranks fail as well.
  std::mutex mutex;
  std::exception_ptr first;
  const auto run_rank = [&](comm::World& world) {
    Communicator hvd(world, options);
    try {
      body(hvd);
      hvd.shutdown();
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!first) first = std::current_exception();
      throw;
    }
  };
  try {
    comm::run_threads(ranks, run_rank, world_options);
  } catch (...) {
    if (!first) throw;
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace trivet::hvd

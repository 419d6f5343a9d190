#include "comm/world_activity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kActivityEvery{100};
constexpr std::chrono::minutes kMemory{10};
constexpr int kNextReport = 4;  // the next report comes when the wait is this many times as long
constexpr int kAlsoWaits = 4;   // times the patience, for a rank that is waiting itself
constexpr int kUsualWait = 2;   // times the longest wait that ended well

double seconds(WorldActivity::Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string describe(const Activity& activity) {
  return fmt::format("{}, number {} of group \"{}\"", to_string(activity.header), activity.header.number, activity.group);
}

}  // namespace

void ActivityRecord::write(const Activity& activity) {
  uint32_t version = version_.load(std::memory_order_relaxed);
  if (version % 2 != 0 || !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) return;
  std::array<uint64_t, kWords> words;
  std::memcpy(words.data(), &activity, sizeof activity);
  for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_release);
  version_.store(version + 2, std::memory_order_release);
}

std::optional<Activity> ActivityRecord::read() const {
  for (int attempt = 0; attempt < 100; ++attempt) {
    const uint32_t before = version();
    std::array<uint64_t, kWords> words;
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_acquire);
    if (before % 2 != 0 || before != version()) continue;
    if (before == 0) return std::nullopt;
    Activity activity;
    std::memcpy(static_cast<void*>(&activity), words.data(), sizeof activity);
    activity.group[sizeof activity.group - 1] = 0;
    return activity;
  }
  return std::nullopt;
}

WorldActivity::WorldActivity(std::shared_ptr<std::byte> memory, Options options)
    : memory_(std::move(memory)), options_(std::move(options)), longest_at_(Clock::now()) {
  ActivityLine& mine = own();
  options_.who.copy(mine.who, sizeof mine.who - 1);
}

WorldActivity::Clock::duration WorldActivity::patience() const {
  std::lock_guard lock(mutex_);
  const bool forgotten = Clock::now() - longest_at_ > kMemory;
  return std::max<Clock::duration>(options_.report_after, forgotten ? Clock::duration{0} : kUsualWait * longest_);
}

void WorldActivity::remember(Clock::duration waited) {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (waited < longest_ && now - longest_at_ <= kMemory) return;
  longest_ = waited;
  longest_at_ = now;
}

WorldActivity::Wait::Wait(WorldActivity& world, const Activity& activity, milliseconds deadline)
    : world_(world),
      activity_(activity),
      deadline_(deadline),
      patience_(world.patience()),
      missing_(world.options_.world_size),
      next_report_(missing_.size(), Clock::duration{0}) {
  world_.own().waits_in.write(activity);
  ++world_.own().waiting;
}

WorldActivity::Wait::~Wait() { --world_.own().waiting; }

void WorldActivity::Wait::ended_well() { world_.remember(Clock::now() - start_); }

void WorldActivity::Wait::look(const std::vector<int>& missing) {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + std::min<Clock::duration>(kActivityEvery, world_.options_.report_after / 4);
  ++world_.own().looks;
  for (int rank : missing) {
    auto& known = missing_[rank];
    observe(rank, known, now);
    const bool waits = waits_itself(rank, *known, now);
    if (now - known->since < (waits ? kAlsoWaits * patience_ : patience_)) continue;
    auto& next = next_report_[rank];
    if (now - start_ < next) continue;
    // The first rank to report it after its last operation continues to report it; the others stay silent.
    uint64_t stamp = world_.line(rank).reported.load();
    const uint64_t here = uint64_t{known->version} + 1;
    const bool first = stamp != here && world_.line(rank).reported.compare_exchange_strong(stamp, here);
    if (!first && next == Clock::duration{0}) continue;
    report(rank, waits, now - start_);
    next = kNextReport * (now - start_);
  }
}

void WorldActivity::Wait::observe(int rank, std::optional<Missing>& missing, Clock::time_point now) const {
  const uint32_t version = world_.line(rank).entered.version(), looks = world_.line(rank).looks;
  if (!missing) missing = Missing{version, now, looks, now};
  if (version != missing->version) missing = Missing{version, now, missing->looks, missing->looked};
  if (looks != missing->looks) missing = Missing{missing->version, missing->since, looks, now};
}

bool WorldActivity::Wait::waits_itself(int rank, const Missing& missing, Clock::time_point now) const {
  return world_.line(rank).waiting > 0 && now - missing.looked < patience_;
}

void WorldActivity::Wait::report(int rank, bool waits_itself, Clock::duration waited) const {
  const ActivityLine& line = world_.line(rank);
  const auto last = line.entered.read();
  const auto wait = waits_itself ? line.waits_in.read() : std::nullopt;
  const bool inside = last && last->header == activity_.header && std::string_view(last->group) == activity_.group;
  std::string where = "it has entered nothing yet: it is computing or stuck";
  if (wait) {
    where = fmt::format("it is itself waiting for another rank, in {}", describe(*wait));
  } else if (inside) {
    where = "it has entered the operation and has done nothing since";
  } else if (last) {
    where = fmt::format("it has entered nothing since {}: it is computing or stuck", describe(*last));
  }
  world_.options_.report(fmt::format("rank {} (host {}) has not {} {}, for {:.3g} s; {}; giving up after {:.3g} s", rank,
                                     line.who, inside ? "finished its part of" : "reached", describe(activity_),
                                     seconds(waited), where, seconds(deadline_)));
}

}  // namespace trivet::comm

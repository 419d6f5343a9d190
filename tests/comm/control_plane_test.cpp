// Whole jobs in virtual time (control_simulation.h), with faults at random times. TRIVET_SEEDS and TRIVET_LARGE_SEEDS say how
// many jobs of each kind are tried; then the rows of a table are printed (scripts/control_plane).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/comm/control_simulation.h"

namespace trivet::comm::control {
namespace {

using std::chrono::seconds;
using State = Simulation::State;

constexpr milliseconds kVisible{1000}, kSilent{6500};

double ms(nanoseconds time) { return static_cast<double>(time.count()) / 1e6; }

// One job of a kind: a small world of random shape, unless a size is given.
class Trial {
 public:
  Trial(uint64_t seed, bool ends) : random_(seed), world_(random_world(ends)), job(world_, seed) {}
  Trial(const World& world, uint64_t seed) : random_(seed), world_(world), job(world_, seed) {}

  int choose(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  milliseconds between(milliseconds least, milliseconds most) {
    return milliseconds(choose(static_cast<int>(least.count()), static_cast<int>(most.count())));
  }
  int any_rank() { return choose(0, job.ranks() - 1); }
  std::set<int> any_hosts(int most) {  // not the root's
    std::set<int> hosts;
    for (int i = choose(1, most); i > 0; --i) hosts.insert(choose(1, world_.hosts - 1));
    return hosts;
  }
  std::set<int> ranks_of(const std::set<int>& hosts) const {
    std::set<int> ranks;
    for (int rank = 0; rank < job.ranks(); ++rank) {
      if (hosts.contains(job.host_of(rank))) ranks.insert(rank);
    }
    return ranks;
  }

  // Everybody has joined, met and left in order.
  void expect_undisturbed() {
    for (int rank = 0; rank < job.ranks(); ++rank) {
      const auto& process = job.process(rank);
      if (process.closed && !process.verdict) continue;
      complain(rank, process.verdict   ? "blames " + process.verdict->cause
                     : process.refusal ? process.refusal->reason
                                       : "has not left");
      return;
    }
    for (int rank = 0; rank < job.ranks(); ++rank)
      joined_after = std::max<nanoseconds>(joined_after, job.process(rank).joined - last_start());
  }

  // All of these ranks name the same one of the culprits, in time.
  void expect_blamed(const std::set<int>& survivors, const std::set<int>& culprits, nanoseconds fault, nanoseconds bound) {
    std::set<int> named;
    for (int rank : survivors) {
      const auto& process = job.process(rank);
      if (!process.verdict) return complain(rank, "has not been told");
      named.insert(process.verdict->world_rank);
      told_after = std::max<nanoseconds>(told_after, process.told - job.start() - fault);
    }
    if (named.size() > 1) return complain(*survivors.begin(), fmt::format("and others name {}", fmt::join(named, ",")));
    if (!named.empty() && !culprits.contains(*named.begin()))
      complain(*survivors.begin(), fmt::format("names {}", *named.begin()));
    if (told_after > bound) complain(*survivors.begin(), fmt::format("and others were told after {:.0f} ms", ms(told_after)));
  }
  std::set<int> all_but(const std::set<int>& gone) const {
    std::set<int> ranks;
    for (int rank = 0; rank < job.ranks(); ++rank) {
      if (!gone.contains(rank)) ranks.insert(rank);
    }
    return ranks;
  }

  void complain(int rank, const std::string& what) {
    if (problem.empty())
      problem = fmt::format("{} hosts of {} ranks, fan-out {}: rank {} {}", world_.hosts, world_.ranks_per_host,
                            world_.options.fan_out, rank, what);
  }
  TimePoint last_start() const {
    TimePoint last = job.start();
    for (int rank = 0; rank < job.ranks(); ++rank) last = std::max(last, job.process(rank).started);
    return last;
  }

 private:
  World random_world(bool ends) {
    World world;
    if (!ends) world.meetings = 1000;
    world.hosts = choose(2, 24);
    world.ranks_per_host = choose(1, 6);
    world.with_store = choose(0, 3) == 0;
    const int fan_outs[] = {2, 3, 5, 32};
    world.options.fan_out = fan_outs[choose(0, 3)];
    return world;
  }
  std::mt19937_64 random_;
  World world_;

 public:
  Simulation job;
  std::string problem;
  nanoseconds joined_after{0}, told_after{0};
};

struct Kind {
  const char* name;
  void (*run)(Trial&);
  bool ends;  // the job comes to its last meeting; the others go on until something happens
};

void nothing_fails(Trial& trial) {
  trial.job.run(seconds(6));
  trial.expect_undisturbed();
}

void all_is_slow(Trial& trial) {
  trial.job.disturb({.late = 0.02, .lost = 0.2, .sent_away = 0.2, .delay = milliseconds(2000)});
  for (int i = 0; i < 10; ++i) {
    const int rank = trial.any_rank();
    const milliseconds from = trial.between(milliseconds(0), milliseconds(4000)),
                       time = trial.between(milliseconds(1), milliseconds(1500));
    trial.job.at(from, [&trial, rank] { trial.job.stop(rank); });
    trial.job.at(from + time, [&trial, rank] { trial.job.go_on(rank); });
  }
  trial.job.run(seconds(60));
  trial.expect_undisturbed();
}

// A rank whose node does not come joins at the root, so only those that never started are named.
void ranks_are_missing(Trial& trial) {
  std::set<int> missing;
  for (int i = trial.choose(1, 3); i > 0; --i) missing.insert(trial.choose(1, trial.job.ranks() - 1));
  for (int rank : missing) trial.job.never_start(rank);
  trial.job.run(seconds(40));
  const std::string expected =
      fmt::format("{} of {} ranks did not join in 30 s: {}", missing.size(), trial.job.ranks(), fmt::join(missing, ","));
  for (int rank : trial.all_but(missing)) {
    const auto& refusal = trial.job.process(rank).refusal;
    if (!refusal || refusal->reason != expected) return trial.complain(rank, refusal ? "says " + refusal->reason : "waits");
  }
}

// All ask at about the same time who is missing.
void ranks_do_not_come(Trial& trial) {
  std::set<int> absent;
  for (int i = trial.choose(1, 3); i > 0; --i) absent.insert(trial.any_rank());
  for (int rank : absent) trial.job.never_come(rank);
  for (int rank : trial.all_but(absent))
    trial.job.at(trial.between(milliseconds(2000), milliseconds(2010)), [&trial, rank] { trial.job.ask(rank); });
  trial.job.run(seconds(3));
  for (int rank : trial.all_but(absent)) {
    const auto& missing = trial.job.process(rank).missing;
    if (!missing) return trial.complain(rank, "has no answer");
    if (std::set<int>(missing->begin(), missing->end()) != absent)
      return trial.complain(rank, fmt::format("is told {}", fmt::join(*missing, ",")));
  }
}

void a_rank_dies(Trial& trial) {
  const int rank = trial.any_rank();
  const milliseconds when = trial.between(milliseconds(1000), milliseconds(3000));
  trial.job.at(when, [&] { trial.job.kill(rank); });
  trial.job.run(seconds(10));
  trial.expect_blamed(trial.all_but({rank}), {rank}, when, kVisible);
}

void a_rank_stops(Trial& trial) {
  const int rank = trial.any_rank();
  const milliseconds when = trial.between(milliseconds(1000), milliseconds(3000));
  trial.job.at(when, [&] { trial.job.stop(rank); });
  trial.job.run(seconds(12));
  trial.expect_blamed(trial.all_but({rank}), {rank}, when, kSilent);
}

void hosts_die(Trial& trial, int most, bool visibly) {
  const std::set<int> hosts = trial.any_hosts(most), gone = trial.ranks_of(hosts);
  const milliseconds when = trial.between(milliseconds(1000), milliseconds(3000));
  for (int host : hosts) {
    trial.job.at(when + trial.between(milliseconds(0), milliseconds(50)), [&trial, host, visibly] {
      if (!visibly) return trial.job.vanish(host);
      for (int rank : trial.ranks_of({host})) trial.job.kill(rank);
    });
  }
  trial.job.run(seconds(12));
  trial.expect_blamed(trial.all_but(gone), gone, when, visibly ? kVisible : kSilent);
}

void a_host_dies(Trial& trial) { hosts_die(trial, 1, true); }
void a_host_vanishes(Trial& trial) { hosts_die(trial, 1, false); }
void many_hosts_die(Trial& trial) { hosts_die(trial, 12, true); }
void many_hosts_vanish(Trial& trial) { hosts_die(trial, 12, false); }

void the_network_splits(Trial& trial) {
  const std::set<int> hosts = trial.any_hosts(12), away = trial.ranks_of(hosts);
  const milliseconds when = trial.between(milliseconds(1000), milliseconds(3000));
  trial.job.at(when, [&] { trial.job.cut_off(hosts); });
  trial.job.run(seconds(14));
  trial.expect_blamed(trial.all_but(away), away, when, kSilent);
  trial.expect_blamed(away, {0}, when, kSilent);
}

void several_accuse(Trial& trial) {
  std::set<int> accused;
  const milliseconds when = trial.between(milliseconds(1000), milliseconds(3000));
  for (int i = trial.choose(1, 5); i > 0; --i) {
    const int rank = trial.any_rank(), culprit = trial.any_rank();
    accused.insert(culprit);
    trial.job.at(when + trial.between(milliseconds(0), milliseconds(3)), [&trial, rank, culprit] {
      trial.job.accuse(rank, {culprit, {}, ExitCode::NoProgress, "has not entered all_reduce"});
    });
  }
  trial.job.run(seconds(6));
  trial.expect_blamed(trial.all_but({}), accused, when, kVisible);
}

// Everybody is told, and those who had joined name the rank that died.
void a_rank_dies_while_others_join(Trial& trial) {
  const int rank = trial.any_rank();
  trial.job.at(trial.between(milliseconds(0), milliseconds(600)), [&] { trial.job.kill(rank); });
  trial.job.run(seconds(45));
  for (int other : trial.all_but({rank})) {
    const auto& process = trial.job.process(other);
    if (process.verdict && process.verdict->world_rank != rank) return trial.complain(other, "names another rank");
    if (!process.verdict && !process.refusal) return trial.complain(other, "waits");
  }
}

// A rank may die after the others have left. None of them waits for it, and none names another one.
void a_rank_dies_at_the_end(Trial& trial) {
  const int rank = trial.any_rank();
  trial.job.at(trial.between(milliseconds(700), milliseconds(1700)), [&] { trial.job.kill(rank); });
  trial.job.run(seconds(12));
  for (int other : trial.all_but({rank})) {
    const auto& process = trial.job.process(other);
    if (process.verdict && process.verdict->world_rank != rank) return trial.complain(other, "names another rank");
    if (!process.verdict && !process.closed) return trial.complain(other, "waits");
  }
}

constexpr Kind kKinds[] = {
    {"NothingFails", nothing_fails, true},
    {"AllIsSlow", all_is_slow, true},
    {"RanksAreMissing", ranks_are_missing, true},
    {"RanksDoNotCome", ranks_do_not_come, true},
    {"ARankDies", a_rank_dies, false},
    {"ARankStops", a_rank_stops, false},
    {"AHostDies", a_host_dies, false},
    {"AHostVanishes", a_host_vanishes, false},
    {"ManyHostsDie", many_hosts_die, false},
    {"ManyHostsVanish", many_hosts_vanish, false},
    {"TheNetworkSplits", the_network_splits, false},
    {"SeveralAccuse", several_accuse, false},
    {"ARankDiesWhileOthersJoin", a_rank_dies_while_others_join, false},
    {"ARankDiesAtTheEnd", a_rank_dies_at_the_end, true},
};

int number_from(const char* variable, int usual) {
  const char* given = std::getenv(variable);
  return given != nullptr ? std::atoi(given) : usual;
}

// The worst figures of many jobs of a kind.
struct Worst {
  nanoseconds joined{0}, told{0};
  int heartbeats = 0, messages = 0, ranks = 0, jobs = 0, wrong = 0;
  int64_t things = 0;

  void add(Trial& trial, uint64_t seed) {
    for (const std::string& broken : trial.job.broken_promises()) trial.complain(0, broken);
    ++jobs;
    if (!trial.problem.empty() && ++wrong <= 5) ADD_FAILURE() << "seed " << seed << ": " << trial.problem;
    joined = std::max(joined, trial.joined_after);
    told = std::max(told, trial.told_after);
    heartbeats = std::max(heartbeats, trial.job.most_heartbeats());
    messages = std::max(messages, trial.job.most_messages());
    ranks = std::max(ranks, trial.job.ranks());
    things += trial.job.events();
  }
  void print(const std::string& name) const {
    fmt::print("| {} | {} | {} | {:.0f} | {:.0f} | {} | {} | {} | {:.1f} |\n", name, jobs, ranks, ms(joined), ms(told),
               heartbeats, messages, wrong, static_cast<double>(things) / 1e6);
    std::fflush(stdout);
  }
};

class ControlPlane : public ::testing::TestWithParam<Kind> {};

TEST_P(ControlPlane, KeepsItsPromises) {
  const Kind& kind = GetParam();
  Worst worst;
  const int seeds = number_from("TRIVET_SEEDS", 25);
  for (int seed = 1; seed <= seeds; ++seed) {
    Trial trial(seed, kind.ends);
    kind.run(trial);
    worst.add(trial, seed);
  }
  EXPECT_EQ(worst.wrong, 0);
  if (std::getenv("TRIVET_SEEDS") != nullptr) worst.print(kind.name);
}

INSTANTIATE_TEST_SUITE_P(Jobs, ControlPlane, ::testing::ValuesIn(kKinds),
                         [](const auto& test) { return std::string(test.param.name); });

// 16,384 ranks on 2,048 hosts, of which the test tries an eighth unless it is told how many jobs to run.
World large_world(bool ends) {
  World world;
  world.hosts = std::getenv("TRIVET_LARGE_SEEDS") != nullptr ? 2048 : 256;
  world.ranks_per_host = 8;
  world.options.fan_out = number_from("TRIVET_FAN_OUT", Tree::kFanOut);
  world.start_within = milliseconds(100);
  world.work = milliseconds(500);
  if (!ends) world.meetings = 1000;
  return world;
}

void try_large_jobs(const char* name, bool ends, void (*run)(Trial&)) {
  Worst worst;
  const int seeds = number_from("TRIVET_LARGE_SEEDS", 1);
  for (int seed = 1; seed <= seeds; ++seed) {
    Trial trial(large_world(ends), seed);
    run(trial);
    worst.add(trial, seed);
  }
  EXPECT_LE(worst.joined, seconds(5));
  EXPECT_LE(worst.heartbeats, 1000);
  if (std::getenv("TRIVET_LARGE_SEEDS") != nullptr) worst.print(name);
}

TEST(LargeControlPlane, JoinsMeetsAndEnds) { try_large_jobs("all join at once", true, nothing_fails); }

TEST(LargeControlPlane, JoinsAlthoughConnectionsAreLost) {
  try_large_jobs("all join at once, connections are lost", true, [](Trial& trial) {
    trial.job.disturb({.late = 0.002, .lost = 0.01, .sent_away = 0.02, .delay = milliseconds(500)});
    trial.job.run(seconds(12));
    trial.expect_undisturbed();
  });
}

TEST(LargeControlPlane, SeesADeathWithinASecond) {
  try_large_jobs("a rank dies", false, [](Trial& trial) {
    const int rank = trial.any_rank();
    trial.job.at(seconds(3), [&] { trial.job.kill(rank); });
    trial.job.run(seconds(5));
    trial.expect_blamed(trial.all_but({rank}), {rank}, seconds(3), kVisible);
  });
}

TEST(LargeControlPlane, SurvivesTheDeathOfManyHosts) {
  try_large_jobs("64 hosts die", false, [](Trial& trial) {
    std::set<int> hosts{1};  // one with many below it
    while (hosts.size() < 64) hosts.insert(trial.choose(1, trial.job.ranks() / 8 - 1));
    const std::set<int> gone = trial.ranks_of(hosts);
    trial.job.at(seconds(3), [&] {
      for (int rank : gone) trial.job.kill(rank);
    });
    trial.job.run(seconds(5));
    trial.expect_blamed(trial.all_but(gone), gone, seconds(3), kVisible);
  });
}

TEST(LargeControlPlane, SeesAHostThatVanishes) {
  try_large_jobs("a host vanishes", false, [](Trial& trial) {
    const int host = trial.choose(1, 4);
    const std::set<int> gone = trial.ranks_of({host});
    trial.job.at(seconds(3), [&] { trial.job.vanish(host); });
    trial.job.run(seconds(10));
    trial.expect_blamed(trial.all_but(gone), gone, seconds(3), kSilent);
  });
}

}  // namespace
}  // namespace trivet::comm::control

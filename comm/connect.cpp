#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>

#include "comm/launcher_link.h"
#include "comm/liveness.h"
#include "comm/process_state.h"
#include "comm/rendezvous.h"
#include "comm/user_secret.h"
#include "comm/world_maker.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

class SingleWorld final : public World {
 public:
  SingleWorld() : group_(make_single_group("world")) {}
  ProcessGroup& group() const override { return *group_; }
  std::string host() const override { return this_host(); }
  void close() override {}
  void abort(const std::string&) noexcept override {}

 private:
  std::unique_ptr<ProcessGroup> group_;
};

// A world of any transport whose ranks are watched by Liveness.
class WatchedWorld final : public World {
 public:
  WatchedWorld(const Place& place, const WorldOptions& options, Joined joined, const ChooseWorldMaker& choose)
      : rank_(place.rank), options_(options), members_(joined.members), job_(std::make_shared<JobState>()) {
    // If a program in between closed the launcher's socket, something else may have its number. Never write to that.
    const int launcher = is_launcher_link(place.launcher_descriptor) ? place.launcher_descriptor : -1;
    job_->subscribe([rank = place.rank, launcher](const Accusation& lost) {
      tell_launcher(launcher, {rank, lost.world_rank, lost.code, lost.cause});
    });
    const std::string job_id = joined.job_id;
    liveness_ = std::make_unique<Liveness>(std::move(joined), rank_, liveness_options(), job_);
    world_ = choose(members_)({.rank = rank_,
                               .members = members_,
                               .job_id = job_id,
                               .master_address = place.master_address,
                               .options = options_,
                               .job = job_,
                               .store = liveness_->store(),
                               .meet = [this] { meet(); }});
  }

  ~WatchedWorld() override {
    if (has_ended_ || job_->accusation() || std::uncaught_exceptions() > exceptions_before_) return;
    try {
      close();
    } catch (const std::exception& error) {
      Log(rank_).error(std::string("the world was left without close(), and closing it failed: ") + error.what());
    }
  }
  WatchedWorld(const WatchedWorld&) = delete;
  WatchedWorld& operator=(const WatchedWorld&) = delete;

  ProcessGroup& group() const override { return world_->group(); }
  std::string host() const override { return this_host(); }
  std::string network() const override { return world_->network(); }

  void close() override {
    has_ended_ = true;
    world_->close();
    liveness_->close(options_.operation_deadline);
  }

  void abort(const std::string& reason) noexcept override {
    has_ended_ = true;
    liveness_->accuse({rank_, liveness_->member(rank_).where(), ExitCode::PeerLost, "abort: " + reason});
    world_->abort(reason);
  }

 private:
  void meet() { liveness_->meet(fmt::format("connect {}", ++meetings_), options_.join_deadline); }

  LivenessOptions liveness_options() const {
    LivenessOptions liveness;
    liveness.notice_grace = options_.notice_grace;
    if (options_.on_lost) {
      liveness.on_lost = [on_lost = options_.on_lost](const Accusation& accusation) {
        on_lost(lost_message(accusation, "computation"), accusation.code);
      };
    }
    return liveness;
  }

  const int rank_;
  const WorldOptions options_;
  const std::vector<Member> members_;
  std::shared_ptr<JobState> job_;
  std::unique_ptr<Liveness> liveness_;
  int meetings_ = 0;
  const int exceptions_before_ = std::uncaught_exceptions();
  bool has_ended_ = false;        // closed or aborted
  std::unique_ptr<World> world_;  // destroyed first
};

// Returns an empty secret, which the rendezvous refuses, if the address is not this host's own and no secret was given.
Secret secret_of(const Place& place) {
  if (place.secret_descriptor >= 0) return secret_from_descriptor(place.secret_descriptor);
  if (!place.secret_file.empty())
    return secret_from_file(place.secret_file, "TRIVET_SECRET_FILE=" + escape_control(place.secret_file));
  if (is_loopback(place.master_address)) return user_secret(user_secret_directory(place.runtime_directory));
  return {};
}

// The listening socket that `trivet launch` has opened for rank 0. Any other descriptor of that number is left alone.
Descriptor listener_of(const Place& place) {
  if (place.listen_descriptor < 0) return {};
  int listens = 0;
  socklen_t size = sizeof listens;
  if (::getsockopt(place.listen_descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0)
    throw ConfigError(fmt::format(
        "TRIVET_LISTEN_FD={}: is not a listening socket; only `trivet launch` sets it, for the rank 0 that it starts: "
        "unset it",
        place.listen_descriptor));
  return Descriptor(place.listen_descriptor);
}

}  // namespace

std::unique_ptr<World> connect(const Place& place, const WorldOptions& options) {
  return connect(place, options, choose_world_maker);
}

std::unique_ptr<World> connect(const Place& place, const WorldOptions& options, const ChooseWorldMaker& choose) {
  if (place.world_size == 1) return std::make_unique<SingleWorld>();
  RendezvousOptions meeting;
  meeting.self = {.rank = place.rank,
                  .world_size = place.world_size,
                  .job_id = place.job_id,
                  .epoch = place.epoch,
                  .build = build_digest(),
                  .host = this_host(),
                  .boot_id = this_boot(),
                  .pid = ::getpid(),
                  .started = state_of_process(::getpid()).value_or(ProcessState{}).started};
  meeting.address = place.master_address;
  meeting.port = place.master_port;
  meeting.listener = listener_of(place);
  meeting.secret = secret_of(place);
  meeting.join_deadline = options.join_deadline;
  meeting.silence = options.silence_deadline;
  meeting.network_interface = options.network_interface;
  if (place.host_known) meeting.host = RendezvousOptions::Host{place.local_rank, place.local_size};
  meeting.find_stopped = [place] { return find_stopped_ranks(place); };
  return std::make_unique<WatchedWorld>(place, options, rendezvous(std::move(meeting)), choose);
}

}  // namespace trivet::comm

#include "comm/rendezvous.h"

#include <fmt/format.h>

#include <algorithm>

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{100};
// Others wait this much longer than rank 0, so that it is rank 0 who says which ranks are missing.
constexpr milliseconds kPatience{3000};

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1000; }

std::string table_payload(const Joined& joined) {
  PayloadWriter out;
  out.text(joined.job_id).number(static_cast<int64_t>(joined.members.size()));
  for (const Member& member : joined.members) write(out, member);
  return out.take();
}

void read_table(const Frame& frame, Joined& joined) {
  PayloadReader in(frame.payload);
  joined.job_id = in.text();
  const int64_t count = in.number();
  for (int64_t i = 0; i < count; ++i) joined.members.push_back(read_member(in));
}

// Rank 0 while it waits.
class Gathering {
 public:
  explicit Gathering(RendezvousOptions& options)
      : options_(options), held_(static_cast<size_t>(options.self.world_size)), links_(held_.size()), log_(0) {
    if (options.self.job_id.empty()) options.self.job_id = hexadecimal(random_bytes(8));
    held_[0] = options.self;
    Descriptor listener = options.listener ? std::move(options.listener) : listen_on(options.address, options.port);
    admission_ = std::make_unique<Admission>(std::move(listener), options.secret, log_);
  }

  Joined wait_for_all() {
    const TimePoint start = steady_clock::now(), deadline = start + options_.join_deadline;
    TimePoint report = start + options_.progress_every;
    while (!missing().empty()) {
      wait_for_news();
      for (auto& request : admission_->step()) consider(request);
      drop_those_that_left();
      const TimePoint now = steady_clock::now();
      if (now >= deadline) fail({ExitCode::Rendezvous, missing_text(options_.join_deadline)});
      if (now >= report) {
        report += options_.progress_every;
        log_.info(fmt::format("rendezvous: {}, waiting until {} s",
                              missing_text(std::chrono::duration_cast<milliseconds>(now - start)),
                              seconds(options_.join_deadline)));
      }
    }
    return announce();
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < held_.size(); ++rank) {
      if (!held_[rank]) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }

  std::string missing_text(milliseconds after) const {
    return fmt::format("{} of {} ranks did not join in {:.3g} s: {}", missing().size(), held_.size(), seconds(after),
                       fmt::join(missing(), ","));
  }

  void wait_for_news() const {
    std::vector<pollfd> entries;
    admission_->add_to(entries);
    for (const Link& link : links_) {
      if (link) entries.push_back({link.number(), POLLIN, 0});
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(kTick.count()));
  }

  void consider(Admission::Request& request) {
    if (const auto refusal = refusal_of(request.member, held_)) {
      refuse(request.link, *refusal);
      if (refusal->ends_the_job) fail(*refusal);
      log_.warning(fmt::format("rendezvous: pid {} was refused: {}", request.member.pid, refusal->reason));
      return;
    }
    const auto rank = static_cast<size_t>(request.member.rank);
    held_[rank] = request.member;
    links_[rank] = std::move(request.link);
  }

  void drop_those_that_left() {
    for (size_t rank = 1; rank < links_.size(); ++rank) {
      if (links_[rank] && links_[rank].fill() != Link::State::Open) {
        links_[rank].reset();
        fail({ExitCode::Rendezvous, fmt::format("rank {} ({}) left during the rendezvous", rank, held_[rank]->where())});
      }
    }
  }

  [[noreturn]] void fail(const Refusal& refusal) {
    for (Link& link : links_) {
      if (link) refuse(link, refusal);
    }
    throw CommError(refusal.code, "rendezvous: " + refusal.reason);
  }

  Joined announce() {
    Joined joined;
    for (const auto& member : held_) joined.members.push_back(*member);
    joined.job_id = options_.self.job_id;
    const std::string payload = table_payload(joined);
    for (Link& link : links_) {
      if (!link) continue;
      link.send({FrameKind::Table, payload});
      link.flush();
    }
    joined.links = std::move(links_);
    joined.admission = std::move(admission_);
    return joined;
  }

  RendezvousOptions& options_;
  std::vector<std::optional<Member>> held_;
  std::vector<Link> links_;
  Log log_;
  std::unique_ptr<Admission> admission_;
};

Joined join(const RendezvousOptions& options) {
  const TimePoint deadline = steady_clock::now() + options.join_deadline + kPatience;
  Descriptor connection = connect_to(options.address, options.port, deadline - kPatience);
  prove_to_rank_zero(connection, options.secret, deadline);

  Joined joined;
  Link& link = joined.links.emplace_back(std::move(connection));
  PayloadWriter request;
  write(request, options.self);
  link.send({FrameKind::Join, request.take()});
  flush_until(link, deadline);
  const Frame answer = wait_for_frame(link, deadline, fmt::format("rendezvous: rank 0 at {}", link.peer()));
  if (answer.kind == FrameKind::Refuse) {
    PayloadReader payload(answer.payload);
    const auto code = static_cast<ExitCode>(payload.number());
    throw CommError(code, "rendezvous: " + escape_control(payload.text()));
  }
  if (answer.kind != FrameKind::Table)
    throw CommError(ExitCode::Rendezvous, "rendezvous: rank 0 did not answer with its table");
  read_table(answer, joined);
  return joined;
}

}  // namespace

Joined rendezvous(RendezvousOptions options) {
  if (options.secret.empty() && !is_loopback(options.address)) {
    throw ConfigError(
        fmt::format("MASTER_ADDR: {} is not this machine's loopback address, and there is no secret, so that anybody could "
                    "join; set TRIVET_SECRET_FILE to a file of mode 600, or MASTER_ADDR to 127.0.0.1",
                    options.address));
  }
  if (options.self.rank == 0) return Gathering(options).wait_for_all();
  return join(options);
}

}  // namespace trivet::comm

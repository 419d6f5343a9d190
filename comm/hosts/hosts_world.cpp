#include "comm/hosts/hosts_world.h"

namespace trivet::comm {
namespace {

class HostsWorld final : public World {
 public:
  HostsWorld(RankSurroundings surroundings, const RankInGroup& self, const JobView& job, std::shared_ptr<std::byte> board)
      : job_(job.state),
        host_(self.host),
        network_(surroundings.network),
        group_(std::move(surroundings), 0, self, job, std::move(board)) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  std::string network() const override { return network_; }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  std::shared_ptr<JobState> job_;
  std::string host_, network_;
  mutable HostsGroup group_;
};

}  // namespace

std::unique_ptr<World> make_hosts_world(RankSurroundings surroundings, const RankInGroup& self, const JobView& job,
                                        std::shared_ptr<std::byte> board) {
  return std::make_unique<HostsWorld>(std::move(surroundings), self, job, std::move(board));
}

}  // namespace trivet::comm

#include "comm/transport/transport_world.h"

#include <stdexcept>

#include "comm/transport/transport_group.h"

namespace trivet::comm {
namespace {

class TransportWorld final : public World {
 public:
  TransportWorld(std::unique_ptr<Transport> transport, RankInGroup self, JobView job, int64_t segment_bytes)
      : job_(job.state),
        host_(self.host),
        group_(std::make_shared<RankTransport>(std::move(transport), segment_bytes), 0, std::move(self), std::move(job)) {}

  ProcessGroup& group() const override { return group_; }
  std::string host() const override { return host_; }
  void close() override { group_.close(); }
  void abort(const std::string& reason) noexcept override {
    job_->accuse({group_.rank(), host_, ExitCode::PeerLost, "abort: " + reason});
  }

 private:
  std::shared_ptr<JobState> job_;
  std::string host_;
  mutable TransportGroup group_;
};

}  // namespace

std::unique_ptr<World> make_transport_world(std::unique_ptr<Transport> transport, RankInGroup self, JobView job,
                                            int64_t segment_bytes) {
  if (transport->rank() != self.rank || transport->size() != self.size())
    throw std::logic_error("comm: the transport is that of another rank or world");
  return std::make_unique<TransportWorld>(std::move(transport), std::move(self), std::move(job), segment_bytes);
}

}  // namespace trivet::comm

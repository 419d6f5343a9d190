#include "comm/activity_options.h"

#include "core/log.h"

namespace trivet::comm {

WorldActivity::Options activity_options(int rank, int size, const std::string& who, const WorldOptions& options) {
  const auto log = [rank](const std::string& line) { Log(rank).info(line); };
  return {.world_rank = rank,
          .world_size = size,
          .who = who,
          .report_after = options.report_waits_after,
          .report = options.on_long_wait ? options.on_long_wait : log};
}

}  // namespace trivet::comm

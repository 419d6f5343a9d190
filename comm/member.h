// One rank as the others know it, and the rules by which rank 0 lets it in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace trivet::comm {

constexpr int kMostRanks = 1 << 20;

struct Member {
  int rank = 0, world_size = 1;
  std::string job_id;  // empty: whatever rank 0 says
  int64_t epoch = 0;
  std::string build;  // what program this is; see build_digest
  std::string host;
  std::string boot_id;  // tells hosts of one name apart
  int64_t pid = 0;
  int64_t started = 0;  // when the process started (process_state.h): a later process with the same pid is another one

  std::string where() const;  // "a, pid 4711": as errors name it
};

struct Refusal {
  ExitCode code = ExitCode::Rendezvous;
  std::string reason;
  bool ends_the_job = false;  // waiting for this rank is in vain; otherwise only the candidate is sent away
};

// `held`: by rank, those that are in; rank 0 (held[0]) is the measure.
std::optional<Refusal> refusal_of(const Member& candidate, const std::vector<std::optional<Member>>& held);

// The same for processes of one executable file: version of the protocol and the linker's build id.
std::string build_digest();
std::string this_host();
std::string this_boot();

}  // namespace trivet::comm

// One rank as the others know it, and the rules by which rank 0 admits it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace trivet::comm {

constexpr int kMaxRanks = 1 << 20;

struct Member {
  int rank = 0, world_size = 1;
  std::string job_id;  // empty: accept rank 0's
  int64_t epoch = 0;
  std::string build;  // identifies the program; see build_digest
  std::string host;
  std::string boot_id;  // tells hosts of the same name apart
  int64_t pid = 0;
  int64_t started = 0;  // when the process started (process_state.h); tells it from a later process with the same pid

  std::string where() const;  // "a, pid 4711": as errors name it
};

bool same_host(const Member& a, const Member& b);

struct Refusal {
  ExitCode code = ExitCode::Rendezvous;
  std::string reason;
  bool ends_the_job = false;  // waiting for this rank is useless; otherwise only the candidate is turned away
};

// `held` contains the admitted members by rank; the candidate is compared with rank 0 (held[0]).
std::optional<Refusal> refusal_of(const Member& candidate, const std::vector<std::optional<Member>>& held);

// The protocol version and the linker's build id, which are the same for all processes of one executable file.
std::string build_digest();
std::string this_host();
std::string this_boot();

}  // namespace trivet::comm

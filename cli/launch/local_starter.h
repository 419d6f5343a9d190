// Starts ranks as processes of this host.
//
// They inherit descriptors, so that no port and no secret has to be written down: rank 0 the socket that listens on the job's
// port, all ranks the secret and their side of the link. Their environment says where these are and gives the job's id
// (docs/environment.md).
#pragma once

#include "cli/launch/rank_starter.h"

namespace trivet::cli {

// Finds the program, opens the port and makes the secret. Throws ConfigError if there is no such program, and CommError if the
// port is in use. When the starter is destroyed, only rank 0 holds the port, so nobody waits for it after it has died.
std::unique_ptr<RankStarter> make_local_starter(const StartedJob& job);

}  // namespace trivet::cli

// Before the first step, hosts try whether messages between them arrive, so that a wrong interface or a firewall is found at
// once and not in the middle of a step.
#pragma once

#include <string>
#include <vector>

#include "comm/transport/transport.h"
#include "comm/world_maker.h"

namespace trivet::comm {

// The ranks with which this one exchanges a message: one or more on every other host, so that all pairs of hosts are tried and
// every rank is, while a rank needs few connections. If a rank is a partner of another one, that one is a partner of it.
// `hosts` has a number for each rank, the same for ranks of the same host.
std::vector<int> probe_partners(int rank, const std::vector<int>& hosts);

// Exchanges a message with each partner. Throws CommError: Rendezvous, naming both ends and their interfaces (by rank), if
// nothing arrives within a third of the time that ranks have to join, at least 10 s; the code of an accusation if a rank is
// lost meanwhile.
void probe_other_hosts(const WorldRequest& request, Transport& transport, const std::vector<int>& hosts,
                       const std::vector<std::string>& interfaces);

}  // namespace trivet::comm

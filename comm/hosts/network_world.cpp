#include "comm/hosts/network_world.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "comm/hosts/hosts_world.h"
#include "comm/hosts/probe.h"
#include "comm/secret.h"
#include "comm/shm/shm_memory.h"
#include "comm/transport/transport_module.h"
#include "comm/transport/transport_world.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

// The facts that a rank tells the others before they communicate.
struct Contact {
  std::string library;    // "UCX 1.13.1"
  std::string interface;  // "eth0, 10.0.0.7"
  std::string address;    // the transport's
  std::string sums;       // sums of floats over hosts: "chain"
};

std::vector<Contact> exchange(const WorldRequest& request, const Contact& mine) {
  const auto library_key = [](int rank) { return fmt::format("network/library/{}", rank); };
  const auto interface_key = [](int rank) { return fmt::format("network/interface/{}", rank); };
  const auto address_key = [](int rank) { return fmt::format("network/address/{}", rank); };
  const auto sums_key = [](int rank) { return fmt::format("network/sums/{}", rank); };
  request.store.set(library_key(request.rank), mine.library);
  request.store.set(interface_key(request.rank), mine.interface);
  request.store.set(address_key(request.rank), mine.address);
  request.store.set(sums_key(request.rank), mine.sums);
  request.meet();  // throws when a rank is missing
  std::vector<Contact> contacts;
  for (const Member& member : request.members) {
    const auto library = request.store.get(library_key(member.rank), request.options.join_deadline);
    const auto interface = request.store.get(interface_key(member.rank), request.options.join_deadline);
    const auto address = request.store.get(address_key(member.rank), request.options.join_deadline);
    const auto sums = request.store.get(sums_key(member.rank), request.options.join_deadline);
    if (!library || !interface || !address || !sums)
      throw CommError(ExitCode::Rendezvous,
                      fmt::format("comm: rank {} ({}) has not published its network address", member.rank, member.where()));
    contacts.push_back({*library, *interface, *address, *sums});
  }
  return contacts;
}

// Ranks that add in different orders would wait for different messages.
void check_same_sums(const std::vector<Contact>& contacts, const std::vector<Member>& members) {
  for (size_t rank = 1; rank < contacts.size(); ++rank)
    if (contacts[rank].sums != contacts[0].sums)
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("communication.sums: rank 0 ({}) has \"{}\", but rank {} ({}) has \"{}\"; give all ranks the "
                                  "same config",
                                  members[0].where(), contacts[0].sums, rank, members[rank].where(), contacts[rank].sums));
}

void expect_one_library(const WorldRequest& request, const std::vector<Contact>& contacts) {
  const auto name = [](const Contact& contact) { return contact.library.substr(0, contact.library.find(' ')); };
  for (size_t rank = 1; rank < contacts.size(); ++rank)
    if (name(contacts[rank]) != name(contacts[0]))
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("comm: rank 0 ({}) sends messages between hosts over {}, and rank {} ({}) over {}; give all "
                                  "ranks the same communication.transport",
                                  request.members[0].where(), contacts[0].library, rank, request.members[rank].where(),
                                  contacts[rank].library));
}

std::vector<int> number_hosts(const std::vector<Member>& members) {
  std::vector<int> hosts;
  for (const Member& member : members) {
    const auto first = std::find_if(members.begin(), members.end(), [&](const Member& m) { return same_host(m, member); });
    hosts.push_back(static_cast<int>(first - members.begin()));  // named after its first rank
  }
  return hosts;
}

// A random number that rank 0 draws. The store's connections are encrypted (handshake.h), so only the job's ranks know it.
uint64_t share_key(const WorldRequest& request) {
  const std::string name = "network/key";
  if (request.rank == 0) request.store.set(name, hexadecimal(random_bytes(8)));
  const auto key = request.store.get(name, request.options.join_deadline);
  if (!key) throw CommError(ExitCode::Rendezvous, "comm: rank 0 has not published the key of the job's messages");
  return std::stoull(*key, nullptr, 16);
}

// The board of the ranks on this host, which the first of them creates.
std::shared_ptr<std::byte> share_board(const WorldRequest& request, SharedMemory& memory, const std::vector<int>& hosts) {
  const int creator = hosts[request.rank];
  const int64_t bytes = HostsGroup::board_bytes(static_cast<int>(std::count(hosts.begin(), hosts.end(), creator)), memory);
  const std::string key = fmt::format("network/board/{}", creator);
  SharedMemory::NewBoard board;
  std::optional<BoardName> unlinked_at_the_end;
  if (creator == request.rank) {
    board = memory.create_board(bytes);
    unlinked_at_the_end.emplace(memory, board.token);
    request.store.set(key, std::to_string(board.token));
  }
  request.meet();
  if (creator != request.rank)
    board.memory = memory.attach_board(std::stoull(*request.store.get(key, request.options.join_deadline)), bytes);
  request.meet();
  return board.memory;
}

// Describes, for the user, whether the fastest way was chosen.
std::string describe_network(const std::vector<int>& hosts, const Contact& here) {
  const size_t count = std::set<int>(hosts.begin(), hosts.end()).size();
  std::string text = fmt::format("{} host{}, {} over {}", count, count == 1 ? "" : "s", here.library, here.interface);
  const std::vector<std::string> unused = std::getenv("UCX_TLS") ? std::vector<std::string>() : rdma_devices();
  if (!unused.empty() && here.library.starts_with("UCX"))
    text += fmt::format(" and its TCP/IP; to use {}, set UCX_TLS=rc,tcp,self", fmt::join(unused, ", "));
  return text;
}

}  // namespace

std::unique_ptr<World> make_network_world(const WorldRequest& request) {
  const NetworkInterface interface = choose_network_interface(request.options.network_interface, request.master_address);
  const TransportModule& module = transport_module(request.options.transport);
  const std::unique_ptr<UnconnectedTransport> unconnected =
      module.open(interface, request.rank, static_cast<int>(request.members.size()));
  const std::vector<Contact> contacts =
      exchange(request, {.library = module.library(),
                         .interface = fmt::format("{}, {}", interface.name, interface.address),
                         .address = unconnected->address(),
                         .sums = std::string(name_of(request.options.sums))});
  expect_one_library(request, contacts);
  check_same_sums(contacts, request.members);

  std::vector<std::string> addresses, names;
  for (const Contact& contact : contacts) addresses.push_back(contact.address);
  for (const Member& member : request.members) names.push_back(member.where());
  std::unique_ptr<Transport> transport = unconnected->connect(std::move(addresses), share_key(request));
  const std::vector<int> hosts = number_hosts(request.members);
  std::vector<std::string> interfaces;
  for (const Contact& contact : contacts) interfaces.push_back(contact.interface);
  probe_other_hosts(request, *transport, hosts, interfaces);

  const std::string segments = fmt::format("/trivet-{}-world{}", request.job_id, hosts[request.rank]);
  RankSurroundings surroundings{.transport = std::make_shared<RankTransport>(std::move(transport), kSegmentBytes),
                                .memory = std::make_shared<ShmMemory>(segments, nullptr),
                                .hosts = hosts,
                                .sums = request.options.sums,
                                .network = describe_network(hosts, contacts[request.rank])};
  std::shared_ptr<std::byte> board = share_board(request, *surroundings.memory, hosts);

  RankInGroup self{.group = "world", .rank = request.rank, .host = names[request.rank]};
  for (const Member& member : request.members) self.world_ranks.push_back(member.rank);
  JobView job{.deadline = request.options.operation_deadline, .state = request.job, .hosts = std::move(names)};
  return make_hosts_world(std::move(surroundings), self, job, std::move(board));
}

}  // namespace trivet::comm

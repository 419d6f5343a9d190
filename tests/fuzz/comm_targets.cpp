// Fuzz targets for what tells a rank its place, and for what ranks send each other.
#include <optional>
#include <stdexcept>
#include <string>

#include "comm/environment_reader.h"
#include "comm/wire_messages.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

void check_place(const comm::Place& place) {
  require(place.world_size >= 1 && place.rank >= 0 && place.rank < place.world_size, "a rank is within the world");
  require(place.local_size >= 1 && place.local_size <= place.world_size, "a host has a part of the ranks");
  require(place.local_rank >= 0 && place.local_rank < place.local_size, "a local rank is within the host");
  require(place.master_port >= 0 && place.master_port <= 65535, "a port is from 0 to 65535");
}

constexpr int kRanks = 4;

void check_accusation(const comm::Accusation& accusation) {
  require(accusation.code != ExitCode::Done, "an accusation is no success");
  require(accusation.world_rank >= 0 && accusation.world_rank < kRanks, "a rank of this world is accused");
}

void check_ranks(const std::vector<int>& ranks) {
  require(ranks.size() <= static_cast<size_t>(kRanks), "no more ranks than there are");
  for (int rank : ranks) require(rank >= 0 && rank < kRanks, "ranks are within the world");
}

// Every rank's way up ends at the root.
void check_table(const comm::control::Table& table) {
  require(table.tree.size() == static_cast<int>(table.seats.size()), "all ranks are in the tree");
  for (int rank = 0; rank < table.tree.size(); ++rank) require(table.tree.is_below(rank, 0), "all ranks are below the root");
}

void check_message(const comm::control::Message& message) {
  namespace control = comm::control;
  if (const auto* refuse = std::get_if<control::Refuse>(&message))
    require(refuse->refusal.code != ExitCode::Done, "a refusal is no success");
  if (const auto* accuse = std::get_if<control::Accuse>(&message)) check_accusation(accuse->accusation);
  if (const auto* attach = std::get_if<control::Attach>(&message); attach != nullptr && attach->lost)
    check_accusation(*attach->lost);
  if (const auto* arrive = std::get_if<control::Arrive>(&message)) check_ranks(arrive->ranks);
  if (const auto* missing = std::get_if<control::Missing>(&message)) check_ranks(missing->ranks);
  if (const auto* announce = std::get_if<control::Announce>(&message)) check_table(*announce->table);
}

}  // namespace

void tf_config(std::string_view input) {
  comm::Place place;
  const bool is_rank = accepts({ExitCode::Usage}, [&] { place = comm::place_from_tf_config(std::string(input)); });
  if (is_rank) check_place(place);
  std::optional<std::string> idle;
  if (accepts({ExitCode::Usage}, [&] { idle = comm::idle_task_of_tf_config(std::string(input)); }))
    require(is_rank != idle.has_value(), "a task is a rank or idle");
}

// The input has a line for each variable: NAME=value. They are Slurm's, MPI's and our own.
void environment(std::string_view input) {
  comm::Environment variables;
  for (size_t start = 0; start < input.size();) {
    const size_t end = std::min(input.find('\n', start), input.size());
    const std::string_view line = input.substr(start, end - start);
    if (const size_t equals = line.find('='); equals != std::string_view::npos)
      variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
    start = end + 1;
  }
  comm::Place place;
  if (accepts({ExitCode::Usage}, [&] { place = comm::place_from_environment(variables); })) check_place(place);
}

// The input is what arrives on a connection.
void frames(std::string_view input) {
  accepts({ExitCode::Rendezvous}, [&] {
    while (const auto decoded = comm::decode_frame(input, {.world_size = kRanks, .table = true})) {
      require(decoded->bytes > 0 && decoded->bytes <= input.size(), "a frame is a part of what arrived");
      const std::string_view arrived = input.substr(0, decoded->bytes);
      require(encode(decoded->frame) == arrived, "a frame written again is what arrived");
      const comm::control::Message message = comm::control::decode(decoded->frame, kRanks);
      check_message(message);
      require(encode(comm::control::encode(message)) == arrived, "a message written again is what arrived");
      input.remove_prefix(decoded->bytes);
    }
  });
}

}  // namespace trivet::fuzz

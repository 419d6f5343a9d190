// Fuzz targets for what tells a rank its place, and for what ranks send each other.
#include <stdexcept>

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

// Decodes the message in the frame and encodes it again.
comm::Frame read_and_write(const comm::Frame& frame) {
  using comm::FrameKind;
  constexpr int kRanks = 4;
  switch (frame.kind) {
    case FrameKind::Join: return encode_join(comm::decode_join(frame.payload));
    case FrameKind::Welcome: return encode_welcome(comm::decode_welcome(frame.payload));
    case FrameKind::Table: return encode_table(comm::decode_table(frame.payload));
    case FrameKind::Refuse: {
      const comm::Refusal refusal = comm::decode_refuse(frame.payload);
      require(refusal.code != ExitCode::Done, "a refusal is no success");
      return encode_refuse(refusal);
    }
    case FrameKind::Set: return encode_set(comm::decode_set(frame.payload));
    case FrameKind::Accuse: {
      const comm::Accusation accusation = comm::decode_accuse(frame.payload, kRanks);
      require(accusation.code != ExitCode::Done, "an accusation is no success");
      require(accusation.world_rank >= 0 && accusation.world_rank < kRanks, "a rank of this world is accused");
      return encode_accuse(accusation);
    }
    case FrameKind::Heartbeat:
    case FrameKind::Bye: return {frame.kind, ""};
  }
  throw std::logic_error("fuzz: a kind of frame that does not exist was decoded");
}

}  // namespace

void tf_config(std::string_view input) {
  comm::Place place;
  if (accepts({ExitCode::Usage}, [&] { place = comm::place_from_tf_config(std::string(input)); })) check_place(place);
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
    while (const auto decoded = comm::decode_frame(input)) {
      require(decoded->bytes > 0 && decoded->bytes <= input.size(), "a frame is a part of what arrived");
      const std::string_view arrived = input.substr(0, decoded->bytes);
      require(encode(decoded->frame) == arrived, "a frame written again is what arrived");
      require(encode(read_and_write(decoded->frame)) == arrived, "a message written again is what arrived");
      input.remove_prefix(decoded->bytes);
    }
  });
}

}  // namespace trivet::fuzz

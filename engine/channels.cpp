#include "engine/channels.h"

#include <fmt/format.h>

#include <stdexcept>

namespace trivet {
namespace {

using RanksOfGroups = std::vector<std::vector<int>>;  // by the channel's groups, in the order of their first ranks

RanksOfGroups ranks_at(const Mesh& mesh, std::pair<int, int> stages) {
  RanksOfGroups pairs;
  for (const int rank : mesh.ranks_at({{Axis::Pipeline, stages.first}})) {
    Coordinates coordinates = mesh.coordinates_of(rank);
    coordinates[Axis::Pipeline] = stages.second;
    pairs.push_back({rank, mesh.rank_at(coordinates)});
  }
  return pairs;
}

RanksOfGroups ranks_along(const Mesh& mesh, const ChannelSpec& spec) {
  RanksOfGroups groups = mesh.view(spec.sharing).groups(spec.axes);
  if (spec.within > 0) groups = runs_of(groups, spec.within);
  if (spec.members == Members::Run) return runs_of(groups, spec.run);
  return spec.members == Members::AcrossRuns ? across_runs_of(groups, spec.run) : groups;
}

// Makes all these groups, because all ranks of the world must take part, and returns this rank's. Null: it is in none.
Group make_group(comm::ProcessGroup& world, const std::string& name, const RanksOfGroups& groups, const ChannelMakers& makers) {
  Group own;
  for (const std::vector<int>& members : groups) {
    if (members.size() == 1) {
      if (members.front() == world.rank()) own = makers.single(name);
    } else if (auto group = world.subgroup(members, name)) {
      own = std::move(group);
    }
  }
  // After all groups exist, so that groups without a common rank can be placed at the same time.
  return own && makers.place ? makers.place(std::move(own)) : std::move(own);
}

}  // namespace

Channels::Channels(comm::ProcessGroup& world, const Mesh& mesh, const std::vector<ChannelSpec>& table, ChannelMakers makers)
    : makers_(std::move(makers)) {
  const int own = mesh.coordinate_of(world.rank(), Axis::Pipeline);
  for (const ChannelSpec& spec : table) {
    if (!spec.between_stages) channels_.push_back({spec, make_group(world, spec.name, ranks_along(mesh, spec), makers_)});
    for (const auto& stages : spec.stage_pairs)
      if (Group group = make_group(world, spec.name, ranks_at(mesh, stages), makers_))
        channels_.push_back({spec, std::move(group), stages.first == own ? stages.second : stages.first});
  }
  for (Channel& channel : channels_) {
    if (channel.spec.queue == pipeline::Queue::Send) continue;
    std::unique_ptr<Stream>& stream = streams_[channel.spec.queue];
    if (!stream) stream = makers_.make_stream(channel.spec.queue, channel.spec.overlaps);
    channel.stream = stream.get();
  }
}

const Channel* Channels::find(Purpose purpose, Sharing sharing) const {
  const Channel* found = nullptr;
  for (const Channel& channel : channels_) {
    if (channel.spec.purpose != purpose || channel.spec.sharing != sharing) continue;
    if (found) throw std::logic_error(fmt::format("channels: \"{}\" is one of several with its purpose", channel.spec.name));
    found = &channel;
  }
  return found;
}

const Channel& Channels::of(Purpose purpose, Sharing sharing) const {
  if (const Channel* found = find(purpose, sharing)) return *found;
  throw std::logic_error(fmt::format("channels: none has purpose {}", static_cast<int>(purpose)));
}

const Channel& Channels::to(Purpose purpose, int pipeline_rank) const {
  for (const Channel& channel : channels_)
    if (channel.spec.purpose == purpose && channel.peer == pipeline_rank) return channel;
  throw std::logic_error(fmt::format("pipeline: no link to pipeline rank {}", pipeline_rank));
}

void Channels::close_streams() {
  for (Channel& channel : channels_) channel.stream = nullptr;
  streams_.clear();
}

}  // namespace trivet

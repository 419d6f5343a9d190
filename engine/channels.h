// All channels of one rank, made once from the table (channel_table.h): their process groups, and the streams on which their
// operations run.
//
// A queue has one stream, which all of its channels share; a link between stages brings its own (links.h). The world must
// outlive this object.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "comm/process_group.h"
#include "core/stream.h"
#include "engine/channel_table.h"

namespace trivet {

using Group = std::unique_ptr<comm::ProcessGroup>;

struct ChannelMakers {
  // Creates a group of this rank only.
  std::function<Group(const std::string& name)> single = [](const std::string& name) { return comm::make_single_group(name); };
  // Makes a group for tensors of the device from one for tensors of the host; empty: the host is the device.
  std::function<Group(Group host)> place;
  std::function<std::unique_ptr<Stream>(pipeline::Queue queue, bool overlaps)> make_stream = [](pipeline::Queue, bool) {
    return make_inline_stream();
  };
};

struct Channel {
  ChannelSpec spec;
  Group group;
  int peer = -1;             // the pipeline rank at the other end; -1: not a channel between two
  Stream* stream = nullptr;  // null: a link, which has its own
};

class Channels {
 public:
  // Collective over `world`.
  Channels(comm::ProcessGroup& world, const Mesh& mesh, const std::vector<ChannelSpec>& table, ChannelMakers makers);

  // The channels that this rank is part of, in the order of the table.
  std::span<const Channel> all() const { return channels_; }
  // The channel with this purpose, of dense parameters or none; std::logic_error if there is none, or more than one.
  const Channel& operator[](Purpose purpose) const { return of(purpose, Sharing::Dense); }
  const Channel& of(Purpose purpose, Sharing sharing) const;
  // Returns the same; null if there is none.
  const Channel* find(Purpose purpose, Sharing sharing = Sharing::Dense) const;
  comm::ProcessGroup& group(Purpose purpose) const { return *(*this)[purpose].group; }
  Stream& stream(Purpose purpose) const { return *(*this)[purpose].stream; }
  // The channel with this purpose to a pipeline rank; std::logic_error if there is none.
  const Channel& to(Purpose purpose, int pipeline_rank) const;

  std::unique_ptr<Stream> make_stream(pipeline::Queue queue, bool overlaps) const {
    return makers_.make_stream(queue, overlaps);
  }
  // Waits until the streams have done their work, and destroys them.
  void close_streams();

 private:
  ChannelMakers makers_;
  std::vector<Channel> channels_;
  std::map<pipeline::Queue, std::unique_ptr<Stream>> streams_;
};

}  // namespace trivet

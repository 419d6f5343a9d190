// Calls of Communicator that are made of others.
#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "hvd/channel.h"
#include "hvd/communicator.h"

namespace trivet::hvd {
namespace {

ConstTensorView bytes_view(std::string_view bytes) {
  return {bytes.data(), DType::UInt8, Shape{static_cast<int64_t>(bytes.size())}};
}

// The name of one of the operations that a call is made of.
CallOptions step_of(const CallOptions& options, const char* step) {
  CallOptions made = options;
  if (!made.name.empty()) made.name += step;
  return made;
}

}  // namespace

void Communicator::broadcast_parameters(const std::vector<NamedTensor>& parameters, int root_rank) {
  Channel& set = channel({});
  if (std::ranges::find(set.world_ranks(), root_rank) == set.world_ranks().end())  // also if there are no parameters
    throw ConfigError(fmt::format("hvd: broadcast_parameters: root_rank {} is not a rank of the job; use 0 to {}", root_rank,
                                  set.size() - 1));
  std::vector<Submission> submissions;
  for (const auto& [name, tensor] : parameters) {
    submissions.push_back(broadcast_of(tensor, root_rank, {.name = name}, set));
    submissions.back().out = tensor;
  }
  std::vector<Handle> handles = set.submit(std::move(submissions));  // all or none
  synchronize(handles);
}

std::string Communicator::broadcast_object(std::string_view bytes, int root_rank, const CallOptions& options) {
  std::vector<int64_t> size{static_cast<int64_t>(bytes.size())};
  broadcast_(view(size), root_rank, step_of(options, ".size"));
  std::string object(size[0], '\0');
  if (rank() == root_rank) object = bytes;
  broadcast_({object.data(), DType::UInt8, Shape{size[0]}}, root_rank, step_of(options, ".bytes"));
  return object;
}

std::vector<std::string> Communicator::allgather_object(std::string_view bytes, const CallOptions& options) {
  std::vector<int64_t> size{static_cast<int64_t>(bytes.size())};
  const Tensor sizes = allgather(view(size), step_of(options, ".size"));
  const Tensor all = allgather(bytes_view(bytes), step_of(options, ".bytes"));
  std::vector<std::string> objects;
  auto left = all.as<uint8_t>();
  for (int64_t count : sizes.as<int64_t>()) {
    objects.emplace_back(left.begin(), left.begin() + count);
    left = left.subspan(count);
  }
  return objects;
}

}  // namespace trivet::hvd

#include "comm/participants.h"

#include <algorithm>

namespace trivet::comm {
namespace {

std::vector<std::string> gather_texts(ProcessGroup& group, const std::string& mine) {
  const auto stream = make_inline_stream();
  const size_t size = group.size();
  int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(size);
  group.all_gather({&length, DType::Int64, {1}}, {lengths.data(), DType::Int64, {group.size()}}, *stream);
  stream->synchronize();

  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) return std::vector<std::string>(size);
  std::string padded = mine;
  padded.resize(longest);
  std::string all(size * padded.size(), '\0');
  group.all_gather({padded.data(), DType::UInt8, {longest}}, {all.data(), DType::UInt8, {longest * group.size()}}, *stream);
  stream->synchronize();

  std::vector<std::string> texts;
  for (size_t rank = 0; rank < size; ++rank) texts.push_back(all.substr(rank * padded.size(), lengths[rank]));
  return texts;
}

}  // namespace

Participants over_group(ProcessGroup& group) {
  return {group.rank(), group.size(), [&group](const std::string& mine) { return gather_texts(group, mine); }};
}

}  // namespace trivet::comm

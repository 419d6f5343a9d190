#include "engine/checkpoint/participants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/file_system.h"

namespace trivet::checkpoint {
namespace {

std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& mine) {
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

// "0" + result, or "1", the exit code in three digits and the error's text.
std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return fmt::format("0{}", work());
  } catch (const CheckpointError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(error.exit_code()), error.what());
  } catch (const NumericsError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(ExitCode::Numerics), error.what());
  } catch (const FileError& error) {
    return fmt::format("1{:03}{}", static_cast<int>(ExitCode::CheckpointNotWritten), error.what());
  }
}

bool is_numerics(const std::string& outcome) {
  return outcome.starts_with(fmt::format("1{:03}", static_cast<int>(ExitCode::Numerics)));
}

}  // namespace

Participants over_group(comm::ProcessGroup& group) {
  return {group.rank(), group.size(), [&group](const std::string& mine) { return gather_texts(group, mine); }};
}

std::vector<std::string> together(const Participants& ranks, const std::function<std::string()>& work) {
  std::vector<std::string> outcomes = ranks.gather(outcome_of(work));
  for (const std::string& outcome : outcomes)
    if (is_numerics(outcome)) throw NumericsError(outcome.substr(4));
  for (const std::string& outcome : outcomes)
    if (outcome.at(0) != '0') throw CheckpointError(static_cast<ExitCode>(std::stoi(outcome.substr(1, 3))), outcome.substr(4));
  for (std::string& outcome : outcomes) outcome.erase(0, 1);
  return outcomes;
}

}  // namespace trivet::checkpoint

#include "engine/same_on_all_ranks.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "comm/participants.h"
#include "core/error.h"
#include "core/log.h"

namespace trivet {
namespace {

// Text for the other ranks. A path may contain any bytes, so it is escaped.
std::string to_text(const std::vector<FileContent>& files) {
  auto list = nlohmann::json::array();
  for (const FileContent& file : files)
    list.push_back({{"key", file.key}, {"path", escape_control(file.path)}, {"digest", file.digest}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

[[noreturn]] void differ(const nlohmann::json& zero, const nlohmann::json& other, size_t rank) {
  const auto shown = [](const nlohmann::json& file) {
    return fmt::format("\"{}\" ({})", file.at("path").get<std::string>(), file.at("digest").get<std::string>());
  };
  throw CommError(ExitCode::RanksDisagree,
                  fmt::format("{}: rank 0 read {}, but rank {} read {}; all ranks must find the same file at this path",
                              zero.at("key").get<std::string>(), shown(zero), rank, shown(other)));
}

}  // namespace

void check_same_on_all_ranks(const std::vector<FileContent>& files, comm::World& world) {
  const auto texts = comm::over_group(world.group()).gather(to_text(files));
  const auto zero = nlohmann::json::parse(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    const auto other = nlohmann::json::parse(texts[rank]);
    if (other.size() != zero.size())
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("rank 0 read {} files, but rank {} read {}", zero.size(), rank, other.size()));
    for (size_t i = 0; i < zero.size(); ++i) {
      if (zero[i].at("digest") != other[i].at("digest") || zero[i].at("key") != other[i].at("key"))
        differ(zero[i], other[i], rank);
    }
  }
}

}  // namespace trivet

#include "engine/same_on_all_ranks.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/participants.h"
#include "core/error.h"
#include "core/log.h"
#include "data/hash.h"
#include "engine/config/config.h"

namespace trivet {
namespace {

std::string digest_of_file(const std::string& key, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored))
    throw ConfigError(fmt::format("{}: \"{}\" is not a regular file", key, escape_control(path)));
  std::ifstream file(path, std::ios::binary);
  data::StreamingHash hash;
  int64_t bytes = 0;
  std::string piece(1 << 16, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())) || file.gcount() > 0) {
    hash.add(std::string_view(piece).substr(0, static_cast<size_t>(file.gcount())));
    bytes += file.gcount();
  }
  if (!file.eof()) throw ConfigError(fmt::format("{}: \"{}\" cannot be read", key, escape_control(path)));
  return fmt::format("{} bytes, xxh3 {}", bytes, data::hexadecimal(hash.value()));
}

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

std::vector<FileContent> contents_of_files(const Config& config, const data::TrainingData& data) {
  std::vector<FileContent> files{{"data.train", config.data.train_name(), data.train_digest()}};
  if (const std::string digest = data.validation_digest(); !digest.empty())
    files.push_back(
        {"data.validation", config.data.validation.empty() ? config.data.train_name() : config.data.validation, digest});
  if (const auto tokenizer = data.tokenizer()) {
    const std::string path =
        config.vocabulary.tokenizer_file.empty() ? config.data.train_name() : config.vocabulary.tokenizer_file;
    files.push_back({"model.vocabulary", path,
                     fmt::format("{} tokens, xxh3 {}", tokenizer->vocabulary_size(),
                                 data::hexadecimal(data::hash_bytes(tokenizer->to_text())))});
  }
  if (const std::string& path = config.pipeline.schedule_file; !path.empty())
    files.push_back({"pipeline.schedule", path, digest_of_file("pipeline.schedule", path)});
  if (const std::string& path = config.pipeline.cost_file; !path.empty())
    files.push_back({"pipeline.partition", path, digest_of_file("pipeline.partition", path)});
  return files;
}

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

void check_same_files(const Config& config, const data::TrainingData& data, comm::World& world) {
  if (world.size() > 1) check_same_on_all_ranks(contents_of_files(config, data), world);
}

}  // namespace trivet

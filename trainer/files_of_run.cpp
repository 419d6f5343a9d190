#include "trainer/files_of_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "data/hash.h"
#include "engine/config/config.h"

namespace trivet::trainer {
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

void check_same_files(const Config& config, const data::TrainingData& data, comm::World& world) {
  if (world.size() > 1) check_same_on_all_ranks(contents_of_files(config, data), world);
}

}  // namespace trivet::trainer

#include "data/growing_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/file_pattern.h"
#include "data/folder_walk.h"
#include "data/hash.h"
#include "data/mixture.h"
#include "data/token_file.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

// The sources that were taken up so far, and from which epochs on.
class GrownSource final : public SampleSource {
 public:
  GrownSource(std::vector<std::shared_ptr<const SampleSource>> sources, const std::vector<int64_t>& first_epochs)
      : joined_(std::move(sources)) {
    const std::vector<int64_t> sizes = joined_.sizes_of_sources();
    int64_t samples = 0;
    for (size_t i = 0; i < sizes.size(); ++i) epoch_sizes_.push_back({first_epochs[i], samples += sizes[i]});
  }

  const SampleSpec& spec() const override { return joined_.spec(); }
  int64_t samples() const override { return joined_.samples(); }
  std::vector<EpochSize> epoch_sizes() const override { return epoch_sizes_; }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override {
    joined_.fill(sample, epoch, input, targets);
  }
  void fill_documents(int64_t sample, std::span<int32_t> first_tokens) const override {
    joined_.fill_documents(sample, first_tokens);
  }
  bool may_lack_targets() const override { return joined_.may_lack_targets(); }
  bool has_targets(int64_t sample) const override { return joined_.has_targets(sample); }
  // The first epochs decide what a step reads, as the files do.
  std::string digest() const override {
    std::string epochs;
    for (const EpochSize& size : epoch_sizes_) epochs += fmt::format("{}\n", size.first_epoch);
    return fmt::format("growing, {}, epochs xxh3 {}", joined_.digest(), hexadecimal(hash_bytes(epochs)));
  }

 private:
  JoinedSource joined_;
  std::vector<EpochSize> epoch_sizes_;
};

// No file that was taken up later could be held out.
DataOptions without_held_out(DataOptions options) {
  options.data.validation_fraction = 0;
  return options;
}

// A name in a checkpoint is text of JSON.
void check_name(const std::string& folder, const std::string& name) {
  if (printable_lines(name) == name && name.find('\n') == std::string::npos) return;
  bad_file(folder, fmt::format("the name \"{}\" in it has control characters, or bytes that are not UTF-8; rename the file",
                               printable(name)));
}

}  // namespace

GrowingData::GrowingData(DataOptions options, int64_t sequence_length)
    : options_(without_held_out(std::move(options))), sequence_length_(sequence_length) {
  const std::string& train = options_.data.train;
  const fs::path path(train);
  std::error_code error;
  if (fs::is_directory(path, error)) {
    folder_ = train;
    pattern_ = "*.tokens";
    return;
  }
  folder_ = path.has_parent_path() ? path.parent_path().string() : ".";
  pattern_ = path.filename().string();
  const bool names_tokens = pattern_.find('*') != std::string::npos && pattern_.ends_with(".tokens");
  if (!names_tokens || !fs::is_directory(folder_, error))
    throw DataError(ExitCode::Usage,
                    fmt::format("{}data.train: \"{}\" is not accepted with data.grows: {}",
                                options_.source.empty() ? "" : options_.source + ": ", printable(train),
                                names_tokens ? fmt::format("there is no folder \"{}\"", printable(folder_))
                                             : "name a folder of .tokens files, or some of them: \"folder/web-*.tokens\""));
}

std::string GrowingData::path_of(const std::string& name) const { return (fs::path(folder_) / name).string(); }

OpenedBefore GrowingData::opened_before() const {
  if (files_.empty()) return {};
  return {parts_[0].data->tokenizer(), path_of(files_[0].name)};
}

std::vector<std::string> GrowingData::new_files() const {
  std::set<std::string> taken;
  for (const TakenFile& file : files_) taken.insert(file.name);
  std::vector<std::string> names;
  std::error_code error, none;
  for (fs::directory_iterator entry(folder_, error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(".") || !matches(pattern_, name) || taken.contains(name) || entry->is_directory(none)) continue;
    check_name(folder_, name);
    names.push_back(name);
  }
  if (error) bad_file(folder_, "this folder cannot be read: " + error.message());
  std::ranges::sort(names);
  MetFiles met;
  for (const TakenFile& file : files_) met.is_new(path_of(file.name));
  repeated_.clear();
  std::erase_if(names, [&](const std::string& name) {
    if (!fs::exists(path_of(name), none) || met.is_new(path_of(name))) return false;
    repeated_.push_back(name);
    return true;
  });
  return names;
}

std::string GrowingData::digest_of(const std::string& name) const {
  const std::string path = path_of(name);
  std::error_code error;
  if (!fs::exists(path, error) || is_incomplete(path)) return "";
  DataOptions options = options_;
  options.data.validation.clear();
  const Dataset dataset = open_token_files(options, {path}, opened_before());
  if (dataset.packing != Packing::Stream && dataset.train->document_ends().empty())
    bad_file(path, fmt::format("does not say where documents end, which data.packing \"{}\" needs; use \"stream\", or prepare "
                               "the texts with `trivet data prepare`",
                               name_of(dataset.packing)));
  return dataset.train->digest();
}

bool GrowingData::take_up(int64_t epoch, const std::vector<std::string>& names) {
  if (names.empty() || (parts_.empty() ? epoch != 0 : epoch <= parts_.back().first_epoch))
    throw std::logic_error("growing data: files are taken up in the order of epochs, some of them for the first epoch");
  std::vector<std::string> paths;
  for (const std::string& name : names) paths.push_back(path_of(name));
  Dataset dataset = open_token_files(options_, paths, opened_before());
  const int64_t tokens = dataset.train->tokens();
  const int64_t validation_tokens = dataset.validation ? dataset.validation->tokens() : validation_tokens_;
  if (!parts_.empty() && dataset.packing == Packing::Stream && tokens <= sequence_length_) return false;
  std::vector<TakenFile> files = files_;
  for (const std::string& name : names) files.push_back({epoch, name, digest_of(name)});
  if (parts_.empty()) notes_ = dataset.notes;
  if (parts_.empty() && !repeated_.empty())
    notes_.push_back(fmt::format("{}: {}: other names of files that are read already", folder_, fmt::join(repeated_, ", ")));
  parts_.push_back({epoch, tokens, text_data(std::move(dataset), sequence_length_, options_.data)});
  try {
    train_ = joined();
  } catch (...) {
    parts_.pop_back();
    throw;
  }
  files_ = std::move(files);
  validation_tokens_ = validation_tokens;
  return true;
}

std::shared_ptr<const SampleSource> GrowingData::joined() const {
  std::vector<std::shared_ptr<const SampleSource>> sources;
  std::vector<int64_t> first_epochs;
  for (const Part& part : parts_) {
    sources.push_back(part.data->train());
    first_epochs.push_back(part.first_epoch);
  }
  return std::make_shared<GrownSource>(std::move(sources), first_epochs);
}

void GrowingData::restore(const std::vector<TakenFile>& files) {
  parts_.clear();
  files_.clear();
  for (size_t first = 0; first < files.size();) {
    std::vector<std::string> names;
    const int64_t epoch = files[first].first_epoch;
    for (; first < files.size() && files[first].first_epoch == epoch; ++first) names.push_back(files[first].name);
    if (!take_up(epoch, names))
      bad_file(path_of(names[0]), fmt::format("has too few tokens for a sample of model.sequence_length {}, but was taken up "
                                              "for one; use the sequence_length of that run",
                                              sequence_length_));
  }
}

int64_t GrowingData::tokens() const {
  int64_t tokens = 0;
  for (const Part& part : parts_) tokens += part.tokens;
  return tokens;
}

std::string GrowingData::sizes() const {
  return fmt::format("{} with {} training tokens in {} samples, and those that will arrive; {} validation tokens",
                     files_.size() == 1 ? "1 file" : fmt::format("{} files", files_.size()), tokens(), train_->samples(),
                     validation_tokens_);
}

}  // namespace trivet::data

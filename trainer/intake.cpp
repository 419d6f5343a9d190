#include "trainer/intake.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "comm/participants.h"
#include "core/error.h"
#include "core/log.h"
#include "data/data_error.h"
#include "engine/checkpoint/loaded_step.h"
#include "report/monitor/number_text.h"
#include "trainer/epochs.h"
#include "trainer/files_of_run.h"
#include "trainer/open_data.h"
#include "trainer/run.h"

namespace trivet::trainer {
namespace {

using Json = nlohmann::json;

// Returns the text that a rank sends to the others: a list of texts, or why it has none.
template <typename Work>
std::string told(Work work) {
  try {
    return Json{{"texts", work()}}.dump();
  } catch (const DataError& error) {
    return Json{{"problem", error.what()}, {"exit_code", static_cast<int>(error.exit_code())}}.dump(
        -1, ' ', false, Json::error_handler_t::replace);
  }
}

// Throws what a rank could not do, on all ranks the same.
std::vector<std::string> heard(const std::string& text, size_t rank) {
  const Json json = Json::parse(text);
  if (json.contains("problem"))
    throw DataError(
        static_cast<ExitCode>(json.at("exit_code").get<int>()),
        fmt::format("{}{}", json.at("problem").get<std::string>(), rank == 0 ? "" : fmt::format(" (rank {})", rank)));
  return json.at("texts").get<std::vector<std::string>>();
}

// The new files of the folder, as rank 0 sees it.
std::vector<std::string> list_new_files(const data::GrowingData& data, const comm::Participants& ranks) {
  const std::string mine = ranks.rank == 0 ? told([&] { return data.new_files(); }) : "";
  return heard(ranks.gather(mine).front(), 0);
}

[[noreturn]] void refuse_different(const std::string& path, const std::string& zero, const std::string& other, size_t rank) {
  throw CommError(ExitCode::RanksDisagree,
                  fmt::format("data.train: rank 0 read \"{0}\" ({1}), but rank {2} read \"{0}\" ({3}); all ranks must find the "
                              "same file at this path",
                              path, zero, rank, other));
}

// Returns those files that all ranks can read; a rank of another host may see a file later.
std::vector<std::string> complete_files(const data::GrowingData& data, const std::vector<std::string>& names,
                                        const comm::Participants& ranks) {
  const auto look = [&] {
    std::vector<std::string> digests;
    for (const std::string& name : names) digests.push_back(data.digest_of(name));
    return digests;
  };
  std::vector<std::vector<std::string>> digests;
  for (const std::string& text : ranks.gather(told(look))) digests.push_back(heard(text, digests.size()));
  std::vector<std::string> complete;
  for (size_t file = 0; file < names.size(); ++file) {
    bool everywhere = true;
    for (const auto& of_rank : digests) everywhere = everywhere && !of_rank[file].empty();
    if (!everywhere) continue;
    for (size_t rank = 1; rank < digests.size(); ++rank)
      if (digests[rank][file] != digests[0][file])
        refuse_different(data.folder() + "/" + names[file], digests[0][file], digests[rank][file], rank);
    complete.push_back(names[file]);
  }
  return complete;
}

// Collective. Returns whether any were taken up.
bool take_up_new_files(data::GrowingData& data, int64_t epoch, const comm::Participants& ranks) {
  const Log log(ranks.rank);
  const auto warn = [&](const std::string& text) {
    if (ranks.rank == 0) log.warning(fmt::format("{}: {}", data.folder(), text));
  };
  const std::vector<std::string> names = list_new_files(data, ranks);
  if (names.empty()) return false;
  const std::vector<std::string> complete = complete_files(data, names, ranks);
  for (const std::string& name : names)
    if (std::ranges::find(complete, name) == complete.end())
      warn(fmt::format("{} is not complete; it is left for an epoch that begins later", name));
  if (complete.empty()) return false;
  const bool taken = data.take_up(epoch, complete);
  if (!taken)
    warn(fmt::format("{} {} too few tokens for one sample; {} left for an epoch that begins later", fmt::join(complete, ", "),
                     complete.size() == 1 ? "has" : "have together", complete.size() == 1 ? "it is" : "they are"));
  return taken;
}

comm::Participants all_of(comm::World& world) { return comm::over_group(world.group()); }

}  // namespace

std::unique_ptr<data::GrowingData> open_growing_data(const Config& config, comm::World& world) {
  auto data = std::make_unique<data::GrowingData>(data_options(config), config.model.sequence_length);
  if (!take_up_new_files(*data, 0, all_of(world)))
    throw DataError(ExitCode::Usage,
                    fmt::format("{}: data.train: \"{}\" has no complete .tokens file yet; start when there is one",
                                config.source, config.data.train));
  check_same_files(config, *data, world);
  return data;
}

Intake::Intake(Run& run) : run_(run), data_(run.data->growing()) {}

int64_t Intake::last_epoch_of(int64_t step) const {
  const BatchLayout& layout = run_.batches.layout();
  const int64_t microbatches = layout.global_batch() / layout.micro_batch;
  return run_.batches.sampler().visit(step, microbatches - 1, layout.micro_batch - 1).epoch;
}

void Intake::replace_batches() {
  const auto train = data_->train();
  run_.batches.replace(train, make_sampler(run_.config, *train, run_.engine.plan()));
}

// "epoch 3 begins with 2 more files of 4,096 tokens: 7 files, 191 samples (c.tokens, d.tokens)"
std::string Intake::news(int64_t epoch, size_t files_before, int64_t tokens_before) const {
  constexpr size_t kMostNames = 4;
  const auto& files = data_->files();
  const size_t more = files.size() - files_before;
  std::vector<std::string> names;
  for (size_t i = files_before; i < files.size() && names.size() < kMostNames; ++i) names.push_back(files[i].name);
  if (more > names.size()) names.push_back(fmt::format("and {} more", more - names.size()));
  return fmt::format("epoch {} begins with {} more file{} of {} tokens: {} files, {} samples ({})",
                     monitor::with_commas(epoch + 1), monitor::with_commas(static_cast<int64_t>(more)), more == 1 ? "" : "s",
                     monitor::with_commas(data_->tokens() - tokens_before),
                     monitor::with_commas(static_cast<int64_t>(files.size())), monitor::with_commas(data_->train()->samples()),
                     fmt::join(names, ", "));
}

// Files may come at any time, so a step that reaches several epochs is decided once, for the first of them.
std::string Intake::before_step(int64_t step) {
  if (!data_ || last_epoch_of(step) < decided_) return "";
  const int64_t epoch = decided_;
  if (replays_)
    throw ConfigError(
        fmt::format("--step: step {} begins epoch {}, and no checkpoint says which files of \"{}\" that epoch has; "
                    "use a step before it, or one that has a checkpoint after it",
                    step + 1, epoch + 1, run_.config.data.train));
  const size_t files = data_->files().size();
  const int64_t tokens = data_->tokens();
  const bool taken = take_up_new_files(*data_, epoch, all_of(run_.world));
  if (taken) replace_batches();
  decided_ = last_epoch_of(step) + 1;
  return taken ? news(epoch, files, tokens) : "";
}

std::vector<DataFileState> Intake::state() const {
  std::vector<DataFileState> states;
  if (data_)
    for (const data::TakenFile& file : data_->files()) states.push_back({file.first_epoch, file.name, file.digest});
  return states;
}

// All ranks throw the same, whichever of them lacks a file.
void Intake::refuse_missing_and_changed(const checkpoint::LoadedStep& step) const {
  const auto problem_of = [&](const DataFileState& file) -> std::string {
    const std::string path = data_->folder() + "/" + file.name;
    const std::string now = data_->digest_of(file.name);
    if (now == file.digest) return "";
    const std::string what = now.empty() ? "is missing, or shorter than its header says" : "has changed";
    const std::string digests = now.empty() ? "" : fmt::format(": it was {}, now it is {}", file.digest, now);
    return fmt::format("{} {}, and {} was trained on it{}; restore the file or start over without --resume", path, what,
                       step.directory(), digests);
  };
  const auto look = [&]() -> std::vector<std::string> {
    for (const DataFileState& file : step.run_state().data_files)
      if (std::string problem = problem_of(file); !problem.empty()) return {problem};
    return {};
  };
  const auto texts = all_of(run_.world).gather(told(look));
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (const auto problems = heard(texts[rank], rank); !problems.empty())
      throw DataError(ExitCode::DataChanged, problems[0] + (rank == 0 ? "" : fmt::format(" (rank {})", rank)));
}

// The steps of the checkpoint must have reached each epoch that has more files than the one before.
void Intake::check_epochs(const checkpoint::LoadedStep& step) const {
  const std::vector<data::EpochSize> sizes = data_->train()->epoch_sizes();
  int64_t samples = step.run_state().steps * step.run_state().train_batch_size;
  for (size_t i = 1; i < sizes.size(); ++i) {
    const int64_t before = sizes[i - 1].samples, epochs = sizes[i].first_epoch - sizes[i - 1].first_epoch;
    if (epochs > (samples - 1) / before)
      throw ConfigError(
          fmt::format("{}: {} has taken up files for epoch {}, which its {} steps do not reach with samples as they "
                      "are now; use the model.sequence_length and data.packing of that run",
                      run_.config.source, step.directory(), sizes[i].first_epoch + 1, step.run_state().steps));
    samples -= epochs * before;
  }
}

void Intake::restore(const checkpoint::LoadedStep& step) {
  const checkpoint::RunState& state = step.run_state();
  const bool grew = !state.data_files.empty(), grows = data_ != nullptr;
  if (grew != grows)
    throw ConfigError(fmt::format("{}: data.grows: {} does not match {}, which was saved with {}; set it to {}",
                                  run_.config.source, grows, step.directory(), grew, grew));
  if (!data_) return;
  refuse_missing_and_changed(step);
  std::vector<data::TakenFile> files;
  for (const DataFileState& file : state.data_files) files.push_back({file.first_epoch, file.name, file.digest});
  data_->restore(files);
  check_epochs(step);
  replace_batches();
  decided_ = state.steps == 0 ? 1 : last_epoch_of(state.steps - 1) + 1;
}

void Intake::follow(const checkpoint::LoadedStep* step) {
  if (!data_) return;
  replays_ = true;
  if (step)
    restore(*step);
  else
    decided_ = 0;
}

}  // namespace trivet::trainer

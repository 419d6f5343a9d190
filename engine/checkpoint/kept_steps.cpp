#include "engine/checkpoint/kept_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "engine/checkpoint/loaded_step.h"

namespace trivet::checkpoint {

// A file that names a step (steps.h).
void KeptSteps::write_name(std::string_view name, int64_t step) {
  const std::string temporary = fmt::format("{}{}", kTemporary, name);
  write_text(directory_.files, directory_.path(temporary), step_directory_name(step) + "\n");
  directory_.files.rename(directory_.path(temporary), directory_.path(std::string(name)));
}

// The best step may have been damaged and set aside, or the run may not look for one any more. Something else of this name,
// such as a directory, belongs to somebody else and stays.
void KeptSteps::name_best_step() {
  const bool there =
      best_step_ > 0 && directory_.files.kind(directory_.path(step_directory_name(best_step_))) != EntryKind::Missing;
  const std::string name = directory_.path(std::string(kBestName));
  if (there)
    write_name(kBestName, best_step_);
  else if (earlier_best_step() == 0 && names_step(directory_.files, name))
    directory_.files.remove(name);
}

// The step that `best` names, if it was the best before one whose save has failed, for example because the disk was full; else
// 0.
int64_t KeptSteps::earlier_best_step() const {
  const std::string name = directory_.path(std::string(kBestName));
  if (!names_step(directory_.files, name)) return 0;
  const std::string step = follow_name(directory_.files, name);
  const int64_t named = *parse_step(std::filesystem::path(step).filename().string());
  return named < best_step_ && directory_.files.kind(step) != EntryKind::Missing ? named : 0;
}

std::vector<int64_t> KeptSteps::steps_to_remove(const std::vector<SavedStep>& steps) const {
  const bool there = std::ranges::find(steps, best_step_, &SavedStep::step) != steps.end();
  return checkpoint::steps_to_remove(steps, directory_.options.keep, there ? best_step_ : earlier_best_step());
}

// Steps after the committed one belong to an abandoned line of training (after a resume from an earlier step); it is up to the
// user to remove them.
void KeptSteps::apply_retention(int64_t committed) {
  if (directory_.options.keep <= 0) return;
  std::vector<SavedStep> steps;
  const auto known = list_steps(directory_.files, directory_.options.directory);
  for (const StepDirectory& step : known)
    if (step.step <= committed) steps.push_back({step.step, content_of(step)});
  remove_steps(steps_to_remove(steps), known);
}

// The hosts decide together. A step that is not complete counts as damaged.
void KeptSteps::apply_agreed_retention(int64_t committed, const Participants& ranks) {
  std::map<int64_t, SavedStep> steps;
  try {
    for (const StepVersion& version : gather_versions(directory_.copies, directory_.options.hosts, ranks)) {
      if (version.id.step > committed) continue;
      SavedStep& step = steps[version.id.step];
      step.step = version.id.step;
      if (version.is_complete() && !step.content) step.content = version.content;
    }
  } catch (const CheckpointError& error) {
    if (directory_.leads(ranks)) directory_.warn(fmt::format("checkpoint: removing old steps: {}", error.what()));
    return;
  }
  if (!directory_.leads(ranks) || steps.empty()) return;
  std::vector<SavedStep> ascending;
  for (const auto& [number, step] : steps) ascending.push_back(step);
  directory_.best_effort("removing old steps", [&] {
    remove_steps(steps_to_remove(ascending), list_steps(directory_.files, directory_.options.directory));
  });
}

void KeptSteps::remove_steps(const std::vector<int64_t>& steps, const std::vector<StepDirectory>& known) {
  for (const StepDirectory& step : known) {
    if (!std::binary_search(steps.begin(), steps.end(), step.step)) continue;
    const std::string trash = std::string(kTrash) + step_directory_name(step.step);
    directory_.remove_if_there(trash);
    directory_.files.rename(directory_.path(step.name), directory_.path(trash));
    directory_.remove_if_there(trash);
    contents_.erase(step.step);
    directory_.copies.forget(step.name);
  }
}

// This run knows the contents of the steps that it saved. Steps of an earlier run are read once.
std::optional<SavedStep::Content> KeptSteps::content_of(const StepDirectory& step) {
  if (const auto known = contents_.find(step.step); known != contents_.end()) return known->second;
  try {
    const LoadedStep loaded(directory_.files, directory_.path(step.name));
    return contents_[step.step] = {loaded.run_state().updates, loaded.run_state().clean()};
  } catch (const CheckpointError&) {
    return std::nullopt;
  }
}

}  // namespace trivet::checkpoint

#include "engine/checkpoint/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";
constexpr int64_t kNameLimitBytes = 64;

// Whoever names what is no directory has made a mistake; no checkpoint is damaged.
void check_directory(FileSystem& files, const std::string& path) {
  try {
    files.list(path);
  } catch (const FileError& error) {
    if (error.error_number() != ENOENT && error.error_number() != ENOTDIR) return;  // whoever reads it says more
    throw CheckpointError(
        ExitCode::Usage,
        fmt::format("{}: no such directory; give a directory of checkpoints or one of its steps", printable(path)));
  }
}

}  // namespace

std::optional<int64_t> parse_step(std::string_view name) {
  if (!name.starts_with(kStep) || name.size() < kStep.size() + 8) return std::nullopt;
  name.remove_prefix(kStep.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

std::string displaced_name(int64_t step) { return std::string(kDisplaced) + step_directory_name(step); }

std::string broken_name(int64_t step) { return "broken-" + step_directory_name(step); }

std::vector<StepDirectory> list_steps(FileSystem& files, const std::string& directory) {
  if (files.kind(directory) == EntryKind::Missing) return {};
  std::vector<StepDirectory> steps, displaced;
  for (const DirectoryEntry& entry : files.list(directory)) {
    const auto number = parse_step(entry.name);
    if (number && entry.kind != EntryKind::Directory)
      corrupt(directory + "/" + entry.name,
              "it is a link or a file, but a step is a directory; put the directory itself in its place, or take it away");
    if (entry.kind != EntryKind::Directory) continue;
    if (number) steps.push_back({*number, entry.name});
    if (!entry.name.starts_with(kDisplaced)) continue;
    if (const auto step = parse_step(std::string_view(entry.name).substr(kDisplaced.size())))
      displaced.push_back({*step, entry.name});
  }
  // If a job was killed after it had moved the old step out of the way but not yet the new one in, the old one is still valid.
  for (const StepDirectory& old : displaced)
    if (std::none_of(steps.begin(), steps.end(), [&](const StepDirectory& known) { return known.step == old.step; }))
      steps.push_back(old);
  std::sort(steps.begin(), steps.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
  return steps;
}

std::vector<StepDirectory> readable_steps(FileSystem& files, const std::string& directory) {
  try {
    return list_steps(files, directory);
  } catch (const FileError& error) {
    throw CheckpointError(ExitCode::CheckpointCorrupt,
                          fmt::format("the checkpoints of \"{}\" cannot be listed: {}", directory, error.what()));
  }
}

LoadedStep open_newest(FileSystem& files, const std::string& directory, StepFiles which,
                       std::vector<std::string>* passed_over) {
  std::string reasons;
  const auto steps = readable_steps(files, directory);
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    try {
      return LoadedStep(files, directory + "/" + entry->name, which);
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
      if (passed_over)
        passed_over->push_back(
            fmt::format("{} is damaged, so the step before it is used, if that is valid: {}", entry->name, error.what()));
    }
  }
  if (reasons.empty())
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: there is no checkpoint here (no step-* directory)", directory));
  throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("{}: no step is valid:{}", directory, reasons));
}

std::string follow_name(FileSystem& files, const std::string& path) {
  const std::filesystem::path whole(path.substr(0, path.find_last_not_of('/') + 1));
  const std::string name = whole.filename().string();
  if (parse_step(name)) return whole.string();  // "step-00000200/"
  if (name != kLatestName && name != kBestName) return path;
  try {
    if (files.kind(path) != EntryKind::File) return path;
    std::string step = read_text(files, path, kNameLimitBytes);
    if (step.ends_with('\n')) step.pop_back();
    if (!parse_step(step)) corrupt(path, fmt::format("{} is not the name of a step, such as step-00000200", shown(step)));
    return (whole.parent_path() / step).string();
  } catch (const FileError& error) {
    throw CheckpointError(ExitCode::CheckpointCorrupt, error.what());
  }
}

bool names_step(FileSystem& files, const std::string& path) {
  try {
    return follow_name(files, path) != path;
  } catch (const CheckpointError&) {
    return false;
  }
}

LoadedStep open_path(FileSystem& files, const std::string& path, StepFiles which, std::vector<std::string>* passed_over) {
  const std::string followed = follow_name(files, path);
  if (followed == path) check_directory(files, path);
  const bool is_step = parse_step(std::filesystem::path(followed).filename().string()).has_value();
  return is_step ? LoadedStep(files, followed, which) : open_newest(files, followed, which, passed_over);
}

}  // namespace trivet::checkpoint

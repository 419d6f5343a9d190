#include "engine/checkpoint/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

constexpr std::string_view kStep = "step-";

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
    if (entry.kind != EntryKind::Directory) continue;
    if (const auto step = parse_step(entry.name)) steps.push_back({*step, entry.name});
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

LoadedStep open_newest(FileSystem& files, const std::string& directory, StepFiles which) {
  std::string reasons;
  const auto steps = readable_steps(files, directory);
  for (auto entry = steps.rbegin(); entry != steps.rend(); ++entry) {
    try {
      return LoadedStep(files, directory + "/" + entry->name, which);
    } catch (const CheckpointError& error) {
      if (error.exit_code() != ExitCode::CheckpointCorrupt) throw;
      reasons += fmt::format("\n  {}", error.what());
    }
  }
  if (reasons.empty())
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: there is no checkpoint here (no step-* directory)", directory));
  throw CheckpointError(ExitCode::CheckpointCorrupt, fmt::format("{}: no step is valid:{}", directory, reasons));
}

}  // namespace trivet::checkpoint

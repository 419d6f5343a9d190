// Finds the steps in a directory of checkpoints by their names.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file_system.h"
#include "engine/checkpoint/loaded_step.h"

namespace trivet::checkpoint {

// Precedes the name of a step that was moved to make room for another step of the same number.
inline constexpr std::string_view kDisplaced = ".old-";

// Files in a directory of checkpoints that name one of its steps, for people and for the commands that take one: the step that
// was saved last, and the one with the lowest validation loss (checkpoint.keep_best). A resume of the run does not read them.
inline constexpr std::string_view kLatestName = "latest", kBestName = "best";

struct StepDirectory {
  int64_t step = 0;
  std::string name;  // within the store's directory
};

// Committed steps, ascending, valid or not. Empty when there is no such directory. Throws FileError, and CheckpointError for a
// link or a file under the name of a step, which the next save would replace.
std::vector<StepDirectory> list_steps(FileSystem& files, const std::string& directory);
// The same for callers that will read a step: throws CheckpointError (CheckpointCorrupt) if the directory cannot be listed.
std::vector<StepDirectory> readable_steps(FileSystem& files, const std::string& directory);
// Opens the newest step whose manifest, sizes and headers are valid, without reading its data. For one process that
// only reads. Adds to `passed_over`, unless it is null, what is wrong with newer steps, which are skipped; the caller
// reports it.
LoadedStep open_newest(FileSystem& files, const std::string& directory, StepFiles which = StepFiles::All,
                       std::vector<std::string>* passed_over = nullptr);

// The directory of the step that such a file names ("checkpoints/best" -> "checkpoints/step-00000200"), a step without the
// slash that shells put at its end, or `path` itself if it is anything else. Throws CheckpointError (CheckpointCorrupt) if the
// file does not hold the name of a step.
std::string follow_name(FileSystem& files, const std::string& path);
// Checks whether `path` is such a file.
bool names_step(FileSystem& files, const std::string& path);
// Opens the step that `path` stands for: a step, a file that names one, or the newest step of a directory.
LoadedStep open_path(FileSystem& files, const std::string& path, StepFiles which = StepFiles::All,
                     std::vector<std::string>* passed_over = nullptr);

std::optional<int64_t> parse_step(std::string_view name);  // "step-00000200" -> 200
std::string displaced_name(int64_t step);                  // ".old-step-00000200"
std::string broken_name(int64_t step);                     // "broken-step-00000200"

}  // namespace trivet::checkpoint

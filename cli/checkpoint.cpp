// trivet checkpoint list | show | verify | diff | reshard | import | export
//
// A path is a directory of checkpoints or one of its steps ("checkpoints/step-00000200"). The first five write nothing and take
// no lock, because a job may be saving there.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/checkpoint_exchange.h"
#include "cli/commands.h"
#include "core/error.h"
#include "core/log.h"
#include "core/shell_words.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/compare.h"
#include "trainer/generation.h"

namespace trivet::cli {
namespace {

using checkpoint::Difference;
using checkpoint::LoadedStep;
using checkpoint::StepFiles;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string path, other;
  bool json = false;
};

std::string human_bytes(int64_t bytes) {
  constexpr std::array<const char*, 4> units{"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < units.size(); ++unit) value /= 1024;
  return bytes < 1024 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

std::string human_time(int64_t unix_seconds) {
  // No clock shows a year above 9999, and it would not fit the table.
  return unix_seconds > 253402300799 ? "?"
                                     : fmt::format("{:%Y-%m-%d %H:%M:%S}Z", fmt::gmtime(static_cast<time_t>(unix_seconds)));
}

void print_json(const Json& json) { fmt::print("{}\n", json.dump(2, ' ', false, Json::error_handler_t::replace)); }

std::string last_part(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

// For the user, a path that cannot be examined is the same as a damaged checkpoint.
EntryKind kind_of(const std::string& path) {
  try {
    return real_file_system().kind(path);
  } catch (const FileError& error) {
    throw CheckpointError(ExitCode::CheckpointCorrupt, error.what());
  }
}

bool is_step(const std::string& path) {
  return last_part(path).starts_with("step-") || kind_of(path + "/" + checkpoint::kManifestName) != EntryKind::Missing;
}

void check_directory(const std::string& path) {
  if (kind_of(path + "/.") != EntryKind::Directory)
    throw CheckpointError(ExitCode::Usage,
                          fmt::format("{}: no such directory; give a directory of checkpoints or one of its steps", path));
}

LoadedStep open_path(const std::string& path, StepFiles which) {
  check_directory(path);
  if (is_step(path)) return LoadedStep(real_file_system(), path, which);
  std::vector<std::string> passed_over;
  LoadedStep step = checkpoint::open_newest(real_file_system(), path, which, &passed_over);
  for (const std::string& note : passed_over) Log().warning(note);
  return step;
}

// The directories of the steps that a path stands for, oldest first.
std::vector<std::string> step_directories(const std::string& path) {
  check_directory(path);
  if (is_step(path)) return {path};
  std::vector<std::string> directories;
  for (const auto& step : checkpoint::readable_steps(real_file_system(), path)) directories.push_back(path + "/" + step.name);
  if (directories.empty())
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: there is no checkpoint here (no step-* directory)", path));
  return directories;
}

// Describes a step. Its status is "verified" if all of it was read, "complete" if manifest, sizes and headers are in order, and
// otherwise "damaged". If other hosts have some of its files, it is "partly verified" or "partial".
Json describe_step(const std::string& directory, bool verify) {
  Json json = {{"directory", directory}};
  try {
    const LoadedStep step(real_file_system(), directory, StepFiles::ThoseHere);
    json["step"] = step.step();
    json["run_id"] = step.run_id();
    json["created"] = step.manifest().created;
    json["ranks"] = step.manifest().ranks;
    json["tensors"] = step.manifest().tensors.size();
    json["bytes"] = step.manifest().bytes();
    if (verify) {
      step.verify();
      tokenizer_of(step);
    }
    const bool partial = !step.elsewhere().empty();
    json["status"] = verify ? (partial ? "partly verified" : "verified") : partial ? "partial" : "complete";
    json["files"] = step.manifest().files.size();
    for (const auto& [file, hosts] : step.elsewhere()) json["elsewhere"][file] = hosts;
  } catch (const CheckpointError& error) {
    json["status"] = "damaged";
    json["error"] = error.what();
  }
  return json;
}

bool is_damaged(const Json& step) { return step.at("status") == "damaged"; }

std::string status_in_words(const Json& step) {
  if (is_damaged(step)) return "damaged: " + step.at("error").get<std::string>();
  const auto status = step.at("status").get<std::string>();
  std::string text = status + (status == "verified" || status == "partly verified" ? "" : " (data not read)");
  if (!step.contains("elsewhere")) return text;
  text += fmt::format(": {} of {} files are here", step.at("files").get<size_t>() - step.at("elsewhere").size(),
                      step.at("files").get<size_t>());
  for (const auto& [file, hosts] : step.at("elsewhere").items())
    text += fmt::format("; {} is on {}", file, hosts.get<std::string>());
  return text;
}

std::string describe_line(const Json& step) {
  const std::string name = last_part(step.at("directory").get<std::string>());
  if (!step.contains("step")) return fmt::format("{:16}  {}\n", escape_control(name), status_in_words(step));
  return fmt::format("{:16}  {:>10}  {:4} ranks  {:5} tensors  {}  run {}  {}\n", escape_control(name),
                     human_bytes(step.at("bytes")), step.at("ranks").get<int64_t>(), step.at("tensors").get<int64_t>(),
                     human_time(step.at("created")), escape_control(step.at("run_id").get<std::string>()),
                     status_in_words(step));
}

Json describe_steps(const Arguments& arguments, bool verify) {
  Json steps = Json::array();
  for (const std::string& directory : step_directories(arguments.path)) {
    steps.push_back(describe_step(directory, verify));
    if (!arguments.json) fmt::print("{}", describe_line(steps.back()));
  }
  if (arguments.json) print_json({{"path", arguments.path}, {"steps", steps}});
  return steps;
}

void fail_if_damaged(const Arguments& arguments, const Json& steps) {
  const auto damaged = std::count_if(steps.begin(), steps.end(), is_damaged);
  if (damaged > 0)
    throw CheckpointError(ExitCode::CheckpointCorrupt,
                          fmt::format("{}: {} of {} checkpoints are damaged", arguments.path, damaged, steps.size()));
}

void print_what_was_checked(const std::string& path) {
  fmt::print("manifest, sizes and headers were checked; trivet checkpoint verify {} reads every byte\n",
             escape_control(quoted(path)));
}

void list(const Arguments& arguments) {
  const Json steps = describe_steps(arguments, false);
  if (!arguments.json) print_what_was_checked(arguments.path);
  std::fflush(stdout);
  fail_if_damaged(arguments, steps);
}

void verify(const Arguments& arguments) {
  const Json steps = describe_steps(arguments, true);
  std::fflush(stdout);
  fail_if_damaged(arguments, steps);
}

void show(const Arguments& arguments) {
  const LoadedStep step = open_path(arguments.path, StepFiles::ThoseHere);
  const checkpoint::Manifest& manifest = step.manifest();
  Json tensors = Json::object();
  for (const auto& [name, tensor] : manifest.tensors)
    tensors[name] = {{"dtype", name_of(tensor.dtype)},
                     {"shape", std::vector<int64_t>(tensor.shape.span().begin(), tensor.shape.span().end())},
                     {"pieces", Json::array()}};
  for (const auto& piece : manifest.pieces)
    tensors[piece.tensor]["pieces"].push_back({{"file", piece.file},
                                               {"entry", piece.entry},
                                               {"box_start", to_string(piece.box_start)},
                                               {"box_shape", to_string(piece.box_shape)},
                                               {"first", piece.first},
                                               {"count", piece.count}});
  if (arguments.json) {
    Json json = describe_step(step.directory(), false);
    json["state"] = step.state();
    json["config"] = step.config();
    json["tensors"] = tensors;
    return print_json(json);
  }
  fmt::print("{}", describe_line(describe_step(step.directory(), false)));
  print_what_was_checked(step.directory());
  fmt::print("state: {}\n", escape_control(step.state()));
  for (const auto& [name, tensor] : manifest.tensors) {
    fmt::print("{:50}  {:9} {}\n", escape_control(name), name_of(tensor.dtype), to_string(tensor.shape));
    for (const Json& piece : tensors[name]["pieces"])
      fmt::print("    {}  box {} + {}, elements {} + {}\n", piece["file"].get<std::string>(),
                 piece["box_start"].get<std::string>(), piece["box_shape"].get<std::string>(), piece["first"].get<int64_t>(),
                 piece["count"].get<int64_t>());
  }
}

std::string describe(const checkpoint::TensorDifference& difference) {
  switch (difference.kind) {
    case Difference::None: return "equal bits";
    case Difference::OnlyInFirst: return "only in the first";
    case Difference::OnlyInSecond: return "only in the second";
    case Difference::Type: return "different dtype or shape";
    case Difference::Values: break;
  }
  return fmt::format("{} elements differ, by at most {:.6g}", difference.different_elements, difference.largest);
}

void diff(const Arguments& arguments) {
  const LoadedStep first = open_path(arguments.path, StepFiles::All), second = open_path(arguments.other, StepFiles::All);
  const auto differences = checkpoint::compare(first, second);
  Json json = {{"first", first.directory()}, {"second", second.directory()}, {"equal", true}, {"tensors", Json::array()}};
  int64_t equal = 0;
  for (const auto& difference : differences) {
    equal += difference.kind == Difference::None;
    Json entry = {
        {"name", difference.name}, {"result", describe(difference)}, {"different_elements", difference.different_elements}};
    entry["largest_difference"] = std::isfinite(difference.largest) ? Json(difference.largest) : Json("not finite");
    json["tensors"].push_back(entry);
    if (!arguments.json && difference.kind != Difference::None)
      fmt::print("{:50}  {}\n", escape_control(difference.name), describe(difference));
  }
  json["equal"] = equal == static_cast<int64_t>(differences.size());
  if (arguments.json) return print_json(json);
  fmt::print("{} and {}: {} of {} tensors have equal bits\n", first.directory(), second.directory(), equal, differences.size());
}

// Users of other trainers look for this command, because their checkpoints belong to the layout that wrote them.
void reshard(const Arguments& arguments) {
  const LoadedStep step = open_path(arguments.path, StepFiles::ThoseHere);
  const int64_t ranks = step.manifest().ranks;
  if (arguments.json) return print_json({{"directory", step.directory()}, {"ranks", ranks}, {"needs_resharding", false}});
  fmt::print(
      "{} was saved by {} {}. Every layout reads it as it is, so nothing was done.\n"
      "next: trivet train CONFIG --resume, with any number of ranks, ZeRO stage, tensor and pipeline size\n",
      escape_control(step.directory()), ranks, ranks == 1 ? "rank" : "ranks");
}

CLI::App* add_command(CLI::App& group, const std::string& name, const std::string& description, void (*run)(const Arguments&)) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = group.add_subcommand(name, description);
  command->add_option("path", arguments->path, "Directory of checkpoints, or one of its steps; also DIR/best")->required();
  if (name == "diff") command->add_option("other", arguments->other, "Checkpoint to compare with")->required();
  command->add_flag("--json", arguments->json, "Print JSON");
  command->callback([arguments, run] {
    for (std::string* path : {&arguments->path, &arguments->other}) *path = checkpoint::follow_name(real_file_system(), *path);
    run(*arguments);
  });
  return command;
}

}  // namespace

void add_checkpoint(CLI::App& program) {
  CLI::App& group = *program.add_subcommand("checkpoint", "List, show, verify, compare, import and export checkpoints");
  group.require_subcommand(1);
  group.footer("Example: trivet checkpoint verify checkpoints");
  add_command(
      group, "list",
      "List the steps of a directory: size, time, and whether manifest, sizes and headers are in order; exit code 15 if "
      "one is damaged",
      list)
      ->footer("Example: trivet checkpoint list checkpoints --json");
  add_command(group, "show", "Print tensors, shapes, and which file holds what", show)
      ->footer("Example: trivet checkpoint show checkpoints/step-00000200");
  add_command(group, "verify", "Read everything and compare every checksum; exit code 15 if something is damaged", verify)
      ->footer("Example: trivet checkpoint verify checkpoints");
  add_command(
      group, "reshard",
      "Does nothing: every layout (ranks, ZeRO stage, tensor and pipeline size) reads every checkpoint as it is. Says how "
      "many ranks saved it and how to go on",
      reshard)
      ->footer("Example: trivet checkpoint reshard checkpoints");
  add_exchange(group);
  add_command(group, "diff", "Compare two checkpoints tensor by tensor, whatever layouts wrote them", diff)
      ->footer("Example: trivet checkpoint diff run-a/step-00000200 run-b/step-00000200");
}

}  // namespace trivet::cli

// trivet demo: prepares a text, trains a small model on two ranks for about a minute, prints text that the model generates, and
// resumes from the checkpoint on one rank. It does so by running this program, and prints each command.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "cli/demo_config.h"
#include "cli/foreground.h"
#include "cli/launch/program.h"
#include "cli/usage.h"
#include "comm/world.h"
#include "core/descriptor.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/shell_words.h"

namespace trivet::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigFile = "demo.json";
constexpr const char* kCheckpoints = "checkpoints";  // as in configs/demo.json
// The first line of the config that the demo writes. A copy of configs/demo.json does not have it.
constexpr const char* kMark =
    "// Written by trivet demo, which removes the checkpoints in this folder when it runs here again.\n";
constexpr const char* kBibleProgram = "bible";
constexpr const char* kBiblePrompt = "In the beginning";
constexpr int64_t kStepsAfterResume = 50;

struct DemoArguments {
  std::string directory = "trivet-demo";
  std::optional<std::string> text;
  int64_t steps = 1000;
};

// A text, and a prompt that consists of its characters.
struct DemoText {
  std::string file, tokens, prompt;
};

constexpr const char* kBibleTokens = "kjv.tokens";  // as in configs/demo.json
constexpr const char* kTokens = "text.tokens";

void print_title(const std::string& text) {
  const bool bold = isatty(STDOUT_FILENO) && !std::getenv("NO_COLOR");
  fmt::print("\n{}{}{}\n", bold ? "\033[1m" : "", text, bold ? "\033[0m" : "");
  std::fflush(stdout);
}

// Prints the command as a user would type it, then runs it.
void run_and_show(const std::vector<std::string>& words) {
  fmt::print("$ {}\n", printable_lines(quoted(words)));
  std::fflush(stdout);
  const int code = run_in_foreground(find_program(words[0], path_of(comm::current_environment())), words);
  if (code != 0)
    throw Error(static_cast<ExitCode>(code), fmt::format("demo: \"{}\" ended with exit code {}", quoted(words), code));
}

std::string text_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw ConfigError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  return text.str();
}

void write_text(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw ConfigError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

std::string config_for(const DemoText& text) {
  std::string config = kMark + std::string(kDemoConfig);
  const std::string_view name = kBibleTokens;
  return config.replace(config.find(name), name.size(), text.tokens);
}

std::optional<std::string> find_bible() {
  try {
    return find_program(kBibleProgram, path_of(comm::current_environment()));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

// The first word of the text, or its beginning. A dash before it would make it an option.
std::string prompt_of(const std::string& path) {
  constexpr size_t kLongestPrompt = 32;  // in bytes; some texts have no spaces
  constexpr std::string_view kSpace = " \t\r\n";
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw ConfigError(fmt::format("--text {}: {}", path, error.message()));
  if (!fs::is_regular_file(status)) throw ConfigError(fmt::format("--text {}: is not a file", path));
  const std::string text = text_of_file(path);
  const size_t begin = text.find_first_not_of(" \t\r\n-");
  if (begin == std::string::npos) throw ConfigError(fmt::format("--text {}: the file holds no text", path));
  size_t end = std::min(text.find_first_of(kSpace, begin), text.size());
  if (end - begin > kLongestPrompt) {
    end = begin + kLongestPrompt;
    while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // between characters of UTF-8
  }
  return text.substr(begin, end - begin);
}

// A text in the demo's own directory must not be one of the files that the demo writes or removes.
void check_place(const std::string& text, const std::string& directory) {
  std::error_code error;
  const fs::path inside = fs::weakly_canonical(text, error).lexically_relative(fs::weakly_canonical(directory, error));
  for (const char* written : {kConfigFile, kTokens, kCheckpoints})
    if (!inside.empty() && *inside.begin() == written)
      throw ConfigError(
          fmt::format("--text {}: the demo would overwrite or remove this file; give it another --directory", text));
}

// The user's text, or the King James Bible, which the program of Debian's package bible-kjv prints.
DemoText choose_text(const DemoArguments& arguments) {
  if (arguments.text) {
    const std::string prompt = prompt_of(*arguments.text);
    check_place(*arguments.text, arguments.directory);
    return {fs::absolute(*arguments.text).string(), kTokens, prompt};
  }
  if (!find_bible())
    throw ConfigError(
        "demo: there is no text to train on: the program \"bible\" is not in PATH; install it (apt install bible-kjv), or "
        "give a text of your own, best of a megabyte or more: trivet demo --text FILE");
  return {"kjv.txt", kBibleTokens, kBiblePrompt};
}

void print_bible(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file) throw ConfigError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  const std::vector<std::string> words{kBibleProgram, "-f", "gen1:1-rev22:21"};
  const int code = run_in_foreground(*find_bible(), words, file.number());
  if (code != 0) throw ConfigError(fmt::format("demo: \"{}\" ended with exit code {}", quoted(words), code));
}

[[noreturn]] void refuse(const std::string& directory, const std::string& why) {
  throw ConfigError(fmt::format("--directory {}: {}", directory, why));
}

// Throws unless the directory, which exists, is empty or from an earlier demo with this config.
void check_earlier(const std::string& directory, const std::string& config) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) refuse(directory, error ? error.message() : "is not a directory");
  if (fs::is_empty(directory, error)) return;
  if (error) refuse(directory, error.message());
  const std::string earlier = directory + "/" + kConfigFile;
  if (!fs::exists(earlier, error) || text_of_file(earlier) != config)
    refuse(directory, "is not empty, and not from an earlier demo with this text; remove it, or give another directory");
}

// Makes the directory the current one, with the config and without checkpoints. The directory of an earlier demo may be
// used again; it is known by its config, which is therefore the first file that a demo writes.
void enter_directory(const std::string& directory, const std::string& config) {
  std::error_code error;
  if (fs::exists(fs::symlink_status(directory, error))) check_earlier(directory, config);
  fs::create_directories(directory, error);
  if (!error) fs::current_path(directory, error);
  if (error) refuse(directory, error.message());
  // Another user could make links there that lead the demo to files of this one.
  struct stat status {};
  if (::stat(".", &status) != 0) refuse(directory, std::strerror(errno));
  if (status.st_uid != ::geteuid()) refuse(directory, "belongs to another user; give another directory");
  write_text(kConfigFile, config);
  fs::remove_all(kCheckpoints, error);
  if (error) refuse(directory, fmt::format("{} cannot be removed: {}", kCheckpoints, error.message()));
}

// A user who runs the program by its path needs it in PATH for the commands of the last part.
std::string path_hint() {
  const fs::path here = fs::read_symlink("/proc/self/exe");
  std::error_code error;
  std::istringstream folders(path_of(comm::current_environment()));
  for (std::string folder; std::getline(folders, folder, ':');)
    if (fs::equivalent(fs::path(folder) / "trivet", here, error)) return "";
  return fmt::format("; PATH={}:$PATH", quoted(here.parent_path().string()));
}

void say_what_is_next(const std::string& directory) {
  print_title("Next");
  fmt::print("  cd {}{}\n", quoted(directory), path_hint());
  fmt::print(
      "  trivet checkpoint list checkpoints                              what was saved\n"
      "  trivet train demo.json --ranks 4 --set zero_optimization.stage=3 --set checkpoint.directory=other\n"
      "  trivet config explain demo.json                                 every key with its default\n"
      "  trivet plan demo.json --world-size 8 --set zero_optimization.stage=3\n");
}

void run(const DemoArguments& arguments) {
  const DemoText text = choose_text(arguments);
  enter_directory(arguments.directory, config_for(text));
  const auto steps = [](int64_t count) { return fmt::format("training.steps={}", count); };

  print_title("1. A real text");
  if (!arguments.text) print_bible(text.file);
  std::error_code error;
  fmt::print("{}: {} bytes\n", printable(text.file), fs::file_size(text.file, error));
  if (error) throw ConfigError(fmt::format("{}: {}", text.file, error.message()));
  run_and_show({"trivet", "data", "prepare", text.file, "--vocabulary", "characters", "--output", text.tokens, "--force"});

  print_title("2. What will happen");
  run_and_show({"trivet", "plan", kConfigFile, "--world-size", "2"});

  print_title("3. Training: 2 ranks, ZeRO-2");
  std::vector<std::string> train{"trivet", "launch", "--num_gpus", "2", "trivet", "train", kConfigFile};
  if (arguments.steps != DemoArguments{}.steps) train.insert(train.end(), {"--set", steps(arguments.steps)});
  run_and_show(train);

  print_title("4. Text from the model");
  run_and_show({"trivet", "generate", kCheckpoints, "--prompt", text.prompt, "--tokens", "300"});

  print_title("5. The same run resumes from its checkpoint, now on 1 rank");
  run_and_show({"trivet", "train", kConfigFile, "--resume", "--set", steps(arguments.steps + kStepsAfterResume)});
  say_what_is_next(arguments.directory);
}

}  // namespace

void add_demo(CLI::App& program) {
  auto arguments = std::make_shared<DemoArguments>();
  CLI::App* command = program.add_subcommand("demo", "Train a small GPT on a real text, and show each command: about a minute");
  command->footer(
      "Examples:\n"
      "  trivet demo                      the King James Bible (Debian: apt install bible-kjv), in ./trivet-demo\n"
      "  trivet demo --text my-book.txt   a text of your own\n");
  command->add_option_function<std::string>(
      "--text", [arguments](const std::string& file) { arguments->text = file; }, "train on this text instead of the Bible");
  command->add_option(
      "--directory", arguments->directory,
      "where to write everything (trivet-demo); must be new or from an earlier demo, whose checkpoints are removed");
  command->add_option("--steps", arguments->steps, "steps to train (1000)")->check(from_to(1, 1'000'000));
  command->callback([arguments] { run(*arguments); });
}

}  // namespace trivet::cli

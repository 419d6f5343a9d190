// trivet: one binary, one file a subcommand (commands.h). Turns errors into one line on stderr and the exit codes of
// docs/exit_codes.md.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "cli/commands.h"
#include "core/error.h"
#include "engine/config/suggest.h"

namespace {

int fail(trivet::ExitCode code, const char* message) {
  std::fprintf(stderr, "trivet: error: %s\n", message);
  return static_cast<int>(code);
}

// OpenMP's threads spin while they wait, unless told otherwise before the program starts: then ranks that share cores, or a
// busy neighbour, make a step many times slower. So the program starts itself again with OMP_WAIT_POLICY=passive; a policy that
// the user chose (or the launcher set) stays.
void wait_without_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);  // returns only when it failed: then the policy is OpenMP's own
}

// CLI11 says of an unknown subcommand only that one is required.
void check_subcommand(const CLI::App& group, int argc, char** argv, int position) {
  const auto known = group.get_subcommands([](const CLI::App*) { return true; });
  if (known.empty() || position >= argc || argv[position][0] == '-') return;
  const std::string word = argv[position];
  std::vector<std::string> names;
  for (const CLI::App* subcommand : known) {
    if (subcommand->get_name() == word) return check_subcommand(*subcommand, argc, argv, position + 1);
    names.push_back(subcommand->get_name());
  }
  const auto near = trivet::config::nearest_names(word, names);
  throw trivet::ConfigError(fmt::format("\"{}\" is not a subcommand of {}; {}", word, group.get_name(),
                                        near.empty() ? "there are " + fmt::format("{}", fmt::join(names, ", "))
                                                     : "did you mean " + trivet::config::one_of(near) + "?"));
}

}  // namespace

int main(int argc, char** argv) {
  wait_without_spinning(argv);
  CLI::App program("Trivet: training of models that outgrow one device, from one JSON file in DeepSpeed's vocabulary.",
                   "trivet");
  program.set_version_flag("--version", "trivet 0.1.0");
  program.require_subcommand(1);
  program.failure_message(CLI::FailureMessage::help);
  trivet::cli::add_train(program);
  trivet::cli::add_launch(program);
  trivet::cli::add_plan(program);
  trivet::cli::add_config(program);
  trivet::cli::add_checkpoint(program);
  trivet::cli::add_data(program);
  trivet::cli::add_generate(program);
  try {
    check_subcommand(program, argc, argv, 1);
    program.parse(argc, argv);
    return 0;
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : static_cast<int>(trivet::ExitCode::Usage);
  } catch (const trivet::Error& error) {
    return fail(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(trivet::ExitCode::OutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    return fail(trivet::ExitCode::Internal, error.what());
  }
}

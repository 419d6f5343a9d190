// trivet: one binary, one file a subcommand (commands.h). Turns errors into one line on stderr and the exit codes of
// docs/exit_codes.md.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>

#include "cli/commands.h"
#include "cli/usage.h"
#include "core/error.h"

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

// What a command prints is its result: a full disk behind `> file` must not look like success. Those of training are elsewhere.
void check_output(const CLI::App& program) {
  if (program.got_subcommand("train") || program.got_subcommand("launch")) return;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return;
  throw trivet::Error(trivet::ExitCode::Usage, std::string("standard output cannot be written: ") + std::strerror(errno));
}

}  // namespace

int main(int argc, char** argv) {
  wait_without_spinning(argv);
  CLI::App program("Trivet: training of models that outgrow one device, from one JSON file in DeepSpeed's vocabulary.",
                   "trivet");
  program.set_version_flag("--version", "trivet " + std::string(trivet::cli::kVersion));
  program.require_subcommand(1);
  trivet::cli::add_train(program);
  trivet::cli::add_launch(program);
  trivet::cli::add_plan(program);
  trivet::cli::add_tune(program);
  trivet::cli::add_estimate(program);
  trivet::cli::add_schedule(program);
  trivet::cli::add_config(program);
  trivet::cli::add_checkpoint(program);
  trivet::cli::add_data(program);
  trivet::cli::add_generate(program);
  trivet::cli::add_doctor(program);
  trivet::cli::add_bench(program);
  try {
    trivet::cli::check_subcommand(program, argc, argv);
    program.parse(argc, argv);
    check_output(program);
    return 0;
  } catch (const CLI::Success& help_or_version) {
    return program.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    return fail(trivet::ExitCode::Usage, trivet::cli::describe(program, error).c_str());
  } catch (const trivet::Error& error) {
    return fail(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(trivet::ExitCode::OutOfMemory, "out of host memory");
  } catch (const std::exception& error) {
    return fail(std::ferror(stdout) ? trivet::ExitCode::Usage : trivet::ExitCode::Internal, error.what());
  }
}

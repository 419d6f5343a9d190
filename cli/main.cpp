// trivet: one binary, with one file per subcommand (commands.h). main() turns errors into one line on stderr and the exit codes
// of docs/exit_codes.md.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>

#include "cli/commands.h"
#include "cli/launch/output.h"
#include "cli/launch/shortage.h"
#include "cli/stop_signals.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/printable.h"
#include "core/utf8.h"

namespace {

constexpr std::chrono::seconds kLastWords{2};

// A path or value may be as long as its writer likes; its beginning says which one it is.
std::string with_short_words(const std::string& message) {
  constexpr size_t kLongest = 1000, kKept = 400;
  std::string text;
  for (size_t at = 0; at < message.size();) {
    const size_t end = std::min(message.find_first_of(" \n", at), message.size());
    const bool is_long = end - at > kLongest;
    size_t kept = is_long ? at + kKept : end;
    while (is_long && (static_cast<unsigned char>(message[kept]) & 0xC0) == 0x80) --kept;  // within a character of UTF-8
    text += message.substr(at, kept - at) + (is_long ? "..." : "");
    if (end < message.size()) text += message[end];
    at = end + 1;
  }
  return text;
}

// Messages repeat text from files and command lines, which must not reach the terminal raw. A reader of stderr that has stopped
// reading must not keep the program from ending.
int fail(trivet::ExitCode code, const char* message) {
  trivet::cli::Output error(STDERR_FILENO);
  error.add("trivet: error: " + with_short_words(trivet::printable_lines(message)) + "\n");
  error.flush_within(kLastWords);
  return static_cast<int>(code);
}

// A path that cannot be is the user's mistake. Any other failure of a file that nobody has handled is ours.
int fail_with_path(int number, const char* message) {
  const bool is_path = number == ENAMETOOLONG || number == ENOTDIR || number == ELOOP || number == ENOENT || number == EISDIR ||
                       number == EACCES || number == EPERM;
  return is_path ? fail(trivet::ExitCode::Usage, (std::string(message) + "; check the path that was given").c_str())
                 : fail(trivet::ExitCode::Internal, message);
}

// Opens /dev/null in place of closed standard descriptors, so that a file or socket opened later cannot become standard input,
// output or error. It is opened for reading, so writing to an output that was closed still fails.
void occupy_standard_descriptors() {
  for (int opened = 0; opened >= 0 && opened <= STDERR_FILENO;) {
    opened = open("/dev/null", O_RDONLY);
    if (opened > STDERR_FILENO) close(opened);
  }
}

constexpr const char* kOutOfMemory =
    "out of host memory; use a smaller model or micro batch, fewer ranks on this host, or raise its limit (ulimit -v, cgroup)";

// The terminate handler: where an exception cannot be caught (in a destructor or a separate thread), running out of memory
// still ends the program with the usual message and exit code. It allocates nothing.
[[noreturn]] void end_of_program() {
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    for (const char* text : {"trivet: error: ", kOutOfMemory, "\n"})
      if (::write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
    _exit(static_cast<int>(trivet::ExitCode::OutOfMemory));
  } catch (...) {
  }
  __gnu_cxx::__verbose_terminate_handler();
  std::abort();
}

// OpenMP's threads spin while they wait, unless the environment says otherwise before the program starts. Spinning makes a step
// many times slower if ranks share cores or other programs are busy. So the program starts itself again with
// OMP_WAIT_POLICY=passive; a policy that the user chose (or the launcher set) stays.
void wait_without_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY")) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);  // returns only if it fails; OpenMP's own policy then applies
}

// Ignores SIGXFSZ, so that a file that grows beyond the user's limit (ulimit -f) is an ordinary error of write(), with a
// message and an exit code. `launch` does not ignore it here, because the programs that it starts decide for themselves.
void get_errors_of_file_size(int argc, char** argv) {
  if (argc < 2 || !std::string_view(argv[1]).starts_with("launch")) std::signal(SIGXFSZ, SIG_IGN);
}

// Only said of a pipe or a socket.
bool reader_of_output_has_gone() {
  pollfd entry{STDOUT_FILENO, POLLOUT, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & (POLLERR | POLLHUP)) != 0;
}

// A reader that has read enough (| head) is no fault of a command that only prints: it ends quietly, with the exit code of
// SIGPIPE, also where whoever started it has that signal ignored.
int fail_to_print(const char* message) {
  if (reader_of_output_has_gone()) return 128 + SIGPIPE;
  return fail(trivet::ExitCode::Usage, message);
}

std::string cannot_print(int error) { return std::string("standard output cannot be written: ") + std::strerror(error); }

// Returns the exit code.
int check_printed() {
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout) return 0;
  return fail_to_print(cannot_print(errno).c_str());
}

// JSON is UTF-8: a name on the command line that is not can be neither printed as JSON nor put into a config.
int fail_with_json(int argc, char** argv, const char* message) {
  for (int i = 1; i < argc; ++i)
    if (!trivet::is_utf8(argv[i]))
      return fail(
          trivet::ExitCode::Usage,
          (trivet::printable(argv[i]) + ": is not UTF-8, as JSON must be; rename the file and give its new name").c_str());
  return fail(trivet::ExitCode::Internal, message);
}

// Returns the exit code. Printed text is a command's result, so a full disk in `> file` must not look like success; but
// the results of training are not on standard output.
int check_output(const CLI::App& program) { return program.got_subcommand("train") ? 0 : check_printed(); }

}  // namespace

int main(int argc, char** argv) {
  occupy_standard_descriptors();
  std::set_terminate(end_of_program);
  wait_without_spinning(argv);
  get_errors_of_file_size(argc, argv);
  CLI::App program("Trivet: training of models that outgrow one device, from one JSON file in DeepSpeed's vocabulary.",
                   "trivet");
  program.set_version_flag("--version", "trivet " + std::string(trivet::cli::kVersion));
  program.require_subcommand(1);
  trivet::cli::add_train(program);
  trivet::cli::add_replay(program);
  trivet::cli::add_evaluate(program);
  trivet::cli::add_launch(program);
  trivet::cli::add_launch_agent(program);
  trivet::cli::add_plan(program);
  trivet::cli::add_report(program);
  trivet::cli::add_tune(program);
  trivet::cli::add_estimate(program);
  trivet::cli::add_schedule(program);
  trivet::cli::add_config(program);
  trivet::cli::add_checkpoint(program);
  trivet::cli::add_data(program);
  trivet::cli::add_generate(program);
  trivet::cli::add_doctor(program);
  trivet::cli::add_bench(program);
  trivet::cli::add_demo(program);
  trivet::cli::add_completion(program);
  trivet::cli::add_man_pages(program);
  try {
    trivet::cli::check_subcommand(program, argc, argv);
    trivet::cli::check_no_empty_values(program, argc, argv);
    argc = trivet::cli::without_separator(program, argc, argv);
    program.parse(argc, argv);
    return check_output(program);
  } catch (const trivet::cli::StoppedBySignal& stopped) {
    return 128 + stopped.signal;
  } catch (const CLI::Success& help_or_version) {
    program.exit(help_or_version);
    return check_printed();
  } catch (const CLI::ParseError& error) {
    return fail(trivet::ExitCode::Usage, trivet::cli::describe(program, error).c_str());
  } catch (const trivet::Error& error) {
    return fail(error.exit_code(), error.what());
  } catch (const trivet::FileError& error) {
    return fail_with_path(error.error_number(), error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    const std::string text = trivet::printable(error.path1().string()) + ": " + error.code().message();
    return fail_with_path(error.code().value(), text.c_str());
  } catch (const std::bad_alloc&) {
    return fail(trivet::ExitCode::OutOfMemory, kOutOfMemory);
  } catch (const nlohmann::json::exception& error) {
    return fail_with_json(argc, argv, error.what());
  } catch (const std::system_error& error) {  // such as a thread that cannot be started
    if (std::ferror(stdout)) return fail_to_print(cannot_print(error.code().value()).c_str());
    if (!trivet::cli::is_shortage(error.code().value())) return fail(trivet::ExitCode::Internal, error.what());
    const auto shortage = trivet::cli::shortage("the system refused a resource that the program needs", error.code().value());
    return fail(shortage.exit_code(), shortage.what());
  } catch (const std::exception& error) {
    return std::ferror(stdout) ? fail_to_print(error.what()) : fail(trivet::ExitCode::Internal, error.what());
  }
}

#include "report/monitor/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/error.h"
#include "core/log.h"
#include "core/open_files.h"
#include "core/pipe_signal.h"

namespace trivet::monitor {
namespace {

Descriptor open_for_append(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code no_folder;
  if (!folder.empty()) std::filesystem::create_directories(folder, no_folder);
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666));
  struct stat status {};
  if (file && ::fstat(file.number(), &status) == 0 && !S_ISFIFO(status.st_mode)) ::fcntl(file.number(), F_SETFL, O_APPEND);
  if (!file && no_folder) errno = no_folder.value();  // open only knows that the folder is not there
  return file;
}

std::string why_not(int error) {
  if (error == ENXIO) return "nobody reads this FIFO; start its reader first, or name a file";
  if (error == EAGAIN) return "the reader of this FIFO does not keep up";
  return std::strerror(error);
}

// Where locks do not work, no file is shared.
bool is_shared(const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  return ::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Returns whether all of it was written; otherwise errno says why.
bool write_all(int file, std::string_view text) {
  const NoPipeSignal none;
  while (!text.empty()) {
    const ssize_t written = ::write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

Descriptor open_at_start(const std::string& path) {
  Descriptor file = open_for_append(path);
  if (!file) check_open_files(path, errno);
  if (!file) throw Error(ExitCode::Usage, path + ": cannot be written: " + why_not(errno));
  return file;
}

}  // namespace

// Two runs that were given one file by mistake mix their lines. A rank that lives on after it was given up may hold the file,
// too, so this is not an error.
OutputFile::OutputFile(const std::string& path) : path_(path), file_(open_at_start(path)) {
  if (is_shared(file_))
    Log().warning(
        fmt::format("{}: another process writes to this file, too; the lines of both will be mixed", escape_control(path_)));
}

OutputFile OutputFile::of_this_run(const std::string& path, std::chrono::milliseconds wait) {
  constexpr std::chrono::milliseconds kPause{100};
  OutputFile file(path, open_at_start(path));
  for (; is_shared(file.file_); wait -= kPause) {
    if (wait <= wait.zero())
      throw Error(ExitCode::Usage, path +
                                       ": another process writes to this file, and would lose its lines; wait until it has "
                                       "ended, or give this run a file of its own");
    std::this_thread::sleep_for(kPause);
  }
  return file;
}

OutputFile OutputFile::opened_late(const std::string& path) {
  OutputFile file(path, open_for_append(path));
  if (!file.file_) file.give_up();
  return file;
}

bool OutputFile::write(std::string_view text) {
  if (file_ && !write_all(file_.number(), text)) give_up();
  return static_cast<bool>(file_);
}

void OutputFile::give_up() {
  Log().warning(fmt::format("{}: cannot be written: {}; the run continues, and nothing more is written to this file",
                            escape_control(path_), why_not(errno)));
  file_.reset();
}

void cut_incomplete_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return;
  constexpr std::streamoff kBlock = 1 << 16;
  std::string block;
  std::streamoff end = file.tellg();
  const std::streamoff size = end;
  for (; end > 0; end = std::max<std::streamoff>(end - kBlock, 0)) {
    const std::streamoff begin = std::max<std::streamoff>(end - kBlock, 0);
    block.resize(static_cast<size_t>(end - begin));
    file.seekg(begin);
    if (!file.read(block.data(), end - begin)) return;
    const size_t newline = block.rfind('\n');
    if (newline == std::string::npos) continue;
    end = begin + static_cast<std::streamoff>(newline) + 1;
    break;
  }
  if (end == size) return;
  std::error_code error;
  std::filesystem::resize_file(path, static_cast<uintmax_t>(end), error);
  if (error) throw Error(ExitCode::Usage, path + ": cannot be written: " + error.message());
}

}  // namespace trivet::monitor

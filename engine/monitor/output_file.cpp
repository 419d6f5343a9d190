#include "engine/monitor/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace trivet::monitor {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw Error(ExitCode::Usage, path + ": metrics cannot be written: " + std::strerror(errno));
}

std::FILE* open_for_append(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // fopen will say why
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  return std::fopen(path.c_str(), "ae");
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), file_(open_for_append(path), std::fclose) {
  if (!file_) fail(path_);
}

void OutputFile::write(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) fail(path_);
}

}  // namespace trivet::monitor

#include "engine/monitor/output_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/log.h"

namespace trivet::monitor {
namespace {

std::FILE* open_for_append(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // fopen will say why
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  return std::fopen(path.c_str(), "ae");
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : path_(path), file_(open_for_append(path), std::fclose) {
  if (!file_) throw Error(ExitCode::Usage, path_ + ": metrics cannot be written: " + std::strerror(errno));
}

OutputFile OutputFile::opened_late(const std::string& path) {
  OutputFile file(path, File(open_for_append(path), std::fclose));
  if (!file.file_) file.give_up();
  return file;
}

void OutputFile::write(std::string_view text) {
  if (!file_) return;
  const bool written = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  if (!written || std::fflush(file_.get()) != 0) give_up();
}

void OutputFile::give_up() {
  Log().warning(fmt::format("{}: metrics cannot be written: {}; the run continues, and nothing more is written to this file",
                            escape_control(path_), std::strerror(errno)));
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
  if (error) throw Error(ExitCode::Usage, path + ": metrics cannot be written: " + error.message());
}

}  // namespace trivet::monitor

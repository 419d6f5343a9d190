#include "engine/data/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

constexpr unsigned kChunkBytes = 1u << 20;

void check_regular(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) bad_file(path, "no such file");
  if (std::filesystem::is_directory(status)) bad_file(path, "is a directory; name a file");
  if (!std::filesystem::is_regular_file(status)) bad_file(path, "is a pipe or a device; name a file");
  if (::access(path.c_str(), R_OK) != 0) bad_file(path, std::string("cannot be read: ") + std::strerror(errno));
}

// gzread passes plain files through unchanged.
std::string read_unpacked(const std::string& path, int64_t limit_bytes, std::string_view kind) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
  gzbuffer(file.get(), kChunkBytes);
  std::string text;
  for (;;) {
    const size_t before = text.size();
    text.resize(before + kChunkBytes);
    const int got = gzread(file.get(), text.data() + before, kChunkBytes);
    text.resize(before + (got > 0 ? got : 0));
    int code = Z_OK;
    const char* reason = gzerror(file.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
      bad_file(path, fmt::format("damaged or truncated gzip data after {} bytes of text ({})", text.size(), reason));
    if (static_cast<int64_t>(text.size()) > limit_bytes)
      bad_file(path, fmt::format("has more than {} bytes (unpacked), which is the maximum for {}", limit_bytes, kind));
    if (got == 0) return text;
  }
}

}  // namespace

std::string read_text(const std::string& path, int64_t limit_bytes, std::string_view kind) {
  check_regular(path);
  std::string text = read_unpacked(path, limit_bytes, kind);
  if (text.empty()) bad_file(path, "is empty");
  return text;
}

}  // namespace trivet::data

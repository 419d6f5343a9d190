#include "engine/data/unpacked_file.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "core/open_files.h"
#include "engine/data/data_error.h"
#include "engine/data/zstd.h"

namespace trivet::data {
namespace {

constexpr unsigned kBufferBytes = 1u << 20;

void check_regular(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) bad_file(path, "no such file");
  if (std::filesystem::is_directory(status)) bad_file(path, "is a directory; name a file");
  if (!std::filesystem::is_regular_file(status)) bad_file(path, "is a pipe or a device; name a file");
  if (::access(path.c_str(), R_OK) != 0) bad_file(path, std::string("cannot be read: ") + std::strerror(errno));
}

}  // namespace

// zlib's gzread passes plain files through unchanged, and with them the frames of zstd.
struct UnpackedFile::State {
  explicit State(const std::string& name) : path(name), file(gzopen(name.c_str(), "rb"), gzclose) {
    if (!file) check_open_files(path, errno);
    if (!file) bad_file(path, std::string("cannot be opened: ") + std::strerror(errno));
    gzbuffer(file.get(), kBufferBytes);
    std::error_code unknown;
    bytes = std::filesystem::file_size(path, unknown);
    std::array<char, 4> start{};
    const size_t count = read_gzip(start);
    before = std::string(start.data(), count);
    if (gzdirect(file.get()) != 0 && is_zstd(before)) {
      zstd.emplace(path);
      buffer.swap(before);
      packed = buffer;
    }
  }

  // Up to the end of the file or of `out`.
  size_t read_gzip(std::span<char> out) {
    size_t done = 0;
    while (done < out.size()) {
      const auto most = static_cast<unsigned>(std::min<size_t>(out.size() - done, kBufferBytes));
      const int got = gzread(file.get(), out.data() + done, most);
      int code = Z_OK;
      const char* reason = gzerror(file.get(), &code);
      if (got > 0) done += static_cast<size_t>(got);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
        bad_file(path, fmt::format("damaged or truncated gzip data after {} bytes of text ({})", text_bytes + done, reason));
      if (got == 0) break;
    }
    return done;
  }

  size_t read_zstd(std::span<char> out) {
    size_t done = 0;
    while (done < out.size()) {
      done += zstd->unpack(packed, out.subspan(done));
      if (done == out.size() || !packed.empty()) continue;
      buffer.resize(kBufferBytes);
      packed = std::string_view(buffer.data(), read_gzip(buffer));
      if (!packed.empty()) continue;
      if (!zstd->may_end()) bad_file(path, fmt::format("truncated zstd data after {} bytes of text", text_bytes + done));
      break;
    }
    return done;
  }

  size_t read(std::span<char> out) {
    const size_t first = before.copy(out.data(), out.size());
    before.erase(0, first);
    const size_t count = first + (zstd ? read_zstd(out.subspan(first)) : read_gzip(out.subspan(first)));
    text_bytes += count;
    return count;
  }

  std::string path;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file;
  uintmax_t bytes = 0;    // of the file
  size_t text_bytes = 0;  // given to the caller
  std::string before;     // read when the file was opened
  std::optional<ZstdStream> zstd;
  std::string buffer;       // of zstd: packed data,
  std::string_view packed;  // and the part of it that is not unpacked
};

UnpackedFile::UnpackedFile(const std::string& path) {
  check_regular(path);
  state_ = std::make_unique<State>(path);
}

UnpackedFile::~UnpackedFile() = default;

size_t UnpackedFile::read(std::span<char> out) { return state_->read(out); }

bool UnpackedFile::append(std::string& text, size_t bytes) {
  const size_t before = text.size();
  text.resize(before + bytes);
  const size_t count = read(std::span(text).subspan(before));
  text.resize(before + count);
  return count == bytes;
}

double UnpackedFile::share_read() const {
  if (state_->bytes == 0) return 1;
  return std::min(1.0, static_cast<double>(gzoffset(state_->file.get())) / static_cast<double>(state_->bytes));
}

}  // namespace trivet::data

#include "data/unpacked_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "data/data_error.h"
#include "data/data_file.h"
#include "data/gzip.h"
#include "data/zstd.h"

namespace trivet::data {
namespace {

constexpr int64_t kBufferBytes = 1 << 20;

}  // namespace

struct UnpackedFile::State {
  explicit State(const std::string& path) : file(path) {
    read_more();
    if (is_gzip(packed)) gzip.emplace(path);
    if (is_zstd(packed)) zstd.emplace(path);
  }

  void read_more() {
    buffer = file.text(position, kBufferBytes);
    position += static_cast<int64_t>(buffer.size());
    packed = buffer;
  }

  size_t unpack(std::span<char> out) {
    if (gzip) return gzip->unpack(packed, out);
    if (zstd) return zstd->unpack(packed, out);
    const size_t count = packed.copy(out.data(), out.size());
    packed.remove_prefix(count);
    return count;
  }

  void check_end() const {
    if (gzip ? gzip->may_end() : !zstd || zstd->may_end()) return;
    bad_file(file.path(), fmt::format("truncated {} data: the file ends at byte {}, after {} bytes of text; copy it again",
                                      gzip ? "gzip" : "zstd", file.bytes(), text_bytes));
  }

  // Up to the end of the file or of `out`.
  size_t read(std::span<char> out) {
    size_t done = 0;
    while (done < out.size()) {
      const size_t count = unpack(out.subspan(done));
      done += count, text_bytes += count;
      if (count > 0 || !packed.empty()) continue;
      if (position == file.bytes()) break;
      read_more();
    }
    if (done < out.size()) check_end();
    return done;
  }

  DataFile file;
  int64_t position = 0;     // up to where it has been read
  std::string buffer;       // the piece of it that was read last,
  std::string_view packed;  // and the part of that which was not unpacked
  std::optional<GzipStream> gzip;
  std::optional<ZstdStream> zstd;
  size_t text_bytes = 0;  // given to the caller
};

UnpackedFile::UnpackedFile(const std::string& path) : state_(std::make_unique<State>(path)) {}

UnpackedFile::~UnpackedFile() = default;

size_t UnpackedFile::read(std::span<char> out) { return state_->read(out); }

bool UnpackedFile::append(std::string& text, size_t bytes) {
  // In steps that grow, because the file may be much smaller than what is asked for.
  constexpr size_t kFirstStep = size_t{1} << 16;
  for (size_t done = 0, step = 0; done < bytes; done += step) {
    step = std::min(bytes - done, std::max(done, kFirstStep));
    const size_t before = text.size();
    text.resize(before + step);
    const size_t count = read(std::span(text).subspan(before));
    text.resize(before + count);
    if (count < step) return false;
  }
  return true;
}

double UnpackedFile::share_read() const {
  const auto given = state_->position - static_cast<int64_t>(state_->packed.size());
  return static_cast<double>(given) / static_cast<double>(state_->file.bytes());
}

std::string_view UnpackedFile::packing() const { return state_->gzip ? "gzip" : state_->zstd ? "zstd" : ""; }

}  // namespace trivet::data

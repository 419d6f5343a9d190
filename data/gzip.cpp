#include "data/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <new>

#include "data/data_error.h"

namespace trivet::data {
namespace {

constexpr int kGzipOnly = 15 + 16;  // the largest window, and no format but gzip
constexpr size_t kMostAtOnce = size_t{1} << 30;

}  // namespace

bool is_gzip(std::string_view start) { return start.starts_with("\x1F\x8B\x08"); }

struct GzipStream::State {
  explicit State(std::string name) : path(std::move(name)) {
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~State() { inflateEnd(&stream); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Unpacks some more of a member; returns false if there was nothing to do.
  bool advance(std::string_view& packed, std::span<char>& out) {
    // zlib does not write to the input, but takes it as a pointer to bytes that may change.
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(std::min(packed.size(), kMostAtOnce));
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(std::min(out.size(), kMostAtOnce));
    const uInt in = stream.avail_in, room = stream.avail_out;
    const int code = inflate(&stream, Z_NO_FLUSH);
    const size_t used = in - stream.avail_in, written = room - stream.avail_out;
    packed.remove_prefix(used);
    out = out.subspan(written);
    packed_bytes += used, unpacked_bytes += written, member_bytes += used;
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) refuse();
    if (code == Z_STREAM_END) {
      ++members;
      member_bytes = 0;
      inflateReset(&stream);
    }
    return used > 0 || written > 0;
  }

  [[noreturn]] void refuse() const {
    constexpr size_t kMagicBytes = 2;
    if (members > 0 && member_bytes <= kMagicBytes) refuse_rest();
    bad_file(path, fmt::format("damaged gzip data at byte {}, after {} bytes of text ({}); copy the file again", packed_bytes,
                               unpacked_bytes, stream.msg ? stream.msg : "no reason is known"));
  }
  [[noreturn]] void refuse_rest() const {
    bad_file(path, fmt::format("its gzip data ends at byte {}, after {} bytes of text, but something else follows; copy the "
                               "file again",
                               packed_bytes - member_bytes, unpacked_bytes));
  }

  std::string path;
  z_stream stream = {};
  size_t packed_bytes = 0, unpacked_bytes = 0;
  size_t member_bytes = 0;  // packed size of the member that is being read
  int64_t members = 0;      // complete members
};

GzipStream::GzipStream(std::string path) : state_(std::make_unique<State>(std::move(path))) {}

GzipStream::~GzipStream() = default;

size_t GzipStream::unpack(std::string_view& packed, std::span<char> out) {
  State& state = *state_;
  const size_t room = out.size();
  bool moved = true;
  while (moved && !out.empty() && !(may_end() && packed.empty())) {
    const bool begins_member = state.members > 0 && state.member_bytes == 0;
    if (begins_member && packed[0] != '\x1F') state.refuse_rest();
    moved = state.advance(packed, out);
  }
  return room - out.size();
}

bool GzipStream::may_end() const { return state_->member_bytes == 0; }

}  // namespace trivet::data

#include "data/zstd.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <new>

#include "data/data_error.h"

namespace trivet::data {
struct ZstdStream::Library {
  // ZSTD_inBuffer and ZSTD_outBuffer of zstd.h, whose layout the library's soname promises.
  struct PackedBuffer {
    const void* bytes;
    size_t size, place;
  };
  struct UnpackedBuffer {
    void* bytes;
    size_t size, place;
  };

  explicit Library(const std::string& path) : handle(::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (!handle) bad_file(path, "is packed with zstd, but the system has no libzstd.so.1; install it (Debian: libzstd1)");
    find(create, "ZSTD_createDStream"), find(destroy, "ZSTD_freeDStream"), find(decompress, "ZSTD_decompressStream");
    find(is_error, "ZSTD_isError"), find(error_name, "ZSTD_getErrorName");
    if (create && destroy && decompress && is_error && error_name) return;
    ::dlclose(handle);
    bad_file(path, "is packed with zstd, but libzstd.so.1 lacks functions for streams; install version 1.3 or newer");
  }
  ~Library() { ::dlclose(handle); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  template <typename Function>
  void find(Function& function, const char* name) const {
    function = reinterpret_cast<Function>(::dlsym(handle, name));
  }

  void* handle;
  void* (*create)() = nullptr;
  size_t (*destroy)(void*) = nullptr;
  size_t (*decompress)(void*, UnpackedBuffer*, PackedBuffer*) = nullptr;
  unsigned (*is_error)(size_t) = nullptr;
  const char* (*error_name)(size_t) = nullptr;
};

// A frame, or one that is skipped.
bool is_zstd(std::string_view start) {
  if (start.starts_with("\x28\xB5\x2F\xFD")) return true;
  return start.size() >= 4 && (static_cast<unsigned char>(start[0]) & 0xF0) == 0x50 && start.substr(1, 3) == "\x2A\x4D\x18";
}

ZstdStream::ZstdStream(const std::string& path)
    : path_(path), library_(std::make_unique<Library>(path)), stream_(library_->create()) {
  if (!stream_) throw std::bad_alloc();
}

// The bytes after a frame that do not begin another one are the rest of something else.
void ZstdStream::refuse(size_t packed_bytes, size_t unpacked_bytes, const char* reason) const {
  if (std::string_view(reason).find("memory") != std::string_view::npos)
    bad_file(path_,
             fmt::format("its zstd data looks back farther than the 128 MiB that are accepted ({}); pack it again without "
                         "--long, as in zstd -d --long=31 FILE and zstd of the result",
                         reason));
  if (std::string_view(reason).find("ictionary") != std::string_view::npos)
    bad_file(path_, fmt::format("its zstd data was packed with a dictionary, without which it cannot be read ({}); unpack it "
                                "with zstd -d -D DICTIONARY FILE, and pack it again without one",
                                reason));
  if (frames_end_ > 0 && std::string_view(reason).find("frame descriptor") != std::string_view::npos)
    bad_file(path_, fmt::format("its zstd data ends at byte {}, after {} bytes of text, but something else follows; copy the "
                                "file again",
                                frames_end_, unpacked_bytes));
  const std::string frame = frames_end_ == 0 ? "" : fmt::format(", in the frame that begins at byte {}", frames_end_);
  bad_file(path_, fmt::format("damaged zstd data at byte {} or after it{}, after {} bytes of text ({}); copy the file again",
                              packed_bytes, frame, unpacked_bytes, reason));
}

ZstdStream::~ZstdStream() { library_->destroy(stream_); }

size_t ZstdStream::unpack(std::string_view& packed, std::span<char> out) {
  Library::UnpackedBuffer to{out.data(), out.size(), 0};
  Library::PackedBuffer from{packed.data(), packed.size(), 0};
  // With all of `packed` used, the library may still hold text that had no room.
  bool moved = true;
  while (to.place < to.size && moved) {
    const size_t written = to.place, used = from.place;
    const size_t result = library_->decompress(stream_, &to, &from);
    if (library_->is_error(result) != 0)
      refuse(packed_bytes_ + from.place, unpacked_bytes_ + to.place, library_->error_name(result));
    moved = to.place > written || from.place > used;
    if (moved) may_end_ = result == 0;
    if (moved && may_end_) frames_end_ = packed_bytes_ + from.place;
  }
  packed.remove_prefix(from.place);
  packed_bytes_ += from.place;
  unpacked_bytes_ += to.place;
  return to.place;
}

}  // namespace trivet::data

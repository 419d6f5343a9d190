#include "data/png.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

#include "data/data_error.h"

namespace trivet::data {
namespace {

// The bytes that libpng has not read yet, and why it stopped.
struct Input {
  std::string_view rest;
  std::array<char, 128> error{};
};

// libpng returns to the last setjmp, so that no object on the way may need a destructor.
[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto& input = *static_cast<Input*>(::png_get_error_ptr(png));
  std::strncpy(input.error.data(), message, input.error.size() - 1);
  ::png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep out, size_t bytes) {
  auto& input = *static_cast<Input*>(::png_get_io_ptr(png));
  if (bytes > input.rest.size()) ::png_error(png, "it is incomplete");
  std::copy_n(input.rest.begin(), bytes, out);
  input.rest.remove_prefix(bytes);
}

// The state of libpng for one image.
class Decoder {
 public:
  explicit Decoder(Input& input)
      : png_(::png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, on_error, on_warning)),
        info_(png_ == nullptr ? nullptr : ::png_create_info_struct(png_)) {
    if (info_ == nullptr) throw std::bad_alloc();
    ::png_set_read_fn(png_, &input, read_bytes);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { ::png_destroy_read_struct(&png_, &info_, nullptr); }

  int64_t rows() const { return ::png_get_image_height(png_, info_); }
  int64_t cols() const { return ::png_get_image_width(png_, info_); }
  int64_t channels() const { return ::png_get_channels(png_, info_); }
  int64_t row_bytes() const { return static_cast<int64_t>(::png_get_rowbytes(png_, info_)); }

  // Reads what precedes the pixels. Returns false for an error of libpng, as the next functions do.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    ::png_set_user_limits(png_, kMaxPngPixels, kMaxPngPixels);
    ::png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    ::png_set_benign_errors(png_, 0);                                          // errors, not warnings
    ::png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // neither profiles nor texts
    ::png_read_info(png_, info_);
    return true;
  }

  // Asks for 8 bits a channel, gray or RGB.
  bool begin_pixels() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    ::png_set_scale_16(png_);
    ::png_set_expand(png_);
    ::png_set_strip_alpha(png_);
    ::png_set_interlace_handling(png_);
    ::png_read_update_info(png_, info_);
    return true;
  }

  bool read_pixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    ::png_read_image(png_, rows);
    ::png_read_end(png_, nullptr);
    return true;
  }

 private:
  png_structp png_;
  png_infop info_;
};

}  // namespace

bool is_png(std::string_view bytes) {
  return bytes.size() >= 8 && ::png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) == 0;
}

Picture read_png(std::string_view bytes, const std::string& path) {
  if (!is_png(bytes)) bad_file(path, "is not a PNG image");
  Input input{.rest = bytes};
  Decoder decoder(input);
  const auto check = [&](bool done) {
    if (!done)
      bad_file(path, fmt::format("is damaged, or no PNG image, at byte {} of {}: {}; copy or make it again",
                                 bytes.size() - input.rest.size(), bytes.size(), input.error.data()));
  };
  check(decoder.read_header());
  const int64_t rows = decoder.rows(), cols = decoder.cols();
  if (rows > kMaxPngPixels / cols)
    bad_file(path, fmt::format("has {} x {} pixels; at most {} are accepted", rows, cols, kMaxPngPixels));
  constexpr int64_t kBestRatio = 1032;  // deflate packs no better; a file that claims more is refused without taking memory
  if (rows * decoder.row_bytes() / kBestRatio > static_cast<int64_t>(bytes.size()))
    bad_file(path, fmt::format("is incomplete: {} bytes cannot hold {} x {} pixels", bytes.size(), rows, cols));
  check(decoder.begin_pixels());

  Picture picture{.channels = decoder.channels(), .rows = rows, .cols = cols, .pixels = {}};
  std::vector<uint8_t> stored(static_cast<size_t>(rows * decoder.row_bytes()));  // the channels of a pixel next to each other
  std::vector<png_bytep> starts;
  for (int64_t row = 0; row < rows; ++row) starts.push_back(stored.data() + row * decoder.row_bytes());
  check(decoder.read_pixels(starts.data()));
  if (!input.rest.empty())
    bad_file(path, fmt::format("ends at byte {}, but {} more bytes follow; copy the file again",
                               bytes.size() - input.rest.size(), input.rest.size()));
  picture.pixels.reserve(stored.size());
  for (int64_t channel = 0; channel < picture.channels; ++channel)
    for (size_t at = static_cast<size_t>(channel); at < stored.size(); at += picture.channels)
      picture.pixels.push_back(stored[at]);
  return picture;
}

}  // namespace trivet::data

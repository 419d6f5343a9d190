#include "data/png.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cstdlib>

#include "core/printable.h"
#include "data/data_error.h"

namespace trivet::data {
namespace {

constexpr std::string_view kSignature("\x89PNG\r\n\x1a\n", 8);
constexpr size_t kHeaderBytes = 13;  // size of IHDR
enum Colour : uint8_t { kGray = 0, kRgb = 2, kPalette = 3, kGrayAlpha = 4, kRgbAlpha = 6 };

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (const char byte : bytes.substr(at, 4)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

struct Chunk {
  std::string_view type, data;
};

// The contents of the file, before the pixels are unpacked.
struct PngParts {
  int64_t rows = 0, cols = 0;
  int depth = 0;  // bits
  uint8_t colour = kGray;
  std::string_view palette;  // 3 bytes for each colour
  std::string packed;

  int64_t samples_of_row() const { return cols * (colour == kRgb ? 3 : 1); }
  int64_t bytes_of_row() const { return (samples_of_row() * depth + 7) / 8; }
  int64_t bytes_of_pixel() const { return colour == kRgb ? 3 : 1; }  // at least 1, as filters count
};

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  PngParts read_parts() {
    if (!is_png(bytes_)) refuse("is not a PNG image");
    at_ = kSignature.size();
    PngParts parts;
    read_header(next_chunk(), parts);
    for (Chunk chunk = next_chunk(); chunk.type != "IEND"; chunk = next_chunk()) {
      if (chunk.type == "PLTE") {
        parts.palette = chunk.data;
      } else if (chunk.type == "IDAT") {
        parts.packed += chunk.data;
      } else if (chunk.type == "tRNS") {
        refuse("has transparent pixels; store it without transparency");
      } else if ((chunk.type[0] & 0x20) == 0) {
        refuse(fmt::format("has a part \"{}\", which this version does not know", printable(chunk.type)));
      }
    }
    if (at_ < bytes_.size())
      refuse(fmt::format("ends at byte {}, but {} more bytes follow; copy the file again", at_, bytes_.size() - at_));
    if (parts.colour == kPalette && (parts.palette.empty() || parts.palette.size() % 3 != 0 || parts.palette.size() > 768))
      refuse(fmt::format("has a palette of {} bytes; use 3 bytes for each of 1 to 256 colours", parts.palette.size()));
    return parts;
  }

  // The rows as they are stored, each after the number of its filter.
  std::vector<uint8_t> unpack(const PngParts& parts) const {
    constexpr int64_t kBestRatio = 1032;  // at best; a file that claims more is refused without taking memory
    const int64_t bytes = parts.rows * (1 + parts.bytes_of_row());
    if (bytes / kBestRatio > static_cast<int64_t>(parts.packed.size())) refuse("its pixels are incomplete");
    std::vector<uint8_t> rows(bytes);
    uLongf got = rows.size();
    const auto* packed = reinterpret_cast<const Bytef*>(parts.packed.data());
    uLong used = parts.packed.size();
    const int code = ::uncompress2(rows.data(), &got, packed, &used);
    if (code != Z_OK || got != rows.size())
      refuse(fmt::format("its pixels are damaged or incomplete: {} bytes of {}", code == Z_OK ? got : 0, rows.size()));
    if (used != parts.packed.size())
      refuse(fmt::format("its packed pixels end at byte {} of {}; the rest is something else, so the file is damaged", used,
                         parts.packed.size()));
    return rows;
  }

  [[noreturn]] void refuse(const std::string& what) const { bad_file(path_, what); }

 private:
  Chunk next_chunk() {
    constexpr size_t kAround = 12;  // length, type and checksum
    const size_t left = bytes_.size() - at_;
    const std::string incomplete = fmt::format("is incomplete: it ends at byte {}, inside a part", bytes_.size());
    if (left < kAround) refuse(incomplete);
    const size_t length = number_at(bytes_, at_);
    if (length > left - kAround) refuse(incomplete);
    const std::string_view checked = bytes_.substr(at_ + 4, 4 + length);
    const auto sum =
        static_cast<uint32_t>(::crc32(0, reinterpret_cast<const Bytef*>(checked.data()), static_cast<uInt>(checked.size())));
    if (sum != number_at(bytes_, at_ + 8 + length))
      refuse(fmt::format("is damaged: the checksum of \"{}\" at byte {} does not match", printable(checked.substr(0, 4)), at_));
    at_ += kAround + length;
    return {checked.substr(0, 4), checked.substr(4)};
  }

  void read_header(const Chunk& chunk, PngParts& parts) const {
    if (chunk.type != "IHDR" || chunk.data.size() != kHeaderBytes)
      refuse("is not a PNG image: it does not begin with a header");
    parts.cols = number_at(chunk.data, 0), parts.rows = number_at(chunk.data, 4);
    parts.depth = static_cast<uint8_t>(chunk.data[8]), parts.colour = static_cast<uint8_t>(chunk.data[9]);
    if (parts.rows < 1 || parts.cols < 1 || parts.rows > kMaxPngPixels / parts.cols)
      refuse(fmt::format("has {} x {} pixels; 1 to {} pixels are accepted", parts.rows, parts.cols, kMaxPngPixels));
    if (parts.colour == kGrayAlpha || parts.colour == kRgbAlpha)
      refuse("has transparency; store it without (as gray, RGB or with a palette)");
    const bool few_bits = parts.depth == 1 || parts.depth == 2 || parts.depth == 4;
    const bool known = parts.colour == kGray || parts.colour == kRgb || parts.colour == kPalette;
    if (!known || !(parts.depth == 8 || (few_bits && parts.colour != kRgb)))
      refuse(fmt::format("has pixels of kind {} with {} bits; gray, RGB and palettes with up to 8 bits are accepted",
                         parts.colour, parts.depth));
    if (chunk.data[10] != 0 || chunk.data[11] != 0 || chunk.data[12] != 0)
      refuse("is interlaced or packed in a way that this version does not know; store it without interlacing");
  }

  std::string_view bytes_;
  const std::string& path_;
  size_t at_ = 0;
};

// Paeth's predictor: which of the neighbours is nearest to left + up - corner.
uint8_t nearest_neighbour(int left, int up, int corner) {
  const int to_left = std::abs(up - corner), to_up = std::abs(left - corner), to_corner = std::abs(left + up - 2 * corner);
  if (to_left <= to_up && to_left <= to_corner) return static_cast<uint8_t>(left);
  return static_cast<uint8_t>(to_up <= to_corner ? up : corner);
}

// Turns stored rows into samples, in place. Returns false if a filter is unknown.
bool undo_filters(const PngParts& parts, std::vector<uint8_t>& rows) {
  const int64_t bytes = parts.bytes_of_row(), step = parts.bytes_of_pixel();
  const std::vector<uint8_t> zeros(bytes);
  const uint8_t* above = zeros.data();
  for (int64_t row = 0; row < parts.rows; ++row) {
    uint8_t* const start = rows.data() + row * (1 + bytes);
    uint8_t* const own = start + 1;
    for (int64_t i = 0; i < bytes; ++i) {
      const int left = i < step ? 0 : own[i - step], up = above[i], corner = i < step ? 0 : above[i - step];
      switch (*start) {
        case 0: break;
        case 1: own[i] = static_cast<uint8_t>(own[i] + left); break;
        case 2: own[i] = static_cast<uint8_t>(own[i] + up); break;
        case 3: own[i] = static_cast<uint8_t>(own[i] + (left + up) / 2); break;
        case 4: own[i] = static_cast<uint8_t>(own[i] + nearest_neighbour(left, up, corner)); break;
        default: return false;
      }
    }
    above = own;
  }
  return true;
}

// Sample `index` of a row: 8 / depth of them are in a byte, the first in the highest bits.
uint8_t sample_of(const uint8_t* row, int64_t index, int depth) {
  const int64_t bit = index * depth;
  return static_cast<uint8_t>(row[bit / 8] >> (8 - depth - bit % 8)) & static_cast<uint8_t>((1 << depth) - 1);
}

// The value of one channel of a pixel; row: its samples.
uint8_t value_of(const PngParts& parts, const uint8_t* row, int64_t col, int64_t channel, const Reader& reader) {
  if (parts.colour == kRgb) return row[3 * col + channel];
  const uint8_t sample = sample_of(row, col, parts.depth);
  if (parts.colour == kGray) return static_cast<uint8_t>(sample * 255 / ((1 << parts.depth) - 1));
  const size_t entry = size_t{3} * sample + static_cast<size_t>(channel);
  if (entry >= parts.palette.size())
    reader.refuse(fmt::format("has a pixel of colour {}, but its palette has {}", sample, parts.palette.size() / 3));
  return static_cast<uint8_t>(parts.palette[entry]);
}

}  // namespace

bool is_png(std::string_view bytes) { return bytes.starts_with(kSignature); }

Picture read_png(std::string_view bytes, const std::string& path) {
  Reader reader(bytes, path);
  const PngParts parts = reader.read_parts();
  std::vector<uint8_t> rows = reader.unpack(parts);
  if (!undo_filters(parts, rows)) reader.refuse("is damaged: a row has an unknown filter");
  Picture picture{.channels = parts.colour == kGray ? 1 : 3, .rows = parts.rows, .cols = parts.cols, .pixels = {}};
  picture.pixels.reserve(picture.channels * picture.rows * picture.cols);
  for (int64_t channel = 0; channel < picture.channels; ++channel)
    for (int64_t row = 0; row < parts.rows; ++row)
      for (int64_t col = 0; col < parts.cols; ++col)
        picture.pixels.push_back(value_of(parts, rows.data() + row * (1 + parts.bytes_of_row()) + 1, col, channel, reader));
  return picture;
}

}  // namespace trivet::data

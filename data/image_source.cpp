#include "data/image_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/random.h"
#include "data/hash.h"

namespace trivet::data {
namespace {

constexpr int64_t kBytes = 256;  // values of a byte

double of_channel(const std::vector<double>& values, int64_t channel) {
  return values.size() == 1 ? values[0] : values.at(static_cast<size_t>(channel));
}

// The part of the image, surrounded by black pixels, that is taken: first row and column in image coordinates.
struct Crop {
  int64_t row = 0, col = 0;
  bool mirrored = false;
};

Crop draw_crop(const Augmentation& augmentation, int64_t epoch, int64_t sample) {
  if (augmentation.crop_padding == 0 && !augmentation.flip) return {};
  const PhiloxBlock drawn =
      philox(random_key(augmentation.seed, "augmentation"), static_cast<uint64_t>(sample), static_cast<uint64_t>(epoch));
  const auto places = static_cast<uint32_t>(2 * augmentation.crop_padding + 1);
  return {.row = static_cast<int64_t>(drawn[0] % places) - augmentation.crop_padding,
          .col = static_cast<int64_t>(drawn[1] % places) - augmentation.crop_padding,
          .mirrored = augmentation.flip && drawn[2] % 2 == 1};
}

template <typename T>
std::string_view bytes_of(const T* values, int64_t count) {
  return {reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(T)};
}

}  // namespace

ImageSource::ImageSource(std::shared_ptr<const Images> images, std::vector<int64_t> numbers, const Normalization& normalization,
                         const Augmentation& augmentation, int64_t places)
    : images_(std::move(images)),
      numbers_(std::move(numbers)),
      augmentation_(augmentation),
      spec_{.input_dtype = DType::Float32,
            .input = {images_->channels, images_->rows, images_->cols},
            .targets = {places},
            .classes = images_->class_count(),
            .spelled = images_->spelled()} {
  for (int64_t channel = 0; channel < images_->channels; ++channel)
    for (int64_t byte = 0; byte < kBytes; ++byte)
      values_.push_back(static_cast<float>((static_cast<double>(byte) / 255 - of_channel(normalization.mean, channel)) /
                                           of_channel(normalization.deviation, channel)));
}

void ImageSource::fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const {
  const Images& all = *images_;
  const int64_t image = numbers_.at(static_cast<size_t>(sample)), rows = all.rows, cols = all.cols;
  const Crop crop = draw_crop(augmentation_, epoch, sample);
  std::vector<float> row_values(cols);
  std::byte* to = input.data();
  for (int64_t channel = 0; channel < all.channels; ++channel) {
    const uint8_t* plane = all.pixels.data() + (image * all.channels + channel) * rows * cols;
    const float* value = values_.data() + channel * kBytes;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t from_row = row + crop.row;
      for (int64_t col = 0; col < cols; ++col) {
        const int64_t from_col = (crop.mirrored ? cols - 1 - col : col) + crop.col;
        const bool inside = from_row >= 0 && from_row < rows && from_col >= 0 && from_col < cols;
        row_values[col] = value[inside ? plane[from_row * cols + from_col] : 0];
      }
      std::memcpy(to, row_values.data(), static_cast<size_t>(cols) * sizeof(float));
      to += static_cast<size_t>(cols) * sizeof(float);
    }
  }
  const auto target = std::span(all.classes).subspan(static_cast<size_t>(image * all.places), static_cast<size_t>(all.places));
  const auto unused = std::ranges::copy(target, targets.begin()).out;
  std::fill(unused, targets.end(), -1);
}

Picture ImageSource::picture(int64_t sample) const {
  Picture picture{.channels = images_->channels == 3 ? 3 : 1, .rows = images_->rows, .cols = images_->cols, .pixels = {}};
  const auto first = images_->pixels.begin() + numbers_.at(static_cast<size_t>(sample)) * images_->bytes_of_one();
  picture.pixels.assign(first, first + picture.channels * picture.rows * picture.cols);
  return picture;
}

std::string ImageSource::in_words(std::span<const int32_t> classes) const {
  std::string text;
  for (const int32_t chosen : classes) {
    if (chosen < 0) continue;  // an unused place
    if (images_->spelled()) {
      const auto character = static_cast<size_t>(chosen) - 1;  // 0 is the blank
      if (character < images_->characters.size()) text += images_->characters[character];
    } else {
      text += fmt::format("{}{}", text.empty() ? "" : " ", chosen);
    }
  }
  return text;
}

std::string ImageSource::digest() const {
  StreamingHash hash;
  const int64_t bytes = images_->bytes_of_one();
  for (const int64_t image : numbers_) {
    hash.add(bytes_of(images_->pixels.data() + image * bytes, bytes));
    hash.add(bytes_of(&images_->classes[static_cast<size_t>(image * images_->places)], images_->places));
  }
  return fmt::format("{} images {} x {} x {}, xxh3 {}", samples(), images_->channels, images_->rows, images_->cols,
                     hexadecimal(hash.value()));
}

}  // namespace trivet::data

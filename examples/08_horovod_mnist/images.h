// Images of 28 x 28 bytes with labels 0 to 9: MNIST's files, or made-up ones.
#pragma once

#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/random.h"

constexpr int kSide = 28, kPixels = kSide * kSide, kClasses = 10;

struct Images {
  std::vector<uint8_t> pixels, labels;  // [count, kPixels], [count]
  int64_t count() const { return static_cast<int64_t>(labels.size()); }
};

// An IDX file: a magic number whose lowest byte is the number of dims, the dims as big-endian 32-bit numbers, then bytes.
inline std::vector<uint8_t> read_idx(const std::string& path, const std::vector<int64_t>& dims_after_first) {
  std::ifstream file(path, std::ios::binary);
  const auto number = [&] {
    uint8_t bytes[4] = {};
    file.read(reinterpret_cast<char*>(bytes), 4);
    return int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
  };
  const int64_t magic = number();
  int64_t bytes = number();
  bool good = file.good() && magic == static_cast<int64_t>(0x801 + dims_after_first.size()) && bytes > 0;
  for (int64_t dim : dims_after_first) {
    good = good && number() == dim;
    bytes *= dim;
  }
  const auto begin = file.tellg();
  file.seekg(0, std::ios::end);
  good = good && file.tellg() - begin == bytes;  // before memory is taken for what a broken header says
  file.seekg(begin);
  std::vector<uint8_t> data(good ? bytes : 0);
  file.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(data.size()));
  if (!good || !file)
    throw trivet::DataError(trivet::ExitCode::Usage,
                            path +
                                ": this is not an uncompressed IDX file of MNIST's shape; unpack it with gunzip, or name the "
                                "folder that has train-images-idx3-ubyte and the other three files");
  return data;
}

// `kind` is "train" or "t10k".
inline Images read_mnist(const std::string& folder, const std::string& kind) {
  Images images{.pixels = read_idx(folder + "/" + kind + "-images-idx3-ubyte", {kSide, kSide}),
                .labels = read_idx(folder + "/" + kind + "-labels-idx1-ubyte", {})};
  bool good = images.pixels.size() == images.labels.size() * kPixels;
  for (uint8_t label : images.labels) good = good && label < kClasses;
  if (!good)
    throw trivet::DataError(trivet::ExitCode::Usage, folder + ": the images and labels of " + kind + " do not fit together");
  return images;
}

// Each class is a bar in another direction, with noise: what a net learns in a few steps.
inline Images made_up_images(int64_t count, uint64_t seed) {
  Images images;
  for (int64_t i = 0; i < count; ++i) {
    const int label = static_cast<int>(trivet::philox(seed, i, kPixels)[0] % kClasses);
    const float angle = 3.14159265f * static_cast<float>(label) / kClasses;
    images.labels.push_back(static_cast<uint8_t>(label));
    for (int p = 0; p < kPixels; ++p) {
      const float x = static_cast<float>(p % kSide) - 13.5f, y = static_cast<float>(p / kSide) - 13.5f;
      const bool inside = std::abs(x * std::sin(angle) + y * std::cos(angle)) < 2.5f;
      const uint32_t noise = trivet::philox(seed, i, p)[0] % 96;
      images.pixels.push_back(static_cast<uint8_t>(noise + (inside ? 150 : 0)));
    }
  }
  return images;
}

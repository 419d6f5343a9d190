// Images as samples: input float32 [C, H, W], normalized, and the class as the only target, or the
// characters of a text.
//
// A training source can change what it gives in each epoch (augmentation). Its random choices are a function of the
// seed, the epoch and the sample, so that every layout, and a resumed run, sees the same images.
#pragma once

#include <memory>
#include <vector>

#include "data/images.h"
#include "data/picture.h"
#include "data/sample_source.h"

namespace trivet::data {

// A value v of a channel, from 0 to 255, becomes (v / 255 - mean) / deviation.
struct Normalization {
  std::vector<double> mean, deviation;  // for each channel, or one for all
};

struct Augmentation {
  uint64_t seed = 0;
  int64_t crop_padding = 0;  // black pixels around the image, from which a random part of the image's size is taken; 0: none
  bool flip = false;         // half of the images are mirrored horizontally
};

class ImageSource final : public SampleSource {
 public:
  // Sample i is image numbers[i] of the set. `places`: numbers of a target, of which the last ones may be unused (-1); at least
  // those of the images.
  ImageSource(std::shared_ptr<const Images> images, std::vector<int64_t> numbers, const Normalization& normalization,
              const Augmentation& augmentation = {}, int64_t places = 1);

  const SampleSpec& spec() const override { return spec_; }
  int64_t samples() const override { return static_cast<int64_t>(numbers_.size()); }
  void fill(int64_t sample, int64_t epoch, std::span<std::byte> input, std::span<int32_t> targets) const override;
  bool may_lack_targets() const override { return false; }  // a class, or a text, which may be empty
  std::string digest() const override;
  // A sample for people to look at: neither normalized nor augmented. For images that are neither gray nor RGB, the
  // first channel.
  Picture picture(int64_t sample) const;
  // Returns the name of a text or a class: "river", or the number of the class.
  std::string in_words(std::span<const int32_t> classes) const;

 private:
  std::shared_ptr<const Images> images_;
  std::vector<int64_t> numbers_;
  Augmentation augmentation_;
  SampleSpec spec_;
  std::vector<float> values_;  // [channel, byte]: the input of each byte
};

}  // namespace trivet::data

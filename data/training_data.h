// The data of a run, as the section "data" names it: text for models of text, images for models of images.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/picture.h"
#include "data/sample_source.h"

namespace trivet::data {

class GrowingData;

class TrainingData {
 public:
  virtual ~TrainingData() = default;
  // Both throw DataError if there is too little for one sample.
  virtual std::shared_ptr<const SampleSource> train() const = 0;
  virtual std::shared_ptr<const SampleSource> validation() const = 0;  // null if there is none
  virtual std::string train_digest() const = 0;
  virtual std::string validation_digest() const = 0;             // empty if there is none
  virtual std::string sizes() const = 0;                         // "60000 training images, 10000 test images"
  virtual std::vector<std::string> notes() const { return {}; }  // facts about the files for the user
  // For people who look at a run: what targets are called ("river", "7", or the text of tokens; negative targets are left out),
  // and the image of a validation sample, if it is one.
  virtual std::string in_words(std::span<const int32_t> targets) const = 0;
  virtual std::optional<Picture> validation_picture(int64_t) const { return {}; }
  // For text; null and 0 otherwise.
  virtual std::shared_ptr<Tokenizer> tokenizer() const { return nullptr; }
  virtual int64_t vocabulary_size() const { return 0; }
  virtual int64_t stream_tokens() const { return 0; }  // for training, if they are packed as a stream
  // Returns this object if it is data that grows; otherwise null.
  virtual GrowingData* growing() { return nullptr; }
};

std::unique_ptr<TrainingData> text_data(Dataset dataset, int64_t sequence_length, const DataConfig& data = {});

// A mixture of texts (mixture.h): `sources` as in the config, one for each of `parts`.
std::unique_ptr<TrainingData> mixed_data(std::vector<std::unique_ptr<TrainingData>> parts,
                                         const std::vector<DataSource>& sources);

}  // namespace trivet::data

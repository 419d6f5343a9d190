// The section "data" of a config, and which tokens texts become (model.vocabulary).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/enum_names.h"

namespace trivet {

enum class VocabularyKind { Bytes, Characters, Tokenizer, Size };

enum class SamplerKind { Trivet, PyTorch };
template <>
struct EnumNames<SamplerKind> {
  static constexpr std::array<std::pair<std::string_view, SamplerKind>, 2> table{
      {{"trivet", SamplerKind::Trivet}, {"pytorch", SamplerKind::PyTorch}}};
};

// The way in which the messages of a conversation become one text (data/chat_template.h).
enum class ChatTemplate { None, ChatMl, Llama2, Llama3 };
template <>
struct EnumNames<ChatTemplate> {
  static constexpr std::array<std::pair<std::string_view, ChatTemplate>, 4> table{{{"none", ChatTemplate::None},
                                                                                   {"chatml", ChatTemplate::ChatMl},
                                                                                   {"llama-2", ChatTemplate::Llama2},
                                                                                   {"llama-3", ChatTemplate::Llama3}}};
};

// The tokens that make a sample of text (data/document_source.h). Auto: Single for data that mark prompts, otherwise
// Stream (data/dataset.h).
enum class Packing { Auto, Stream, Whole, Single, Isolated };
template <>
struct EnumNames<Packing> {
  static constexpr std::array<std::pair<std::string_view, Packing>, 5> table{{{"auto", Packing::Auto},
                                                                              {"stream", Packing::Stream},
                                                                              {"whole", Packing::Whole},
                                                                              {"single", Packing::Single},
                                                                              {"isolated", Packing::Isolated}}};
};

// The tokens that the loss expects from the model, if the data says which are completions.
enum class LossOn { Completions, All };
template <>
struct EnumNames<LossOn> {
  static constexpr std::array<std::pair<std::string_view, LossOn>, 2> table{
      {{"completions", LossOn::Completions}, {"all", LossOn::All}}};
};

enum class ImageFormat { Auto, Idx, Cifar10, Cifar100, Png, Words };  // data/images.h
template <>
struct EnumNames<ImageFormat> {
  static constexpr std::array<std::pair<std::string_view, ImageFormat>, 6> table{{{"auto", ImageFormat::Auto},
                                                                                  {"idx", ImageFormat::Idx},
                                                                                  {"cifar10", ImageFormat::Cifar10},
                                                                                  {"cifar100", ImageFormat::Cifar100},
                                                                                  {"png", ImageFormat::Png},
                                                                                  {"words", ImageFormat::Words}}};
};

// The kind of the data's tokens. Its key is model.vocabulary.
struct VocabularyConfig {
  VocabularyKind kind = VocabularyKind::Bytes;  // Size: model.vocabulary_size says it
  // For VocabularyKind::Tokenizer. For Size: that of the weights that a run begins with; empty: they have none.
  std::string tokenizer_file;
};

// One of the sources of a mixture (data/mixture.h).
struct DataSource {
  std::string path;
  double weight = 1;  // its share of the samples of a run is this part of the sum of all weights
};

// The format that files of text and of tokens are read in.
enum class ReadAs { Auto, Text, Bytes, UInt16, UInt32 };
template <>
struct EnumNames<ReadAs> {
  static constexpr std::array<std::pair<std::string_view, ReadAs>, 5> table{{{"auto", ReadAs::Auto},
                                                                             {"text", ReadAs::Text},
                                                                             {"bytes", ReadAs::Bytes},
                                                                             {"uint16", ReadAs::UInt16},
                                                                             {"uint32", ReadAs::UInt32}}};
};

struct DataConfig {
  std::string train;                 // texts, files of tokens, or images (docs/data.md)
  std::vector<DataSource> sources;   // instead of train
  ReadAs read_as = ReadAs::Auto;     // format of the files; Auto: their content decides (data/file_kind.h)
  bool grows = false;                // files that appear in train during the run are taken up (data/growing_data.h)
  std::string validation;            // optional separate file; otherwise a fraction of train is held out
  double validation_fraction = 0.1;  // with `grows`: 0
  ChatTemplate chat_template = ChatTemplate::None;
  bool special_tokens = false;  // recognized in texts (data/document_encoder.h)
  Packing packing = Packing::Auto;
  LossOn loss_on = LossOn::Completions;
  bool shuffle = true;
  SamplerKind sampler = SamplerKind::Trivet;  // data/sampler.h
  bool only_evaluated = false;                // no key: set by who trains on nothing
  // With the sampler PyTorch: leave out samples that cannot be divided evenly among the ranks, and the last, shorter batch.
  bool drop_last = false, drop_last_batch = false;
  // For images (data/image_source.h):
  ImageFormat format = ImageFormat::Auto;
  std::vector<double> mean{0}, deviation{1};  // for each channel, or one for all
  int64_t crop_padding = 0;
  bool flip = false;

  bool is_given() const { return !train.empty() || !sources.empty(); }
  std::string train_name() const {  // for messages: `train`, or the paths of all sources
    std::string names = train;
    for (const DataSource& source : sources) names += (names.empty() ? "" : ", ") + source.path;
    return names;
  }
};

}  // namespace trivet

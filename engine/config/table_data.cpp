// data.*
#include <cmath>

#include "engine/config/data_sources.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"
#include "model/family.h"

namespace trivet::config {
namespace {

void for_images(KeyRefiner key) {
  key.active_when("the model reads images", [](const Config& c) { return model::family_of(c.model.type).reads_images; });
}

void for_text(KeyRefiner key) {
  key.active_when("the model reads text", [](const Config& c) { return !model::family_of(c.model.type).reads_images; });
}

std::vector<double> read_numbers(const JsonNode& node, bool positive) {
  std::vector<double> numbers;
  if (node.items.empty()) throw std::invalid_argument("use at least one number");
  for (const JsonNode& item : node.items) {
    if (item.kind != JsonKind::Number || !std::isfinite(item.number) || (positive && item.number <= 0))
      throw std::invalid_argument(positive ? "use a list of numbers above 0" : "use a list of numbers");
    numbers.push_back(item.number);
  }
  return numbers;
}

}  // namespace

void add_data_keys(KeyTable& table) {
  Section<DataConfig> data(table, "data", [](Config& c) -> DataConfig& { return c.data; });
  data.own();
  data.key(
      "train", &DataConfig::train,
      "training data: texts or objects of JSON (plain, gzip or zstd, or a folder of them), files of tokens (.tokens, Megatron "
      ".bin "
      "and .idx, llm.c .bin, NumPy .npy), or images (a folder or file of IDX or CIFAR, or a folder of PNG files); a * in the "
      "name of a text or a file of tokens stands for any characters");
  for_text(data.custom(
      "sources", KeyType::List,
      R"(several training data instead of `train`, such as [{"path": "books.tokens", "weight": 0.7}, {"path": "web.tokens"}]; )"
      "the weight (1 if it is not given) divided by the sum of all is a source's share of the samples (docs/data.md)",
      [](Config& c, const JsonNode& node) { c.data.sources = sources_from(node); },
      [](const Config& c) { return to_json(c.data.sources); }));
  for_text(data.key(
      "read_as", &DataConfig::read_as,
      "what files of text and of tokens are taken for; \"auto\": what their content says, whatever their names; \"text\": text "
      "in "
      "UTF-8, also if it looks like JSON; \"bytes\": text in any bytes, also NUL and those that are not UTF-8; \"uint16\", "
      "\"uint32\": ids of tokens without a header, such as nanoGPT's train.bin (docs/data.md)"));
  data.key("grows", &DataConfig::grows,
           "`train` is a folder, or a name with a *, of .tokens files to which another program may add files while the run "
           "trains; each epoch has the files that were complete when it began (docs/data.md)")
      .selects();
  data.key("validation", &DataConfig::validation,
           "validation data; empty: the test images in the folder `train`, or a fraction of `train`, or of each of the "
           "`sources`, that is held out");
  data.key("validation_fraction", &DataConfig::validation_fraction,
           "share of `train`, or of each of the `sources`, held out for validation")
      .between(0, 1)
      .below(1)
      .default_note("with data.grows: 0")
      .active_when("data.validation is empty", [](const Config& c) { return c.data.validation.empty(); });
  for_text(data.key("chat_template", &DataConfig::chat_template,
                    "how the messages of conversations in lines of JSON become text (docs/data.md)")
               .default_note("with model.from: that of the folder, if it is one of these"));
  for_text(
      data.key("special_tokens", &DataConfig::special_tokens,
               "names of special tokens in texts are read as those tokens, not as letters; the one that ends a text ends a "
               "document there, and what the tokenizer puts around a text is put around each (docs/tokenizers.md)"));
  data.custom(
          "packing", KeyType::Enum,
          "what a sample is; \"auto\": \"single\" for data that mark prompts (conversations, prompts with completions), "
          "otherwise \"stream\"; \"stream\": the next tokens, wherever documents end; \"whole\": as many whole documents "
          "as fit, then padding; \"single\": one document, then padding, so that documents never attend to each other; "
          "\"isolated\": as many documents as fit, which do not attend to each other either, or as many pairs of answers "
          "(docs/data.md)",
          [](Config& c, const JsonNode& node) {
            from_json(c.data.packing, node);
            c.model.isolated_documents = c.data.packing == Packing::Isolated;
          },
          [](const Config& c) { return as_json(c.data.packing); })
      .names(names_of<Packing>())
      .active_when("the model reads text; with training.objective \"dpo\", only when it is \"isolated\"", [](const Config& c) {
        const bool packs = c.data.packing == Packing::Isolated || c.model.objective != model::Objective::Dpo;
        return !model::family_of(c.model.type).reads_images && packs;
      });
  for_text(
      data.key("loss_on", &DataConfig::loss_on,
               "which tokens the loss counts; \"completions\": those that the data does not mark as prompts, which is all of "
               "them in plain texts; \"all\": all of them"));
  data.key("shuffle", &DataConfig::shuffle, "visit the samples in an order computed from the seed");
  data.key(
      "sampler", &DataConfig::sampler,
      "which rank trains on which sample when; \"trivet\": an order that does not depend on the number of ranks, in which "
      "a step may span two epochs; \"pytorch\": the order of PyTorch's DistributedSampler with set_epoch, to the last bit, "
      "in which each epoch is whole steps (docs/ddp.md)");
  const auto is_pytorch = [](const Config& c) { return c.data.sampler == SamplerKind::PyTorch; };
  const std::string when = "data.sampler is \"pytorch\"";
  data.key("drop_last", &DataConfig::drop_last,
           "DistributedSampler's drop_last: leave out the last samples if they cannot be divided evenly among the ranks, "
           "instead "
           "of repeating the first ones")
      .active_when(when, is_pytorch);
  Section<DataConfig> loader(table, "", [](Config& c) -> DataConfig& { return c.data; });
  loader
      .key("dataloader_drop_last", &DataConfig::drop_last_batch,
           "leave out the last, shorter batch of an epoch; with data.sampler \"trivet\" there is none, because a step may span "
           "two epochs")
      .active_when(when, is_pytorch);
  for_images(data.key("format", &DataConfig::format, "how images are stored; \"auto\": recognized by the names of files"));
  const auto numbers = [&](const char* name, const char* meaning, std::vector<double> DataConfig::*member, bool positive) {
    for_images(data.custom(
        name, KeyType::List, meaning, [=](Config& c, const JsonNode& node) { c.data.*member = read_numbers(node, positive); },
        [=](const Config& c) { return numbers_json(c.data.*member); }));
  };
  numbers("mean", "subtracted from pixels, which are from 0 to 1: one number for all channels, or one for each",
          &DataConfig::mean, false);
  numbers("std", "what pixels are then divided by", &DataConfig::deviation, true);
  for_images(data.key("crop_padding", &DataConfig::crop_padding,
                      "black pixels around training images, of which a random part of the image's size is taken; 0: none")
                 .between(0, 1024));
  for_images(data.key("flip", &DataConfig::flip, "mirror half of the training images horizontally"));
}

}  // namespace trivet::config

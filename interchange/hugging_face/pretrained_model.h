// A model that another program saved (model_format.h), as ours: the section "model" of a config, and a source of weights under
// our names.
//
// Opening reads config.json and the headers of the files, and checks that they hold exactly the tensors of the model; weights
// are read when somebody asks for them. Throws ConfigError naming the key of config.json, and CheckpointError naming the file.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/checkpoint/tensor_source.h"
#include "engine/config/config.h"
#include "interchange/hugging_face/architecture.h"
#include "interchange/hugging_face/model_format.h"

namespace trivet::hugging_face {

// The section "model" that a config.json describes.
struct DescribedModel {
  const Architecture* architecture = nullptr;
  Config config;                   // nothing but that section is given
  bool mxfp4 = false;              // weights of experts are in MXFP4
  std::vector<std::string> notes;  // keys that were ignored
};
DescribedModel describe_model(std::string_view config_json, const std::string& path);

class PretrainedModel {
 public:
  PretrainedModel(FileSystem& files, const std::string& path) : PretrainedModel(open_model(files, path)) {}
  explicit PretrainedModel(foreign::ModelSource source);
  // What a config.json alone describes, for plans: it has no weights().
  static PretrainedModel described_alone(FileSystem& files, const std::string& config_path);

  const Architecture& architecture() const { return *described_.architecture; }
  const Config& config() const { return described_.config; }
  const model::Description& description() const { return described_.config.model; }
  const checkpoint::TensorSource& weights() const { return *weights_; }
  std::string digest() const { return source_.digest(); }
  std::string kind() const;         // "llama", "llama, llama2.c, version 1"
  std::string folder() const;       // where its tokenizer may be
  std::string stated_type() const;  // "bfloat16", as dtype or torch_dtype of config.json names it; "" if it does not
  // Lists what was ignored, one sentence each.
  const std::vector<std::string>& notes() const { return described_.notes; }

 private:
  PretrainedModel() = default;
  // Returns the tensors that were in MXFP4.
  std::set<std::string> settle_mxfp4();
  void check_enough_tensors(bool fused) const;
  void check_all_used(const checkpoint::MappedSource::Table& table);
  void settle_tied_head(checkpoint::MappedSource::Table& table);
  bool are_equal(const std::string& one, const std::string& other) const;

  foreign::ModelSource source_;
  DescribedModel described_;
  std::unique_ptr<checkpoint::TensorSource> experts_;  // the files, with experts in our order; null: they are so
  std::unique_ptr<checkpoint::MappedSource> weights_;
};

}  // namespace trivet::hugging_face

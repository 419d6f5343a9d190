// Fuzz targets for models in Hugging Face's format: the index of shards, a model of one file, and files of torch.save.
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "engine/foreign/pickle.h"
#include "engine/foreign/pt_file.h"
#include "engine/hugging_face/model_files.h"
#include "engine/hugging_face/pretrained_model.h"
#include "model/model.h"
#include "tests/fuzz/targets.h"
#include "tests/support/memory_file_system.h"

namespace trivet::fuzz {
namespace {

constexpr std::initializer_list<ExitCode> kModelRefused{ExitCode::CheckpointCorrupt, ExitCode::Usage};

void read_small_tensors(const hugging_face::PretrainedModel& pretrained) {
  const model::Model model = model::build(pretrained.description());
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model.layers[layer]->parameters()[i];
      if (!spec.tied_to.empty()) continue;
      const int64_t first = spec.shape.elements() / 3, count = spec.shape.elements() - first;
      std::vector<float> data(count);
      const checkpoint::Piece piece = checkpoint::whole_box_piece(model::parameter_name(model, layer, i), spec.shape, first,
                                                                  {data.data(), DType::Float32, {count}});
      pretrained.weights().read({&piece, 1});
    }
}

}  // namespace

void model_index(std::string_view input) {
  std::map<std::string, std::string> index;
  if (!accepts(kModelRefused, [&] { index = hugging_face::parse_index(input, "index"); })) return;
  for (const auto& [tensor, file] : index)
    require(file.find('/') == std::string::npos && file != "." && file != "..", "a file of an index is in its folder");
}

// The input is the length of config.json, as 2 bytes, config.json, and the file of the weights, without the 8 bytes that say
// how long its header is: they are the length up to the first line break. Every file is in memory, so nothing else can be read.
void pretrained_model(std::string_view input) {
  if (input.size() < 2) return;
  uint16_t length = 0;
  std::memcpy(&length, input.data(), 2);
  const std::string_view config = input.substr(2, length), rest = input.substr(std::min(input.size(), size_t{2} + length));
  const size_t line = std::min(rest.find('\n'), rest.size());
  const uint64_t header = line;
  std::string weights(reinterpret_cast<const char*>(&header), 8);
  weights += rest.substr(0, line);
  weights += rest.substr(std::min(line + 1, rest.size()));
  support::MemoryFileSystem files;
  files.create_directory("/model");
  write_text(files, "/model/config.json", config);
  write_text(files, "/model/model.safetensors", weights);
  accepts(kModelRefused, [&] { read_small_tensors(hugging_face::PretrainedModel(files, "/model")); });
}

void pickle(std::string_view input) {
  accepts(kModelRefused, [&] { foreign::find_member(foreign::Pickle(input, "file").root(), "state_dict"); });
}

// What was accepted can be read: every tensor lies in the file.
void torch_file(std::string_view input) {
  support::MemoryFileSystem files;
  files.create_directory("/model");
  write_text(files, "/model/weights.bin", input);
  const auto file = files.open("/model/weights.bin");
  foreign::TensorFiles tensors("/model");
  if (!accepts(kModelRefused, [&] { foreign::add_state_dict(foreign::PtFile(*file), tensors); })) return;
  for (const std::string& name : tensors.names()) {
    const checkpoint::TensorInfo& info = *tensors.find(name);
    std::vector<std::byte> data(static_cast<size_t>(info.shape.elements() * size_of(info.dtype)));
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece(name, info.shape, 0, {data.data(), info.dtype, {info.shape.elements()}});
    tensors.read({&piece, 1});
  }
}

}  // namespace trivet::fuzz

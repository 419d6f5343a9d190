// Fuzz targets for models of other programs: the index of shards and a model of one file in Hugging Face's format, files of
// torch.save, llama2.c and llm.c, Meta's Llama, and checkpoints of DeepSpeed.
#include <zlib.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <vector>

#include "interchange/foreign/pickle.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/foreign/zero_checkpoint.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/pretrained_model.h"
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

void read_all(const foreign::TensorFiles& tensors) {
  for (const std::string& name : tensors.names()) {
    const checkpoint::TensorInfo& info = *tensors.find(name);
    std::vector<std::byte> data(static_cast<size_t>(info.shape.elements() * size_of(info.dtype)));
    const checkpoint::Piece piece =
        checkpoint::whole_box_piece(name, info.shape, 0, {data.data(), info.dtype, {info.shape.elements()}});
    tensors.read({&piece, 1});
  }
}

// A model of one file.
void read_file_of(std::string_view format, std::string_view input) {
  support::MemoryFileSystem files;
  files.create_directory("/model");
  write_text(files, "/model/model.bin", input);
  accepts(kModelRefused, [&] {
    read_small_tensors(hugging_face::PretrainedModel(hugging_face::open_model(files, "/model/model.bin", format)));
  });
}

// Takes bytes from the beginning of the input; fewer if it ends.
std::string_view take(std::string_view& input, size_t bytes) {
  const std::string_view taken = input.substr(0, bytes);
  input.remove_prefix(taken.size());
  return taken;
}
size_t take_number(std::string_view& input, size_t bytes) {
  size_t number = 0;
  const std::string_view taken = take(input, bytes);
  std::memcpy(&number, taken.data(), taken.size());
  return number;
}

// A file of torch.save, whose checksums are right: its pickle, and storages of zeros, of which the input has only the sizes.
class Archive {
 public:
  // Takes 2 bytes: the length of the pickle; the pickle; a byte: how many storages there are; 2 bytes for the size of each.
  static std::string take_from(std::string_view& input) {
    Archive archive;
    archive.add("x/data.pkl", std::string(take(input, take_number(input, 2))));
    const size_t storages = take_number(input, 1);
    for (size_t i = 0; i < storages; ++i) archive.add("x/data/" + std::to_string(i), std::string(take_number(input, 2), '\0'));
    return archive.finish();
  }

 private:
  static std::string bytes_of(std::initializer_list<std::pair<uint32_t, size_t>> numbers) {
    std::string text;
    for (const auto& [number, bytes] : numbers) text.append(reinterpret_cast<const char*>(&number), bytes);
    return text;
  }
  void add(const std::string& name, const std::string& content) {
    const auto size = static_cast<uint32_t>(content.size()), name_size = static_cast<uint32_t>(name.size());
    const auto crc = static_cast<uint32_t>(::crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()));
    const auto offset = static_cast<uint32_t>(file_.size());
    // From the version to the length of the extra fields, in both headers: flags, method, time, sizes.
    const std::string common =
        bytes_of({{0, 2}, {0, 2}, {0, 2}, {0, 4}, {crc, 4}, {size, 4}, {size, 4}, {name_size, 2}, {0, 2}});
    file_ += bytes_of({{0x04034b50, 4}}) + common + name + content;
    directory_ += bytes_of({{0x02014b50, 4}, {0, 2}}) + common + bytes_of({{0, 2}, {0, 4}, {0, 4}, {offset, 4}}) + name;
    ++entries_;
  }
  std::string finish() const {
    const auto size = static_cast<uint32_t>(directory_.size()), offset = static_cast<uint32_t>(file_.size());
    return file_ + directory_ +
           bytes_of({{0x06054b50, 4}, {0, 4}, {entries_, 2}, {entries_, 2}, {size, 4}, {offset, 4}, {0, 2}});
  }

  std::string file_, directory_;
  uint32_t entries_ = 0;
};

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
  read_all(tensors);
}

void llama2_c(std::string_view input) { read_file_of("llama2.c", input); }
void llm_c(std::string_view input) { read_file_of("llm.c", input); }

// The input is the length of params.json, as 2 bytes, params.json, and the Archive of one file of weights.
void meta_llama(std::string_view input) {
  support::MemoryFileSystem files;
  files.create_directory("/model");
  write_text(files, "/model/params.json", take(input, take_number(input, 2)));
  write_text(files, "/model/consolidated.00.pth", Archive::take_from(input));
  accepts(kModelRefused,
          [&] { read_small_tensors(hugging_face::PretrainedModel(hugging_face::open_model(files, "/model", "meta"))); });
}

// The input is a byte, which chooses the name of a file, and the Archive of that file, again and again.
void zero_checkpoint(std::string_view input) {
  constexpr std::array<const char*, 8> kNames{"mp_rank_00_model_states.pt",
                                              "zero_pp_rank_0_mp_rank_00_model_states.pt",
                                              "zero_pp_rank_1_mp_rank_00_model_states.pt",
                                              "zero_pp_rank_2_mp_rank_00_model_states.pt",
                                              "zero_pp_rank_0_mp_rank_00_optim_states.pt",
                                              "zero_pp_rank_1_mp_rank_00_optim_states.pt",
                                              "zero_pp_rank_2_mp_rank_00_optim_states.pt",
                                              "zero/x/fp32.pt"};
  support::MemoryFileSystem files;
  files.create_directory("/ds");
  write_text(files, "/ds/config.json", "{}");
  while (!input.empty()) {
    const std::string name = std::string("/ds/") + kNames[take_number(input, 1) % kNames.size()];
    create_directories(files, name.substr(0, name.rfind('/')));
    write_text(files, name, Archive::take_from(input));
  }
  accepts(kModelRefused, [&] { read_all(*foreign::open_zero_checkpoint(files, "/ds", "").tensors); });
}

}  // namespace trivet::fuzz

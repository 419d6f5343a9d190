#include "trainer/generation.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/converted_source.h"
#include "engine/host_pieces.h"
#include "kernels/kernels.h"
#include "model/gives_logits.h"

namespace trivet {
namespace {

std::vector<ParameterSpec> without_training(std::span<const ParameterSpec> specs) {
  std::vector<ParameterSpec> frozen(specs.begin(), specs.end());
  for (ParameterSpec& spec : frozen) spec.trainable = false, spec.update = {};
  return frozen;
}

}  // namespace

std::shared_ptr<data::Tokenizer> tokenizer_of(const checkpoint::LoadedStep& step) {
  const std::string& text = step.run_state().tokenizer;
  if (text.empty()) return nullptr;
  try {
    return data::tokenizer_from_text(text, step.directory() + "/manifest.json: state: tokenizer");
  } catch (const DataError& error) {
    throw CheckpointError(ExitCode::CheckpointCorrupt, error.what());
  }
}

Generator::Generator(model::Model model, const checkpoint::TensorSource& weights, Device device, int threads, int64_t room)
    : model_(std::move(model)),
      room_(room == 0 ? model_.sample.input[0] : std::min(room, model_.sample.input[0])),
      group_(comm::make_single_group("generate")),
      stream_(make_inline_stream()) {
  if (!dynamic_cast<const model::GivesLogits*>(model_.layers.back().get()))
    throw ConfigError("generate: the model's last layer gives no logits (model/gives_logits.h)");
  for (const auto& layer : model_.layers) frozen_.push_back(without_training(layer->parameters()));
  std::vector<zero::NamedParameters> named;
  for (size_t i = 0; i < frozen_.size(); ++i) named.push_back({model_.names[i], frozen_[i], model_.layers[i]->role()});
  layout_ = zero::make_shard_layout(named, {});

  const Shape window{1, room_}, vocabulary{1, model_.sample.classes};
  // A rehearsal on meta kernels determines the sizes of the arena and the workspace.
  Arena planned("generate");
  const auto meta = kernels::make_meta_kernels();
  MemoryMeter unused;
  forward(*meta, *make_parameters(*meta, meta_allocator(), unused), planned, {nullptr, DType::Int32, window},
          {nullptr, DType::Float32, vocabulary});
  backend_ = make_backend(
      device, {.world = *group_, .meter = meter_, .threads = threads, .workspace_bytes = meta->counters().workspace_bytes});
  Allocator& allocator = backend_->allocator();
  parameters_ = make_parameters(backend_->kernels(), allocator, meter_);
  load(weights);
  activations_ = std::make_unique<Arena>("generate", allocator, meter_, MemoryCategory::Activations, planned.peak_bytes());
  tokens_ = Buffer(allocator, meter_, MemoryCategory::Buffers, DType::Int32, window);
  logits_ = Buffer(allocator, meter_, MemoryCategory::Buffers, DType::Float32, vocabulary);
}

std::unique_ptr<zero::Parameters> Generator::make_parameters(kernels::Kernels& kernels, Allocator& allocator,
                                                             MemoryMeter& meter) {
  return std::make_unique<zero::Parameters>(layout_, zero::ParameterOptions{},
                                            zero::Resources{.kernels = kernels,
                                                            .allocator = allocator,
                                                            .meter = meter,
                                                            .buffers = buffers_,
                                                            .axes = {{*group_, *stream_, *group_, *stream_}},
                                                            .collectives = {}});
}

void Generator::load(const checkpoint::TensorSource& weights) {
  std::vector<checkpoint::Piece> wanted;
  parameters_->for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::OwnedRange range = group.owned();
    for (const zero::FlatParameter& parameter : group.layout().parameters)
      wanted.push_back(checkpoint::whole_box_piece(parameter.name, parameter.spec.shape, 0,
                                                   range.master.slice(parameter.offset, parameter.elements())));
  });
  HostPieces on_host(*backend_, wanted, HostPieces::Contents::None);
  checkpoint::ConvertedSource(weights).read(on_host.pieces());
  on_host.write_back(wanted);
}

std::vector<float> Generator::next_logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw std::logic_error("generate: at least one token is needed");
  for (const int32_t token : tokens)  // kernels on a device cannot report it
    if (token < 0 || token >= model_.sample.classes)
      throw DataError(ExitCode::Usage,
                      fmt::format("generate: token {} is not in the vocabulary of {}", token, model_.sample.classes));
  std::vector<int32_t> window(tokens.end() - std::min<int64_t>(room_, static_cast<int64_t>(tokens.size())), tokens.end());
  const TensorView on_device{tokens_.view().data, DType::Int32, {1, static_cast<int64_t>(window.size())}};
  kernels::Kernels& kernels = backend_->kernels();
  kernels.from_host({window.data(), DType::Int32, on_device.shape}, on_device);
  forward(kernels, *parameters_, *activations_, on_device, logits_.view());
  std::vector<float> logits(static_cast<size_t>(model_.sample.classes));
  kernels.to_host(logits_.view(), {logits.data(), DType::Float32, logits_.view().shape});
  return logits;
}

void Generator::forward(kernels::Kernels& kernels, zero::Parameters& parameters, Arena& arena, ConstTensorView tokens,
                        TensorView logits) {
  const Microbatch microbatch{tokens, {}, 0};
  Context context{.kernels = kernels, .arena = arena, .microbatch = &microbatch};
  context.training = false;
  const int64_t length = tokens.shape[1];
  context.present_tokens = length;
  ScopedTensor hidden;
  for (size_t block = 0; block + 1 < model_.layers.size(); ++block) {
    const ConstTensorView x = block == 0 ? tokens : ConstTensorView(hidden);
    ScopedTensor y(arena, DType::Float32, model_.layers[block]->output_shape(x.shape));
    Saved saved;
    model_.layers[block]->forward(context, parameters.weights(static_cast<int>(block)), x, y, saved);
    hidden = std::move(y);
  }
  const auto& head = dynamic_cast<const model::GivesLogits&>(*model_.layers.back());
  const int64_t width = hidden.view().shape.cols();
  const ConstTensorView row = ConstTensorView(hidden).reshaped({length, width}).row_range(length - 1, 1);
  head.logits(context, parameters.weights(static_cast<int>(model_.layers.size()) - 1), row, logits);
}

}  // namespace trivet

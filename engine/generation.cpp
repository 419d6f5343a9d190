#include "engine/generation.h"

#include <algorithm>

#include "core/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "model/lm_head.h"

namespace trivet {
namespace {

std::vector<ParameterSpec> without_training(std::span<const ParameterSpec> specs) {
  std::vector<ParameterSpec> frozen(specs.begin(), specs.end());
  for (ParameterSpec& spec : frozen) spec.trainable = false;
  return frozen;
}

}  // namespace

Generator::Generator(model::Model model, const checkpoint::LoadedStep& step, int threads)
    : model_(std::move(model)),
      kernels_(kernels::make_cpu_kernels(threads)),
      stream_(make_inline_stream()),
      group_(comm::make_single_group("generate")) {
  if (!dynamic_cast<const model::LmHead*>(model_.layers.back().get()))
    throw ConfigError("generate: the model's last layer is not a language-model head");
  for (const auto& layer : model_.layers) frozen_.push_back(without_training(layer->parameters()));
  std::vector<zero::NamedParameters> named;
  for (size_t i = 0; i < frozen_.size(); ++i) named.push_back({model_.names[i], frozen_[i]});
  layout_ = zero::make_shard_layout(named, {});
  parameters_ = std::make_unique<Parameters>(layout_, ParameterOptions{},
                                             zero::Resources{.kernels = *kernels_,
                                                             .allocator = host_allocator(),
                                                             .meter = meter_,
                                                             .buffers = buffers_,
                                                             .gather_group = *group_,
                                                             .gather_stream = *stream_,
                                                             .reduce_group = *group_,
                                                             .reduce_stream = *stream_,
                                                             .collectives = {}});
  load(step);
  // The arena is as large as a rehearsal on meta kernels says.
  Arena planned("generate");
  const auto meta = kernels::make_meta_kernels();
  forward(*meta, planned, {nullptr, DType::Int32, {1, model_.sequence_length}}, 0,
          {nullptr, DType::Float32, {1, model_.vocabulary_size}});
  activations_ =
      std::make_unique<Arena>("generate", host_allocator(), meter_, MemoryCategory::Activations, planned.peak_bytes());
}

void Generator::load(const checkpoint::LoadedStep& step) {
  std::vector<checkpoint::Piece> wanted;
  parameters_->for_each_group([&](int, zero::ParameterGroup& group) {
    const zero::OwnedRange range = group.owned();
    for (const zero::FlatParameter& parameter : group.layout().parameters)
      wanted.push_back(checkpoint::whole_box_piece(parameter.name, parameter.spec.shape, 0,
                                                   range.master.slice(parameter.offset, parameter.elements())));
  });
  step.read(wanted);
}

// Positions after the last token are padding: attention is causal, so they change nothing before them.
std::vector<float> Generator::next_logits(std::span<const int32_t> tokens) {
  if (tokens.empty()) throw std::logic_error("generate: at least one token is needed");
  const int64_t length = std::min<int64_t>(model_.sequence_length, static_cast<int64_t>(tokens.size()));
  std::vector<int32_t> window(static_cast<size_t>(model_.sequence_length), 0);
  std::copy(tokens.end() - length, tokens.end(), window.begin());
  std::vector<float> logits(static_cast<size_t>(model_.vocabulary_size));
  forward(*kernels_, *activations_, {window.data(), DType::Int32, {1, model_.sequence_length}}, length - 1,
          {logits.data(), DType::Float32, {1, model_.vocabulary_size}});
  return logits;
}

void Generator::forward(kernels::Kernels& kernels, Arena& arena, ConstTensorView tokens, int64_t position, TensorView logits) {
  const Microbatch microbatch{tokens, {}, 0};
  Context context{.kernels = kernels, .arena = arena, .microbatch = &microbatch};
  context.training = false;
  ScopedTensor hidden;
  for (size_t block = 0; block + 1 < model_.layers.size(); ++block) {
    const ConstTensorView x = block == 0 ? tokens : ConstTensorView(hidden);
    ScopedTensor y(arena, DType::Float32, model_.layers[block]->output_shape(x.shape));
    Saved saved;
    model_.layers[block]->forward(context, parameters_->weights(static_cast<int>(block)), x, y, saved);
    hidden = std::move(y);
  }
  const auto& head = dynamic_cast<const model::LmHead&>(*model_.layers.back());
  const int64_t width = hidden.view().shape.cols();
  const ConstTensorView row = ConstTensorView(hidden).reshaped({model_.sequence_length, width}).row_range(position, 1);
  head.logits(context, parameters_->weights(static_cast<int>(model_.layers.size()) - 1), row, logits);
}

}  // namespace trivet

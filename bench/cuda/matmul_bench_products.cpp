#include "bench/cuda/matmul_bench_products.h"

#include <algorithm>

#include "comm/process_group.h"
#include "comm/rank_axis.h"
#include "core/layer.h"
#include "engine/config/refuse.h"
#include "kernels/observed_kernels.h"
#include "tensor_parallel/split.h"

namespace trivet {
namespace {

bool is_same(const kernels::Matmul& x, const kernels::Matmul& y) {
  const auto alike = [](ConstTensorView a, ConstTensorView b) { return a.dtype == b.dtype && a.shape == b.shape; };
  return alike(x.a, y.a) && alike(x.b, y.b) && alike(x.out, y.out) && alike(x.bias, y.bias) &&
         alike(x.activated, y.activated) && alike(x.before_gelu, y.before_gelu) && x.transpose_a == y.transpose_a &&
         x.transpose_b == y.transpose_b;
}

class ProductLog final : public kernels::KernelObserver {
 public:
  void asked(const kernels::Matmul& product) override {
    const auto known = [&](const AskedProduct& other) { return is_same(product, other.product); };
    if (std::ranges::none_of(products, known)) products.push_back({layer, product});
  }
  void ended(const kernels::KernelCall&) override {}

  std::string layer;
  std::vector<AskedProduct> products;
};

// The layers of one rank of the tensor axis. Ranks may have parts of different size of a vocabulary.
class RankOfLayers {
 public:
  RankOfLayers(const Config& config, const model::Model& model, int rank, ProductLog& log)
      : config_(config),
        model_(model),
        log_(log),
        meta_(kernels::make_meta_kernels()),
        kernels_(kernels::make_observed_kernels(*meta_, log)),
        stream_(make_inline_stream()),
        group_(comm::make_meta_group(rank, static_cast<int>(config.parallel.tensor), "tensor")),
        axis_{*group_, *stream_, config.parallel.sequence_parallel, false} {}

  void run() {
    const Shape tokens{config_.batch.micro_batch_size, model_.sample.input[0]};
    const ConstTensorView ids{nullptr, DType::Int32, tokens};
    const Microbatch microbatch{ids, ids, 0};
    ConstTensorView x = ids;
    for (size_t layer = 0; layer < model_.layers.size(); ++layer) {
      log_.layer = model_.names[layer];
      x = run(*model_.layers[layer], microbatch, x, layer == 0);
    }
  }

 private:
  // Runs forward and backward of a layer; returns its output.
  ConstTensorView run(const Layer& layer, const Microbatch& microbatch, ConstTensorView x, bool first) {
    std::vector<ConstTensorView> weights;
    std::vector<Gradient> gradients;
    for (const ParameterSpec& spec : layer.parameters()) {
      const Shape shape = tensor_parallel::local_part(spec, axis_.rank(), axis_.size()).shape;
      const DType gradient = config_.gradient_dtype();
      weights.push_back({nullptr, dtype_in(spec, config_.model_dtype()), shape});
      gradients.push_back(spec.trainable ? Gradient{{nullptr, gradient, shape}, true} : Gradient{});
    }
    Arena arena("layer");
    Context context{.kernels = *kernels_, .arena = arena, .microbatch = &microbatch};
    context.recompute_attention = config_.recompute == Recompute::Selective;
    context.axes[Axis::Tensor] = &axis_;
    const TensorView dx = first ? TensorView{} : TensorView{nullptr, x.dtype, x.shape};
    Saved saved;
    Shape shape = layer.output_shape(x.shape);
    if (shape.elements() == 0) {
      layer.forward_backward(context, weights, gradients, x, dx, saved);
      return {};
    }
    if (first && axis_.splits_tokens) shape[1] /= axis_.size();
    const TensorView y{nullptr, config_.model_dtype(), shape};
    layer.forward(context, weights, x, y, saved);
    layer.backward(context, weights, gradients, y, dx, saved);
    return y;
  }

  const Config& config_;
  const model::Model& model_;
  ProductLog& log_;
  std::unique_ptr<kernels::Kernels> meta_, kernels_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<comm::ProcessGroup> group_;
  comm::RankAxis axis_;
};

}  // namespace

std::vector<AskedProduct> products_of(const Config& config, const model::Model& model) {
  if (config.batch.micro_batch_size == 0)
    config::refuse(config, "train_micro_batch_size_per_gpu", "is missing; set it, because the sizes of products depend on it");
  if (config.reproducible == Reproducible::Layout)
    config::refuse(config, "reproducible", "\"layout\" computes products in pieces, which are not tuned; use \"run\"");
  ProductLog log;
  for (int rank = 0; rank < static_cast<int>(config.parallel.tensor); ++rank) RankOfLayers(config, model, rank, log).run();
  return log.products;
}

}  // namespace trivet

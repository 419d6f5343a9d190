// Argument checks of the kernels that models use.
#include "kernels/check.h"

#include <algorithm>

#include "kernels/rules.h"

namespace trivet::kernels {

namespace {

void check_pieces(const Rules& rules, const std::vector<int64_t>& ends, int64_t size) {
  if (ends.empty()) return;
  rules.require(std::is_sorted(ends.begin(), ends.end()) && ends.front() >= 0 && ends.back() == size,
                "the ends of the pieces must be sorted and the last one must be the size of out");
}

void check_cuts(const Rules& rules, const ProductCuts& cuts, const Shape& m_n_k) {
  check_pieces(rules, cuts.row_ends, m_n_k[0]);
  check_pieces(rules, cuts.col_ends, m_n_k[1]);
  rules.require((cuts.leaves.size() & (cuts.leaves.size() - 1)) == 0, "the number of leaves must be a power of two");
  for (const auto& leaf : cuts.leaves)
    for (const ProductCuts::Range& range : leaf)
      rules.require(range.begin >= 0 && range.begin <= range.end && range.end <= m_n_k[2],
                    "every range of a leaf must be within [0, K)");
}

void check_gelu(const Rules& rules, const Matmul& args) {
  const bool forward = !args.activated.absent(), backward = !args.before_gelu.absent();
  if (!forward && !backward) return;
  const ConstTensorView other = forward ? ConstTensorView(args.activated) : args.before_gelu;
  rules.require(!forward || !backward, "activated and before_gelu exclude each other");
  rules.require(!args.accumulate, "gelu and accumulate exclude each other");
  rules.require(!backward || args.bias.absent(), "before_gelu and bias exclude each other");
  rules.types(args.a.dtype, {args.out, other});
  rules.shapes(args.out.shape, {other});
}

}  // namespace

void check(const Matmul& args) {
  const Rules rules("matmul", {{"a", args.a},
                               {"b", args.b},
                               {"out", args.out},
                               {"bias", args.bias},
                               {"activated", args.activated},
                               {"before_gelu", args.before_gelu}});
  const Shape &a = args.a.shape, &b = args.b.shape, &out = args.out.shape;
  rules.floating(args.a.dtype);
  rules.types(args.a.dtype, {args.b});
  rules.parameter_gradient(args.a.dtype, args.out);
  rules.require(a.dims() == 2 && b.dims() == 2 && out.dims() == 2, "a, b and out must be matrices");
  rules.require(a[args.transpose_a ? 1 : 0] == out[0], "rows of op(a) and out differ");
  rules.require(b[args.transpose_b ? 0 : 1] == out[1], "columns of op(b) and out differ");
  rules.require(a[args.transpose_a ? 0 : 1] == b[args.transpose_b ? 1 : 0], "columns of op(a) and rows of op(b) differ");
  if (args.cuts) check_cuts(rules, *args.cuts, {out[0], out[1], a[args.transpose_a ? 0 : 1]});
  check_gelu(rules, args);
  if (args.bias.absent()) return;
  rules.require(!args.accumulate, "bias and accumulate exclude each other");
  rules.types(args.a.dtype, {args.bias});
  rules.sizes(out[1], {args.bias});
}

void check(const AddBias& args) {
  const Rules rules("add_bias", {{"x", args.x}, {"bias", args.bias}, {"out", args.out}});
  rules.floating(args.out.dtype);
  rules.parameter_gradient(args.out.dtype, args.x);
  rules.shapes(args.out.shape, {args.x});
  if (args.bias.absent()) return;
  rules.types(args.out.dtype, {args.bias});
  rules.sizes(args.out.shape.cols(), {args.bias});
}

void check(const BiasGradient& args) {
  const Rules rules("bias_gradient", {{"dy", args.dy}, {"dbias", args.dbias}});
  rules.floating(args.dy.dtype);
  rules.parameter_gradient(args.dy.dtype, args.dbias);
  rules.sizes(args.dy.shape.cols(), {args.dbias});
}

namespace {

// Checks the sum that a norm computes first.
void check_sum(const Rules& rules, const DropoutAdd& sum, ConstTensorView x) {
  if (sum.out.absent()) return;
  check(sum);
  rules.require(!sum.residual.absent(), "the sum needs a residual");
  rules.require(sum.out.data == x.data, "x must be the output of the sum");
  rules.types(x.dtype, {sum.out});
  rules.sizes(x.elements(), {sum.out});
  rules.require(x.elements() == 0 || x.shape.rows() % sum.x.shape[0] == 0, "a row must not span two samples");
}

void check_residual(const Rules& rules, ConstTensorView residual, ConstTensorView dx) {
  if (residual.absent()) return;
  rules.types(dx.dtype, {residual});
  rules.shapes(dx.shape, {residual});
}

}  // namespace

void check(const LayerNorm& args) {
  const Rules rules(
      "layer_norm",
      {{"x", args.x}, {"gain", args.gain}, {"bias", args.bias}, {"y", args.y}, {"mean", args.mean}, {"rstd", args.rstd}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.gain, args.bias, args.y});
  rules.types(statistics_type(args.x.dtype), {args.mean, args.rstd});
  rules.shapes(args.x.shape, {args.y});
  rules.sizes(args.x.shape.cols(), {args.gain, args.bias});
  rules.sizes(args.x.shape.rows(), {args.mean, args.rstd});
  check_sum(rules, args.sum, args.x);
}

void check(const LayerNormBackwardInput& args) {
  const Rules rules("layer_norm_backward_input", {{"dy", args.dy},
                                                  {"x", args.x},
                                                  {"gain", args.gain},
                                                  {"mean", args.mean},
                                                  {"rstd", args.rstd},
                                                  {"dx", args.dx},
                                                  {"residual", args.residual}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.dy, args.gain, args.dx});
  rules.types(statistics_type(args.x.dtype), {args.mean, args.rstd});
  rules.shapes(args.x.shape, {args.dy, args.dx});
  rules.sizes(args.x.shape.cols(), {args.gain});
  rules.sizes(args.x.shape.rows(), {args.mean, args.rstd});
  check_residual(rules, args.residual, args.dx);
}

void check(const LayerNormBackwardWeight& args) {
  const Rules rules(
      "layer_norm_backward_weight",
      {{"dy", args.dy}, {"x", args.x}, {"mean", args.mean}, {"rstd", args.rstd}, {"dgain", args.dgain}, {"dbias", args.dbias}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.dy});
  rules.types(statistics_type(args.x.dtype), {args.mean, args.rstd});
  rules.shapes(args.x.shape, {args.dy});
  rules.sizes(args.x.shape.rows(), {args.mean, args.rstd});
  for (const TensorView& gradient : {args.dgain, args.dbias}) {
    if (gradient.absent()) continue;
    rules.parameter_gradient(args.x.dtype, gradient);
    rules.sizes(args.x.shape.cols(), {gradient});
  }
}

void check(const RmsNorm& args) {
  const Rules rules("rms_norm", {{"x", args.x}, {"gain", args.gain}, {"y", args.y}, {"rstd", args.rstd}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.gain, args.y});
  rules.types(statistics_type(args.x.dtype), {args.rstd});
  rules.shapes(args.x.shape, {args.y});
  rules.sizes(args.x.shape.cols(), {args.gain});
  rules.sizes(args.x.shape.rows(), {args.rstd});
  check_sum(rules, args.sum, args.x);
}

void check(const RmsNormBackwardInput& args) {
  const Rules rules(
      "rms_norm_backward_input",
      {{"dy", args.dy}, {"x", args.x}, {"gain", args.gain}, {"rstd", args.rstd}, {"dx", args.dx}, {"residual", args.residual}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.dy, args.gain, args.dx});
  rules.types(statistics_type(args.x.dtype), {args.rstd});
  rules.shapes(args.x.shape, {args.dy, args.dx});
  rules.sizes(args.x.shape.cols(), {args.gain});
  rules.sizes(args.x.shape.rows(), {args.rstd});
  check_residual(rules, args.residual, args.dx);
}

void check(const RmsNormBackwardWeight& args) {
  const Rules rules("rms_norm_backward_weight", {{"dy", args.dy}, {"x", args.x}, {"rstd", args.rstd}, {"dgain", args.dgain}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.dy});
  rules.types(statistics_type(args.x.dtype), {args.rstd});
  rules.parameter_gradient(args.x.dtype, args.dgain);
  rules.shapes(args.x.shape, {args.dy});
  rules.sizes(args.x.shape.cols(), {args.dgain});
  rules.sizes(args.x.shape.rows(), {args.rstd});
}

namespace {

void check_dropout(const Rules& rules, const DropoutSite& site, ConstTensorView x) {
  rules.require(site.rate >= 0 && site.rate < 1, "the dropout rate must be in [0, 1)");
  rules.require(x.shape.dims() >= 1, "a tensor of samples needs at least one dim");
}

}  // namespace

void check(const DropoutAdd& args) {
  const Rules rules("dropout_add", {{"x", args.x}, {"residual", args.residual}, {"out", args.out}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.out});
  rules.shapes(args.x.shape, {args.out});
  check_dropout(rules, args.dropout, args.x);
  if (args.residual.absent()) return;
  rules.types(args.x.dtype, {args.residual});
  rules.shapes(args.x.shape, {args.residual});
}

void check(const DropoutBackward& args) {
  const Rules rules("dropout_backward", {{"dy", args.dy}, {"dx", args.dx}});
  rules.floating(args.dy.dtype);
  rules.types(args.dy.dtype, {args.dx});
  rules.shapes(args.dy.shape, {args.dx});
  check_dropout(rules, args.dropout, args.dy);
}

void check(const Gelu& args) {
  const Rules rules("gelu", {{"x", args.x}, {"y", args.y}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.y});
  rules.shapes(args.x.shape, {args.y});
}

void check(const GeluBackward& args) {
  const Rules rules("gelu_backward", {{"dy", args.dy}, {"x", args.x}, {"dx", args.dx}});
  rules.floating(args.x.dtype);
  rules.types(args.x.dtype, {args.dy, args.dx});
  rules.shapes(args.x.shape, {args.dy, args.dx});
}

void check(const SwiGlu& args) {
  const Rules rules("swiglu", {{"gate_up", args.gate_up}, {"y", args.y}});
  rules.floating(args.y.dtype);
  rules.types(args.y.dtype, {args.gate_up});
  rules.require(args.gate_up.shape.cols() == 2 * args.y.shape.cols(), "gate_up must be twice as wide as y");
  rules.sizes(2 * args.y.elements(), {args.gate_up});
}

void check(const SwiGluBackward& args) {
  const Rules rules("swiglu_backward", {{"dy", args.dy}, {"gate_up", args.gate_up}, {"dgate_up", args.dgate_up}});
  rules.floating(args.dy.dtype);
  rules.types(args.dy.dtype, {args.gate_up, args.dgate_up});
  rules.shapes(args.gate_up.shape, {args.dgate_up});
  rules.require(args.gate_up.shape.cols() == 2 * args.dy.shape.cols(), "gate_up must be twice as wide as dy");
  rules.sizes(2 * args.dy.elements(), {args.gate_up});
}

namespace {

// Returns D.
int64_t check_heads(const Rules& rules, const ConstTensorView& qkv, int64_t heads, int64_t key_value_heads) {
  rules.floating(qkv.dtype);
  rules.require(qkv.shape.dims() == 3, "qkv must be [B, S, (N + 2G) D]");
  rules.require(heads > 0 && key_value_heads > 0 && heads % key_value_heads == 0,
                "the number of key/value heads must divide the number of heads");
  rules.require(qkv.shape[2] % (heads + 2 * key_value_heads) == 0, "the width of qkv must be a multiple of N + 2G");
  return qkv.shape[2] / (heads + 2 * key_value_heads);
}

}  // namespace

void check(const Rotary& args) {
  const Rules rules("rotary", {{"qkv", args.qkv}});
  const int64_t head_size = check_heads(rules, args.qkv, args.heads, args.key_value_heads);
  rules.require(head_size % 2 == 0, "the head size must be even");
}

void check(const Attention& args) {
  const Rules rules("attention", {{"qkv", args.qkv}, {"out", args.out}, {"log_sum_exp", args.log_sum_exp}});
  const int64_t head_size = check_heads(rules, args.qkv, args.heads, args.key_value_heads);
  const int64_t tokens = args.qkv.shape[0] * args.qkv.shape[1];
  rules.types(args.qkv.dtype, {args.out});
  rules.types(statistics_type(args.qkv.dtype), {args.log_sum_exp});
  rules.sizes(tokens * args.heads * head_size, {args.out});
  rules.sizes(tokens * args.heads, {args.log_sum_exp});
  check_dropout(rules, args.dropout, args.qkv);
}

void check(const AttentionBackward& args) {
  const Rules rules(
      "attention_backward",
      {{"dout", args.dout}, {"qkv", args.qkv}, {"out", args.out}, {"log_sum_exp", args.log_sum_exp}, {"dqkv", args.dqkv}});
  const int64_t head_size = check_heads(rules, args.qkv, args.heads, args.key_value_heads);
  const int64_t tokens = args.qkv.shape[0] * args.qkv.shape[1];
  rules.types(args.qkv.dtype, {args.out, args.dout, args.dqkv});
  rules.types(statistics_type(args.qkv.dtype), {args.log_sum_exp});
  rules.sizes(tokens * args.heads * head_size, {args.out, args.dout});
  rules.sizes(tokens * args.heads, {args.log_sum_exp});
  rules.sizes(args.qkv.elements(), {args.dqkv});
  check_dropout(rules, args.dropout, args.qkv);
}

void check(const Embedding& args) {
  const Rules rules("embedding",
                    {{"tokens", args.tokens}, {"table", args.table}, {"positions", args.positions}, {"out", args.out}});
  rules.types(DType::Int32, {args.tokens});
  rules.floating(args.table.dtype);
  rules.types(args.table.dtype, {args.out});
  rules.require(args.tokens.shape.dims() == 2 && args.table.shape.dims() == 2, "tokens and table must be matrices");
  rules.sizes(args.tokens.elements() * args.table.shape[1], {args.out});
  if (args.positions.absent()) return;
  rules.types(args.table.dtype, {args.positions});
  rules.require(args.positions.shape.dims() == 2 && args.positions.shape[0] >= args.tokens.shape[1] &&
                    args.positions.shape[1] == args.table.shape[1],
                "positions must be at least [S, H]");
}

void check(const EmbeddingBackward& args) {
  const Rules rules("embedding_backward",
                    {{"tokens", args.tokens}, {"dy", args.dy}, {"dtable", args.dtable}, {"dpositions", args.dpositions}});
  rules.types(DType::Int32, {args.tokens});
  rules.floating(args.dy.dtype);
  rules.require(args.tokens.shape.dims() == 2, "tokens must be a matrix");
  const int64_t hidden = args.dy.shape.cols();
  rules.sizes(args.tokens.elements() * hidden, {args.dy});
  for (const TensorView& gradient : {args.dtable, args.dpositions}) {
    if (gradient.absent()) continue;
    rules.parameter_gradient(args.dy.dtype, gradient);
    rules.require(gradient.shape.dims() == 2 && gradient.shape[1] == hidden, "gradients must be as wide as dy");
  }
  rules.require(args.dpositions.absent() || args.dpositions.shape[0] >= args.tokens.shape[1],
                "dpositions must have a row for each position");
}

namespace {

void check_loss(const Rules& rules, ConstTensorView loss) {
  if (loss.absent()) return;
  rules.types(DType::Float64, {loss});
  rules.sizes(2, {loss});
}

}  // namespace

void check(const CrossEntropy& args) {
  const Rules rules("cross_entropy",
                    {{"logits", args.logits}, {"targets", args.targets}, {"dlogits", args.dlogits}, {"loss", args.loss}});
  check_loss(rules, args.loss);
  rules.floating(args.logits.dtype);
  rules.types(DType::Int32, {args.targets});
  rules.require(args.logits.shape.dims() == 2, "logits must be a matrix");
  rules.sizes(args.logits.shape[0], {args.targets});
  if (args.dlogits.absent()) return;
  rules.floating(args.dlogits.dtype);
  rules.shapes(args.logits.shape, {args.dlogits});
}

void check(const RowMaxima& args) {
  const Rules rules("row_maxima", {{"logits", args.logits}, {"maximum", args.maximum}});
  rules.floating(args.logits.dtype);
  rules.types(statistics_type(args.logits.dtype), {args.maximum});
  rules.sizes(args.logits.shape.rows(), {args.maximum});
}

void check(const RowSums& args) {
  const Rules rules("row_sums",
                    {{"logits", args.logits}, {"targets", args.targets}, {"maximum", args.maximum}, {"sums", args.sums}});
  rules.floating(args.logits.dtype);
  rules.types(DType::Int32, {args.targets});
  rules.types(statistics_type(args.logits.dtype), {args.maximum, args.sums});
  rules.sizes(args.logits.shape.rows(), {args.targets, args.maximum});
  rules.sizes(2 * args.logits.shape.rows(), {args.sums});
}

void check(const CrossEntropyOfPart& args) {
  const Rules rules("cross_entropy_of_part", {{"logits", args.logits},
                                              {"targets", args.targets},
                                              {"maximum", args.maximum},
                                              {"sums", args.sums},
                                              {"dlogits", args.dlogits},
                                              {"loss", args.loss}});
  check_loss(rules, args.loss);
  rules.floating(args.logits.dtype);
  rules.types(DType::Int32, {args.targets});
  rules.types(statistics_type(args.logits.dtype), {args.maximum, args.sums});
  rules.sizes(args.logits.shape.rows(), {args.targets, args.maximum});
  rules.sizes(2 * args.logits.shape.rows(), {args.sums});
  if (args.dlogits.absent()) return;
  rules.floating(args.dlogits.dtype);
  rules.shapes(args.logits.shape, {args.dlogits});
}

}  // namespace trivet::kernels

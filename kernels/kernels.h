// The interface of all kernels. CpuKernels and CudaKernels compute, MetaKernels only counts; all three have the same
// signatures.
//
//   T rows (tokens of a microbatch: batch x sequence), H hidden, F feed-forward, V vocabulary
//   B sequences, S tokens per sequence, N query heads, G key/value heads (G divides N), D head size
//
// These rules hold for all kernels. Tensors are dense and row-major. Unless stated otherwise, all activations, weights and
// gradients of a call have one dtype (float32, bfloat16, float16 or, for gradient checks, float64); sums and statistics are
// kept in float32 (float64 when the dtype is float64). Gradients of parameters (Matmul::out, dbias, dgain, dtable, dpositions)
// may also be float32, whatever the dtype of the rest: layout mode rounds a microbatch's gradient once, from float32.
// "accumulate" means out += result instead of out = result, rounded once. Arguments marked optional may be absent. Device
// kernels are enqueued on the stream that the object is bound to; CPU kernels are done when the call returns. Losses, sums and
// counts are added to tensors too, so that nobody has to wait for them. Results do not depend on the number of threads, nor on
// what else is in a call: where the mathematics allows it, row t of an output depends only on row t of the inputs. Sums over
// rows (weight gradients) run in a fixed order. Sizes may be 0. Values that may change from step to step are Numbers.
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/device.h"
#include "core/exact_sum.h"
#include "core/layer.h"
#include "core/number.h"
#include "core/tensor_view.h"

namespace trivet::kernels {

// How a product is divided so that its bits do not depend on how many ranks share one of its dims. Every piece of out is
// computed as a separate product. A sum over K adds up the ranges of each leaf, in their order, and then the leaves in a
// balanced tree, ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)), all in float32 (float64), before bias and rounding. A leaf without
// elements adds nothing.
struct ProductCuts {
  struct Range {
    int64_t begin = 0, end = 0;
  };
  std::vector<int64_t> row_ends, col_ends;  // ends of the pieces of out; empty: one piece
  std::vector<std::vector<Range>> leaves;   // of K; empty: one leaf that covers all of K
};

// out[M, N] (+)= op(a)[M, K] op(b)[K, N] (+ bias[N]). op transposes if transpose_a or transpose_b is set: a is then stored as
// [K, M], b as [N, K]. a and b have the same dtype; out has that dtype or float32. Sums over K are in float32 (float64).
struct Matmul {
  ConstTensorView a, b;
  TensorView out;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  ConstTensorView bias;               // optional [N]; not together with accumulate
  const ProductCuts* cuts = nullptr;  // optional
  // Optional, at most one of the two; [M, N], of the same type as a, b and out; not together with accumulate.
  TensorView activated;         // receives gelu(out) (Gelu), of out before or after rounding; with cuts: after
  ConstTensorView before_gelu;  // out = product * gelu'(before_gelu) (GeluBackward); the product may be rounded first; no bias
};

// out[T, H] = x[T, H] (+ bias[H]), rounded once; x has the type of out or float32, and may be out. bias is optional and has the
// type of out.
struct AddBias {
  ConstTensorView x, bias;
  TensorView out;
};

// dbias[H] (+)= sum over t of dy[T, H]
struct BiasGradient {
  ConstTensorView dy;
  TensorView dbias;
  bool accumulate = true;
};

// Defines which elements dropout zeroes. Element e of sample s (of the step) is dropped when
//   unit_float(philox(key, counter_low = e / 4, counter_high = (step << 32) + s)[e % 4]) < rate,
// and the other elements are divided by (1 - rate). e counts within the sample: each of the B samples has elements / B of the
// tensor's elements. If the tensor holds only a part of every sample, that part begins with first_element.
struct DropoutSite {
  float rate = 0;    // 0: nothing is dropped
  uint64_t key = 0;  // random_key(seed, name of the site)
  Number step = 0;
  int64_t first_sample = 0;
  int64_t first_element = 0;
};

// out = residual + dropout(x); out may be residual. residual is optional (without it, out = dropout(x)); x is [B, ...].
struct DropoutAdd {
  ConstTensorView x, residual;
  TensorView out;
  DropoutSite dropout;
};
// dx = mask * dy / (1 - rate); dx may be dy.
struct DropoutBackward {
  ConstTensorView dy;
  TensorView dx;
  DropoutSite dropout;
};

// y = (x - mean) * rstd * gain + bias over the last dim (Ba et al. 2016); mean, rstd: float32 [T], kept for backward.
struct LayerNorm {
  ConstTensorView x, gain, bias;
  TensorView y, mean, rstd;
  float epsilon = 1e-5f;
  // Optional; it needs a residual, and its out must be x. The sum that is normalised is computed in the same pass, with the
  // same bits as dropout_add(sum) before the norm. y may be sum.x.
  DropoutAdd sum;
};
// dx = (residual +) gradient of x, rounded once; residual is optional and may be dx
struct LayerNormBackwardInput {
  ConstTensorView dy, x, gain, mean, rstd;
  TensorView dx;
  ConstTensorView residual;
};
// dgain, dbias (+)= sums over rows
struct LayerNormBackwardWeight {
  ConstTensorView dy, x, mean, rstd;
  TensorView dgain, dbias;
  bool accumulate_gain = true, accumulate_bias = true;
};

// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + epsilon) (Zhang & Sennrich 2019); rstd: float32 [T].
struct RmsNorm {
  ConstTensorView x, gain;
  TensorView y, rstd;
  float epsilon = 1e-5f;
  DropoutAdd sum;  // optional, as in LayerNorm
};
struct RmsNormBackwardInput {
  ConstTensorView dy, x, gain, rstd;
  TensorView dx;
  ConstTensorView residual;  // optional, may be dx
};
struct RmsNormBackwardWeight {
  ConstTensorView dy, x, rstd;
  TensorView dgain;
  bool accumulate = true;
};

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel 2016, the tanh form that GPT-2 uses)
struct Gelu {
  ConstTensorView x;
  TensorView y;
};
struct GeluBackward {
  ConstTensorView dy, x;
  TensorView dx;
};

// y[T, F] = silu(gate) * up with gate_up[T, 2F] = [gate | up] (Shazeer 2020)
struct SwiGlu {
  ConstTensorView gate_up;
  TensorView y;
};
struct SwiGluBackward {
  ConstTensorView dy, gate_up;
  TensorView dgate_up;
};

// Rotates the query and key heads of qkv[B, S, (N + 2G) D] in place (RoFormer, Su et al. 2021). The pairs are (i, i + D/2),
// their angles position * base^(-2i/D), where position counts within the sequence. `inverse` rotates back, which is the
// backward.
struct Rotary {
  TensorView qkv;
  int64_t heads = 0, key_value_heads = 0;  // N, G
  float base = 10000.0f;
  bool inverse = false;
};

// Causal softmax(q k^T / sqrt(D)) v per head, without a stored score matrix (FlashAttention, Dao et al. 2022).
// qkv[B, S, (N + 2G) D] = [query heads | key heads | value heads]; out[B, S, N D]; log_sum_exp: float32 [B, N, S], kept for
// backward. Dropout acts on the probabilities: that of head n, query i and key j is element first_element + (n S + i) S + j of
// its sample.
struct Attention {
  ConstTensorView qkv;
  TensorView out, log_sum_exp;
  int64_t heads = 0, key_value_heads = 0;
  DropoutSite dropout;
};
struct AttentionBackward {
  ConstTensorView dout, qkv, out, log_sum_exp;
  TensorView dqkv;  // all of it is written
  int64_t heads = 0, key_value_heads = 0;
  DropoutSite dropout;
};

// The part of the vocabulary that a call's table (or logits) holds: rows (columns) [first, first + their number) of
// `vocabulary`. If `vocabulary` is 0, it holds all of them.
struct TableRows {
  int64_t first = 0, vocabulary = 0;
};
// out[B, S, H] = table[tokens[B, S], H] (+ positions[s, H] when present); tokens whose row is in another part of the table get
// zeros. A token id outside [0, V) throws std::out_of_range before anything is written; on a device, where the host cannot see
// the ids, its row becomes NaN.
struct Embedding {
  ConstTensorView tokens, table, positions;
  TensorView out;
  TableRows rows;
};
// dtable[token] += rows of dy, in token order; dpositions[s] += dy[b, s] over b, in order, whatever the tokens are. Absent
// gradients are not computed.
struct EmbeddingBackward {
  ConstTensorView tokens, dy;
  TensorView dtable, dpositions;
  bool accumulate_table = true, accumulate_positions = true;
  TableRows rows;
};

// Row-wise softmax cross-entropy. loss[0] += the sum of the losses of all rows whose target is >= 0, in a fixed order; loss[1]
// += the number of these rows. If dlogits is present: dlogits = (softmax(logits) - onehot) * gradient_scale, and 0 for rows
// that do not count. dlogits may be logits.
struct CrossEntropy {
  ConstTensorView logits;   // [T, V], float32 or the activations' dtype
  ConstTensorView targets;  // int32 [T]
  TensorView dlogits;       // optional [T, V], any float dtype
  Number gradient_scale = 1.0;
  // Optional: a row's exponentials are summed in chunks that end at these columns. Each chunk's sum is rounded to float32
  // (float64), and a balanced tree adds them up (see ProductCuts).
  std::span<const int64_t> chunk_ends;
  TensorView loss;  // optional float64 [2]
};

// Cross-entropy of rows whose columns are split among ranks; `logits` is the part that starts at columns.first. This takes the
// maximum over all parts, then sums over all parts, then loss and gradient. Statistics are float32 (float64).
//
//   row_maxima -> maximum[T] --max over parts--> row_sums -> sums[2, T] --sum over parts--> cross_entropy_of_part
struct RowMaxima {
  ConstTensorView logits;
  TensorView maximum;
};
// sums[0] = sum over columns of exp(logits - maximum); sums[1] = the target's logit, or 0 if another part has it.
struct RowSums {
  ConstTensorView logits, targets, maximum;
  TensorView sums;
  TableRows columns;
  std::span<const int64_t> chunk_ends;  // as in CrossEntropy
};
struct CrossEntropyOfPart {
  ConstTensorView logits, targets, maximum, sums;  // maximum and sums: of whole rows
  TensorView dlogits;                              // optional, of this part; may be logits
  TableRows columns;
  Number gradient_scale = 1.0;
  TensorView loss;  // optional float64 [2], as in CrossEntropy
};

// Adds up the losses of microbatches exactly: words[0 .. kWords) += losses[m][0], words[kWords] += losses[m][1].
struct SumLosses {
  ConstTensorView losses;  // float64 [M, 2], from CrossEntropy
  TensorView words;        // int64 [ExactSum::kWords + 1]
};

// Decides from the gradients of all ranks how an update is scaled and whether it is applied. T = words[kWords] of `losses` is
// the number of targets, and the gradient of the mean loss is the stored sum of gradients x unit / T:
//
//   norm = sqrt(square_sum) x unit / T    apply = 1, or 0 if check_finite and the sum is not finite
//   factor = unit / T x min(1, clipping / (norm + 1e-6))     (as PyTorch's clip_grad_norm_; clipping 0: off)
//
// In a step without targets, T is 1.
struct JudgeGradients {
  ConstTensorView square_sum;  // int64 [ExactSum::kWords], of the stored gradients
  ConstTensorView losses;      // int64 [ExactSum::kWords + 1]
  TensorView verdict;          // float64 [3]: norm (NaN when not finite), factor, apply
  double unit = 1, clipping = 0;
  bool check_finite = true;
};

// ---- Optimizers: element-wise over a flat range of a shard. `master` and states are float32; `gradient` is float32, bfloat16
// or float16, and is first multiplied by gradient_scale; `copy_out` is optional and receives master rounded to bfloat16 or
// float16. weight_decay is 0 for parameters that do not decay, so one call covers elements of one kind. `verdict` (see
// JudgeGradients) is optional: the gradient is also multiplied by its factor, and nothing is written if it says not to apply.
// Without it, the factor is 1 and the update is applied.

// 1 - beta^step: the divisor that corrects the bias of a moving average that started at 0. `step` counts from 1.
inline double bias_correction(double beta, int64_t step) { return 1 - std::pow(beta, static_cast<double>(step)); }

// Adam (Kingma & Ba 2015), bias-corrected. Decoupled decay is AdamW (Loshchilov & Hutter 2019); otherwise the decay is an L2
// term in the gradient.
struct Adam {
  TensorView master, moment1, moment2, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-3, beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8, weight_decay = 0;
  Number gradient_scale = 1.0;
  Number correction1 = 1.0, correction2 = 1.0;  // bias_correction of beta1 and beta2; 1: no correction
  bool decoupled_decay = true;
};
// buffer = momentum * buffer + (1 - dampening) * g (on the first step: buffer = g);
// p -= lr * (nesterov ? g + momentum * buffer : buffer)
struct Sgd {
  TensorView master, momentum_buffer, copy_out;  // momentum_buffer absent when momentum is 0
  ConstTensorView gradient, verdict;
  Number lr = 1e-3;
  double momentum = 0, dampening = 0, weight_decay = 0;
  Number gradient_scale = 1.0, step = 1;
  bool nesterov = false;
};
// p -= lr * (sign(beta1 m + (1 - beta1) g) + decay * p); m = beta2 m + (1 - beta2) g (Chen et al. 2023)
struct Lion {
  TensorView master, moment, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-4, beta1 = 0.9, beta2 = 0.99;
  double weight_decay = 0;
  Number gradient_scale = 1.0;
};
// sum += g^2; p -= lr * g / (sqrt(sum) + epsilon) (Duchi et al. 2011)
struct Adagrad {
  TensorView master, sum_of_squares, copy_out;
  ConstTensorView gradient, verdict;
  Number lr = 1e-2;
  double epsilon = 1e-10, weight_decay = 0;
  Number gradient_scale = 1.0;
};
// The first half of LAMB (You et al. 2020): moments as in Adam, and `update` (float32) is m_hat / (sqrt(v_hat) + epsilon) +
// decay * p. ApplyUpdate scales it by the trust ratio, whose norms are over the whole parameter.
struct LambUpdate {
  ConstTensorView master;
  TensorView moment1, moment2, update;
  ConstTensorView gradient, verdict;
  Number beta1 = 0.9, beta2 = 0.999;
  double epsilon = 1e-8, weight_decay = 0;
  Number gradient_scale = 1.0, correction1 = 1.0, correction2 = 1.0;
};
// master = master * (1 - lr * weight_decay) - lr * scale * ratio * update; copy_out as above; update is float32, bfloat16 or
// float16. Without `square_sums` the ratio is 1. With them it is ||master|| / ||update||, clamped to [min_ratio, max_ratio], or
// 1 if either norm is 0.
struct ApplyUpdate {
  TensorView master, copy_out;
  ConstTensorView update, verdict;
  Number lr = 1.0;
  double scale = 1.0, weight_decay = 0;
  ConstTensorView square_sums;  // optional int64 [2, ExactSum::kWords]: of the weights and of the update
  double min_ratio = 0, max_ratio = 0;
};
// buffer = momentum * buffer + gradient * gradient_scale; out = nesterov ? gradient + momentum * buffer : buffer (float32)
struct MomentumUpdate {
  TensorView momentum_buffer, out;
  ConstTensorView gradient, verdict;
  double momentum = 0.95;
  Number gradient_scale = 1.0;
  bool nesterov = true;
};

// ---- Block quantisation (ZeRO++, Wang et al. 2023) of x[E], in blocks of `block` elements from its start (64 to 2048, a
// multiple of 64). It is symmetric, with one scale per block:
//
//   scale = max |x| / L    value = x / scale, to nearest even, in [-L, L]    L = 127 (8 bits) or 7 (4 bits)
//
// The arithmetic is in float32. A block of zeros has scale 0. A block with a NaN or an infinity has scale NaN, so that all of
// it comes back as NaN. values are uint8 in two's complement: [E] for 8 bits; [(E + 1) / 2] for 4 bits, with element 2 i in the
// low half of byte i. scales are float32 [ceil(E / block)].
struct Quantize {
  ConstTensorView x;
  TensorView values, scales;
  int bits = 8;
  int64_t block = 256;
};
// out[E] (+)= value * scale
struct Dequantize {
  ConstTensorView values, scales;
  TensorView out;
  int bits = 8;
  int64_t block = 256;
  bool accumulate = false;
};

// One term of sum_of_squares: the squares of scale * x, in float64, in blocks of `block` elements (a divisor of kSumBlock) from
// the start of x.
struct Squares {
  ConstTensorView x;
  Number scale = 1;
  int64_t block = 0;  // must be given
};

// FLOPs, bytes moved and launches so far, and the largest scratch memory that one of the calls needs on a GPU
// (kernels/workspace.h). Only MetaKernels counts; the other kernels return zeros.
struct Counters {
  double flops = 0, bytes = 0;
  int64_t launches = 0, workspace_bytes = 0;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual Device device() const = 0;

  virtual void matmul(const Matmul&) = 0;
  virtual void add_bias(const AddBias&) = 0;
  virtual void bias_gradient(const BiasGradient&) = 0;
  virtual void layer_norm(const LayerNorm&) = 0;
  virtual void layer_norm_backward_input(const LayerNormBackwardInput&) = 0;
  virtual void layer_norm_backward_weight(const LayerNormBackwardWeight&) = 0;
  virtual void rms_norm(const RmsNorm&) = 0;
  virtual void rms_norm_backward_input(const RmsNormBackwardInput&) = 0;
  virtual void rms_norm_backward_weight(const RmsNormBackwardWeight&) = 0;
  virtual void dropout_add(const DropoutAdd&) = 0;
  virtual void dropout_backward(const DropoutBackward&) = 0;
  virtual void gelu(const Gelu&) = 0;
  virtual void gelu_backward(const GeluBackward&) = 0;
  virtual void swiglu(const SwiGlu&) = 0;
  virtual void swiglu_backward(const SwiGluBackward&) = 0;
  virtual void rotary(const Rotary&) = 0;
  virtual void attention(const Attention&) = 0;
  virtual void attention_backward(const AttentionBackward&) = 0;
  virtual void embedding(const Embedding&) = 0;
  virtual void embedding_backward(const EmbeddingBackward&) = 0;
  virtual void cross_entropy(const CrossEntropy&) = 0;
  virtual void row_maxima(const RowMaxima&) = 0;
  virtual void row_sums(const RowSums&) = 0;
  virtual void cross_entropy_of_part(const CrossEntropyOfPart&) = 0;
  virtual void sum_losses(const SumLosses&) = 0;

  virtual void judge_gradients(const JudgeGradients&) = 0;

  // The result is the same as with one call per update, but takes few launches. The updates must not write to overlapping
  // memory.
  virtual void adam(std::span<const Adam>) = 0;
  void adam(const Adam& one) { adam(std::span(&one, 1)); }
  virtual void sgd(const Sgd&) = 0;
  virtual void lion(const Lion&) = 0;
  virtual void adagrad(const Adagrad&) = 0;
  virtual void lamb_update(const LambUpdate&) = 0;
  virtual void apply_update(const ApplyUpdate&) = 0;
  virtual void momentum_update(const MomentumUpdate&) = 0;

  // out = 0 (any dtype)
  virtual void zero(TensorView out) = 0;
  // out = from, converted between float dtypes (round to nearest even); same dtype: a copy of any dtype
  virtual void copy(ConstTensorView from, TensorView out) = 0;
  // out += from; both of one float dtype, or both int64 (wraps: the range was checked when quantised)
  virtual void add(ConstTensorView from, TensorView out) = 0;
  // out *= factor
  virtual void scale(TensorView out, double factor) = 0;
  // out[e] = initial value of element first_element + e under `key` (core/random.h): zeros, ones, normal or uniform
  virtual void initialize(TensorView out, const Init& init, uint64_t key, int64_t first_element) = 0;

  // sum += the blocks' sums of squares, combined exactly. A NaN or an infinity makes the sum not finite. sum: int64
  // [ExactSum::kWords].
  virtual void sum_of_squares(std::span<const Squares> terms, TensorView sum) = 0;
  void sum_of_squares(ConstTensorView x, Number scale, int64_t block, TensorView sum) {
    const Squares one{x, scale, block};
    sum_of_squares(std::span(&one, 1), sum);
  }
  // out /= sqrt(square_sum) + epsilon; square_sum: int64 [ExactSum::kWords].
  virtual void divide_by_norm(TensorView out, ConstTensorView square_sum, double epsilon) = 0;

  // sum[e] += round(x[e] * scale * 2^44) (core/fixed_point.h). Values that are not finite or not below `limit` in magnitude
  // (after scaling) are not added; refused[0] += their number. refused: int64 [1].
  virtual void fixed_point_add(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) = 0;
  // The same with = instead of +=, so that the sum need not be zeroed before the first contribution.
  virtual void fixed_point_store(ConstTensorView x, Number scale, double limit, TensorView sum, TensorView refused) = 0;
  // out[e] = sum[e] * 2^-44, rounded once
  virtual void fixed_point_read(ConstTensorView sum, TensorView out) = 0;
  // fixed_point_store and fixed_point_read in one pass, without the sum in memory: for values to which nothing is added. It may
  // work in place.
  virtual void fixed_point_round(ConstTensorView x, Number scale, double limit, TensorView out, TensorView refused) = 0;

  virtual void quantize(const Quantize&) = 0;
  virtual void dequantize(const Dequantize&) = 0;

  // Copies between device and host memory, of the same type and size. `from` may change once from_host has returned. to_host
  // returns when all work before it is done; it is the only call that always waits.
  virtual void from_host(ConstTensorView from, TensorView out) = 0;
  virtual void to_host(ConstTensorView from, TensorView out) = 0;
  // Copies in either direction, in stream order like a kernel. The host does not wait: until the copy is done, `from` must not
  // change and nobody else may use `out`. It is slow if the host memory is not page-locked (Backend::staging_allocator).
  virtual void copy_pinned(ConstTensorView from, TensorView out) = 0;

  virtual Counters counters() const { return {}; }
};

// Every shard boundary is a multiple of this many elements, so that a norm has the same bits however a parameter is sharded.
inline constexpr int64_t kSumBlock = 256;

// threads: how many threads the kernels may use (0: all that OpenMP offers).
std::unique_ptr<Kernels> make_cpu_kernels(int threads);
// The meta kernels compute nothing; their views need no memory.
std::unique_ptr<Kernels> make_meta_kernels();

}  // namespace trivet::kernels

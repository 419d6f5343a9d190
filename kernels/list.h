// The list of all kernels: the struct of the arguments of each and, where they are passed as they are, the method of Kernels
// that takes it. The method, and the function of each device, are declared from this list. The headers named here say what each
// computes.
#pragma once

// clang-format off
#define TRIVET_NAMED_KERNELS(KERNEL) \
  /* kernels/products.h */ \
  KERNEL(Matmul, matmul) \
  KERNEL(AddBias, add_bias) \
  KERNEL(BiasGradient, bias_gradient) \
  /* kernels/elementwise.h */ \
  KERNEL(DropoutAdd, dropout_add) \
  KERNEL(DropoutBackward, dropout_backward) \
  KERNEL(Gelu, gelu) \
  KERNEL(GeluBackward, gelu_backward) \
  KERNEL(SwiGlu, swiglu) \
  KERNEL(SwiGluBackward, swiglu_backward) \
  KERNEL(Relu, relu) \
  KERNEL(ReluBackward, relu_backward) \
  KERNEL(SoftCap, soft_cap) \
  /* kernels/convolution.h */ \
  KERNEL(Convolution, convolution) \
  KERNEL(ConvolutionBackwardInput, convolution_backward_input) \
  KERNEL(ConvolutionBackwardWeight, convolution_backward_weight) \
  KERNEL(Pool, pool) \
  KERNEL(PoolBackward, pool_backward) \
  /* kernels/channel_norm.h */ \
  KERNEL(ChannelNorm, channel_norm) \
  KERNEL(ChannelNormBackwardInput, channel_norm_backward_input) \
  KERNEL(ChannelNormBackwardWeight, channel_norm_backward_weight) \
  KERNEL(NormalizeWith, normalize_with) \
  KERNEL(AddStatistics, add_statistics) \
  /* kernels/norms.h */ \
  KERNEL(LayerNorm, layer_norm) \
  KERNEL(LayerNormBackwardInput, layer_norm_backward_input) \
  KERNEL(LayerNormBackwardWeight, layer_norm_backward_weight) \
  KERNEL(RmsNorm, rms_norm) \
  KERNEL(RmsNormBackwardInput, rms_norm_backward_input) \
  KERNEL(RmsNormBackwardWeight, rms_norm_backward_weight) \
  KERNEL(HeadNorm, head_norm) \
  KERNEL(HeadNormBackwardInput, head_norm_backward_input) \
  KERNEL(HeadNormBackwardWeight, head_norm_backward_weight) \
  /* kernels/attention.h */ \
  KERNEL(Rotary, rotary) \
  KERNEL(Attention, attention) \
  KERNEL(AttentionBackward, attention_backward) \
  KERNEL(MergeAttention, merge_attention) \
  KERNEL(AttentionSinks, attention_sinks) \
  KERNEL(AttentionSinksBackward, attention_sinks_backward) \
  /* kernels/embedding.h */ \
  KERNEL(Embedding, embedding) \
  KERNEL(EmbeddingBackward, embedding_backward) \
  /* kernels/token_choice.h */ \
  KERNEL(ChooseTokens, choose_tokens) \
  KERNEL(GatherTokens, gather_tokens) \
  KERNEL(ScatterTokens, scatter_tokens) \
  /* kernels/experts.h */ \
  KERNEL(ChooseExperts, choose_experts) \
  KERNEL(ChooseExpertsBackward, choose_experts_backward) \
  KERNEL(OrderByExpert, order_by_expert) \
  KERNEL(CountChoices, count_choices) \
  KERNEL(CountRows, count_rows) \
  KERNEL(GatherRows, gather_rows) \
  KERNEL(CombineRows, combine_rows) \
  KERNEL(WeightedSwiGlu, weighted_swiglu) \
  KERNEL(WeightedSwiGluBackward, weighted_swiglu_backward) \
  KERNEL(AddExpertBias, add_expert_bias) \
  KERNEL(SpreadWeights, spread_weights) \
  KERNEL(AddChosen, add_chosen) \
  KERNEL(GroupedMatmul, grouped_matmul) \
  KERNEL(GroupedGradient, grouped_gradient) \
  KERNEL(AddGated, add_gated) \
  KERNEL(AddGatedBackward, add_gated_backward) \
  KERNEL(BalanceExperts, balance_experts) \
  /* kernels/memory.h */ \
  KERNEL(CopyRuns, copy_runs) \
  /* kernels/losses.h */ \
  KERNEL(CrossEntropy, cross_entropy) \
  KERNEL(RowMaxima, row_maxima) \
  KERNEL(RowSums, row_sums) \
  KERNEL(CrossEntropyOfPart, cross_entropy_of_part) \
  KERNEL(CountCorrect, count_correct) \
  KERNEL(SumLosses, sum_losses) \
  KERNEL(JudgeGradients, judge_gradients) \
  /* kernels/ctc.h */ \
  KERNEL(Ctc, ctc) \
  /* kernels/preference.h */ \
  KERNEL(PreferenceLoss, preference_loss) \
  /* kernels/optimizers.h */ \
  KERNEL(Sgd, sgd) \
  KERNEL(Lion, lion) \
  KERNEL(Adagrad, adagrad) \
  KERNEL(LambUpdate, lamb_update) \
  KERNEL(ApplyUpdate, apply_update) \
  KERNEL(MomentumUpdate, momentum_update) \
  KERNEL(RunningAverage, running_average)

// Their methods of Kernels have arguments of their own (interface.h).
#define TRIVET_OTHER_KERNELS(KERNEL) \
  /* kernels/optimizers.h */ \
  KERNEL(AdamUpdates) \
  /* kernels/memory.h */ \
  KERNEL(Zero) \
  KERNEL(Copy) \
  KERNEL(Add) \
  KERNEL(Scale) \
  KERNEL(Transpose) \
  KERNEL(Initialize) \
  /* kernels/sums.h */ \
  KERNEL(SumOfSquares) \
  KERNEL(DivideByNorm) \
  KERNEL(FixedPointAdd) \
  KERNEL(FixedPointStore) \
  KERNEL(FixedPointRead) \
  KERNEL(FixedPointRound) \
  /* kernels/quantization.h */ \
  KERNEL(Quantize) \
  KERNEL(Dequantize)
// clang-format on

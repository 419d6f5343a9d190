// Connectionist temporal classification: the loss of a sequence of steps that spells a shorter sequence of characters, where
// the data do not say which step belongs to which character (Graves et al. 2006).
//
// B samples, T steps, V classes (0 is the blank, the others are characters), L places for the characters of a target
//
// A path names one class for each step. It spells the characters that are left when equal neighbours are merged and blanks are
// removed afterwards: 0 3 3 0 3 1 spells 3 3 1. Its probability is the product of those of its classes, each from the softmax
// of its step. The probability of a target is the sum over all paths that spell it.
#pragma once

#include <cstdint>

#include "core/number.h"
#include "kernels/kernel_call.h"

namespace trivet::kernels {

// The parts of the scratch memory. Numbers have the type of sums unless stated otherwise. A target of L places has up to
// S = 2 L + 1 states; kernels/cpu/ctc.cpp says what alpha and beta are.
struct CtcScratch {
  int64_t alpha, beta, log_sums;  // offsets in bytes: [B, T, S], [B, 2, S], [B, T]
  int64_t by_class;               // [B, 2, V]
  int64_t states, best;           // int32 [B, S]: the class of each state; int32 [B, T]: the most probable class of each step
  int64_t results;                // float64 [B, 3]: loss, whether the sample counts, whether its target is spelled
  int64_t bytes;

  CtcScratch(ConstTensorView logits, ConstTensorView targets);
};

// loss[0] += the sum over samples of -log(probability of the target), in a fixed order; loss[1] += the number of samples that
// count; correct[0] += how many of them the most probable class of each step spells (the first one of several that are equally
// probable). dlogits = the gradient of gradient_scale x the loss. Sums are made in logarithms of float32 (float64).
//
// The characters of a target are its positive numbers. Negative ones fill unused places, as zeros do; a sample all of whose
// numbers are negative does not count, and its gradient is zero. So {0, -1, -1} is the empty target. A target that no path of
// T steps spells, because it needs a step for each character and one more between equal neighbours, has an infinite loss and
// the gradient zero.
//
// scratch is memory of the caller, which a plan counts like every other tensor. Its contents are not read, and are lost.
struct Ctc {
  ConstTensorView logits;   // [B, T, V], T >= 1, V >= 2
  ConstTensorView targets;  // int32 [B, L], below V
  TensorView dlogits;       // optional [B, T, V], the type of logits; may be logits
  Number gradient_scale = 1.0;
  TensorView loss;     // optional float64 [2]
  TensorView correct;  // optional float64 [1]
  TensorView scratch;  // uint8 [CtcScratch::bytes]

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels

// Block quantization of ZeRO++ (Wang et al. 2023, arXiv:2306.10209): fewer bits for what ranks send each other.
//
// A block of kQuantizedBlock elements has one scale in float32, its largest magnitude / kLevels, and each element a signed
// code, the multiple of the scale that is nearest to it: value = code x scale. In memory a block is its codes, of 8 bits or of
// 4 (two in a byte, the first one low, each plus 8), followed by its scale:
//
//   packed  [ 256 codes | scale ][ 256 codes | scale ] ...      8 bits: 260 bytes a block; 4 bits: 132
//
// Blocks are independent, so whoever quantizes a range of whole blocks writes the bytes that belong to this range. A block that
// contains a NaN or an infinity becomes NaN. A block whose magnitudes are all below 2^-100 becomes zeros.
#pragma once

#include <cstdint>

#include "kernels/kernel_call.h"
#include "kernels/sums.h"

namespace trivet::kernels {

inline constexpr int64_t kQuantizedBlock = kSumBlock;  // shards are cut at multiples of it

constexpr int64_t quantized_block_bytes(int bits) { return kQuantizedBlock * bits / 8 + 4; }
constexpr int64_t quantized_bytes(int64_t elements, int bits) {
  return elements / kQuantizedBlock * quantized_block_bytes(bits);
}
// The largest code: 127 or 7.
constexpr int largest_code(int bits) { return (1 << (bits - 1)) - 1; }

// packed = the codes and scales of x. x has whole blocks, in float32 or 16 bits.
struct Quantize {
  ConstTensorView x;
  TensorView packed;  // uint8 [quantized_bytes(elements of x, bits)]
  int bits = 8;       // or 4

  void check() const;
  KernelCall describe() const;
};

// out = the values of `packed`, rounded to the type of out; out += with accumulate.
struct Dequantize {
  ConstTensorView packed;
  TensorView out;
  int bits = 8;
  bool accumulate = false;

  void check() const;
  KernelCall describe() const;
};

}  // namespace trivet::kernels

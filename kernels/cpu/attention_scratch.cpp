#include "kernels/cpu/attention_scratch.h"

#include <algorithm>

#include "kernels/workspace.h"

namespace trivet::kernels {
namespace {

using namespace cpu;

// The loops of any processor: in the type of sums, or in pairs, with copies for lengths that those cannot take.
template <typename Args>
int64_t most_bytes(const Args& args, int64_t elements, const PairScratch& in_pairs, int64_t copies) {
  const int64_t in_sums = elements * size_of(statistics_type(args.qkv.dtype));
  if (args.qkv.dtype != DType::BFloat16 || args.qkv.shape[1] % kPairTokens != 0 || args.head_size() % kPairHeadSize != 0)
    return in_sums;
  return std::max(in_sums, in_pairs.bytes() + (args.documents.absent() ? 0 : copies));
}

}  // namespace

int64_t thread_scratch_bytes(const Attention& args) {
  const int64_t tokens = args.qkv.shape[1], size = args.head_size();
  return most_bytes(args, LoopScratch::forward(padded(tokens, kTile), padded(size, kProductCols)),
                    PairScratch::forward(tokens, size), padded_copy_bytes(tokens, size, 1, 1, 1));
}

int64_t thread_scratch_bytes(const AttentionBackward& args) {
  const int64_t tokens = args.qkv.shape[1], size = args.head_size();
  return most_bytes(args, LoopScratch::backward(padded(tokens, kTile), padded(size, kProductCols)),
                    PairScratch::backward(tokens, size),
                    padded_copy_bytes(tokens, size, args.heads / args.key_value_heads, 2, 2));
}

}  // namespace trivet::kernels

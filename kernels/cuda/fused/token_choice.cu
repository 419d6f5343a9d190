// Chooses tokens, one block for each sequence, and moves their rows. A token's random word is computed anew wherever it is
// compared, which costs less than to store it. The results equal the CPU's.
#include "core/random.h"
#include "kernels/cuda/fused/elements.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

namespace trivet::kernels::cuda {
namespace {

constexpr int kThreads = 256;

struct Words {
  uint64_t key, first_sample;
  Number step;
  __device__ uint64_t counter_of(unsigned sequence) const {
    return (static_cast<uint64_t>(read(step)) << 32) + first_sample + sequence;
  }
  __device__ uint32_t word(int token, uint64_t counter) const {
    const PhiloxBlock words = philox(key, static_cast<uint64_t>(token / 4), counter);
    const int place = token % 4;  // every index is a constant, so that words stay in registers
    return place == 0 ? words[0] : place == 1 ? words[1] : place == 2 ? words[2] : words[3];
  }
};

// Counts the tokens of a block's sequence whose words are at most `most`.
__device__ int count_words(const Words& words, uint64_t counter, int sequence, uint32_t most) {
  int count = 0;
  for (int token = static_cast<int>(threadIdx.x); token < sequence; token += kThreads)
    count += words.word(token, counter) <= most ? 1 : 0;
  return join_group<kThreads>(count, Plus{});
}

__global__ void __launch_bounds__(kThreads) choose(Words words, int sequence, int chosen_count, int32_t* chosen) {
  const uint64_t counter = words.counter_of(blockIdx.x);
  // The largest word that is chosen: the smallest one for which there are enough.
  uint32_t low = 0, high = UINT32_MAX;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (count_words(words, counter, sequence, middle) >= chosen_count)
      high = middle;
    else
      low = middle + 1;
  }
  // Among the tokens that have this word, the first ones are chosen.
  const int below = low == 0 ? 0 : count_words(words, counter, sequence, low - 1), of_equal = chosen_count - below;
  int32_t* const to = chosen + int64_t{blockIdx.x} * chosen_count;
  int below_so_far = 0, equal_so_far = 0;
  for (int first = 0; first < sequence; first += kThreads) {
    const int token = first + static_cast<int>(threadIdx.x);
    const uint32_t word = token < sequence ? words.word(token, counter) : 0;
    const bool is_below = token < sequence && word < low, is_equal = token < sequence && word == low;
    const Prefix of_below = prefix_of_block<kThreads>(is_below ? 1 : 0), equal = prefix_of_block<kThreads>(is_equal ? 1 : 0);
    const int equal_before = equal_so_far + equal.before;
    const int place = below_so_far + of_below.before + min(equal_before, of_equal);
    if (is_below || (is_equal && equal_before < of_equal)) to[place] = token;
    below_so_far += of_below.all;
    equal_so_far += equal.all;
  }
}

// Row k of the chosen tokens and its row among all.
template <typename T, bool kGather>
struct Move {
  const T* from;
  T* to;
  const int32_t* chosen;
  int64_t of_sequence, sequence, width;
  template <int N>
  __device__ Pack<T, N> load(int64_t row, int64_t col) const {
    return load_pack<N>(from + (kGather ? row_of(row) : row) * width + col);
  }
  template <int N>
  __device__ void finish(int64_t row, int64_t col, const Pack<T, N>& loaded) const {
    store_pack(to + (kGather ? row : row_of(row)) * width + col, loaded);
  }
  __device__ int64_t row_of(int64_t row) const { return row / of_sequence * sequence + chosen[row]; }
};

template <bool kGather>
void move(ConstTensorView from, TensorView to, ConstTensorView chosen, int64_t sequence, const Launch& launch) {
  dispatch_device_float(from.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const Move<T, kGather> op{data_of<T>(from), data_of<T>(to), data_of<int32_t>(chosen),
                              chosen.shape[1],  sequence,       from.shape[2]};
    launch_rows<kPack, 2>(op, chosen.elements(), from.shape[2], aligned_for_packs<kPack>(op.from, static_cast<const T*>(op.to)),
                          launch);
  });
}

}  // namespace

void compute(const ChooseTokens& args, const Launch& launch) {
  if (args.chosen.elements() == 0) return;
  if (args.sequence > INT32_MAX - kThreads)
    throw std::logic_error("choose_tokens: a sequence must have fewer than 2^31 tokens");
  const Words words{args.key, static_cast<uint64_t>(args.first_sample), args.step};
  TRIVET_LAUNCH(choose, static_cast<unsigned>(args.chosen.shape[0]), kThreads, 0, launch.stream, words,
                static_cast<int>(args.sequence), static_cast<int>(args.chosen.shape[1]), data_of<int32_t>(args.chosen));
}

void compute(const GatherTokens& args, const Launch& launch) {
  move<true>(args.x, args.out, args.chosen, args.x.shape[1], launch);
}

void compute(const ScatterTokens& args, const Launch& launch) {
  move<false>(args.x, args.out, args.chosen, args.out.shape[1], launch);
}

}  // namespace trivet::kernels::cuda

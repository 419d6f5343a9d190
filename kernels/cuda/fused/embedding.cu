// Looks up rows of a table by token id: a thread copies a pack of columns.
#include "kernels/cuda/fused/elements.cuh"

namespace trivet::kernels::cuda {
namespace {

// With kPositions, a row of `positions` is added.
template <typename T, bool kPositions>
struct Lookup {
  const int32_t *tokens, *places;
  const T *table, *positions;
  T* out;
  int64_t hidden, sequence, rows, first_row, vocabulary;
  template <int N>
  struct Loaded {
    Pack<T, N> row, position;
  };
  template <int N>
  __device__ Loaded<N> load(int64_t token, int64_t col) const {
    Loaded<N> loaded;
    const int64_t id = tokens[token], row = id - first_row;
    if (row >= 0 && row < rows) {
      loaded.row = load_pack<N>(table + row * hidden + col);
    } else {  // the row is in another part, or the id is not a token
      const float value = id >= 0 && id < vocabulary ? 0.0f : NAN;
#pragma unroll
      for (int i = 0; i < N; ++i) loaded.row[i] = narrow<T>(value);
    }
    if constexpr (kPositions) {
      // With 64 bits, the division would be slow.
      const auto in_sequence = [&] { return static_cast<uint32_t>(token) % static_cast<uint32_t>(sequence); };
      const uint32_t place = places != nullptr ? static_cast<uint32_t>(places[token]) : in_sequence();
      loaded.position = load_pack<N>(positions + place * hidden + col);
    }
    return loaded;
  }
  template <int N>
  __device__ void finish(int64_t token, int64_t col, const Loaded<N>& loaded) const {
    Pack<T, N> result = loaded.row;
    if constexpr (kPositions) {
#pragma unroll
      for (int i = 0; i < N; ++i) result[i] = narrow<T>(widen(loaded.row[i]) + widen(loaded.position[i]));
    }
    store_pack(out + token * hidden + col, result);
  }
};

template <bool kPositions>
void look_up(const Embedding& args, const Launch& launch) {
  dispatch_device_float(args.table.dtype, [&]<typename T>() {
    constexpr int kPack = kPackOf<T>;
    const int64_t rows = args.table.shape[0], hidden = args.table.shape[1];
    const Lookup<T, kPositions> op{data_of<int32_t>(args.tokens),
                                   data_of<int32_t>(args.places),
                                   data_of<T>(args.table),
                                   data_of<T>(args.positions),
                                   data_of<T>(args.out),
                                   hidden,
                                   args.tokens.shape[1],
                                   rows,
                                   args.rows.first,
                                   args.rows.vocabulary > 0 ? args.rows.vocabulary : rows};
    const bool aligned = aligned_for_packs<kPack>(op.table, op.positions, static_cast<const T*>(op.out));
    launch_rows<kPack, 2>(op, args.tokens.elements(), hidden, aligned, launch);
  });
}

}  // namespace

void compute(const Embedding& args, const Launch& launch) {
  if (args.tokens.elements() > UINT32_MAX) throw std::logic_error("embedding: a call on CUDA must have fewer than 2^32 tokens");
  if (args.positions.absent())
    look_up<false>(args, launch);
  else
    look_up<true>(args, launch);
}

}  // namespace trivet::kernels::cuda

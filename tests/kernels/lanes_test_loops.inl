#include "kernels/cpu/lanes.inl"
#include "kernels/cpu/philox_lanes.inl"

void exponentials(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    Lanes<float>::type lanes;
    load(from + i, lanes);
    exponentiate(lanes);
    store(lanes, to + i);
  }
}

void transpose_block(const float* from, float* to) {
  Lanes<float>::type block[16];
  for (int row = 0; row < 16; ++row) load(from + 16 * row, block[row]);
  transpose<float>(block);
  for (int row = 0; row < 16; ++row) store(block[row], to + 16 * row);
}

void philox_block_words(uint64_t key, uint64_t first_block, uint64_t counter_high, uint32_t* words) {
  philox_words_of_16_blocks(key, first_block, counter_high, words);
}

void round_to_bfloat16(const float* from, bfloat16* to) {
  Lanes<float>::type lanes;
  load(from, lanes);
  store(lanes, to);
}

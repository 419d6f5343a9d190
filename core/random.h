// Random numbers without state: each is a function of where it is used (Philox4x32-10, Salmon et al., SC'11).
//
// initial values:  key = hash(seed, parameter name), counter = element
// dropout:         key = hash(seed, site), counter = (step, sample, element within the sample)
// so no layout, schedule, restart or thread count can change them, and there is nothing to save in a checkpoint.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace trivet {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0, p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n1 = static_cast<uint32_t>(p1);
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1, n3 = static_cast<uint32_t>(p0);
    c0 = n0, c1 = n1, c2 = n2, c3 = n3;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// FNV-1a over the bytes, then mixed with the seed (SplitMix64 finaliser).
constexpr uint64_t random_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  uint64_t z = hash + seed * 0x9E3779B97F4A7C15u + 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// 24 bits -> [0, 1), exact in float.
constexpr float unit_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace trivet

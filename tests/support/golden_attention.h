// Attention of 24 random cases as PyTorch computes it in float64, with causality, windows, caps and documents in turn
// (tests/golden/attention_reference.py, which says what the numbers are).
//
// B sequences, S tokens, N query heads, G key/value heads, D head size.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trivet::test {

struct GoldenAttention {
  int64_t number = 0;  // in the file
  int64_t sequences = 0, tokens = 0, heads = 0, key_value_heads = 0, head_size = 0;
  bool causal = true;
  int64_t window = 0;
  double scale = 0, soft_cap = 0;
  std::vector<int32_t> documents;       // [B, S], as kernels take them; empty: none
  std::vector<double> out, dq, dk, dv;  // [B S], a check of each token's row

  int64_t query_width() const { return heads * head_size; }
  int64_t key_width() const { return key_value_heads * head_size; }
  int64_t width() const { return query_width() + 2 * key_width(); }
  double qkv(int64_t element) const { return 2 * std::sin(place(element, 0.7, 0.01)); }  // [B, S, (N + 2 G) D]
  double dout(int64_t element) const { return std::cos(place(element, 1.3, 0.02)); }     // [B, S, N D]

  // Compares results of the token `token` of [B S]: its rows of out and dqkv. They are sums of at most 64 elements, each a sum
  // of at most 104 terms that are smaller than 50; the golden numbers have 13 digits.
  template <typename Out, typename Dqkv>
  void expect_token(int64_t token, const Out& out_of, const Dqkv& dqkv_of, const std::string& where) const {
    const auto expect = [&](const char* name, const std::vector<double>& golden, int64_t first, int64_t count,
                            const auto& row) {
      double sum = 0;
      for (int64_t e = 0; e < count; ++e) sum += row(first + e) * std::sin(0.9 * static_cast<double>(e) + 1);
      EXPECT_NEAR(sum, golden[token], 1e-11 * std::max(1.0, std::abs(golden[token])))
          << name << " of token " << token << " of case " << number << where;
    };
    expect("out", out, 0, query_width(), out_of);
    expect("dq", dq, 0, query_width(), dqkv_of);
    expect("dk", dk, query_width(), key_width(), dqkv_of);
    expect("dv", dv, query_width() + key_width(), key_width(), dqkv_of);
  }

 private:
  double place(int64_t element, double factor, double square) const {
    const auto e = static_cast<double>(element);
    return factor * e + square * e * e + static_cast<double>(number);
  }
};

// The first token of each token's document; padding has the number of tokens.
inline std::vector<int32_t> first_tokens(const nlohmann::json& lengths, int64_t tokens) {
  std::vector<int32_t> documents;
  for (const nlohmann::json& row : lengths) {
    int32_t begin = 0;
    for (const int32_t length : row) {
      documents.insert(documents.end(), length, begin);
      begin += length;
    }
    documents.insert(documents.end(), tokens - begin, static_cast<int32_t>(tokens));
  }
  return documents;
}

inline std::vector<GoldenAttention> golden_attention() {
  std::vector<GoldenAttention> cases;
  std::ifstream file(TRIVET_SOURCE_DIR "/tests/golden/attention.jsonl");
  for (std::string line; std::getline(file, line);) {
    const nlohmann::json golden = nlohmann::json::parse(line);
    cases.push_back({.number = static_cast<int64_t>(cases.size()),
                     .sequences = golden["sequences"],
                     .tokens = golden["tokens"],
                     .heads = golden["heads"],
                     .key_value_heads = golden["key_value_heads"],
                     .head_size = golden["head_size"],
                     .causal = golden["causal"],
                     .window = golden["window"],
                     .scale = golden["scale"],
                     .soft_cap = golden["soft_cap"],
                     .documents = first_tokens(golden["documents"], golden["tokens"]),
                     .out = golden["out"],
                     .dq = golden["dq"],
                     .dk = golden["dk"],
                     .dv = golden["dv"]});
  }
  EXPECT_EQ(cases.size(), 24);
  return cases;
}

}  // namespace trivet::test

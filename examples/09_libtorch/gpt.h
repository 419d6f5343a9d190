// A small GPT in libtorch, which knows nothing of Trivet: four or so modules, one after another.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

struct GptSize {
  int64_t vocabulary = 64, sequence = 32, hidden = 64, heads = 4, blocks = 2;
};

struct EmbeddingImpl : torch::nn::Module {
  explicit EmbeddingImpl(const GptSize& size)
      : tokens(register_module("tokens", torch::nn::Embedding(size.vocabulary, size.hidden))),
        positions(register_module("positions", torch::nn::Embedding(size.sequence, size.hidden))) {}
  torch::Tensor forward(const torch::Tensor& ids) { return tokens(ids) + positions(torch::arange(ids.size(1))); }
  torch::nn::Embedding tokens, positions;
};
TORCH_MODULE(Embedding);

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptSize& size)
      : heads(size.heads),
        norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.hidden})))),
        norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.hidden})))),
        qkv(register_module("qkv", torch::nn::Linear(size.hidden, 3 * size.hidden))),
        out(register_module("out", torch::nn::Linear(size.hidden, size.hidden))),
        up(register_module("up", torch::nn::Linear(size.hidden, 4 * size.hidden))),
        down(register_module("down", torch::nn::Linear(4 * size.hidden, size.hidden))) {}
  // x [B, S, H]
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor middle = x + out(attention(qkv(norm1(x))));
    return middle + down(torch::gelu(up(norm2(middle))));
  }
  torch::Tensor attention(const torch::Tensor& projected) {
    const int64_t batch = projected.size(0), sequence = projected.size(1), head = projected.size(2) / 3 / heads;
    const torch::Tensor parts = projected.view({batch, sequence, 3, heads, head}).permute({2, 0, 3, 1, 4});  // [3, B, N, S, D]
    const torch::Tensor mask = torch::full({sequence, sequence}, -1e9).triu(1);
    const torch::Tensor scores = parts[0].matmul(parts[1].transpose(-2, -1)) / std::sqrt(static_cast<double>(head)) + mask;
    return torch::softmax(scores, -1).matmul(parts[2]).transpose(1, 2).reshape({batch, sequence, heads * head});
  }
  int64_t heads;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
};
TORCH_MODULE(Block);

struct HeadImpl : torch::nn::Module {
  explicit HeadImpl(const GptSize& size)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.hidden})))),
        logits(register_module("logits", torch::nn::Linear(size.hidden, size.vocabulary))) {}
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& targets) {
    return torch::nn::functional::cross_entropy(logits(norm(x)).flatten(0, 1), targets.flatten());
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear logits;
};
TORCH_MODULE(Head);

// Runs one module, under the name that it has in the model.
using Forward = std::function<torch::Tensor(const torch::Tensor&)>;
using RunModule = std::function<torch::Tensor(const std::string& name, const torch::Tensor& x, const Forward& forward)>;
inline torch::Tensor run_directly(const std::string&, const torch::Tensor& x, const Forward& forward) { return forward(x); }

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptSize& size)
      : embedding(register_module("embedding", Embedding(size))), head(register_module("head", Head(size))) {
    for (int64_t i = 0; i < size.blocks; ++i) blocks.push_back(register_module("block" + std::to_string(i), Block(size)));
  }
  // The mean loss of ids [B, S + 1], each of which is predicted from those before it.
  torch::Tensor forward(const torch::Tensor& ids, const RunModule& run) {
    const torch::Tensor targets = ids.slice(1, 1);
    torch::Tensor x = run("embedding", ids.slice(1, 0, -1), [&](const torch::Tensor& in) { return embedding(in); });
    for (size_t i = 0; i < blocks.size(); ++i)
      x = run("block" + std::to_string(i), x, [&](const torch::Tensor& in) { return blocks[i](in); });
    return run("head", x, [&](const torch::Tensor& in) { return head(in, targets); });
  }
  Embedding embedding;
  std::vector<Block> blocks;
  Head head;
};
TORCH_MODULE(Gpt);

// Sequences [samples, S + 1] in which each token follows from the one before it, with some noise. The same number gives the
// same.
inline torch::Tensor sequences(const GptSize& size, int64_t number, int64_t samples) {
  torch::Tensor ids = torch::empty({samples, size.sequence + 1}, torch::kInt64);
  auto rows = ids.accessor<int64_t, 2>();
  uint64_t state = static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u + 1;
  const auto next = [&] { return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 40); };
  for (int64_t sample = 0; sample < samples; ++sample)
    for (int64_t i = 0, token = next() % size.vocabulary; i <= size.sequence; ++i) {
      rows[sample][i] = token;
      token = next() % 8 == 0 ? next() % size.vocabulary : (5 * token + 3) % size.vocabulary;
    }
  return ids;
}

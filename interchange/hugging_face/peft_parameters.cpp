#include "interchange/hugging_face/peft_parameters.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace trivet::hugging_face {
namespace {

constexpr std::string_view kExperts = ".experts.", kMlp = ".mlp";
constexpr int64_t kBlock = 32;  // elements of MXFP4 with one scale

// The name that the files have for it, or "".
std::string name_in(const foreign::TensorFiles& files, const std::string& name) {
  if (files.find(name)) return name;
  const std::string rest = name.substr(name.find('.') + 1);
  return files.find(rest) ? rest : "";
}

// The matrices of one expert that make the parameter, in their order.
struct Names {
  std::string_view block;
  std::array<std::string_view, 2> gate_up;
  std::string_view down;
};
constexpr std::array<Names, 2> kNames{
    {{".mlp", {"gate_proj", "up_proj"}, "down_proj"}, {".block_sparse_moe", {"w1", "w3"}, "w2"}}};

std::optional<ParameterOfExperts> find_one_by_one(const foreign::TensorFiles& files, const std::string& block, bool gate_up) {
  for (const Names& names : kNames) {
    ParameterOfExperts parameter;
    for (;; ++parameter.experts) {
      parameter.out = 0;
      std::vector<PartOfExperts> of_expert;
      for (const std::string_view matrix :
           gate_up ? std::vector<std::string_view>(names.gate_up.begin(), names.gate_up.end()) : std::vector{names.down}) {
        const std::string tensor =
            name_in(files, fmt::format("{}{}.experts.{}.{}.weight", block, names.block, parameter.experts, matrix));
        if (tensor.empty() || files.find(tensor)->shape.dims() != 2) break;
        const Shape& shape = files.find(tensor)->shape;
        of_expert.push_back({.tensor = tensor, .expert = parameter.experts, .first = parameter.out, .rows = shape[0]});
        parameter.out += shape[0];
        parameter.in = shape[1];
      }
      if (of_expert.size() != (gate_up ? 2 : 1)) break;
      parameter.parts.insert(parameter.parts.end(), of_expert.begin(), of_expert.end());
    }
    if (parameter.experts == 0) continue;
    parameter.out = 0;
    for (const PartOfExperts& part : parameter.parts) parameter.out += part.expert == 0 ? part.rows : 0;
    const size_t of_expert = parameter.parts.size() / static_cast<size_t>(parameter.experts);
    for (size_t i = 0; i < parameter.parts.size(); ++i) {
      const PartOfExperts &part = parameter.parts[i], &like = parameter.parts[i % of_expert];
      if (part.rows != like.rows || files.find(part.tensor)->shape != files.find(like.tensor)->shape) return {};
    }
    return parameter.out > 0 ? std::optional(parameter) : std::nullopt;
  }
  return {};
}

}  // namespace

std::optional<ParameterOfExperts> find_parameter(const foreign::TensorFiles& files, const std::string& parameter,
                                                 bool inputs_first) {
  if (const std::string tensor = name_in(files, parameter); !tensor.empty()) {
    const Shape& shape = files.find(tensor)->shape;
    if (shape.dims() != 3 || shape.elements() == 0) return {};
    const int64_t out = shape[inputs_first ? 2 : 1], in = shape[inputs_first ? 1 : 2];
    return ParameterOfExperts{shape[0], out, in, {{.tensor = tensor, .rows = out, .inputs_first = inputs_first}}};
  }
  if (const std::string blocks = name_in(files, parameter + "_blocks"); !blocks.empty()) {
    const Shape& shape = files.find(blocks)->shape;
    if (shape.dims() != 4 || shape.elements() == 0) return {};
    const std::string tensor = blocks.substr(0, blocks.size() - std::string_view("_blocks").size());
    return ParameterOfExperts{shape[0], shape[1], shape[2] * kBlock, {{.tensor = tensor, .rows = shape[1]}}};
  }
  const size_t experts = parameter.rfind(kExperts);
  const std::string mlp = parameter.substr(0, experts);
  if (!mlp.ends_with(kMlp)) return {};
  return find_one_by_one(files, mlp.substr(0, mlp.size() - kMlp.size()), parameter.ends_with("gate_up_proj"));
}

AddedMatrices added_to(const PartOfExperts& part, const ParameterOfExperts& parameter, const std::vector<float>& a,
                       const std::vector<float>& b, int64_t rank) {
  const int64_t experts = parameter.experts, begin = part.expert < 0 ? 0 : part.expert,
                end = part.expert < 0 ? experts : part.expert + 1;
  const auto of_a = [&](int64_t expert, int64_t k, int64_t column) {
    return a[static_cast<size_t>((expert * rank + k) * parameter.in + column)];
  };
  const auto of_b = [&](int64_t expert, int64_t row, int64_t k) {
    return b[static_cast<size_t>((part.first + row) * rank * experts + k * experts + expert)];
  };
  AddedMatrices added{.rows = (end - begin) * (part.inputs_first ? parameter.in : part.rows), .matrices = end - begin};
  for (int64_t expert = begin; expert < end; ++expert) {
    const int64_t rows = part.inputs_first ? parameter.in : part.rows, columns = part.inputs_first ? part.rows : parameter.in;
    for (int64_t k = 0; k < rank; ++k)
      for (int64_t column = 0; column < columns; ++column)
        added.a.push_back(part.inputs_first ? of_b(expert, column, k) : of_a(expert, k, column));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < rank; ++k) added.b.push_back(part.inputs_first ? of_a(expert, k, row) : of_b(expert, row, k));
  }
  return added;
}

}  // namespace trivet::hugging_face

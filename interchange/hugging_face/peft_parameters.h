// Adapters of experts in files of PEFT (peft.h), and the tensors of a model that they change. These hold experts in one of the
// forms of fused_experts.h and transposed_experts.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interchange/foreign/tensor_files.h"
#include "interchange/hugging_face/low_rank.h"

namespace trivet::hugging_face {

// One tensor of the model: rows of one expert, or all experts.
struct PartOfExperts {
  std::string tensor;
  int64_t expert = -1;        // -1: all, one after another
  int64_t first = 0;          // the first of its rows of B
  int64_t rows = 0;           // the outputs of an expert in it
  bool inputs_first = false;  // it is stored [E, in, out]
};

// A parameter of all experts, [out, in] of each: "model.layers.3.mlp.experts.gate_up_proj".
struct ParameterOfExperts {
  int64_t experts = 0, out = 0, in = 0;
  std::vector<PartOfExperts> parts;
};

// Finds its tensors, whose names may lack their first part ("model."); none: the files have no such experts. `inputs_first`:
// those that are not in MXFP4 are stored so. Experts of unequal shapes count as none.
std::optional<ParameterOfExperts> find_parameter(const foreign::TensorFiles& files, const std::string& parameter,
                                                 bool inputs_first);

// The low-rank product that a part gets from the matrices of PEFT, A[r E, in] and B[out, r E] (peft_experts.h).
struct AddedMatrices {
  std::vector<float> a, b;  // LowRankProduct::a and b
  int64_t rows = 0, matrices = 1;
};
AddedMatrices added_to(const PartOfExperts& part, const ParameterOfExperts& parameter, const std::vector<float>& a,
                       const std::vector<float>& b, int64_t rank);

}  // namespace trivet::hugging_face

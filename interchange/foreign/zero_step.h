// The parts of a step of DeepSpeed's checkpoint, and how each stage puts them together (zero_checkpoint.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file_system.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/foreign/tensor_files.h"

namespace trivet::foreign {

inline constexpr std::string_view kModelStates = "_model_states.pt", kOptimizerStates = "_optim_states.pt";

struct ZeroStep {
  FileSystem& files;
  std::string path;
  TensorFiles& to;
  int64_t stage = 0, ranks = 0;
  std::vector<std::vector<PtTensor>> parts = {};    // [rank][group]
  std::vector<std::vector<int64_t>> paddings = {};  // [group][parameter]; empty: there are none

  PtFile open(const std::string& name) const { return PtFile(to.keep(files.open(path + "/" + name)), AcceptedNames::Any); }
  // The files of ranks 0, 1, 2 ..., all of which must be there.
  std::vector<std::string> rank_files(std::string_view ending) const;
  // Reads stage, ranks, parts and paddings from the files of the optimizer.
  void read_parts(const std::vector<std::string>& names);
};

void add_groups(const ZeroStep& step, const PtFile& model);  // stages 1 and 2
void add_stage_3(const ZeroStep& step, const PtFile& model);
// Parameters that are not trained have no part in the optimizer: at stage 3, each rank's part is with the model.
void add_frozen_parts(const ZeroStep& step, const PtFile& first, const std::vector<std::string>& names);

// A vector of elements that lies in several files, in the order of the parts.
class FlatParts {
 public:
  void add(const PtTensor& tensor) {
    if (tensor.shape.elements() == 0) return;
    parts_.push_back({tensor, elements_});
    elements_ += tensor.shape.elements();
  }
  int64_t elements() const { return elements_; }
  // The runs of elements [first, first + count), which must be there, as elements from `to` on of a tensor.
  void append_runs(int64_t first, int64_t count, int64_t to, std::vector<Run>& runs) const;
  // Returns the type of all parts; nothing: they differ, or there are none.
  std::optional<DType> dtype() const;

 private:
  struct Part {
    PtTensor tensor;
    int64_t begin;
  };
  std::vector<Part> parts_;
  int64_t elements_ = 0;
};

// The name and shape of a parameter, in the order of the file.
using Shapes = std::vector<std::pair<std::string, Shape>>;
Shapes shapes_of(const PtFile& file, const PickleValue& dict);
const std::vector<const PickleValue*>& list_of(const PtFile& file, const PickleValue& value, std::string_view what);

// Adds a tensor of these parts.
void add_tensor(const ZeroStep& step, const PtFile& file, const std::string& name, const Shape& shape, const FlatParts& parts,
                std::vector<Run> runs);
[[noreturn]] void refuse_size(const PtFile& file, int64_t group, const std::string& name, int64_t needed, int64_t held);

}  // namespace trivet::foreign

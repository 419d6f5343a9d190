#include "zero/shard_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "kernels/kernels.h"
#include "tensor_parallel/cuts.h"

namespace trivet::zero {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// Returns the longest block of elements, up to kSumBlock, such that expert ranks, and a tensor size that divides kSumChunks,
// cut the parameter only between two blocks.
int64_t sum_block_of(const ParameterSpec& spec) {
  int64_t block = std::gcd(kernels::kSumBlock, spec.sharing == Sharing::Expert ? spec.shape.elements() / spec.matrices : 0);
  if (spec.split.dim < 0) return block;
  int64_t below = 1;  // elements of one index along the split dim
  for (int dim = spec.split.dim + 1; dim < spec.shape.dims(); ++dim) below *= spec.shape[dim];
  int64_t end = 0;
  for (size_t i = 0; i < spec.split.segments.size(); ++i) {
    const int64_t units = spec.split.units.empty() ? spec.split.segments[i] : spec.split.units[i];
    for (int chunk = 0; chunk < tensor_parallel::kSumChunks; ++chunk) {
      const int64_t boundary = units * chunk / tensor_parallel::kSumChunks * (spec.split.segments[i] / units);
      block = std::gcd(block, (end + boundary) * below);
    }
    end += spec.split.segments[i];
    block = std::gcd(block, end * below);
  }
  return block;
}

// Properties that all parameters of one group share.
struct Kind {
  Sharing sharing;
  bool trainable, persistent, keeps_float32, summed_over_tensor, shared;
  GroupRole role;
};

class LayoutBuilder {
 public:
  LayoutBuilder(const std::vector<NamedParameters>& layers, const LayoutOptions& options) : layers_(layers), options_(options) {
    layout_.tensor_size = options.tensor_size;
  }

  ShardLayout build() {
    find_owners();
    for (size_t block = 0; block < layers_.size(); ++block) add_owned(static_cast<int>(block));
    for (size_t block = 0; block < layers_.size(); ++block) place(static_cast<int>(block));
    for (BlockLayout& block : layout_.blocks) {
      if (!block.here) block.groups.clear(), block.weights.clear(), block.gradients.clear();
      for (FlatGroup& group : block.groups) pad(group);
    }
    return std::move(layout_);
  }

 private:
  struct Owner {
    int block = 0;
    const ParameterSpec* spec = nullptr;
    int users = 1;
    bool shared = false;
    ParameterPlace place;
  };

  int rank_of(int block) const {
    return options_.pipeline_rank_of_block.empty() ? options_.pipeline_rank : options_.pipeline_rank_of_block[block];
  }
  bool here(int block) const { return rank_of(block) == options_.pipeline_rank; }
  std::string full_name(int block, const ParameterSpec& spec) const {
    return layers_[block].layer.empty() ? spec.name : layers_[block].layer + "." + spec.name;
  }

  void find_owners() {
    for (int block = 0; block < static_cast<int>(layers_.size()); ++block)
      for (const ParameterSpec& spec : layers_[block].parameters) {
        if (!spec.tied_to.empty()) continue;
        const std::string name = full_name(block, spec);
        if (!owners_.emplace(name, Owner{block, &spec, 1, false, {}}).second)
          throw ConfigError(fmt::format("model: two parameters are named \"{}\"", name));
      }
    for (int block = 0; block < static_cast<int>(layers_.size()); ++block)
      for (const ParameterSpec& spec : layers_[block].parameters)
        if (!spec.tied_to.empty()) add_user(block, spec);
  }

  void add_user(int block, const ParameterSpec& spec) {
    const auto found = owners_.find(spec.tied_to);
    if (found == owners_.end())
      throw ConfigError(fmt::format("model: {} is tied to \"{}\", which no layer owns", full_name(block, spec), spec.tied_to));
    Owner& owner = found->second;
    if (!(owner.spec->shape == spec.shape))
      throw ConfigError(fmt::format("model: {} has shape {} but is tied to \"{}\" of shape {}", full_name(block, spec),
                                    to_string(spec.shape), spec.tied_to, to_string(owner.spec->shape)));
    ++owner.users;
    owner.shared |= needs_tie(block, owner);
  }

  // Returns whether gradients of `block` for the weight go to an accumulator other than the owner's.
  bool needs_tie(int block, const Owner& owner) const {
    return rank_of(block) != rank_of(owner.block) || (options_.separate_tied_gradients && owner.spec->trainable);
  }

  void add_owned(int block) {
    BlockLayout& out = layout_.blocks.emplace_back();
    out.name = layers_[block].layer;
    out.role = layers_[block].role;
    out.here = here(block);
    for (const ParameterSpec& spec : layers_[block].parameters) {
      if (!spec.tied_to.empty()) continue;
      Owner& owner = owners_.at(full_name(block, spec));
      owner.place = append(block, full_name(block, spec), spec, kind_of(spec, owner.shared, GroupRole::Own), owner.users);
    }
  }

  Kind kind_of(const ParameterSpec& spec, bool shared, GroupRole role) {
    return {options_.expert_size > 1 ? spec.sharing : Sharing::Dense,
            spec.trainable,
            role == GroupRole::Own ? persists(spec) : false,
            spec.keeps_float32,
            options_.sequence_parallel && options_.tensor_size > 1 && spec.split.dim < 0,
            shared,
            role};
  }

  bool persists(const ParameterSpec& spec) {
    const int64_t elements = spec.shape.elements();
    if (elements >= options_.persistence_threshold || persisted_ + elements > options_.persistence_limit) return false;
    persisted_ += elements;
    return true;
  }

  ParameterPlace append(int block, const std::string& name, const ParameterSpec& spec, const Kind& kind, int users) {
    BlockLayout& out = layout_.blocks[block];
    const int group = group_for(out, kind);
    FlatGroup& flat = out.groups[group];
    flat.users = std::max(flat.users, users);
    const ParameterPlace place{block, group, static_cast<int>(flat.parameters.size())};
    tensor_parallel::LocalPart part = part_of(name, spec);
    const int64_t elements = part.shape.elements();
    flat.parameters.push_back({name, spec, std::move(part), flat.whole_elements, sum_block_of(spec)});
    flat.whole_elements += round_up(elements, kernels::kSumBlock);
    return place;
  }

  // The rank's part of a parameter. Expert ranks have consecutive matrices of it, of which tensor ranks have parts.
  tensor_parallel::LocalPart part_of(const std::string& name, const ParameterSpec& spec) const {
    if (spec.sharing == Sharing::Dense || options_.expert_size == 1)
      return tensor_parallel::local_part(spec, options_.tensor_rank, options_.tensor_size);
    if (spec.matrices % options_.expert_size != 0)
      throw ConfigError(fmt::format("parallel.expert: the {} matrices of {} cannot be divided among {} ranks; use a divisor",
                                    spec.matrices, name, options_.expert_size));
    ParameterSpec own = spec;
    own.shape[0] /= options_.expert_size;
    if (spec.split.dim == 0) own.split.segments.resize(spec.split.segments.size() / static_cast<size_t>(options_.expert_size));
    tensor_parallel::LocalPart part = tensor_parallel::local_part(own, options_.tensor_rank, options_.tensor_size);
    for (tensor_parallel::LocalBox& box : part.boxes) box.start[0] += options_.expert_rank * own.shape[0];
    return part;
  }

  int group_for(BlockLayout& block, const Kind& kind) const {
    for (size_t g = 0; g < block.groups.size(); ++g) {
      const FlatGroup& group = block.groups[g];
      const bool alike = group.sharing == kind.sharing && group.trainable == kind.trainable &&
                         group.persistent == kind.persistent && group.keeps_float32 == kind.keeps_float32 &&
                         group.summed_over_tensor == kind.summed_over_tensor;
      // A replica and its owner must be cut in the same way, so a shared weight is alone in its group.
      if (alike && !kind.shared && !group.shared && kind.role == GroupRole::Own && group.role == GroupRole::Own)
        return static_cast<int>(g);
    }
    FlatGroup group;
    group.sharing = kind.sharing;
    group.parts = kind.sharing == Sharing::Expert ? options_.expert_size : 1;
    group.trainable = kind.trainable;
    group.persistent = kind.persistent;
    group.keeps_float32 = kind.keeps_float32;
    group.summed_over_tensor = kind.summed_over_tensor;
    group.shared = kind.shared;
    group.role = kind.role;
    block.groups.push_back(std::move(group));
    return static_cast<int>(block.groups.size()) - 1;
  }

  void place(int block) {
    std::vector<ParameterPlace> weights, gradients;
    for (const ParameterSpec& spec : layers_[block].parameters) {
      const std::string name = spec.tied_to.empty() ? full_name(block, spec) : spec.tied_to;
      const Owner& owner = owners_.at(name);
      weights.push_back(owner.place);
      gradients.push_back(owner.place);
      if (!spec.tied_to.empty()) tie(block, name, owner, weights.back(), gradients.back());
    }
    BlockLayout& out = layout_.blocks[block];
    out.weight_blocks = blocks_of(block, weights);
    out.gradient_blocks = blocks_of(block, gradients);
    out.weights = std::move(weights);
    out.gradients = std::move(gradients);
  }

  // Gives a tied parameter of `block` its places; see the Note.
  void tie(int block, const std::string& name, const Owner& owner, ParameterPlace& weight, ParameterPlace& gradient) {
    if (!needs_tie(block, owner)) return;
    const bool elsewhere = rank_of(block) != rank_of(owner.block);
    TiedWeight tied{owner.block, block, rank_of(owner.block), rank_of(block), owner.place, {}};
    const FlatGroup& owners = layout_.blocks[owner.block].groups[owner.place.group];
    Kind kind = kind_of(*owner.spec, owner.shared, elsewhere ? GroupRole::Replica : GroupRole::TiedGradients);
    kind.persistent = owners.persistent;
    gradient = append(block, name, *owner.spec, kind, owner.users);
    if (elsewhere) weight = gradient;
    tied.user = gradient;
    if (here(block) || here(owner.block)) layout_.ties.push_back(tied);
  }

  static std::vector<int> blocks_of(int block, const std::vector<ParameterPlace>& places) {
    std::vector<int> blocks{block};
    for (const ParameterPlace& place : places)
      if (std::find(blocks.begin(), blocks.end(), place.block) == blocks.end()) blocks.push_back(place.block);
    return blocks;
  }

  void pad(FlatGroup& group) const {
    group.quantized = group.role != GroupRole::TiedGradients && !group.persistent && !group.keeps_float32 &&
                      (group.trainable ? options_.quantized : options_.quantized_frozen);
    group.shards = options_.shards[group.sharing];
    group.shard_elements = round_up(group.whole_elements, kernels::kSumBlock * group.shards) / group.shards;
    group.whole_elements = group.shard_elements * group.shards;
  }

  const std::vector<NamedParameters>& layers_;
  const LayoutOptions& options_;
  ShardLayout layout_;
  std::map<std::string, Owner> owners_;
  int64_t persisted_ = 0;
};

}  // namespace

int64_t FlatGroup::parameter_elements() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.elements();
  return sum;
}

bool ShardLayout::is_divided() const {
  for (const BlockLayout& block : blocks)
    for (const FlatGroup& group : block.groups)
      if (group.shards > 1) return true;
  return false;
}

ShardLayout make_shard_layout(const std::vector<NamedParameters>& layers, const LayoutOptions& options) {
  return LayoutBuilder(layers, options).build();
}

Intersection intersection(int64_t offset, int64_t elements, int64_t first, int64_t count) {
  const int64_t begin = std::max(offset, first);
  const int64_t end = std::min(offset + elements, first + count);
  if (begin >= end) return {};
  return {begin - offset, begin - first, end - begin};
}

}  // namespace trivet::zero

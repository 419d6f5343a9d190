#include "zero/shard_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "kernels/kernels.h"

namespace trivet::zero {
namespace {

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

class LayoutBuilder {
 public:
  explicit LayoutBuilder(const LayoutOptions& options) : options_(options) { layout_.ranks = options.ranks; }

  ShardLayout build(const std::vector<NamedParameters>& layers) {
    for (const auto& layer : layers) add_owned(layer);
    for (size_t block = 0; block < layers.size(); ++block) place(static_cast<int>(block), layers[block]);
    for (BlockLayout& block : layout_.blocks)
      for (FlatGroup& group : block.groups) pad(group);
    return std::move(layout_);
  }

 private:
  static std::string full_name(const NamedParameters& layer, const ParameterSpec& spec) {
    return layer.layer + "." + spec.name;
  }

  void add_owned(const NamedParameters& layer) {
    const int block = static_cast<int>(layout_.blocks.size());
    BlockLayout& out = layout_.blocks.emplace_back();
    out.name = layer.layer;
    out.used_blocks = {block};
    for (const ParameterSpec& spec : layer.parameters) {
      if (!spec.tied_to.empty()) continue;
      const std::string name = full_name(layer, spec);
      const int group = group_for(out, spec.trainable, persists(spec));
      FlatGroup& flat = out.groups[static_cast<size_t>(group)];
      const ParameterPlace place{block, group, static_cast<int>(flat.parameters.size())};
      if (!owners_.emplace(name, place).second) throw ConfigError(fmt::format("model: two parameters are named \"{}\"", name));
      flat.parameters.push_back({name, spec, flat.whole_elements});
      flat.whole_elements += round_up(spec.shape.elements(), kernels::kSumBlock);
    }
  }

  bool persists(const ParameterSpec& spec) {
    const int64_t elements = spec.shape.elements();
    if (elements >= options_.persistence_threshold || persisted_ + elements > options_.persistence_limit) return false;
    persisted_ += elements;
    return true;
  }

  static int group_for(BlockLayout& block, bool trainable, bool persistent) {
    for (size_t g = 0; g < block.groups.size(); ++g)
      if (block.groups[g].trainable == trainable && block.groups[g].persistent == persistent) return static_cast<int>(g);
    FlatGroup group;
    group.trainable = trainable;
    group.persistent = persistent;
    block.groups.push_back(std::move(group));
    return static_cast<int>(block.groups.size()) - 1;
  }

  void place(int block, const NamedParameters& layer) {
    BlockLayout& out = layout_.blocks[static_cast<size_t>(block)];
    for (const ParameterSpec& spec : layer.parameters) {
      const std::string name = spec.tied_to.empty() ? full_name(layer, spec) : spec.tied_to;
      const auto owner = owners_.find(name);
      if (owner == owners_.end())
        throw ConfigError(
            fmt::format("model: {} is tied to \"{}\", which no layer owns", full_name(layer, spec), spec.tied_to));
      const ParameterPlace& place = owner->second;
      const FlatParameter& target = layout_.blocks[static_cast<size_t>(place.block)]
                                        .groups[static_cast<size_t>(place.group)]
                                        .parameters[static_cast<size_t>(place.index)];
      if (!(target.spec.shape == spec.shape))
        throw ConfigError(fmt::format("model: {} has shape {} but is tied to \"{}\" of shape {}", full_name(layer, spec),
                                      to_string(spec.shape), name, to_string(target.spec.shape)));
      out.places.push_back(place);
      if (std::find(out.used_blocks.begin(), out.used_blocks.end(), place.block) == out.used_blocks.end())
        out.used_blocks.push_back(place.block);
    }
  }

  void pad(FlatGroup& group) const {
    group.shard_elements = round_up(group.whole_elements, kernels::kSumBlock * options_.ranks) / options_.ranks;
    group.whole_elements = group.shard_elements * options_.ranks;
  }

  const LayoutOptions& options_;
  ShardLayout layout_;
  std::map<std::string, ParameterPlace> owners_;
  int64_t persisted_ = 0;
};

}  // namespace

int64_t FlatGroup::parameter_elements() const {
  int64_t sum = 0;
  for (const auto& parameter : parameters) sum += parameter.elements();
  return sum;
}

ShardLayout make_shard_layout(const std::vector<NamedParameters>& layers, const LayoutOptions& options) {
  return LayoutBuilder(options).build(layers);
}

Overlap overlap(const FlatParameter& parameter, int64_t first, int64_t count) {
  const int64_t begin = std::max(parameter.offset, first);
  const int64_t end = std::min(parameter.offset + parameter.elements(), first + count);
  if (begin >= end) return {};
  return {begin - parameter.offset, begin - first, end - begin};
}

}  // namespace trivet::zero

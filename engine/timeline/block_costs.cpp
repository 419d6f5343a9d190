#include "engine/timeline/block_costs.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/bounded_file.h"
#include "core/bounded_json.h"
#include "core/error.h"
#include "core/json_error.h"
#include "core/printable.h"

namespace trivet::timeline {
namespace {

using nlohmann::ordered_json;
using pipeline::Op;

constexpr int64_t kMaxBytes = int64_t{16} << 20;
constexpr double kMaxSeconds = 1e9;  // so that sums of times stay finite

constexpr std::array<std::pair<Op, std::string_view>, 6> kNames{{{Op::Forward, "forward"},
                                                                 {Op::Recompute, "recompute"},
                                                                 {Op::Backward, "backward"},
                                                                 {Op::BackwardInput, "backward_input"},
                                                                 {Op::BackwardWeight, "backward_weight"},
                                                                 {Op::Loss, "loss"}}};

std::optional<Op> op_of(std::string_view name) {
  for (const auto& [op, known] : kNames)
    if (known == name) return op;
  return std::nullopt;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : path_(path) {}

  std::vector<BlockCosts> read_file(std::span<const std::string> names) const {
    const BoundedText file = read_bounded(path_, kMaxBytes, "costs of blocks");
    if (!file.problem.empty()) refuse(file.problem);
    return read(file.text, names);
  }

  std::vector<BlockCosts> read(std::string_view text, std::span<const std::string> names) const {
    const ordered_json json = parse(text);
    if (!json.is_object() || !json.contains("blocks") || !json["blocks"].is_array()) refuse("has no list \"blocks\"");
    const ordered_json& blocks = json["blocks"];
    if (blocks.size() != names.size()) refuse(fmt::format("has {} blocks, the model has {}", blocks.size(), names.size()));
    std::vector<BlockCosts> costs;
    for (size_t block = 0; block < names.size(); ++block) costs.push_back(read_block(block, blocks[block], names[block]));
    return costs;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(fmt::format(
        "pipeline.partition: \"cost:{}\": the file {}; use costs.json of a run of this model with timeline.step", path_, what));
  }

  ordered_json parse(std::string_view text) const {
    try {
      return parse_bounded<ordered_json>(text);
    } catch (const JsonExcess& excess) {
      refuse(excess.what());
    } catch (const nlohmann::json::exception& error) {  // also a number beyond the range of double
      refuse("is not JSON: " + json_error_in_words(text, error));
    }
  }

  BlockCosts read_block(size_t block, const ordered_json& json, const std::string& name) const {
    const std::string found = json.is_object() ? json.value("name", ordered_json()).dump() : json.dump();
    if (found != ordered_json(name).dump())
      refuse(fmt::format("has {} as block {}, where the model has \"{}\"", printable(found), block, name));
    BlockCosts costs{name};
    for (const auto& [key, value] : json.items()) {
      if (key == "name") continue;
      const auto op = op_of(key);
      if (!op) refuse(fmt::format("has \"{}\" in block \"{}\", which is not a kind of work", printable(key), name));
      if (!value.is_number() || !(value.get<double>() >= 0 && value.get<double>() <= kMaxSeconds))
        refuse(fmt::format("has {} as \"{}\" of block \"{}\", which is not a time in seconds", printable(value.dump()),
                           printable(key), name));
      costs.ms[*op] = value.get<double>() * 1e3;
    }
    if (costs.ms.empty()) refuse(fmt::format("has no times for block \"{}\"", name));
    return costs;
  }

  const std::string& path_;
};

}  // namespace

std::string to_json(std::span<const BlockCosts> blocks, int64_t micro_batch_size) {
  ordered_json json;
  json["unit"] = "seconds of a microbatch";
  json["micro_batch_size"] = micro_batch_size;
  json["blocks"] = ordered_json::array();
  for (const BlockCosts& block : blocks) {
    ordered_json& entry = json["blocks"].emplace_back();
    entry["name"] = block.name;
    for (const auto& [op, name] : kNames)
      if (const auto found = block.ms.find(op); found != block.ms.end()) entry[std::string(name)] = found->second / 1e3;
  }
  return json.dump(1) + "\n";
}

std::vector<BlockCosts> read_block_costs(const std::string& path, std::span<const std::string> names) {
  return Reader(path).read_file(names);
}

std::vector<BlockCosts> parse_block_costs(std::string_view text, const std::string& path, std::span<const std::string> names) {
  return Reader(path).read(text, names);
}

}  // namespace trivet::timeline

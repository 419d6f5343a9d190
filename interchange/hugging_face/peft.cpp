#include "interchange/hugging_face/peft.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "core/error.h"
#include "model/lora.h"

namespace trivet::hugging_face {

using checkpoint::MappedSource, checkpoint::TheirRows;
namespace {

constexpr std::string_view kWeight = ".weight";

// Where the architecture keeps the weight of a place. Throws ConfigError if it shares a tensor with other places.
const TheirRows& rows_of(const std::vector<TheirRows>& all, const model::AdapterPlace& place,
                         const Architecture& architecture) {
  const size_t segment = place.segment < 0 ? 0 : static_cast<size_t>(place.segment);
  const auto of_same_tensor = segment < all.size() ? std::ranges::count(all, all[segment].tensor, &TheirRows::tensor) : 0;
  const bool alone = place.segment < 0 ? of_same_tensor == std::ssize(all) : of_same_tensor == 1 && all.size() > 1;
  if (!alone)
    throw ConfigError(fmt::format(
        "--lora peft: \"{}\" keeps {} in one matrix with others, for which PEFT has one adapter; use --lora merged, or another "
        "--architecture",
        architecture.model_type, place.theirs));
  return all[segment];
}

// The rows of B in the order of their matrix, whose rows are ours in another order, or all of them.
std::vector<TheirRows> rows_of_b(const std::string& tensor, const std::vector<TheirRows>& all) {
  if (all.size() == 1) return {{tensor}};
  std::map<int64_t, TheirRows> by_row;
  int64_t first = 0;
  for (const TheirRows& rows : all) {
    by_row[rows.first] = {tensor, first, rows.count};
    first += rows.count;
  }
  std::vector<TheirRows> ordered;
  for (auto& [row, rows] : by_row) ordered.push_back(std::move(rows));
  return ordered;
}

// PEFT takes each target that ends with the name of a part of an expert ("gate_proj") for all experts, be it that of a shared
// MLP or of a block without experts. Such a matrix must be a target as a parameter, not as a module.
bool is_taken_for_experts(const model::Description& description, const model::AdapterPlace& place) {
  return description.experts.enabled() && place.linear.starts_with("mlp.");
}

// What adapter_config.json lists. PEFT takes a target for the end of a name: so it is the end, after the block, of the names
// that all blocks of a kind have, if each has an adapter there, and otherwise whole names.
class Targets {
 public:
  // `blocks`: how many have such a name.
  void add(const std::string& name, size_t block, int64_t blocks) {
    const std::string number = fmt::format(".{}.", block);
    Names& names = names_of_end_[name.substr(name.find(number) + number.size())];
    names.all.insert(name);
    names.blocks = blocks;
  }
  std::vector<std::string> list() const {
    std::vector<std::string> targets;
    for (const auto& [end, names] : names_of_end_)
      if (std::ssize(names.all) == names.blocks)
        targets.push_back(end);
      else
        targets.insert(targets.end(), names.all.begin(), names.all.end());
    return targets;
  }

 private:
  struct Names {
    std::set<std::string> all;
    int64_t blocks = 0;
  };
  std::map<std::string, Names> names_of_end_;
};

std::string config_text(const model::Lora& lora, const std::vector<std::string>& targets,
                        const std::vector<std::string>& parameters, bool transposed, const std::string& base_model) {
  OrderedJson json{{"peft_type", "LORA"},
                   {"task_type", "CAUSAL_LM"},
                   {"base_model_name_or_path", nullptr},
                   {"r", lora.rank},
                   {"lora_alpha", lora.alpha},
                   {"lora_dropout", 0.0},
                   {"target_modules", targets},
                   {"bias", "none"},
                   {"fan_in_fan_out", transposed},
                   {"init_lora_weights", true},
                   {"use_rslora", false},
                   {"use_dora", false},
                   {"modules_to_save", nullptr},
                   {"inference_mode", true}};
  if (!parameters.empty()) json["target_parameters"] = parameters;
  if (!base_model.empty()) json["base_model_name_or_path"] = base_model;
  return json.dump(2) + "\n";
}

}  // namespace

PeftAdapters peft_adapters(const Architecture& architecture, const model::Description& description,
                           const std::string& base_model) {
  const MappedSource::Table weights = architecture.weights(description);
  const model::AdaptedPlaces places = model::adapted_places(description);
  PeftAdapters adapters;
  const auto dense = static_cast<int64_t>(description.experts.dense_blocks.size());
  Targets modules, parameters;
  bool transposed = false;
  for (size_t block = 0; block < places.size(); ++block)
    for (const model::AdapterPlace* place : places[block]) {
      if (is_of_experts(*place)) {
        parameters.add(fmt::format("model.layers.{}.{}", block, place->theirs), block, description.layers - dense);
        const bool wrapped = place != places[block].back();  // that of down is the last place of a block
        const std::string module =
            fmt::format("base_model.model.model.layers.{}.mlp.experts{}", block, wrapped ? ".base_layer" : "");
        for (const auto& [theirs, ours] : {std::pair("A", "lora_a"), std::pair("B", "lora_b")})
          adapters.tensors[fmt::format("{}.lora_{}.weight", module, theirs)] = {
              {fmt::format("blocks.{}.{}.{}", block, place->linear, ours)}};
        continue;
      }
      const std::string linear = fmt::format("blocks.{}.{}.", block, place->linear);
      const std::string ours = place->part.empty() ? linear : fmt::format("{}{}.", linear, place->part);
      const std::vector<TheirRows>& all = weights.at(linear + "weight");
      const TheirRows& rows = rows_of(all, *place, architecture);
      const std::string module = rows.tensor.substr(0, rows.tensor.size() - kWeight.size());
      transposed = transposed || rows.transposed;
      adapters.tensors["base_model.model." + module + ".lora_A.weight"] = {{ours + "lora_a"}};
      adapters.tensors["base_model.model." + module + ".lora_B.weight"] =
          place->segment < 0 ? rows_of_b(ours + "lora_b", all) : std::vector<TheirRows>{{ours + "lora_b"}};
      if (is_taken_for_experts(description, *place))
        parameters.add(rows.tensor, block,
                       has_experts(description, static_cast<int64_t>(block)) ? description.layers - dense : dense);
      else
        modules.add(module, block, description.layers);
    }
  adapters.config = config_text(description.lora, modules.list(), parameters.list(), transposed, base_model);
  adapters.of_parameters = !parameters.list().empty();
  return adapters;
}

}  // namespace trivet::hugging_face

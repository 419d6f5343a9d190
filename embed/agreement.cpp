#include "embed/agreement.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "engine/config/explain.h"

namespace trivet::embed {
namespace {

// One fact a line.
std::string facts(const Config& config, std::span<const Parameter> parameters, std::span<const Unit> units) {
  const std::vector<UnitPlace> places = places_of(units, parameters.size());
  std::string text = fmt::format("{} parameters\n", parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    text += fmt::format("parameter \"{}\" {} in unit \"{}\"{}{}{}\n", parameter.name, to_string(parameter.shape),
                        units[places[i].unit].name, parameter.decay ? "" : ", no decay", parameter.trainable ? "" : ", frozen",
                        parameter.values ? "" : ", no values");
  }
  for (const ExplainedKey& key : explain(config)) text += fmt::format("config {}: {}\n", key.path, key.value);
  return text;
}

void compare_facts(const std::string& zero, const std::string& other, size_t rank) {
  std::istringstream zeros(zero), others(other);
  std::string a, b;
  while (std::getline(zeros, a)) {
    if (!std::getline(others, b)) b = "nothing more";
    if (a != b)
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("embed: rank 0 has {}, but rank {} has {}; register the same parameters with the same config "
                                  "on all ranks",
                                  a, rank, b));
  }
}

}  // namespace

void check_agreement(const Config& config, std::span<const Parameter> parameters, std::span<const Unit> units,
                     const comm::Participants& ranks) {
  const std::vector<std::string> all = ranks.gather(facts(config, parameters, units));
  for (size_t rank = 1; rank < all.size(); ++rank) compare_facts(all[0], all[rank], rank);
}

}  // namespace trivet::embed

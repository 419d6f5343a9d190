#include "embed/agreement.h"

#include <fmt/format.h>

#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/finite.h"
#include "core/printable.h"
#include "engine/config/explain.h"

namespace trivet::embed {
namespace {

const char* name_of(Init::Kind kind) {
  switch (kind) {
    case Init::Kind::Zeros: return "zeros";
    case Init::Kind::Ones: return "ones";
    case Init::Kind::Normal: return "normal numbers";
    case Init::Kind::Uniform: return "uniform numbers";
  }
  return "";
}

// Describes what an update depends on, besides the shape. Where values come from decides whether ranks wait for rank 0.
std::string kind_of(const Parameter& parameter) {
  std::string kind = fmt::format("{}{}", parameter.decay ? "" : ", no decay", parameter.trainable ? "" : ", frozen");
  if (parameter.role != LayerRole::Hidden)
    kind += parameter.role == LayerRole::Input ? ", of an input layer" : ", of a loss layer";
  if (!parameter.values)
    kind += fmt::format(", no values but {} of scale {}", name_of(parameter.init.kind), parameter.init.scale);
  return kind;
}

// One fact a line.
std::string facts(const Config& config, std::span<const Parameter> parameters, std::span<const Unit> units) {
  const std::vector<UnitPlace> places = places_of(units, parameters.size());
  std::string text = fmt::format("{} parameters\n", parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    text += fmt::format("parameter \"{}\" {} in unit \"{}\"{}\n", parameter.name, to_string(parameter.shape),
                        units[places[i].unit].name, kind_of(parameter));
  }
  for (const ExplainedKey& key : explain(config)) text += fmt::format("config {}: {}\n", key.path, key.value);
  return text;
}

std::optional<std::string> next_fact(std::istringstream& facts) {
  std::string fact;
  return std::getline(facts, fact) ? std::optional(fact) : std::nullopt;
}

void compare_facts(const std::string& zero, const std::string& other, size_t rank) {
  std::istringstream zeros(zero), others(other);
  for (;;) {
    const std::optional<std::string> a = next_fact(zeros), b = next_fact(others);
    if (a != b)
      throw CommError(ExitCode::RanksDisagree,
                      fmt::format("embed: rank 0 has {}, but rank {} has {}; register the same parameters with the same config "
                                  "on all ranks",
                                  a.value_or("nothing more"), rank, b.value_or("nothing more")));
    if (!a) return;
  }
}

// Describes the first such value; empty: there is none.
std::string value_that_is_not_finite(std::span<const Parameter> parameters, DType used_as) {
  for (const Parameter& parameter : parameters) {
    if (!parameter.values) continue;
    const ConstTensorView values{parameter.values, DType::Float32, {parameter.shape.elements()}};
    const int64_t element = first_not_finite(values, used_as);
    if (element < 0) continue;
    const bool overflows = first_not_finite(values.slice(element, 1)) < 0;
    return fmt::format("parameter \"{}\": values[{}] is {}; {}", printable(parameter.name), element,
                       not_finite_value(values, element, used_as),
                       overflows ? "train in bf16 or float32, or give smaller values" : "initial values must be finite");
  }
  return "";
}

}  // namespace

void check_agreement(const Config& config, std::span<const Parameter> parameters, std::span<const Unit> units,
                     const comm::Participants& ranks) {
  // A line with the problem comes first, which is empty if there is none, and on all ranks but rank 0.
  const std::string problem = ranks.rank == 0 ? value_that_is_not_finite(parameters, config.model_dtype()) : "";
  const std::vector<std::string> all = ranks.gather(problem + "\n" + facts(config, parameters, units));
  const auto facts_of = [&](size_t rank) { return all[rank].substr(all[rank].find('\n') + 1); };
  const std::string zero = facts_of(0);
  for (size_t rank = 1; rank < all.size(); ++rank) compare_facts(zero, facts_of(rank), rank);
  if (const size_t end = all[0].find('\n'); end > 0) throw ConfigError(all[0].substr(0, end));
}

}  // namespace trivet::embed

#include "embed/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/printable.h"
#include "core/utf8.h"

namespace trivet::embed {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 48;  // per parameter: numbers of bytes must not overflow

bool is_accepted(const Shape& shape) {
  int64_t elements = 1;
  for (const int64_t size : shape.span()) {
    if (size < 1 || size > kMostElements / elements) return false;
    elements *= size;
  }
  return true;
}

// Checkpoints keep tensors by their names, in JSON, next to the states of the optimizer. Empty: the name is accepted.
std::string problem_of_name(std::string_view name) {
  constexpr size_t kMostBytes = 1024;
  if (name.size() > kMostBytes) return fmt::format("has {} bytes; use at most {}", name.size(), kMostBytes);
  if (!is_utf8(name)) return "is not UTF-8; write it in UTF-8";
  if (name == "__metadata__") return "means something else in the files of checkpoints (safetensors); use another";
  if (name.starts_with("optimizer.")) return "begins like those of optimizer states in checkpoints; use another";
  return "";
}

class UnitMaker {
 public:
  UnitMaker(std::span<const Parameter> parameters, int64_t bucket_elements)
      : parameters_(parameters), bucket_elements_(bucket_elements) {}

  std::vector<Unit> make() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Parameter& parameter = parameters_[i];
      check(parameter, i);
      Unit& unit = units_[parameter.unit.empty() ? bucket_for(parameter) : named(parameter)];
      unit.parameters.push_back(static_cast<int>(i));
    }
    return std::move(units_);
  }

 private:
  void check(const Parameter& parameter, size_t index) {
    if (parameter.name.empty())
      throw Error(ExitCode::Usage, fmt::format("embed: parameter {} has no name; give each parameter a unique name", index));
    if (const std::string wrong = problem_of_name(parameter.name); !wrong.empty())
      throw Error(ExitCode::Usage,
                  fmt::format("embed: parameter {}: the name \"{}\" {}", index, printable(parameter.name), wrong));
    if (!is_utf8(parameter.unit))
      throw Error(ExitCode::Usage, fmt::format("embed: parameter \"{}\": the name of its unit, \"{}\", is not UTF-8",
                                               parameter.name, printable(parameter.unit)));
    if (!is_accepted(parameter.shape))
      throw Error(ExitCode::Usage, fmt::format("embed: parameter \"{}\" has the shape {}; each size must be at least 1, and "
                                               "their product at most 2^48",
                                               parameter.name, to_string(parameter.shape)));
    elements_ += parameter.shape.elements();
    if (elements_ > kMostElements)
      throw Error(ExitCode::Usage,
                  fmt::format("embed: the parameters up to \"{}\" have more than 2^48 elements together", parameter.name));
  }

  size_t named(const Parameter& parameter) {
    const auto [found, is_new] = by_name_.emplace(parameter.unit, units_.size());
    if (is_new) units_.push_back({parameter.unit, {}, parameter.role});
    if (units_[found->second].role != parameter.role)
      throw Error(ExitCode::Usage, fmt::format("embed: parameter \"{}\" has another role than the parameters before it in unit "
                                               "\"{}\"; give it a unit of its own",
                                               parameter.name, parameter.unit));
    return found->second;
  }

  // The open bucket, or a new one if this parameter does not fit.
  size_t bucket_for(const Parameter& parameter) {
    const int64_t elements = parameter.shape.elements();
    if (buckets_ == 0 || filled_ + elements > bucket_elements_ || units_[bucket_].role != parameter.role) {
      bucket_ = units_.size();
      units_.push_back({fmt::format("bucket {}", buckets_++), {}, parameter.role});
      filled_ = 0;
    }
    filled_ += elements;
    return bucket_;
  }

  std::span<const Parameter> parameters_;
  int64_t bucket_elements_;
  std::vector<Unit> units_;
  std::map<std::string, size_t> by_name_;
  int buckets_ = 0;
  size_t bucket_ = 0;
  int64_t filled_ = 0;    // elements of the open bucket
  int64_t elements_ = 0;  // in the parameters that were checked
};

}  // namespace

std::vector<Unit> make_units(std::span<const Parameter> parameters, int64_t bucket_elements) {
  return UnitMaker(parameters, bucket_elements).make();
}

std::vector<UnitPlace> places_of(std::span<const Unit> units, size_t parameters) {
  std::vector<UnitPlace> places(parameters);
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (size_t index = 0; index < units[unit].parameters.size(); ++index)
      places[units[unit].parameters[index]] = {static_cast<int>(unit), static_cast<int>(index)};
  return places;
}

}  // namespace trivet::embed

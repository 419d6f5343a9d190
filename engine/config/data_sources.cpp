#include "engine/config/data_sources.h"

#include <cmath>
#include <stdexcept>

#include "engine/config/section_builder.h"

namespace trivet {

namespace config {
namespace {

DataSource source_from(const JsonNode& node) {
  DataSource source;
  for (const JsonMember& member : node.members) {
    const bool is_path = member.key == "path" && member.value.kind == JsonKind::String;
    const bool is_weight = member.key == "weight" && member.value.kind == JsonKind::Number;
    if (!is_path && !is_weight) throw std::invalid_argument(kSourceForm);
    if (is_path) source.path = member.value.text;
    if (is_weight) source.weight = member.value.number;
  }
  if (source.path.empty()) throw std::invalid_argument(kSourceForm);
  if (!std::isfinite(source.weight) || source.weight <= 0) throw std::invalid_argument("use weights above 0");
  return source;
}

}  // namespace

std::vector<DataSource> sources_from(const JsonNode& node) {
  std::vector<DataSource> sources;
  for (const JsonNode& item : node.items) sources.push_back(source_from(item));
  if (sources.size() > kMostSources) throw std::invalid_argument("use at most 256 sources");
  return sources;
}

std::string to_json(const std::vector<DataSource>& sources) {
  std::string text;
  for (const DataSource& source : sources)
    text += (text.empty() ? "" : ", ") +
            ("{\"path\": " + quoted(source.path) + ", \"weight\": " + number_json(source.weight) + "}");
  return "[" + text + "]";
}

}  // namespace config
}  // namespace trivet

#include "interchange/foreign/zero_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

constexpr int64_t kMostRanks = 100'000;

// The number in "bf16_zero_pp_rank_3_mp_rank_00_optim_states.pt"; nothing: the name is not made like this.
std::optional<int64_t> rank_of(std::string_view name, std::string_view ending) {
  constexpr std::string_view kRank = "zero_pp_rank_", kModelRank = "_mp_rank_00";
  const size_t at = name.find(kRank);
  if (at == std::string_view::npos || !name.ends_with(std::string(kModelRank) + std::string(ending))) return {};
  const std::string_view digits =
      name.substr(at + kRank.size(), name.size() - at - kRank.size() - kModelRank.size() - ending.size());
  int64_t rank = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank < 0 || rank > kMostRanks) return {};
  return rank;
}

// The first of a list, or the value itself: older versions stored numbers, newer ones an enum or a number per group.
int64_t number_in(const PtFile& file, const PickleValue& value, std::string_view what) {
  const PickleValue* number = &value;
  if ((value.is(PickleKind::Object) || value.is(PickleKind::List)) && !value.items.empty()) number = value.items[0];
  return file.count(*number, what);
}

// Elements between the parameters of each group.
std::vector<std::vector<int64_t>> read_paddings(const PtFile& file, const PickleValue& states) {
  std::vector<std::vector<int64_t>> paddings;
  const char* const key = "param_alignment_paddings";
  const PickleValue* const found = find_member(states, key);
  if (!found || found->is(PickleKind::None)) return paddings;
  for (const PickleValue* group : list_of(file, *found, key)) {
    paddings.emplace_back();
    for (const PickleValue* padding : list_of(file, *group, key)) paddings.back().push_back(file.count(*padding, key));
  }
  return paddings;
}

}  // namespace

void FlatParts::append_runs(int64_t first, int64_t count, int64_t to, std::vector<Run>& runs) const {
  const auto ends_before = [&](const Part& part) { return part.begin + part.tensor.shape.elements() <= first; };
  for (auto at = std::ranges::partition_point(parts_, ends_before); at != parts_.end(); ++at) {
    const Part& part = *at;
    const int64_t from = std::max(first, part.begin), end = std::min(first + count, part.begin + part.tensor.shape.elements());
    if (from >= end) break;
    Run run = part.tensor.run;
    run.offset_bytes += (from - part.begin) * size_of(part.tensor.dtype);
    run.first = to + from - first;
    run.elements = end - from;
    runs.push_back(run);
  }
}
std::optional<DType> FlatParts::dtype() const {
  for (const Part& part : parts_)
    if (part.tensor.dtype != parts_.front().tensor.dtype) return {};
  return parts_.empty() ? std::optional<DType>() : parts_.front().tensor.dtype;
}

Shapes shapes_of(const PtFile& file, const PickleValue& dict) {
  Shapes shapes;
  if (!dict.is(PickleKind::Dict)) file.refuse("the shapes of its parameters are no dict");
  for (size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (!dict.items[i]->is(PickleKind::Text)) file.refuse("a parameter has no name");
    shapes.emplace_back(dict.items[i]->text, file.shape(*dict.items[i + 1], dict.items[i]->text));
  }
  return shapes;
}

const std::vector<const PickleValue*>& list_of(const PtFile& file, const PickleValue& value, std::string_view what) {
  if (!value.is(PickleKind::List)) file.refuse(fmt::format("\"{}\" is no list", what));
  return value.items;
}

std::vector<std::string> ZeroStep::rank_files(std::string_view ending) const {
  std::map<int64_t, std::string> found;
  for (const DirectoryEntry& entry : files.list(path))
    if (const std::optional<int64_t> rank = rank_of(entry.name, ending))
      if (!found.emplace(*rank, entry.name).second)
        corrupt(printable(path),
                fmt::format("has two files of rank {}: \"{}\" and \"{}\"", *rank, found.at(*rank), entry.name));
  std::vector<std::string> names;
  for (const auto& [rank, name] : found) {
    if (rank != static_cast<int64_t>(names.size()))
      corrupt(printable(path), fmt::format("the {} file of rank {} is absent", ending.substr(1), names.size()));
    names.push_back(name);
  }
  return names;
}

void ZeroStep::read_parts(const std::vector<std::string>& names) {
  ranks = static_cast<int64_t>(names.size());
  for (const std::string& name : names) {
    const PtFile file = open(name);
    const PickleValue& states = file.member(file.root(), "optimizer_state_dict");
    const int64_t own_stage = number_in(file, file.member(states, "zero_stage"), "zero_stage");
    if (own_stage < 1 || own_stage > 3) file.refuse(fmt::format("zero_stage {} is not accepted; use 1, 2 or 3", own_stage));
    const int64_t own_ranks = number_in(file, file.member(states, "partition_count"), "partition_count");
    if (own_ranks != ranks)
      file.refuse(
          fmt::format("is of {} ranks, but there are {} such files; are some of another run, or absent?", own_ranks, ranks));
    if (parts.empty()) stage = own_stage;
    if (own_stage != stage) file.refuse(fmt::format("is of ZeRO-{}, the file of rank 0 of ZeRO-{}", own_stage, stage));
    const char* const key = stage == 3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups";
    const auto& groups = list_of(file, file.member(states, key), key);
    if (parts.empty() && stage < 3) paddings = read_paddings(file, states);
    parts.emplace_back();
    for (const PickleValue* group : groups) {
      parts.back().push_back(file.tensor(*group, key));
      if (parts.back().back().dtype != parts.front().front().dtype) file.refuse("its groups have different types");
    }
    if (parts.back().size() != parts.front().size())
      file.refuse(fmt::format("has {} groups of parameters, the file of rank 0 {}", parts.back().size(), parts.front().size()));
  }
}

void add_tensor(const ZeroStep& step, const PtFile& file, const std::string& name, const Shape& shape, const FlatParts& parts,
                std::vector<Run> runs) {
  const std::optional<DType> dtype = parts.dtype();
  if (!dtype) file.refuse(fmt::format("the parts of \"{}\" have different types", printable(name)));
  if (shape.elements() == 0) file.refuse(fmt::format("\"{}\" has no elements", printable(name)));
  step.to.add(name, *dtype, shape, std::move(runs));
}

void refuse_size(const PtFile& file, int64_t group, const std::string& name, int64_t needed, int64_t held) {
  file.refuse(fmt::format("group {}: \"{}\" ends at element {}, but the ranks hold {}", group, printable(name), needed, held));
}

}  // namespace trivet::foreign

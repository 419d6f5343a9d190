#include "autotune/hardware_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/bounded_file.h"
#include "core/bounded_json.h"
#include "core/error.h"
#include "core/file_system.h"
#include "core/json_error.h"
#include "core/printable.h"
#include "core/replace_file.h"
#include "core/shell_words.h"

namespace trivet::autotune {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "trivet hardware profile 2";
constexpr int64_t kMaxProfileBytes = int64_t{16} << 20;
constexpr double kMaxSeconds = 1e9, kMaxWork = 1e30;  // so that sums and rates stay finite

// Operations that only move data take the same time for all types, and have no reduction.
std::tuple<comm::Operation, comm::ReduceOp, DType, int> curve_key(comm::Operation operation, comm::ReduceOp reduce, DType dtype,
                                                                  int ranks) {
  const bool sums = operation == comm::Operation::AllReduce || operation == comm::Operation::ReduceScatter;
  return {operation, sums ? reduce : comm::ReduceOp::Sum, sums ? dtype : DType::Float32, ranks};
}

template <typename... Cells>
void add_row(ordered_json& rows, const Cells&... cells) {
  ordered_json row = ordered_json::array();
  (row.push_back(ordered_json(cells)), ...);
  rows.push_back(std::move(row));
}

ordered_json to_json(const MeasuredSetup& setup) {
  ordered_json json{
      {"machine", setup.machine},         {"device", name_of(setup.device)},    {"ranks", setup.ranks},
      {"threads", setup.threads},         {"call_seconds", setup.call_seconds}, {"handover_seconds", setup.handover_seconds},
      {"kernels", ordered_json::array()}, {"operations", ordered_json::array()}};
  for (const KernelSample& k : setup.kernels)
    add_row(json["kernels"], k.kernel, k.variant, name_of(k.dtype), name_of(k.bound), k.sizes, k.flops, k.bytes, k.seconds);
  for (const OperationSample& o : setup.operations)
    add_row(json["operations"], name_of(o.operation), name_of(o.reduce), name_of(o.dtype), o.bytes, o.ranks, o.seconds);
  return json;
}

template <typename Enum>
Enum value_of(const ordered_json& json) {
  const auto name = json.get<std::string>();
  for (const auto& [known, value] : EnumNames<Enum>::table)
    if (known == name) return value;
  throw std::runtime_error(fmt::format("\"{}\" is not known", printable(name)));
}

double seconds_of(const ordered_json& json) {
  const double seconds = json.get<double>();
  if (!(seconds >= 0 && seconds <= kMaxSeconds))  // 0 is valid: a clock may be too coarse for the smallest
    throw std::runtime_error(fmt::format("{} is not a valid time", seconds));
  return seconds;
}

int count_of(const ordered_json& json) {
  const auto count = json.is_number_integer() ? json.get<int64_t>() : 0;
  if (count < 1 || count > 1'000'000)
    throw std::runtime_error(fmt::format("{} is not a valid number of ranks or threads", printable(json.dump())));
  return static_cast<int>(count);
}

// FLOPs or bytes, as a double.
double amount_of(const ordered_json& json) {
  const double amount = json.get<double>();
  if (!(amount >= 0 && amount <= kMaxWork)) throw std::runtime_error(fmt::format("{} is not a valid amount of work", amount));
  return amount;
}

int64_t whole_of(const ordered_json& json) {
  const int64_t size = json.is_number_unsigned() && json.get<uint64_t>() <= uint64_t{INT64_MAX} ? json.get<int64_t>() : -1;
  if (size < 0) throw std::runtime_error(fmt::format("{} is not a valid size", printable(json.dump())));
  return size;
}

std::array<int64_t, 5> sizes_of(const ordered_json& json) {
  std::array<int64_t, 5> sizes{};
  if (!json.is_array() || json.size() != sizes.size())
    throw std::runtime_error(fmt::format("{} are not the {} sizes of a kernel", printable(json.dump()), sizes.size()));
  std::ranges::transform(json, sizes.begin(), whole_of);
  return sizes;
}

MeasuredSetup setup_of(const ordered_json& json) {
  MeasuredSetup setup{.machine = json.at("machine"),
                      .device = value_of<Device>(json.at("device")),
                      .ranks = count_of(json.at("ranks")),
                      .threads = count_of(json.at("threads")),
                      .kernels = {},
                      .call_seconds = seconds_of(json.at("call_seconds")),
                      .operations = {},
                      .handover_seconds = seconds_of(json.at("handover_seconds"))};
  for (const ordered_json& k : json.at("kernels"))
    setup.kernels.push_back({k.at(0), k.at(1), value_of<DType>(k.at(2)), value_of<kernels::Bound>(k.at(3)), sizes_of(k.at(4)),
                             amount_of(k.at(5)), amount_of(k.at(6)), seconds_of(k.at(7))});
  for (const ordered_json& o : json.at("operations"))
    setup.operations.push_back({value_of<comm::Operation>(o.at(0)), value_of<comm::ReduceOp>(o.at(1)), value_of<DType>(o.at(2)),
                                whole_of(o.at(3)), count_of(o.at(4)), seconds_of(o.at(5))});
  return setup;
}

}  // namespace

const MeasuredSetup* HardwareProfile::find(int ranks) const {
  const auto found = std::ranges::find(setups, ranks, &MeasuredSetup::ranks);
  return found == setups.end() ? nullptr : &*found;
}

void HardwareProfile::merge(MeasuredSetup setup) {
  if (!setups.empty() && setups.front().machine != setup.machine)
    throw ConfigError(fmt::format("the profile was measured on {}, but this machine is {}; give another --profile",
                                  setups.front().machine, setup.machine));
  const auto found = std::ranges::find(setups, setup.ranks, &MeasuredSetup::ranks);
  if (found == setups.end()) {
    setups.push_back(std::move(setup));
    return;
  }
  if (found->threads != setup.threads && (setup.kernels.empty() || setup.operations.empty()))
    throw ConfigError(
        fmt::format("the profile was measured with {} kernel threads per rank, but this run uses {}; give another --profile",
                    found->threads, setup.threads));
  if (setup.kernels.empty()) setup.kernels = std::move(found->kernels), setup.call_seconds = found->call_seconds;
  if (setup.operations.empty())
    setup.operations = std::move(found->operations), setup.handover_seconds = found->handover_seconds;
  *found = std::move(setup);
}

std::string bench_command(const char* what, int ranks, const std::string& path) {
  return fmt::format("`trivet bench {} --ranks {} --profile {}`", what, ranks, quoted(path));
}

HardwareProfile parse_profile(const std::string& text, const std::string& path) {
  const auto refuse = [&](const std::string& what) {
    throw ConfigError(fmt::format("{}: {}; `trivet bench` writes such a file", path, what));
  };
  HardwareProfile profile;
  try {
    const auto json = parse_bounded<ordered_json>(text);
    if (!json.is_object() || json.value("format", "") != kFormat) refuse(fmt::format("is not a \"{}\"", kFormat));
    profile.version = json.at("version"), profile.date = json.at("date");
    for (const ordered_json& setup : json.at("setups")) profile.setups.push_back(setup_of(setup));
  } catch (const ordered_json::exception& error) {
    refuse(fmt::format("is not a valid profile ({})", json_error_in_words(text, error)));
  } catch (const ConfigError&) {
    throw;
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  return profile;
}

HardwareProfile read_profile(const std::string& path) {
  const BoundedText read = read_bounded(path, kMaxProfileBytes, "a hardware profile");
  if (!read.problem.empty()) throw ConfigError(fmt::format("{}: {}; `trivet bench` writes such a file", path, read.problem));
  return parse_profile(read.text, path);
}

// Writes a line for each sample, so that people can read the file.
std::string to_json(const HardwareProfile& profile) {
  std::string text =
      fmt::format("{{\n\"format\": {},\n\"version\": {},\n\"date\": {},\n\"setups\": [", ordered_json(kFormat).dump(),
                  ordered_json(profile.version).dump(), ordered_json(profile.date).dump());
  for (size_t n = 0; n < profile.setups.size(); ++n) {
    text += n > 0 ? ",\n{" : "\n{";
    bool first = true;
    const ordered_json setup = to_json(profile.setups[n]);
    for (const auto& [key, value] : setup.items()) {
      text += fmt::format("{}\"{}\": ", first ? "" : ",\n", key);
      first = false;
      if (!value.is_array()) {
        text += value.dump();
        continue;
      }
      text += "[";
      for (size_t i = 0; i < value.size(); ++i) text += (i > 0 ? ",\n  " : "\n  ") + value[i].dump();
      text += "]";
    }
    text += "}";
  }
  return text + "\n]}\n";
}

void write_profile(const HardwareProfile& profile, const std::string& path) {
  try {
    replace_file(real_file_system(), path, to_json(profile));
  } catch (const FileError& error) {
    throw ConfigError(fmt::format("{}; give another --profile", error.what()));
  }
}

MeasuredCostModel::MeasuredCostModel(const MeasuredSetup& setup, const std::string& path)
    : table_(setup.kernels),
      device_(setup.device),
      path_(path),
      command_(bench_command("comm", setup.ranks, path)),
      call_seconds_(setup.call_seconds),
      handover_seconds_(setup.handover_seconds) {
  const auto require = [&](bool there, const char* what) {
    if (!there)
      throw ConfigError(fmt::format("{}: has no {} measured with {} ranks on this host; run {}", path, what, setup.ranks,
                                    bench_command(what, setup.ranks, path)));
  };
  require(!setup.kernels.empty(), "kernels");
  require(setup.ranks == 1 || !setup.operations.empty(), "comm");
  for (const OperationSample& o : setup.operations)
    curves_[curve_key(o.operation, o.reduce, o.dtype, o.ranks)].emplace_back(
        std::log(std::max(1.0, static_cast<double>(o.bytes))), std::log(std::max(o.seconds, 1e-9)));
  for (auto& [key, curve] : curves_) std::ranges::sort(curve);
}

double MeasuredCostModel::kernel_seconds(const kernels::KernelCall& call) const {
  const double seconds = table_.seconds(call) + call_seconds_;
  asked_ += seconds;
  if (!table_.measured(call))
    unmeasured_[fmt::format("{}{}{} {}", call.kernel, call.variant.empty() ? "" : " ", call.variant, name_of(call.dtype))] +=
        seconds;
  return seconds;
}

// Interpolates the logarithms linearly between measured sizes. A smaller operation takes as long as the smallest; above the
// largest, time is proportional to size.
double MeasuredCostModel::operation_seconds(const OperationCall& call) const {
  if (call.ranks == 1 || call.operation == comm::Operation::Receive) return 0;
  // A ring hands all of its bytes to one rank: about as long as an even exchange of as many.
  const comm::Operation measured = call.operation == comm::Operation::AllToAllV ? comm::Operation::AllToAll : call.operation;
  const auto curve_of = [&](comm::ReduceOp reduce, DType dtype) {
    return curves_.find(curve_key(measured, reduce, dtype, call.ranks));
  };
  auto found = curve_of(call.reduce, call.dtype);
  if (found == curves_.end()) found = curve_of(comm::ReduceOp::Sum, DType::Float32);
  // Operations that the engine does not use in a step, and that are not measured, count as an all_reduce.
  if (found == curves_.end() && measured != comm::Operation::AllToAll)
    found = curves_.find({comm::Operation::AllReduce, comm::ReduceOp::Sum, DType::Float32, call.ranks});
  if (found == curves_.end())
    throw ConfigError(
        fmt::format("{}: has no {} among {} ranks; run {} again", path_, name_of(measured), call.ranks, command_));
  const Curve& curve = found->second;
  const double x = std::log(std::max(1.0, static_cast<double>(call.bytes)));
  if (x <= curve.front().first) return std::exp(curve.front().second);
  if (x >= curve.back().first) return std::exp(curve.back().second + x - curve.back().first);
  const auto above = std::ranges::upper_bound(curve, x, {}, &std::pair<double, double>::first);
  const auto below = above - 1;
  const double part = (x - below->first) / (above->first - below->first);
  return std::exp(below->second + part * (above->second - below->second));
}

double MeasuredCostModel::unmeasured_share() const {
  double seconds = 0;
  for (const auto& [kind, of_it] : unmeasured_) seconds += of_it;
  return asked_ > 0 ? seconds / asked_ : 0;
}

std::string MeasuredCostModel::unmeasured_kinds() const {
  std::vector<std::pair<std::string, double>> kinds(unmeasured_.begin(), unmeasured_.end());
  std::ranges::stable_sort(kinds, std::ranges::greater{}, &std::pair<std::string, double>::second);
  kinds.resize(std::min<size_t>(kinds.size(), 3));
  std::string text;
  for (const auto& [kind, seconds] : kinds) text += (text.empty() ? "" : ", ") + kind;
  return text;
}

}  // namespace trivet::autotune

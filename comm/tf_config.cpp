#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/environment_reader.h"
#include "core/bounded_file.h"
#include "core/printable.h"

namespace trivet::comm {
namespace {

using nlohmann::json;

constexpr int kMaxLevels = 16;

[[noreturn]] void reject(const std::string& what) { throw ConfigError("TF_CONFIG: " + what); }

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }

int port_of_address(const std::string& address) {
  const size_t colon = address.rfind(':');
  const std::string digits = colon == std::string::npos ? "" : address.substr(colon + 1);
  const bool number = !digits.empty() && digits.size() <= 5 && digits.find_first_not_of("0123456789") == std::string::npos;
  if (!number || colon == 0 || std::stoi(digits) < 1 || std::stoi(digits) > 65535) {
    reject(fmt::format("\"{}\" must be \"host:port\" with a port from 1 to 65535", printable(address)));
  }
  return std::stoi(digits);
}

std::vector<std::string> addresses(const json& cluster, const char* type) {
  if (!cluster.contains(type)) return {};
  const json& list = cluster.at(type);
  const bool strings =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const json& entry) { return entry.is_string(); });
  if (!strings) reject(fmt::format("cluster.{} must be a list of \"host:port\"", type));
  auto all = list.get<std::vector<std::string>>();
  for (const std::string& address : all) port_of_address(address);
  return all;
}

int rank_of_task(const json& task, size_t chiefs, size_t workers) {
  if (!task.is_object() || !task.contains("type") || !task.at("type").is_string())
    reject("task.type must be \"chief\" or \"worker\"");
  const auto type = task.at("type").get<std::string>();
  if (type == "evaluator")
    reject("task.type: \"evaluator\" is not a rank of the training; evaluation is part of `trivet train`");
  if (type != "chief" && type != "worker") {
    reject(fmt::format("task.type: \"{}\" is not accepted; use \"chief\" or \"worker\"", printable(type)));
  }
  const size_t count = type == "chief" ? chiefs : workers;
  const json index = task.value("index", json(0));
  if (!index.is_number_unsigned() || index.get<size_t>() >= count) {
    reject(fmt::format("task.index: {} is not accepted; cluster.{} has {} entries", printable(index.dump()), type, count));
  }
  return static_cast<int>(index.get<size_t>() + (type == "worker" ? chiefs : 0));
}

}  // namespace

Place place_from_tf_config(const std::string& text) {
  if (json_is_deeper(text, kMaxLevels)) reject(fmt::format("has lists deeper than {} levels", kMaxLevels));
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) reject("is not a JSON object");
  const json cluster = config.value("cluster", json::object());
  if (!cluster.is_object()) reject("cluster must be an object");
  if (cluster.empty()) {
    Place alone;
    alone.source = "TF_CONFIG";
    return alone;
  }
  const auto chiefs = addresses(cluster, "chief"), workers = addresses(cluster, "worker");
  if (chiefs.size() > 1) reject(fmt::format("cluster.chief has {} entries; at most one is accepted", chiefs.size()));
  if (!addresses(cluster, "ps").empty()) {
    reject(
        "cluster.ps: parameter servers are not implemented; leave the list empty and let \"zero_optimization\" divide the "
        "state");
  }
  std::vector<std::string> ranks = chiefs;
  ranks.insert(ranks.end(), workers.begin(), workers.end());
  if (ranks.empty()) reject("cluster has neither a chief nor a worker");
  if (ranks.size() > static_cast<size_t>(kMaxRanks))
    reject(fmt::format("cluster has {} ranks; at most {} are accepted", ranks.size(), kMaxRanks));

  Place place;
  place.source = "TF_CONFIG";
  place.world_size = static_cast<int>(ranks.size());
  place.rank = rank_of_task(config.value("task", json::object()), chiefs.size(), workers.size());
  const std::string own_host = host_of(ranks[place.rank]);
  const auto on_own_host = [&](const std::string& address) { return host_of(address) == own_host; };
  place.local_rank = static_cast<int>(std::count_if(ranks.begin(), ranks.begin() + place.rank, on_own_host));
  place.local_size = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), on_own_host));
  place.host_known = true;
  place.master_address = host_of(ranks[0]);
  place.master_port = port_of_address(ranks[0]);
  return place;
}

}  // namespace trivet::comm

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "comm/environment_reader.h"
#include "core/bounded_json.h"
#include "core/printable.h"

namespace trivet::comm {
namespace {

using nlohmann::json;

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

struct Cluster {
  std::vector<std::string> chiefs, workers, servers, evaluators;
};

enum class TaskType { Chief, Worker, Server, Evaluator };

struct Task {
  TaskType type = TaskType::Worker;
  size_t index = 0;
};

struct TfConfig {
  Cluster cluster;
  std::optional<Task> task;  // empty if there is no cluster: one process alone
};

Cluster cluster_of(const json& given) {
  Cluster cluster{.chiefs = addresses(given, "chief"),
                  .workers = addresses(given, "worker"),
                  .servers = addresses(given, "ps"),
                  .evaluators = addresses(given, "evaluator")};
  if (cluster.chiefs.size() > 1)
    reject(fmt::format("cluster.chief has {} entries; at most one is accepted", cluster.chiefs.size()));
  if (cluster.evaluators.size() > 1)
    reject(fmt::format("cluster.evaluator has {} entries; at most one is accepted", cluster.evaluators.size()));
  const size_t ranks = cluster.chiefs.size() + cluster.workers.size();
  if (ranks == 0) reject("cluster has neither a chief nor a worker");
  if (ranks > static_cast<size_t>(kMaxRanks))
    reject(fmt::format("cluster has {} ranks; at most {} are accepted", ranks, kMaxRanks));
  return cluster;
}

TaskType type_of(const json& task) {
  if (!task.is_object() || !task.contains("type") || !task.at("type").is_string())
    reject("task.type must be \"chief\", \"worker\", \"ps\" or \"evaluator\"");
  const auto type = task.at("type").get<std::string>();
  if (type == "chief") return TaskType::Chief;
  if (type == "worker") return TaskType::Worker;
  if (type == "ps") return TaskType::Server;
  if (type == "evaluator") return TaskType::Evaluator;
  reject(fmt::format("task.type: \"{}\" is not accepted; use \"chief\", \"worker\", \"ps\" or \"evaluator\"", printable(type)));
}

Task task_of(const json& given, const Cluster& cluster) {
  Task task{.type = type_of(given)};
  const auto name = given.at("type").get<std::string>();
  size_t count = 0;
  switch (task.type) {
    case TaskType::Chief: count = cluster.chiefs.size(); break;
    case TaskType::Worker: count = cluster.workers.size(); break;
    case TaskType::Server: count = cluster.servers.size(); break;
    case TaskType::Evaluator: count = 1; break;  // TensorFlow does not count it as a part of the cluster
  }
  const json index = given.value("index", json(0U));
  if (!index.is_number_unsigned() || index.get<size_t>() >= count)
    reject(fmt::format("task.index: {} is not accepted; cluster.{} has {} entries", printable(index.dump()), name, count));
  task.index = index.get<size_t>();
  return task;
}

TfConfig read(const std::string& text) {
  if (const std::string excess = json_excess(text, {}); !excess.empty()) reject(excess);
  const json config = json::parse(text, nullptr, false);
  if (!config.is_object()) reject("is not a JSON object");
  const json cluster = config.value("cluster", json::object());
  if (!cluster.is_object()) reject("cluster must be an object");
  if (cluster.empty()) return {};
  TfConfig read{.cluster = cluster_of(cluster)};
  read.task = task_of(config.value("task", json::object()), read.cluster);
  return read;
}

}  // namespace

Place place_from_tf_config(const std::string& text) {
  const auto [cluster, task] = read(text);
  Place place;
  place.source = "TF_CONFIG";
  if (!task) return place;
  if (task->type == TaskType::Server || task->type == TaskType::Evaluator) {
    reject(fmt::format("task.type: \"{}\" is not a rank of the training; `trivet train` ends such a task at once",
                       task->type == TaskType::Server ? "ps" : "evaluator"));
  }
  std::vector<std::string> ranks = cluster.chiefs;
  ranks.insert(ranks.end(), cluster.workers.begin(), cluster.workers.end());

  place.world_size = static_cast<int>(ranks.size());
  place.rank = static_cast<int>(task->index + (task->type == TaskType::Worker ? cluster.chiefs.size() : 0));
  const std::string own_host = host_of(ranks[place.rank]);
  const auto on_own_host = [&](const std::string& address) { return host_of(address) == own_host; };
  place.local_rank = static_cast<int>(std::count_if(ranks.begin(), ranks.begin() + place.rank, on_own_host));
  place.local_size = static_cast<int>(std::count_if(ranks.begin(), ranks.end(), on_own_host));
  place.host_known = true;
  place.master_address = host_of(ranks[0]);
  place.master_port = port_of_address(ranks[0]);
  return place;
}

std::optional<std::string> idle_task_of_tf_config(const std::string& text) {
  const auto [cluster, task] = read(text);
  if (task && task->type == TaskType::Server)
    return fmt::format(
        "TF_CONFIG: this is parameter server {} of {}; the ranks keep the states themselves, divided among them by "
        "zero_optimization.stage, so this task has nothing to do and ends",
        task->index, cluster.servers.size());
  if (task && task->type == TaskType::Evaluator)
    return "TF_CONFIG: this is the evaluator; the ranks evaluate while they train (training.evaluate_every), so this task has "
           "nothing to do and ends";
  return std::nullopt;
}

}  // namespace trivet::comm

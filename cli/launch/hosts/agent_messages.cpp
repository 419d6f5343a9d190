#include "cli/launch/hosts/agent_messages.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "comm/secret.h"
#include "core/bounded_json.h"
#include "core/error.h"
#include "core/printable.h"

namespace trivet::cli {
namespace {

using AgentJson = nlohmann::json;

// Bytes that need not be UTF-8 (paths, arguments, values of variables) travel as hexadecimal digits.
AgentJson bytes(const std::string& text) { return comm::hexadecimal(text); }

std::string bytes(const AgentJson& json) {
  const auto& digits = json.get_ref<const std::string&>();
  std::string out;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  return out;
}

AgentJson list(const std::vector<std::string>& texts) {
  AgentJson out = AgentJson::array();
  for (const std::string& text : texts) out.push_back(bytes(text));
  return out;
}

std::vector<std::string> texts(const AgentJson& json) {
  std::vector<std::string> out;
  for (const AgentJson& text : json) out.push_back(bytes(text));
  return out;
}

// The JSON library converts whatever number there is, and cuts off what does not fit.
template <class T>
T integer(const AgentJson& json) {
  const bool fits = json.is_number_unsigned() ? std::in_range<T>(json.get<uint64_t>())
                                              : json.is_number_integer() && std::in_range<T>(json.get<int64_t>());
  if (!fits) throw std::out_of_range(json.dump() + " is not an integer of the range");
  return json.get<T>();
}

std::vector<int> integers(const AgentJson& json) {
  std::vector<int> out;
  for (const AgentJson& one : json) out.push_back(integer<int>(one));
  return out;
}

AgentJson encode(const HostRanks& on) {
  AgentJson json{{"host", on.host.name}, {"slots", on.host.slots},      {"node_rank", on.node_rank},
                 {"nodes", on.nodes},    {"first_rank", on.first_rank}, {"world_size", on.world_size}};
  if (on.host.slots_are_chosen) json["slots_are_chosen"] = true;
  return json;
}

HostRanks host_ranks(const AgentJson& json) {
  return {.host = {.name = json.at("host"),
                   .slots = integers(json.at("slots")),
                   .slots_are_chosen = json.value("slots_are_chosen", false)},
          .node_rank = integer<int>(json.at("node_rank")),
          .nodes = integer<int>(json.at("nodes")),
          .first_rank = integer<int>(json.at("first_rank")),
          .world_size = integer<int>(json.at("world_size"))};
}

AgentJson encode(const LaunchRequest& request) {
  return {{"bind_cores", request.bind_cores},
          {"core_list", request.core_list},
          {"log_folder", bytes(request.log_folder)},
          {"save_pid", request.save_pid},
          {"shutdown_timeout_s", request.shutdown_timeout_s},
          {"host_timeout_s", request.host_timeout_s},
          {"quiet", request.quiet},
          {"restart", request.restart},
          {"launch_id", request.launch_id},
          {"program", list(request.program)}};
}

LaunchRequest launch_request(const AgentJson& json) {
  LaunchRequest request;
  request.bind_cores = json.at("bind_cores");
  request.core_list = json.at("core_list");
  request.log_folder = bytes(json.at("log_folder"));
  request.save_pid = json.at("save_pid");
  request.shutdown_timeout_s = integer<int>(json.at("shutdown_timeout_s"));
  request.host_timeout_s = integer<int>(json.at("host_timeout_s"));
  request.quiet = json.at("quiet");
  request.restart = integer<int>(json.at("restart"));
  request.launch_id = json.at("launch_id");
  request.program = texts(json.at("program"));
  return request;
}

AgentJson encode(const HostTask& task) {
  AgentJson environment = AgentJson::array();
  for (const auto& [name, value] : task.environment) environment.push_back({bytes(name), bytes(value)});
  return {{"on", encode(task.on)},        {"directory", bytes(task.directory)}, {"environment", std::move(environment)},
          {"files", list(task.files)},    {"one_output", task.one_output},      {"job_id", task.job_id},
          {"secret", bytes(task.secret)}, {"request", encode(task.request)}};
}

HostTask host_task(const AgentJson& json) {
  HostTask task{.on = host_ranks(json.at("on")),
                .directory = bytes(json.at("directory")),
                .environment = {},
                .files = texts(json.at("files")),
                .one_output = json.at("one_output"),
                .job_id = json.at("job_id"),
                .secret = bytes(json.at("secret")),
                .request = launch_request(json.at("request"))};
  for (const AgentJson& variable : json.at("environment")) task.environment[bytes(variable.at(0))] = bytes(variable.at(1));
  return task;
}

AgentJson encode(const HostReport& report) {
  return {{"host_name", bytes(report.host_name)},
          {"boot_id", report.boot_id},
          {"problems", list(report.problems)},
          {"address", report.address},
          {"address_of_launcher", report.address_of_launcher},
          {"cores", report.cores},
          {"memory_bytes", report.memory_bytes},
          {"disk_bytes", report.disk_bytes},
          {"time", report.time}};
}

HostReport host_report(const AgentJson& json) {
  return {.host_name = bytes(json.at("host_name")),
          .boot_id = json.at("boot_id"),
          .problems = texts(json.at("problems")),
          .address = json.at("address"),
          .address_of_launcher = json.at("address_of_launcher"),
          .cores = integer<int>(json.at("cores")),
          .memory_bytes = integer<int64_t>(json.at("memory_bytes")),
          .disk_bytes = integer<int64_t>(json.at("disk_bytes")),
          .time = json.at("time")};
}

AgentJson encode(const Address& address) { return {{"host", address.host}, {"port", address.port}}; }
Address address_of(const AgentJson& json) { return {json.at("host"), integer<int>(json.at("port"))}; }

}  // namespace

std::string encode(const Control& control) {
  AgentJson json = AgentJson::object();
  if (control.task) json["task"] = encode(*control.task);
  if (control.listen) json["listen"] = encode(*control.listen);
  if (control.reach) json["reach"] = encode(*control.reach);
  if (control.start) json["start"] = encode(*control.start);
  if (control.order) json["order"] = *control.order;
  if (control.printed) json["printed"] = *control.printed;
  if (control.alive) json["alive"] = true;
  if (control.report) json["report"] = encode(*control.report);
  if (control.listening) json["listening"] = *control.listening;
  if (control.reached) json["reached"] = bytes(*control.reached);
  if (control.failed) json["failed"] = bytes(*control.failed);
  if (control.ended) json["ended"] = {{"exit_code", control.ended->exit_code}, {"text", bytes(control.ended->text)}};
  return json.dump();
}

Control decode_control(const std::string& text) {
  try {
    const AgentJson json = parse_bounded<AgentJson>(text);
    Control control;
    if (json.contains("task")) control.task = host_task(json.at("task"));
    if (json.contains("listen")) control.listen = address_of(json.at("listen"));
    if (json.contains("reach")) control.reach = address_of(json.at("reach"));
    if (json.contains("start")) control.start = address_of(json.at("start"));
    if (json.contains("order")) control.order = integer<int>(json.at("order"));
    if (json.contains("printed"))
      control.printed = {integer<int64_t>(json.at("printed").at(0)), integer<int64_t>(json.at("printed").at(1))};
    control.alive = json.contains("alive");
    if (json.contains("report")) control.report = host_report(json.at("report"));
    if (json.contains("listening")) control.listening = integer<int>(json.at("listening"));
    if (json.contains("reached")) control.reached = bytes(json.at("reached"));
    if (json.contains("failed")) control.failed = bytes(json.at("failed"));
    if (json.contains("ended")) {
      const AgentJson& ended = json.at("ended");
      control.ended = {integer<int>(ended.at("exit_code")), bytes(ended.at("text"))};
    }
    return control;
  } catch (const std::exception& error) {  // nlohmann's, and those of std::stoi
    throw CommError(ExitCode::Rendezvous, fmt::format("sent a message that cannot be read: {}", printable(error.what())));
  }
}

}  // namespace trivet::cli

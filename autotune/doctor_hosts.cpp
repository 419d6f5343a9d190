#include "autotune/doctor_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/bounded_json.h"
#include "core/error.h"
#include "core/median.h"
#include "core/stream.h"
#include "core/tensor_view.h"

namespace trivet::autotune {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr int64_t kLongBytes = int64_t{16} << 20, kAllReduceBytes = int64_t{64} << 20;
constexpr int kShortMessages = 50, kLongMessages = 3;

double elapsed_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

TensorView bytes_of(std::vector<std::byte>& memory) {
  return {memory.data(), DType::UInt8, Shape{static_cast<int64_t>(memory.size())}};
}

// There and back; the time of the fastest, because everything else is somebody else's.
double latency(comm::ProcessGroup& group, int peer, Stream& stream) {
  std::vector<std::byte> memory(8);
  double least = 1e9;
  for (int i = 0; i <= kShortMessages; ++i) {  // the first one connects
    const auto start = Clock::now();
    if (group.rank() < peer) {
      group.send(bytes_of(memory), peer, stream);
      group.receive(bytes_of(memory), peer, stream);
    } else {
      group.receive(bytes_of(memory), peer, stream);
      group.send(bytes_of(memory), peer, stream);
    }
    if (i > 0) least = std::min(least, elapsed_since(start) / 2);
  }
  return least;
}

double bandwidth(comm::ProcessGroup& group, int peer, bool sends, Stream& stream) {
  std::vector<std::byte> memory(kLongBytes), told(1);
  double least = 1e9;
  for (int i = 0; i < kLongMessages; ++i) {
    const auto start = Clock::now();
    if (sends) {
      group.send(bytes_of(memory), peer, stream);
      group.receive(bytes_of(told), peer, stream);  // it has arrived
    } else {
      group.receive(bytes_of(memory), peer, stream);
      group.send(bytes_of(told), peer, stream);
    }
    least = std::min(least, elapsed_since(start));
  }
  return static_cast<double>(kLongBytes) / least;
}

double figure_of(const HostExamined& host, const std::string& name) {
  for (const Finding& finding : host.findings)
    for (const auto& [key, value] : finding.figures)
      if (key == name) return value;
  return 0;
}

// The mean over all links of a host, in both directions.
double mean_bandwidth(const NetworkMeasured& network, int host) {
  double sum = 0;
  for (int other = 0; other < network.hosts; ++other)
    if (other != host) sum += network.bandwidth(host, other) + network.bandwidth(other, host);
  return sum / (2 * (network.hosts - 1));
}

}  // namespace

std::vector<std::vector<std::pair<int, int>>> rounds_of_pairs(int hosts) {
  const int seats = hosts + hosts % 2;  // with an odd number one seat is empty
  std::vector<int> circle(seats);
  std::iota(circle.begin(), circle.end(), 0);
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < seats; ++round) {
    auto& pairs = rounds.emplace_back();
    for (int i = 0; i < seats / 2; ++i) {
      const auto [low, high] = std::minmax(circle[i], circle[seats - 1 - i]);
      if (high < hosts) pairs.emplace_back(low, high);
    }
    std::rotate(circle.begin() + 1, circle.end() - 1, circle.end());
  }
  return rounds;
}

NetworkMeasured measure_network(comm::ProcessGroup& group) {
  const int hosts = group.size(), rank = group.rank();
  const auto stream = make_inline_stream();
  NetworkMeasured network{.hosts = hosts};
  std::vector<double> row(2 * static_cast<size_t>(hosts));  // bandwidths, then latencies, to each rank
  for (const auto& pairs : rounds_of_pairs(hosts)) {
    group.barrier(*stream);
    for (const auto& [low, high] : pairs) {
      if (rank != low && rank != high) continue;
      const int peer = rank == low ? high : low;
      row[hosts + peer] = latency(group, peer, *stream);
      for (const bool low_sends : {true, false}) {
        const bool sends = (rank == low) == low_sends;
        const double measured = bandwidth(group, peer, sends, *stream);
        if (sends) row[peer] = measured;
      }
    }
  }
  std::vector<double> all(row.size() * hosts);
  const auto view = [](std::vector<double>& values) {
    return TensorView{reinterpret_cast<std::byte*>(values.data()), DType::Float64, Shape{static_cast<int64_t>(values.size())}};
  };
  group.all_gather(view(row), view(all), *stream);
  for (int from = 0; from < hosts; ++from)
    for (int to = 0; to < hosts; ++to) {
      network.bytes_per_second.push_back(all[(2 * from) * static_cast<size_t>(hosts) + to]);
      network.seconds.push_back(all[(2 * from + 1) * static_cast<size_t>(hosts) + to]);
    }
  std::vector<float> data(kAllReduceBytes / sizeof(float), 1.0F);
  const TensorView sum{reinterpret_cast<std::byte*>(data.data()), DType::Float32, Shape{static_cast<int64_t>(data.size())}};
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    group.barrier(*stream);
    const auto start = Clock::now();
    group.all_reduce(sum, comm::ReduceOp::Sum, *stream);
    group.barrier(*stream);
    least = std::min(least, elapsed_since(start));
  }
  network.all_reduce_bytes = static_cast<double>(kAllReduceBytes);
  network.all_reduce_seconds = least;
  return network;
}

std::vector<std::string> gather_texts(comm::ProcessGroup& group, const std::string& text) {
  const auto stream = make_inline_stream();
  std::vector<int64_t> length{static_cast<int64_t>(text.size())}, lengths(group.size());
  group.all_gather(TensorView{reinterpret_cast<std::byte*>(length.data()), DType::Int64, Shape{1}},
                   TensorView{reinterpret_cast<std::byte*>(lengths.data()), DType::Int64, Shape{group.size()}}, *stream);
  const size_t longest = std::max<int64_t>(1, *std::max_element(lengths.begin(), lengths.end()));
  std::vector<std::byte> own(longest), all(longest * group.size());
  std::memcpy(own.data(), text.data(), text.size());
  group.all_gather(bytes_of(own), bytes_of(all), *stream);
  std::vector<std::string> texts;
  for (int rank = 0; rank < group.size(); ++rank)
    texts.emplace_back(reinterpret_cast<const char*>(all.data()) + rank * longest, lengths[rank]);
  return texts;
}

std::vector<std::string> odd_ones_out(const std::vector<HostExamined>& hosts, const NetworkMeasured& network) {
  std::vector<std::string> odd;
  std::vector<std::string> names;
  for (const Finding& finding : hosts[0].findings)
    for (const auto& [name, value] : finding.figures)
      if (name.ends_with("_per_second")) names.push_back(name);
  for (const std::string& name : names) {
    std::vector<double> values;
    for (const HostExamined& host : hosts) values.push_back(figure_of(host, name));
    const double usual = median(values);
    for (size_t i = 0; i < hosts.size(); ++i)
      if (values[i] < kOddOneOut * usual)
        odd.push_back(
            fmt::format("{}: {} is {:.3g}; half of the hosts have {:.3g} or more", hosts[i].name, name, values[i], usual));
  }
  if (hosts.size() < 3) return odd;
  std::vector<double> links;
  for (int host = 0; host < network.hosts; ++host) links.push_back(mean_bandwidth(network, host));
  const double usual = median(links);
  for (size_t i = 0; i < hosts.size(); ++i)
    if (links[i] < kOddOneOut * usual)
      odd.push_back(fmt::format("{}: its links carry {:.2f} Gbit/s on average; those of half of the hosts {:.2f} or more",
                                hosts[i].name, 8e-9 * links[i], 8e-9 * usual));
  return odd;
}

std::string describe_hosts(const std::vector<HostExamined>& hosts, const NetworkMeasured& network) {
  size_t widest = 9;
  for (const HostExamined& host : hosts) widest = std::max(widest, host.name.size());
  std::string text;
  for (const HostExamined& host : hosts) {
    text += host.name + "\n";
    for (const Finding& finding : host.findings) {
      text += fmt::format("  {:9} {:8} {}\n", finding.subject, name_of(finding.health), finding.text);
      if (!finding.advice.empty()) text += fmt::format("  {:18} {}\n", "", finding.advice);
    }
  }
  if (network.hosts < 2) return text;  // not measured
  text += fmt::format("\n{:{}}", "Gbit/s to", widest);
  for (const HostExamined& host : hosts) text += fmt::format("  {:>{}}", host.name, widest);
  for (int from = 0; from < network.hosts; ++from) {
    text += fmt::format("\n{:{}}", hosts[from].name, widest);
    for (int to = 0; to < network.hosts; ++to)
      text += fmt::format("  {:>{}}", from == to ? "-" : fmt::format("{:.2f}", 8e-9 * network.bandwidth(from, to)), widest);
  }
  text += fmt::format("\n\n{:{}}", "us to", widest);
  for (const HostExamined& host : hosts) text += fmt::format("  {:>{}}", host.name, widest);
  for (int from = 0; from < network.hosts; ++from) {
    text += fmt::format("\n{:{}}", hosts[from].name, widest);
    for (int to = 0; to < network.hosts; ++to)
      text += fmt::format("  {:>{}}", from == to ? "-" : fmt::format("{:.0f}", 1e6 * network.latency(from, to)), widest);
  }
  text += fmt::format("\n\nall-reduce of {:.0f} MiB over {} hosts: {:.3f} s\n", network.all_reduce_bytes / (1 << 20),
                      hosts.size(), network.all_reduce_seconds);
  const auto odd = odd_ones_out(hosts, network);
  for (const std::string& one : odd) text += "differs: " + one + "\n";
  if (odd.empty()) text += "no host differs from the others\n";
  return text;
}

namespace {

Json to_json(const HostExamined& host) {
  Json findings = Json::array();
  for (const Finding& finding : host.findings) {
    Json figures = Json::object();
    for (const auto& [name, value] : finding.figures) figures[name] = value;
    findings.push_back({{"subject", finding.subject},
                        {"health", name_of(finding.health)},
                        {"text", finding.text},
                        {"advice", finding.advice},
                        {"figures", std::move(figures)}});
  }
  return {{"host", host.name}, {"findings", std::move(findings)}};
}

}  // namespace

std::string hosts_as_json(const std::vector<HostExamined>& hosts, const NetworkMeasured& network) {
  Json all = Json::array(), links = Json::array();
  for (const HostExamined& host : hosts) all.push_back(to_json(host));
  for (int from = 0; from < network.hosts; ++from)
    for (int to = 0; to < network.hosts; ++to)
      if (from != to)
        links.push_back({{"from", hosts[from].name},
                         {"to", hosts[to].name},
                         {"bytes_per_second", network.bandwidth(from, to)},
                         {"seconds", network.latency(from, to)}});
  const Json sum{{"bytes", network.all_reduce_bytes}, {"seconds", network.all_reduce_seconds}};
  return Json{{"hosts", all}, {"links", links}, {"all_reduce", sum}, {"differs", odd_ones_out(hosts, network)}}.dump(2) + "\n";
}

std::string encode(const HostExamined& host) { return to_json(host).dump(-1, ' ', false, Json::error_handler_t::replace); }

HostExamined decode_host(const std::string& text) {
  try {
    const Json json = parse_bounded<Json>(text);
    HostExamined host{.name = json.at("host"), .findings = {}};
    for (const Json& entry : json.at("findings")) {
      Finding finding{entry.at("subject"),
                      from_name<Health>(entry.at("health").get<std::string>()).value(),
                      entry.at("text"),
                      entry.at("advice"),
                      {}};
      for (const auto& [name, value] : entry.at("figures").items()) finding.figures.emplace_back(name, value);
      host.findings.push_back(std::move(finding));
    }
    return host;
  } catch (const std::exception& error) {
    throw Error(ExitCode::Internal, fmt::format("doctor: a host's findings cannot be read: {}", error.what()));
  }
}

}  // namespace trivet::autotune

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "pipeline/render.h"

namespace trivet::pipeline {
namespace {

constexpr double kMicrosecondsPerUnit = 1000;

bool sends_activations(Op op) { return op == Op::SendForward; }

constexpr int kWaits = kQueues;  // the thread for waits

// Sends of one link run one after another, but those of different links overlap, so each link has its own thread.
int thread_of(const TimedInstruction& timed) {
  if (timed.queue != Queue::Send) return static_cast<int>(timed.queue);
  return kWaits + 1 + 2 * timed.peer + (sends_activations(timed.instruction.op) ? 0 : 1);
}

std::string thread_name(const TimedInstruction& timed) {
  if (timed.queue == Queue::Meet) return "ties and loss";
  if (timed.queue != Queue::Send) return std::string(queue_name(timed.queue));
  return fmt::format("{} to rank {}", sends_activations(timed.instruction.op) ? "activations" : "gradients", timed.peer);
}

std::string name_event(const char* what, size_t rank, int thread, const std::string& name) {
  return fmt::format(R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{"name":"{}"}}}})", what, rank, thread, name);
}

std::string wait_name(Queue queue) {
  if (is_of_layers(queue)) return fmt::format("for a {} sum", queue_name(queue));
  switch (queue) {
    case Queue::Gather: return "for weights";
    case Queue::Reduce: return "for a reduction";
    case Queue::Meet: return "for other ranks";
    case Queue::Send: return "for a transfer";
    default: return "";
  }
}

std::string event(const std::string& name, size_t rank, int thread, double start, double end) {
  return fmt::format(R"({{"ph":"X","name":"{}","pid":{},"tid":{},"ts":{:.10g},"dur":{:.10g}}})", name, rank, thread,
                     start * kMicrosecondsPerUnit, (end - start) * kMicrosecondsPerUnit);
}

}  // namespace

std::string to_chrome_trace(const Timeline& timeline) {
  std::vector<std::string> events;
  for (size_t rank = 0; rank < timeline.ranks.size(); ++rank) {
    events.push_back(name_event("process_name", rank, 0, fmt::format("rank {}", rank)));
    std::set<int> named;
    for (const TimedInstruction& timed : timeline.ranks[rank]) {
      const int thread = thread_of(timed);
      if (named.insert(thread).second) events.push_back(name_event("thread_name", rank, thread, thread_name(timed)));
      events.push_back(event(to_string(timed.instruction), rank, thread, timed.start, timed.end));
    }
    if (!timeline.waits[rank].empty()) events.push_back(name_event("thread_name", rank, kWaits, "waits"));
    for (const TimedWait& wait : timeline.waits[rank])
      events.push_back(event(wait_name(wait.queue), rank, kWaits, wait.start, wait.end));
  }
  return fmt::format("{{\"traceEvents\":[\n{}\n]}}\n", fmt::join(events, ",\n"));
}

}  // namespace trivet::pipeline

#include "cli/launch/hosts/awaited_hosts.h"

#include <utility>

#include "cli/launch/hosts/hosts_job.h"
#include "comm/member.h"
#include "core/error.h"

namespace trivet::cli {
namespace {

// A host that hangs has answered to ssh, perhaps, but its agent says nothing.
constexpr std::chrono::seconds kAttempt{30};

}  // namespace

AwaitedHosts::AwaitedHosts(const LaunchRequest& request, const comm::Environment& inherited, HostTask task)
    : request_(request), inherited_(inherited), task_(std::move(task)) {
  for (const Host& host : request.awaited_hosts)
    hosts_.push_back({.host = host, .next_attempt = Clock::now() + kLookForHostEvery});
}

void AwaitedHosts::add_to(std::vector<pollfd>& entries) const {
  for (const Awaited& awaited : hosts_)
    if (awaited.agent) awaited.agent->add_to(entries);
}

void AwaitedHosts::step() {
  for (Awaited& awaited : hosts_) {
    if (returned_) return;
    if (!awaited.agent && Clock::now() >= awaited.next_attempt) {
      awaited.next_attempt = Clock::now() + kAttempt;
      awaited.has_task = false;
      try {
        awaited.agent = std::make_unique<HostAgent>(agent_command(request_, awaited.host), inherited_);
      } catch (const Error&) {  // the job goes on, whatever this host is short of
        continue;
      }
    }
    if (!awaited.agent || !(step(awaited) || Clock::now() >= awaited.next_attempt)) continue;
    awaited.agent.reset();  // also ends the agent there
    awaited.next_attempt = Clock::now() + kLookForHostEvery;
  }
}

bool AwaitedHosts::step(Awaited& awaited) {
  HostAgent& agent = *awaited.agent;
  agent.step();
  while (agent.next_complaint()) {
  }
  if (!awaited.has_task && agent.build()) {
    if (*agent.build() != comm::build_digest()) return true;
    task_.on = {.host = awaited.host};
    agent.send({.task = task_});
    awaited.has_task = true;
  }
  try {
    while (const auto message = agent.next()) {
      if (message->kind != AgentMessage::Kind::Control) continue;
      const Control control = decode_control(message->text);
      if (control.report && control.report->problems.empty()) returned_ = awaited.host.name;
      if (control.report || control.failed) return true;
    }
  } catch (const CommError&) {
    return true;
  }
  return agent.has_ended();
}

}  // namespace trivet::cli

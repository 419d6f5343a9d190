// `trivet launch-agent`: starts the ranks of one host and watches over them, for a launcher on another host.
//
//   trivet launch --ssh--> trivet launch-agent --> guardian --> ranks
//
// The launcher tells it over standard input what to start, and hears over standard output how that goes (agent_channel.h), so
// that a job has one connection per host and its secret is on no command line and in no environment. If standard input ends,
// or if nothing arrives on it for --host-timeout, nobody wants the ranks any more, and everything is killed. The guardian does
// that, too, if it hears nothing from the agent for that time, as when the agent is stopped. Silence is measured in running
// time (running_time.h). An agent whose launcher was silent says so, in case the launcher goes on.
#pragma once

namespace trivet::cli {

// Runs an agent. It reports events to the launcher and throws nothing.
void run_agent();

}  // namespace trivet::cli

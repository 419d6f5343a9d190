// `trivet launch-agent`: starts the ranks of one host and watches over them, for a launcher on another host.
//
//   trivet launch --ssh--> trivet launch-agent --> guardian --> ranks
//
// The launcher tells it over standard input what to start, and hears over standard output how that goes (agent_channel.h), so
// that a job has one connection per host and its secret is on no command line and in no environment. If standard input ends,
// or if nothing arrives on it for --host-timeout, nobody wants the ranks any more, and everything is killed. The guardian does
// that, too, if it hears nothing from the agent for that time, as when the agent is stopped.
#pragma once

namespace trivet::cli {

// Runs an agent. It reports events to the launcher and throws nothing.
void run_agent();

}  // namespace trivet::cli

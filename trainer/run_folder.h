// The folder of a run (run.directory; report/run_files.h): what made the run is written before its first step, what it
// measures while it goes, and a page of all that at its end.
#pragma once

#include <memory>
#include <string>

#include "trainer/run.h"

namespace trivet::trainer {

// Collective: gathers the hosts of the ranks. World rank 0 writes config, plan, command, environment and versions, and adds the
// monitors that write the rest. Does nothing if the config names no folder. Throws ConfigError if the folder cannot be written,
// or if it holds another run and this one does not resume.
void open_run_folder(Run& run);

// Makes the monitor of a file of metrics. A job that was started again takes over what a rank of the start before may still
// have.
std::unique_ptr<monitor::Monitor> metrics_monitor(const std::string& path);

// Returns where report.html is; empty if the config names no folder.
std::string report_path(const Run& run);

// Writes report.html. A page that cannot be written is a warning: the run itself is done.
void write_report(Run& run);

}  // namespace trivet::trainer

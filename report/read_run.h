// Reads a run from its folder (run_files.h), or only its figures from a file of metrics. Works for a run that is still going,
// and for one that was killed: an incomplete last line is left out.
#pragma once

#include <istream>
#include <string>
#include <string_view>

#include "report/run_data.h"

namespace trivet::report {

// `path`: a folder that run.directory names, or a file that trivet train --metrics wrote. Throws DataError (Usage) that names
// the file, the line, and what is wrong with it.
RunData read_run(const std::string& path);

// The parts of it; `source` is the name for messages.
void read_steps(std::istream& lines, const std::string& source, RunData& run);
void read_evaluations(std::istream& lines, const std::string& source, RunData& run);
void read_events(std::istream& lines, const std::string& source, RunData& run);
monitor::ShownPredictions parse_predictions(std::string_view json, const std::string& source);
PlanFigures parse_plan_figures(std::string_view json, const std::string& source);
std::vector<RankTime> parse_rank_times(std::string_view json, const std::string& source);

}  // namespace trivet::report

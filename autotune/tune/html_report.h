// A tuning as an HTML page: the best so far after each trial, and a table of all trials with predicted and measured times. It
// is one file that loads nothing.
#pragma once

#include <string>

#include "autotune/tune/results.h"

namespace trivet::autotune {

std::string report_html(const TuningReport& report);

}  // namespace trivet::autotune

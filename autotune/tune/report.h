// A tuning as a page: the best so far after each trial, and a table of all with what was predicted and what was measured. One
// file, nothing is loaded.
#pragma once

#include <string>

#include "autotune/tune/results.h"

namespace trivet::autotune {

std::string report_html(const TuningReport& report);

}  // namespace trivet::autotune

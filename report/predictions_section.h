// The part of a page that shows samples with what the model predicts for them.
#pragma once

#include <string>

#include "report/monitor/monitor.h"

namespace trivet::report {

// Empty if there are none.
std::string to_section(const monitor::ShownPredictions& predictions);

}  // namespace trivet::report

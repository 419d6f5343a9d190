// The page of a run, or of several runs drawn over each other: HTML that loads nothing from elsewhere, light or dark as the
// reader's system is, readable on a phone, with text alternatives of all drawings.
#pragma once

#include <span>
#include <string>

#include "report/chart_options.h"
#include "report/run_data.h"

namespace trivet::report {

// The whole page. With one run it has everything that is known about it; with several, their curves, their figures side by
// side, and where their configs differ. `runs` is not empty.
std::string to_page(std::span<const RunData> runs, const ChartOptions& options = {});

// A page of several runs that begins with how their throughput grows with the ranks (scaling.h, which says what it throws).
std::string to_scaling_page(std::span<const RunData> runs);

// The page of one run that is still going: it asks for its content again every two seconds. `nonce`: a random word that is
// also in the policy which the server sends.
std::string to_live_page(const RunData& run, const std::string& nonce);
std::string live_policy(const std::string& nonce);  // for Content-Security-Policy
// Returns the content of such a page, without its frame.
std::string page_content(std::span<const RunData> runs, const ChartOptions& options = {});

}  // namespace trivet::report

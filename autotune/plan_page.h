// The output of `trivet plan` as one page for a browser; drawings are part of it, and nothing is loaded from elsewhere.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "autotune/plan_prediction.h"
#include "autotune/search.h"
#include "pipeline/render.h"

namespace trivet::autotune {

inline constexpr int64_t kMaxBoxes = 20'000;  // limit for a schedule's drawing, which then has some MB

struct DrawnSchedule {
  pipeline::Timeline timeline;
  pipeline::Caption caption;
};

struct PlanPage {
  std::string title;
  std::string layout;            // in words
  std::vector<StepBytes> ranks;  // [pipeline rank]
  double usable_bytes = 0;       // the part of a device that a run can use; 0: not known
  std::optional<StepPrediction> step;
  std::string price, run;            // in words: what a token costs, how long a run takes and what it costs; empty: not known
  std::vector<std::string> network;  // in words, on a cluster
  std::optional<DrawnSchedule> schedule;
  const SearchResult* search = nullptr;
};

// The page of a plan alone, whose stages count as equally long; of a plan on a cluster; of a search, which draws the best
// layout or, if none fits, the nearest. The result of a search must outlive its page.
// `tokens`: a number of tokens, whose time and cost are also stated; 0: none is.
PlanPage page_of(const Plan& plan);
PlanPage page_of(const Plan& plan, const PlanPrediction& prediction, const model::Model& model, const Cluster& cluster,
                 double tokens = 0);
PlanPage page_of(const SearchResult& result, const model::Model& model, const Cluster& cluster, const SearchSpace& space,
                 double tokens = 0);

std::string to_html(const PlanPage& page);

}  // namespace trivet::autotune

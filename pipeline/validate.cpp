#include "pipeline/validate.h"

#include <fmt/format.h>

#include <map>
#include <stdexcept>

#include "pipeline/event_graph.h"
#include "pipeline/work_index.h"

namespace trivet::pipeline {
namespace {

// Gradients are added up in the order of microbatches, whatever the schedule.
void check_order(const Schedule& schedule, Part part) {
  std::map<std::pair<int, int>, const Instruction*> last;  // by stage and block
  for (const Program& program : schedule)
    for (const Instruction& i : program) {
      if (!does(i.op, part)) continue;
      const Instruction*& before = last[{i.stage, i.block}];
      if (before && before->microbatch > i.microbatch)
        throw std::logic_error(
            fmt::format("schedule: {} runs before {}; each stage runs its backwards in the order of microbatches",
                        to_string(*before), to_string(i)));
      before = &i;
    }
}

void check_that_all_ends(const Schedule& schedule, const WorkIndex& work) {
  const EventGraph graph = event_graph(schedule, work);
  const std::vector<double> no_time(graph.events.size(), 0);
  expect_all_end(schedule, work.numbers(), end_times(graph, no_time));
}

}  // namespace

ScheduleFacts validate(const Schedule& schedule, int microbatches) {
  const WorkIndex work(schedule, microbatches);
  for (Part part : {Part::Forward, Part::BackwardInput, Part::BackwardWeight}) work.require(part);
  check_order(schedule, Part::BackwardInput);
  check_order(schedule, Part::BackwardWeight);
  check_that_all_ends(schedule, work);
  ScheduleFacts facts;
  for (const Program& program : schedule) {
    facts.peak_microbatches.push_back(peak_microbatches(program, Part::BackwardWeight));
    facts.peak_until_backward.push_back(peak_microbatches(program, Part::BackwardInput));
  }
  return facts;
}

void validate_forward(const Schedule& schedule, int microbatches) {
  const WorkIndex work(schedule, microbatches);
  work.require(Part::Forward);
  check_that_all_ends(schedule, work);
}

}  // namespace trivet::pipeline

// Prints what a run tells people at its beginning and at its end, and makes the monitors that they read.
#pragma once

#include <string>

#include "trainer/checkpoints.h"
#include "trainer/run.h"

namespace trivet::trainer {

// The console, and the files and the page that the options and the config ask for. Returns the address of the live page; empty:
// there is none, or this is not the first rank. Collective.
std::string add_monitors(Run& run);
struct StartFacts {
  std::string resumed_from;  // the directory of the step that the run continues from; empty: none
  std::string weights_from;  // source of the initial weights; empty: they are random, or the run resumes
  std::string reference;     // for pairs of answers: what was computed for them; empty: nothing
  std::string address;       // address of the live page; empty: none
};
void report_start(Run& run, const StartFacts& facts, Checkpoints& checkpoints);
void report_end(Run& run, const TrainEnd& end, Checkpoints& checkpoints);

// This rank's peak. On a CPU it includes the staging buffer of saves in the background, which is in the same memory.
MemoryBytes measured_memory(const Run& run, const Checkpoints& checkpoints);

}  // namespace trivet::trainer

#include "pipeline/passes/passes.h"

namespace trivet::pipeline {

Schedule insert_send_receive(const Schedule& schedule) {
  const int last = static_cast<int>(schedule.size()) - 1;
  Schedule out;
  for (const Program& program : schedule) {
    Program& lowered = out.emplace_back();
    for (const Instruction& i : program) {
      if (i.op == Op::Forward && i.stage > 0) lowered.push_back({Op::ReceiveForward, i.stage, i.microbatch});
      if (i.op == Op::BackwardInput && i.stage < last) lowered.push_back({Op::ReceiveBackward, i.stage, i.microbatch});
      lowered.push_back(i);
      if (i.op == Op::Forward && i.stage < last) lowered.push_back({Op::SendForward, i.stage, i.microbatch});
      if (i.op == Op::BackwardInput && i.stage > 0) lowered.push_back({Op::SendBackward, i.stage, i.microbatch});
    }
  }
  return out;
}

}  // namespace trivet::pipeline

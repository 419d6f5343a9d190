#include "engine/step_loss.h"

#include <algorithm>
#include <vector>

namespace trivet {

void StepLoss::add(const StepLoss& other) {
  loss_sum.add(other.loss_sum);
  loss_tokens += other.loss_tokens;
}

double StepLoss::mean() const { return loss_tokens > 0 ? loss_sum.value() / static_cast<double>(loss_tokens) : 0.0; }

StepLoss sum_over(const StepLoss& loss, comm::ProcessGroup& group, Stream& stream) {
  if (group.size() == 1) return loss;
  std::vector<int64_t> words(loss.loss_sum.words().begin(), loss.loss_sum.words().end());
  words.push_back(loss.loss_tokens);
  group.all_reduce({words.data(), DType::Int64, {static_cast<int64_t>(words.size())}}, comm::ReduceOp::Sum, stream);
  stream.synchronize();
  StepLoss sum;
  std::copy(words.begin(), words.end() - 1, sum.loss_sum.words().begin());
  sum.loss_tokens = words.back();
  return sum;
}

}  // namespace trivet

// gradient_allreduce_op: whether gradients are averaged over the data-parallel ranks or summed.
#pragma once

namespace trivet {
struct Config;
}

namespace trivet::config {

// "sum": the gradient of a step is that of the mean loss times the number of data-parallel ranks.
bool sums_gradients(const Config& config);

}  // namespace trivet::config

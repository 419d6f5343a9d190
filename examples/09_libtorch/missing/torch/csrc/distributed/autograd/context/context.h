// c10d/reducer.hpp includes this header of libtorch, but Debian's libtorch-dev does not install it. These are the only two
// names that reducer.hpp needs from it. A reducer keeps a pointer to such a context, which is null unless
// torch.distributed.autograd is used.
#pragma once

#include <functional>
#include <memory>

namespace at {
class Tensor;
}

namespace torch::distributed::autograd {

struct DistAutogradContext {
  using GradCallback = std::function<bool(at::Tensor&)>;
};
using ContextPtr = std::shared_ptr<DistAutogradContext>;

}  // namespace torch::distributed::autograd

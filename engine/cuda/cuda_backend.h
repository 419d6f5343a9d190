// A GPU as the backend of one rank's engine.
#pragma once

#include <memory>

#include "engine/backend/backend.h"

namespace trivet {

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace trivet

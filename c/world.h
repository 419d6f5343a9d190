// The object behind a trivet_world handle.
#pragma once

#include <memory>

#include "comm/world.h"

struct trivet_world {
  trivet::comm::World* world = nullptr;
  std::unique_ptr<trivet::comm::World> owned;  // null: it belongs to trivet_run_threads
  bool closed = false;
};

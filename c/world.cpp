#include "c/world.h"

#include <trivet/c.h>

#include "c/guard.h"
#include "core/error.h"

namespace {

using namespace trivet;
using c_api::given;
using c_api::guarded;

comm::World& owned_world(trivet_world* world, const char* call) {
  if (!given(world, "world").owned)
    c_api::refuse(std::string(call) + " of a world of trivet_run_threads, which ends it; just return from the function");
  return *world->owned;
}

// A function may return a status of its own, without a call that failed.
std::string reason_of(trivet_status status) {
  const std::string text = c_api::last_error();
  return text.empty() ? "the function of trivet_run_threads returned " + std::to_string(status) : text;
}

}  // namespace

uint32_t trivet_c_version(void) { return TRIVET_C_MAJOR * 65536u + TRIVET_C_MINOR; }

const char* trivet_last_error(void) { return c_api::last_error(); }

trivet_status trivet_world_connect(trivet_world** world) {
  return guarded([&] {
    trivet_world*& out = given(world, "world");
    auto connected = comm::connect(comm::place_from_environment(comm::current_environment()));
    out = new trivet_world{connected.get(), nullptr};
    out->owned = std::move(connected);
  });
}

trivet_status trivet_run_threads(int32_t ranks, trivet_rank_function body, void* user) {
  return guarded([&] {
    given(body, "body");
    constexpr int32_t kMostRanks = 1024;
    if (ranks < 1 || ranks > kMostRanks)
      c_api::refuse("trivet_run_threads with " + std::to_string(ranks) + " ranks; use 1 to " + std::to_string(kMostRanks));
    comm::run_threads(ranks, [&](comm::World& world) {
      trivet_world handle{&world, nullptr};
      const trivet_status status = body(&handle, user);
      if (status != TRIVET_OK) throw Error(static_cast<ExitCode>(status), reason_of(status));
    });
  });
}

int32_t trivet_world_rank(const trivet_world* world) { return world ? world->world->rank() : -1; }

int32_t trivet_world_size(const trivet_world* world) { return world ? world->world->size() : -1; }

trivet_status trivet_world_close(trivet_world* world) {
  return guarded([&] {
    comm::World& owned = owned_world(world, "trivet_world_close");
    world->closed = true;
    owned.close();
  });
}

void trivet_world_destroy(trivet_world* world) {
  if (!world || !world->owned) return;
  if (!world->closed) world->owned->abort("trivet_world_destroy without trivet_world_close");
  delete world;
}

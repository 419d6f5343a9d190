#include <string.h>

#include "tests/c/c_api.h"

#define TRY(call)                                   \
  do {                                              \
    const trivet_status try_status = (call);        \
    if (try_status != TRIVET_OK) return try_status; \
  } while (0)

static trivet_status add_gradient(trivet_optimizer* optimizer, int64_t parameter, int64_t elements, int in_place) {
  float gradient[A_ELEMENTS];
  int32_t dtype, accumulate;
  void* data;
  for (int64_t i = 0; i < elements; ++i) gradient[i] = (float)(i + 1);
  if (!in_place) return trivet_optimizer_add_gradient(optimizer, parameter, TRIVET_FLOAT32, gradient);
  TRY(trivet_optimizer_gradient(optimizer, parameter, &dtype, &data, &accumulate));
  if (dtype != TRIVET_FLOAT32) return TRIVET_INTERNAL;
  for (int64_t i = 0; i < elements; ++i) ((float*)data)[i] = gradient[i] + (accumulate ? ((float*)data)[i] : 0);
  return trivet_optimizer_gradient_ready(optimizer, parameter);
}

static trivet_status run_steps(trivet_optimizer* optimizer, const struct job* job, trivet_step_report* report) {
  for (int step = 0; step < job->steps; ++step) {
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      TRY(add_gradient(optimizer, 1, B_ELEMENTS, job->in_place));
      TRY(add_gradient(optimizer, 0, A_ELEMENTS, job->in_place));
      TRY(trivet_optimizer_end_microbatch(optimizer, 0.25 * (step + 1), 1));
    }
    TRY(trivet_optimizer_step(optimizer, report));
  }
  return TRIVET_OK;
}

static trivet_status copy_weight(trivet_optimizer* optimizer, int64_t parameter, float* out, size_t elements) {
  const void* data;
  int32_t unit;
  TRY(trivet_optimizer_unit_of(optimizer, parameter, &unit));
  TRY(trivet_optimizer_prefetch(optimizer, unit));
  TRY(trivet_optimizer_gather(optimizer, unit));
  TRY(trivet_optimizer_weight(optimizer, parameter, &data));
  memcpy(out, data, elements * sizeof(float));
  return trivet_optimizer_release(optimizer, unit);
}

static trivet_status run_with(trivet_world* world, trivet_optimizer* optimizer, struct job* job) {
  struct job mine = *job;
  mine.last.size = sizeof mine.last;
  mine.memory.size = sizeof mine.memory;
  if (job->load) TRY(trivet_optimizer_load(optimizer, job->directory, &mine.found));
  TRY(run_steps(optimizer, job, &mine.last));
  if (job->save) TRY(trivet_optimizer_save(optimizer, job->directory));
  TRY(trivet_optimizer_memory(optimizer, &mine.memory));
  TRY(copy_weight(optimizer, 0, mine.a, A_ELEMENTS));
  TRY(copy_weight(optimizer, 1, mine.b, B_ELEMENTS));
  if (trivet_world_rank(world) == 0) *job = mine;
  return TRIVET_OK;
}

trivet_status run_job(trivet_world* world, void* user) {
  static const int64_t a_shape[] = {2, 3}, b_shape[] = {B_ELEMENTS};
  static const float a[A_ELEMENTS] = {1, 2, 3, 4, 5, 6};
  const trivet_parameter parameters[] = {
      {.size = sizeof(trivet_parameter), .name = "a", .unit = "u", .shape = a_shape, .dims = 2, .values = a},
      {.size = sizeof(trivet_parameter), .name = "b", .shape = b_shape, .dims = 1, .flags = TRIVET_NO_DECAY}};
  struct job* job = user;
  trivet_optimizer* optimizer = NULL;
  trivet_status status;
  TRY(trivet_optimizer_create(world, job->config, parameters, 2, NULL, &optimizer));
  status = run_with(world, optimizer, job);
  trivet_optimizer_destroy(optimizer);
  return status;
}

/* Takes one step with nothing but an installed libtrivet_c. Exits with code 1 unless the weight changed as it should. */
#include <stdio.h>

#include <trivet/c.h>

static trivet_status run(trivet_world* world, void* weight) {
  const char* config = "{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}, \"gradient_clipping\": 0}";
  const trivet_parameter parameter = {.size = sizeof parameter, .name = "w"};
  const float gradient = 3;
  const void* data;
  trivet_optimizer* optimizer = NULL;
  trivet_status status = trivet_optimizer_create(world, config, &parameter, 1, NULL, &optimizer);
  if (status == TRIVET_OK) status = trivet_optimizer_add_gradient(optimizer, 0, TRIVET_FLOAT32, &gradient);
  if (status == TRIVET_OK) status = trivet_optimizer_end_microbatch(optimizer, 0, 1);
  if (status == TRIVET_OK) status = trivet_optimizer_step(optimizer, NULL);
  if (status == TRIVET_OK) status = trivet_optimizer_weight(optimizer, 0, &data);
  if (status == TRIVET_OK && trivet_world_rank(world) == 0) *(float*)weight = *(const float*)data;
  trivet_optimizer_destroy(optimizer);
  return status;
}

int main(void) {
  float weight = 0;
  if (trivet_run_threads(2, run, &weight) != TRIVET_OK) fprintf(stderr, "%s\n", trivet_last_error());
  printf("weight %g\n", (double)weight);
  return weight == -1.5f ? 0 : 1;
}

/* A trainer in C with its own model and its own gradients, which takes ZeRO, optimizer and checkpoints from Trivet.
 *
 *   example_07_c_trainer              ranks as threads; exits with code 1 unless all layouts learn the same bits
 *   trivet launch --num_gpus 2 example_07_c_trainer --rank         each process is one rank
 *
 * The model, by hand: f(x) = b2 + w2 tanh(w1 x + b1), fitted to sin(3 x0) x1 over the square [-1, 1]^2. The 12 microbatches of
 * a step are dealt to the ranks, so 1, 2, 3 and 4 ranks compute the same contributions. With reproducible "layout" (below), the
 * order in which they are added changes no bit. The byte counts include the padding of shards, which is large for so few
 * weights.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <trivet/c.h>

enum { HIDDEN = 32, INPUTS = 2, STEPS = 200, MICROBATCHES = 12, SAMPLES = 8 };
enum { W1, B1, W2, B2, PARAMETERS };
static const int64_t kElements[PARAMETERS] = {HIDDEN * INPUTS, HIDDEN, HIDDEN, 1};
enum { ALL = HIDDEN * INPUTS + HIDDEN + HIDDEN + 1 };

/* Calls a function of Trivet; on an error, prints its text and returns the error. */
#define TRY(call)                                              \
  do {                                                         \
    const trivet_status try_status = (call);                   \
    if (try_status != TRIVET_OK) {                             \
      fprintf(stderr, "%s: %s\n", #call, trivet_last_error()); \
      return try_status;                                       \
    }                                                          \
  } while (0)

/* ---- The model */

/* Uniform in [-1, 1), the same for the same number on every rank. */
static float number(uint64_t key) {
  key += 0x9e3779b97f4a7c15u;
  key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9u;
  key = (key ^ (key >> 27)) * 0x94d049bb133111ebu;
  return (float)((key ^ (key >> 31)) >> 40) / 8388608.0f - 1.0f;
}

/* Adds the gradient of a sample's loss, (f(x) - y)^2 / 2, and returns the loss. */
static double add_sample(const float* const weights[PARAMETERS], uint64_t sample, float* const gradients[PARAMETERS]) {
  const float x[INPUTS] = {number(2 * sample), number(2 * sample + 1)};
  float hidden[HIDDEN], difference = weights[B2][0] - sinf(3 * x[0]) * x[1];
  for (int h = 0; h < HIDDEN; ++h) {
    hidden[h] = tanhf(weights[B1][h] + weights[W1][h * INPUTS] * x[0] + weights[W1][h * INPUTS + 1] * x[1]);
    difference += weights[W2][h] * hidden[h];
  }
  gradients[B2][0] += difference;
  for (int h = 0; h < HIDDEN; ++h) {
    const float before = difference * weights[W2][h] * (1 - hidden[h] * hidden[h]);
    gradients[W2][h] += difference * hidden[h];
    gradients[B1][h] += before;
    for (int i = 0; i < INPUTS; ++i) gradients[W1][h * INPUTS + i] += before * x[i];
  }
  return 0.5 * (double)difference * (double)difference;
}

/* ---- The trainer, as one rank runs it */

/* Registers the parameters. The two layers are the units that stage 3 gathers. */
static trivet_status create(trivet_world* world, int stage, trivet_optimizer** optimizer) {
  static const int64_t shapes[PARAMETERS][2] = {{HIDDEN, INPUTS}, {HIDDEN, 0}, {1, HIDDEN}, {1, 0}};
  static const char* const names[PARAMETERS] = {"first.weight", "first.bias", "second.weight", "second.bias"};
  float values[PARAMETERS][HIDDEN * INPUTS];
  trivet_parameter parameters[PARAMETERS];
  char config[512];
  memset(parameters, 0, sizeof parameters);
  for (int p = 0; p < PARAMETERS; ++p) {
    const int is_bias = p == B1 || p == B2;
    for (int64_t i = 0; i < kElements[p]; ++i)
      values[p][i] = number((uint64_t)(1000000 * (p + 1) + i)) * (p == W2 ? 0.2f : 1.0f);
    parameters[p].size = sizeof parameters[p];
    parameters[p].name = names[p];
    parameters[p].unit = p < W2 ? "first" : "second";
    parameters[p].shape = shapes[p];
    parameters[p].dims = is_bias ? 1 : 2;
    parameters[p].flags = is_bias ? TRIVET_NO_DECAY : 0;
    parameters[p].values = values[p];
  }
  snprintf(config, sizeof config,
           "{\"zero_optimization\": {\"stage\": %d, \"overlap_comm\": true, \"stage3_param_persistence_threshold\": 0},"
           " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.02}}, \"reproducible\": \"layout\","
           " \"train_batch_size\": %d, \"train_micro_batch_size_per_gpu\": %d}",
           stage, MICROBATCHES * SAMPLES, SAMPLES);
  return trivet_optimizer_create(world, config, parameters, PARAMETERS, NULL, optimizer);
}

static trivet_status gather(trivet_optimizer* optimizer, const float* weights[PARAMETERS]) {
  for (int32_t unit = 0; unit < trivet_optimizer_units(optimizer); ++unit) TRY(trivet_optimizer_gather(optimizer, unit));
  for (int p = 0; p < PARAMETERS; ++p) {
    const void* data;
    TRY(trivet_optimizer_weight(optimizer, p, &data));
    weights[p] = data;
  }
  return TRIVET_OK;
}

static trivet_status release(trivet_optimizer* optimizer) {
  for (int32_t unit = 0; unit < trivet_optimizer_units(optimizer); ++unit) TRY(trivet_optimizer_release(optimizer, unit));
  return TRIVET_OK;
}

static trivet_status run_microbatch(trivet_optimizer* optimizer, uint64_t microbatch) {
  const float* weights[PARAMETERS];
  float memory[PARAMETERS][HIDDEN * INPUTS] = {{0}};
  float* const gradients[PARAMETERS] = {memory[W1], memory[B1], memory[W2], memory[B2]};
  double loss = 0;
  TRY(gather(optimizer, weights));
  for (uint64_t s = 0; s < SAMPLES; ++s) loss += add_sample(weights, microbatch * SAMPLES + s, gradients);
  TRY(release(optimizer));
  for (int p = PARAMETERS - 1; p >= 0; --p) TRY(trivet_optimizer_add_gradient(optimizer, p, TRIVET_FLOAT32, gradients[p]));
  return trivet_optimizer_end_microbatch(optimizer, loss, SAMPLES);
}

static trivet_status run_step(trivet_world* world, trivet_optimizer* optimizer, trivet_step_report* report) {
  const int rank = trivet_world_rank(world), ranks = trivet_world_size(world);
  const uint64_t first = (uint64_t)trivet_optimizer_steps(optimizer) * MICROBATCHES;
  for (int m = rank; m < MICROBATCHES; m += ranks) TRY(run_microbatch(optimizer, first + (uint64_t)m));
  report->size = sizeof *report;
  return trivet_optimizer_step(optimizer, report);
}

struct run {
  int stage;
  double first_loss, last_loss;
  float weights[ALL]; /* after training, from rank 0 */
};

static trivet_status train_with(trivet_world* world, trivet_optimizer* optimizer, struct run* run) {
  const int is_first = trivet_world_rank(world) == 0;
  const float* weights[PARAMETERS];
  trivet_memory memory;
  trivet_step_report report = {0};
  float* out = run->weights;
  for (int step = 0; step < STEPS; ++step) {
    TRY(run_step(world, optimizer, &report));
    if (is_first && step == 0) run->first_loss = report.loss;
  }
  memory.size = sizeof memory;
  TRY(trivet_optimizer_memory(optimizer, &memory));
  TRY(gather(optimizer, weights));
  for (int p = 0; is_first && p < PARAMETERS; out += kElements[p], ++p)
    memcpy(out, weights[p], (size_t)kElements[p] * sizeof(float));
  TRY(release(optimizer));
  if (!is_first) return TRIVET_OK;
  run->last_loss = report.loss;
  printf("%d ranks, ZeRO-%d: %6lld bytes of weights, gradients and states per rank, loss %.6f -> %.17g\n",
         (int)trivet_world_size(world), run->stage,
         (long long)(memory.parameter_bytes + memory.gradient_bytes + memory.optimizer_bytes), run->first_loss, run->last_loss);
  return TRIVET_OK;
}

static trivet_status train(trivet_world* world, void* user) {
  struct run* run = user;
  trivet_optimizer* optimizer = NULL;
  trivet_status status;
  TRY(create(world, run->stage, &optimizer));
  status = train_with(world, optimizer, run);
  trivet_optimizer_destroy(optimizer);
  return status;
}

/* One rank of a job of processes. */
static trivet_status run_rank(void) {
  struct run run = {.stage = 2};
  trivet_world* world = NULL;
  trivet_status status;
  TRY(trivet_world_connect(&world));
  status = train(world, &run);
  if (status == TRIVET_OK) status = trivet_world_close(world);
  trivet_world_destroy(world);
  return status;
}

int main(int argc, char** argv) {
  struct run alone = {.stage = 0};
  int good;
  if (argc > 1 && strcmp(argv[1], "--rank") == 0) return (int)run_rank();
  if (trivet_run_threads(1, train, &alone) != TRIVET_OK) return 1;
  good = alone.last_loss < 0.05 * alone.first_loss;
  for (int ranks = 2; ranks <= 4; ++ranks)
    for (int stage = 0; stage <= 3; ++stage) {
      struct run run = {.stage = stage};
      if (trivet_run_threads(ranks, train, &run) != TRIVET_OK) return 1;
      good = good && memcmp(run.weights, alone.weights, sizeof alone.weights) == 0;
    }
  puts(good ? "the same bits on every layout" : "FAILED: layouts differ, or nothing was learned");
  return good ? 0 : 1;
}

#include <trivet/c.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <vector>

#include "c/guard.h"
#include "c/world.h"
#include "core/printable.h"
#include "embed/sharded_optimizer.h"
#include "engine/config/load.h"

struct trivet_optimizer {
  trivet::embed::ShardedOptimizer sharded;
};

namespace {

using namespace trivet;
using c_api::given;
using c_api::guarded;

static_assert(static_cast<int>(DType::Float32) == TRIVET_FLOAT32 && static_cast<int>(DType::BFloat16) == TRIVET_BFLOAT16 &&
              static_cast<int>(DType::Float16) == TRIVET_FLOAT16 && static_cast<int>(DType::Float64) == TRIVET_FLOAT64);

constexpr uint32_t kFlags = TRIVET_NO_DECAY | TRIVET_FROZEN | TRIVET_INPUT_LAYER | TRIVET_LOSS_LAYER;

LayerRole role_of(const trivet_parameter& parameter) {
  if (parameter.flags & TRIVET_INPUT_LAYER) return LayerRole::Input;
  return parameter.flags & TRIVET_LOSS_LAYER ? LayerRole::Loss : LayerRole::Hidden;
}

embed::Parameter converted(const trivet_parameter& parameter) {
  const std::string name = &given(parameter.name, "trivet_parameter::name");
  if (parameter.dims < 0 || parameter.dims > Shape::kMaxDims)
    c_api::refuse("parameter \"" + printable(name) + "\" has " + std::to_string(parameter.dims) + " dims; at most " +
                  std::to_string(Shape::kMaxDims) + " are accepted");
  if (parameter.flags & ~kFlags)
    c_api::refuse("parameter \"" + name + "\" has unknown flags " + std::to_string(parameter.flags & ~kFlags));
  if (parameter.dims > 0) given(parameter.shape, "trivet_parameter::shape");
  return {.name = name,
          .shape = Shape(std::span(parameter.shape, static_cast<size_t>(parameter.dims))),
          .unit = parameter.unit ? parameter.unit : "",
          .values = parameter.values,
          .decay = !(parameter.flags & TRIVET_NO_DECAY),
          .trainable = !(parameter.flags & TRIVET_FROZEN),
          .role = role_of(parameter)};
}

// The structs may be larger than those of this version.
std::vector<embed::Parameter> converted(const trivet_parameter* parameters, int64_t count) {
  if (count < 1 || count > std::numeric_limits<int>::max())
    c_api::refuse("trivet_optimizer_create with " + std::to_string(count) + " parameters; give at least one");
  const size_t size = given(parameters, "parameters").size;
  c_api::check_size(size, sizeof(trivet_parameter), "trivet_parameter");
  std::vector<embed::Parameter> list;
  for (int64_t i = 0; i < count; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(parameters) + static_cast<size_t>(i) * size;
    const auto& parameter = *reinterpret_cast<const trivet_parameter*>(at);
    if (parameter.size != size) c_api::refuse("trivet_parameter::size differs between parameters; set it in each");
    list.push_back(converted(parameter));
  }
  return list;
}

embed::Options converted(const trivet_options* options) {
  embed::Options converted;
  if (!options) return converted;
  c_api::check_size(options->size, sizeof(trivet_options), "trivet_options");
  constexpr int32_t kMostThreads = 1024;
  if (options->bucket_elements < 0 || options->threads < 0 || options->threads > kMostThreads || options->reserved != 0)
    c_api::refuse("trivet_options: bucket_elements must not be negative, threads must be from 0 to " +
                  std::to_string(kMostThreads) + ", and reserved must be 0");
  if (options->bucket_elements > 0) converted.bucket_elements = options->bucket_elements;
  if (options->threads > 0) converted.threads = options->threads;
  return converted;
}

int index_of(int64_t parameter) {
  if (parameter < 0 || parameter > std::numeric_limits<int>::max())
    c_api::refuse("parameter " + std::to_string(parameter) + " does not exist");
  return static_cast<int>(parameter);
}

DType dtype_of(int32_t dtype) {
  if (dtype < TRIVET_FLOAT32 || dtype > TRIVET_FLOAT64)
    c_api::refuse("dtype " + std::to_string(dtype) +
                  " is not accepted; use TRIVET_FLOAT32, TRIVET_BFLOAT16, TRIVET_FLOAT16 or "
                  "TRIVET_FLOAT64");
  return static_cast<DType>(dtype);
}

// Writes the members that the caller's struct has, but not its size.
template <typename Struct>
void write(const Struct& from, Struct& to) {
  const size_t size = to.size;
  std::memcpy(&to, &from, std::min(size, sizeof(Struct)));
  to.size = size;
}

embed::ShardedOptimizer& sharded(trivet_optimizer* optimizer) { return given(optimizer, "optimizer").sharded; }
const embed::ShardedOptimizer& sharded(const trivet_optimizer* optimizer) { return given(optimizer, "optimizer").sharded; }

}  // namespace

trivet_status trivet_optimizer_create(trivet_world* world, const char* config_json, const trivet_parameter* parameters,
                                      int64_t count, const trivet_options* options, trivet_optimizer** optimizer) {
  return guarded([&] {
    trivet_optimizer*& out = given(optimizer, "optimizer");
    const Config config = parse_config(&given(config_json, "config_json"), "config_json");
    out = new trivet_optimizer{{config, converted(parameters, count), *given(world, "world").world, converted(options)}};
  });
}

void trivet_optimizer_destroy(trivet_optimizer* optimizer) { delete optimizer; }

int32_t trivet_optimizer_units(const trivet_optimizer* optimizer) { return optimizer ? optimizer->sharded.units() : -1; }

trivet_status trivet_optimizer_unit_of(const trivet_optimizer* optimizer, int64_t parameter, int32_t* unit) {
  return guarded([&] { given(unit, "unit") = sharded(optimizer).unit_of(index_of(parameter)); });
}

int32_t trivet_optimizer_dtype(const trivet_optimizer* optimizer) {
  return optimizer ? static_cast<int32_t>(optimizer->sharded.dtype()) : -1;
}

trivet_status trivet_optimizer_weight(const trivet_optimizer* optimizer, int64_t parameter, const void** data) {
  return guarded([&] { given(data, "data") = sharded(optimizer).weight(index_of(parameter)).data; });
}

trivet_status trivet_optimizer_prefetch(trivet_optimizer* optimizer, int32_t unit) {
  return guarded([&] { sharded(optimizer).prefetch(unit); });
}

trivet_status trivet_optimizer_gather(trivet_optimizer* optimizer, int32_t unit) {
  return guarded([&] { sharded(optimizer).gather(unit); });
}

trivet_status trivet_optimizer_release(trivet_optimizer* optimizer, int32_t unit) {
  return guarded([&] { sharded(optimizer).release(unit); });
}

trivet_status trivet_optimizer_add_gradient(trivet_optimizer* optimizer, int64_t parameter, int32_t dtype, const void* data) {
  return guarded([&] {
    if (!data) c_api::refuse("data is NULL");
    embed::ShardedOptimizer& own = sharded(optimizer);
    own.add_gradient(index_of(parameter), {data, dtype_of(dtype), {own.elements(index_of(parameter))}});
  });
}

trivet_status trivet_optimizer_gradient(trivet_optimizer* optimizer, int64_t parameter, int32_t* dtype, void** data,
                                        int32_t* accumulate) {
  return guarded([&] {
    int32_t &type = given(dtype, "dtype"), &adds = given(accumulate, "accumulate");
    void*& at = given(data, "data");
    const Gradient gradient = sharded(optimizer).gradient(index_of(parameter));
    type = static_cast<int32_t>(gradient.view.dtype);
    at = gradient.view.data;
    adds = gradient.accumulate ? 1 : 0;
  });
}

trivet_status trivet_optimizer_gradient_ready(trivet_optimizer* optimizer, int64_t parameter) {
  return guarded([&] { sharded(optimizer).gradient_ready(index_of(parameter)); });
}

trivet_status trivet_optimizer_end_microbatch(trivet_optimizer* optimizer, double loss, int64_t count) {
  return guarded([&] { sharded(optimizer).end_microbatch(loss, count); });
}

trivet_status trivet_optimizer_step(trivet_optimizer* optimizer, trivet_step_report* report) {
  return guarded([&] {
    if (report) c_api::check_size(report->size, sizeof(trivet_step_report), "trivet_step_report");
    const embed::StepReport done = sharded(optimizer).step();
    if (!report) return;
    write({.size = 0,
           .loss = done.loss,
           .gradient_norm = done.gradient_norm,
           .learning_rate = done.learning_rate,
           .steps = done.steps,
           .updates = done.updates,
           .skipped = done.skipped ? 1 : 0,
           .reserved = 0},
          *report);
  });
}

double trivet_optimizer_loss_scale(const trivet_optimizer* optimizer) {
  return optimizer ? optimizer->sharded.loss_scale() : std::numeric_limits<double>::quiet_NaN();
}

double trivet_optimizer_learning_rate(const trivet_optimizer* optimizer) {
  double rate = std::numeric_limits<double>::quiet_NaN();
  if (optimizer) guarded([&] { rate = optimizer->sharded.learning_rate(); });  // a schedule may throw
  return rate;
}

int64_t trivet_optimizer_steps(const trivet_optimizer* optimizer) { return optimizer ? optimizer->sharded.steps() : -1; }

trivet_status trivet_optimizer_memory(const trivet_optimizer* optimizer, trivet_memory* memory) {
  return guarded([&] {
    c_api::check_size(given(memory, "memory").size, sizeof(trivet_memory), "trivet_memory");
    const MemoryBytes bytes = sharded(optimizer).measured_memory();
    write({.size = 0,
           .parameter_bytes = bytes[MemoryCategory::Parameters],
           .gradient_bytes = bytes[MemoryCategory::Gradients],
           .optimizer_bytes = bytes[MemoryCategory::Optimizer],
           .buffer_bytes = bytes[MemoryCategory::Buffers]},
          *memory);
  });
}

trivet_status trivet_optimizer_save(trivet_optimizer* optimizer, const char* directory) {
  return guarded([&] { sharded(optimizer).save(&given(directory, "directory")); });
}

trivet_status trivet_optimizer_load(trivet_optimizer* optimizer, const char* directory, int32_t* found) {
  return guarded([&] {
    int32_t& out = given(found, "found");
    out = sharded(optimizer).load(&given(directory, "directory")) ? 1 : 0;
  });
}

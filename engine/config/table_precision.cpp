// fp16.*, bf16.*, data_types.*, torch_autocast.*, amp.*
#include <cctype>

#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

const char* const kNoPrecision = "false, the default of Hugging Face's Trainer, which takes ";

// Weights that are summed in 16 bits stop moving when updates become small, so a run would compute other numbers.
const char* const kFloat32Masters =
    "false, which keeps master weights and optimizer states in float32, and where memory is short "
    "zero_optimization.offload_optimizer or a higher zero_optimization.stage,";

void set_grad_accum_dtype(Config& config, const JsonNode& node) {
  const auto is = [&](const char* name, const char* long_name) { return node.text == name || node.text == long_name; };
  if (is("fp32", "float32")) config.grad_accum_dtype = DType::Float32;
  if (is("fp16", "float16")) config.grad_accum_dtype = DType::Float16;
  if (is("bf16", "bfloat16")) config.grad_accum_dtype = DType::BFloat16;
}

std::string get_grad_accum_dtype(const Config& config) {
  return config.grad_accum_dtype ? dtype_json(*config.grad_accum_dtype) : "null";
}

void set_communication_dtype(Config& config, const JsonNode& node) {
  switch (std::tolower(node.text[0]) == 'f' ? node.text[2] : 'b') {
    case '3': config.communication_dtype = DType::Float32; break;
    case '1': config.communication_dtype = DType::Float16; break;
    default: config.communication_dtype = DType::BFloat16;
  }
}

std::string get_communication_dtype(const Config& config) {
  return config.communication_dtype ? dtype_json(*config.communication_dtype) : "null";
}

void add_fp16(KeyTable& table) {
  using F = Fp16Config;
  Section<F> fp16(table, "fp16", [](Config& c) -> F& { return c.fp16; });
  const auto enabled = [](const Config& c) { return c.fp16.enabled; };
  const auto dynamic = [](const Config& c) { return c.fp16.enabled && c.fp16.loss_scale == 0; };
  const std::string when = "fp16.enabled is true", when_dynamic = "fp16.enabled is true and fp16.loss_scale is 0";
  fp16.key("enabled", &F::enabled, "weights, activations and gradients in float16, master weights in float32")
      .takes_auto([](Config&) { return std::string(kNoPrecision) + "--fp16"; });
  fp16.key("loss_scale", &F::loss_scale, "factor that multiplies the loss; 0: adjusted dynamically")
      .at_least(0)
      .active_when(when, enabled);
  fp16.key("initial_scale_power", &F::initial_scale_power, "the dynamic scale starts at 2 to the power of this")
      .between(0, 64)
      .active_when(when_dynamic, dynamic);
  fp16.key("loss_scale_window", &F::loss_scale_window, "steps without overflow before the scale is doubled")
      .at_least(1)
      .active_when(when_dynamic, dynamic);
  fp16.key("hysteresis", &F::hysteresis, "number of overflows until the scale is halved")
      .at_least(1)
      .active_when(when_dynamic, dynamic);
  fp16.key("consecutive_hysteresis", &F::consecutive_hysteresis, "a step without overflow resets the hysteresis")
      .active_when(when_dynamic, dynamic);
  fp16.key("min_loss_scale", &F::min_loss_scale, "an overflow at this scale ends the run")
      .at_least(0)
      .active_when(when_dynamic, dynamic);
  fp16.inert("auto_cast", "false", "cast inputs to float16", "tokens are integers, and images are read in the model's type");
  fp16.unsupported("fp16_master_weights_and_grads", "false", "master weights in float16").instead(kFloat32Masters);
}

void add_bf16(KeyTable& table) {
  Section<Bf16Config> bf16(table, "bf16", [](Config& c) -> Bf16Config& { return c.bf16; });
  bf16.key("enabled", &Bf16Config::enabled, "weights, activations and gradients in bfloat16, master weights in float32")
      .takes_auto([](Config&) { return std::string(kNoPrecision) + "--bf16"; });
  bf16.key("check_grad_overflow", &Bf16Config::check_grad_overflow, "skip a step whose gradients are not finite")
      .active_when("bf16.enabled is true", [](const Config& c) { return c.bf16.enabled; });
  bf16.inert("auto_cast", "false", "cast inputs to bfloat16", "tokens are integers, and images are read in the model's type");
  table.add_name("bfloat16", "bf16");
  for (const auto& [name, value] : {std::pair{"loss_scale", "0.0"},
                                    {"initial_scale_power", "16"},
                                    {"loss_scale_window", "1000"},
                                    {"hysteresis", "2"},
                                    {"min_loss_scale", "1.0"}})
    bf16.inert(name, value, std::string("as fp16.") + name, "bfloat16 needs no loss scale");
  bf16.unused("immediate_grad_update", "false", "accumulate gradients as soon as they are computed");
  bf16.unsupported("bf16_master_weights_and_grads", "false", "master weights in bfloat16").instead(kFloat32Masters);
  bf16.unsupported("bf16_optimizer_states", "false", "optimizer state in bfloat16").instead(kFloat32Masters);
}

}  // namespace

std::string dtype_json(DType dtype) {
  switch (dtype) {
    case DType::Float32: return "\"fp32\"";
    case DType::Float16: return "\"fp16\"";
    case DType::BFloat16: return "\"bf16\"";
    default: return quoted(std::string(name_of(dtype)));
  }
}

void add_precision_keys(KeyTable& table) {
  add_fp16(table);
  add_bf16(table);
  SectionBase types(table, "data_types");
  types
      .custom("grad_accum_dtype", KeyType::Enum,
              "type in which gradients are summed over microbatches and ranks: \"fp32\" or the model's; null: \"fp32\" for a "
              "model in bf16, otherwise the model's",
              set_grad_accum_dtype, get_grad_accum_dtype)
      .names({"fp32", "fp16", "bf16", "float32", "float16", "bfloat16"})
      .nullable()
      .deepspeed("sums gradients of a model in bf16 in bf16 where nothing is given")
      .active_when("reproducible is \"run\"", [](const Config& c) { return c.reproducible == Reproducible::Run; });
  types
      .inert("param_dtype", "null", "type of the parameters: that of the model, as in DeepSpeed, which refuses another one",
             "fp16.enabled and bf16.enabled determine the type of the parameters, and this is it")
      .names({"fp32", "fp16", "bf16", "float32", "float16", "bfloat16"});
  types.unsupported("buffer_dtype", "null", "type of buffers");
  types.unsupported("keep_in_fp32_modules", "\"auto\"", "modules whose buffers stay in float32").type(KeyType::Any);

  SectionBase top(table, "");
  top.custom("communication_data_type", KeyType::Enum,
             "type in which gradients are reduced, which is the one in which they are summed (data_types.grad_accum_dtype): "
             "\"fp32\" is taken for both where that is not given, and a line names the other values",
             set_communication_dtype, get_communication_dtype)
      .names({"fp32", "fp16", "bf16", "bfp16"})
      .ignores_case()
      .nullable()
      .active_when("reproducible is \"run\"", [](const Config& c) { return c.reproducible == Reproducible::Run; })
      .deepspeed("may sum gradients in one type and reduce them in another; older ones call bf16 \"bfp16\"");
  top.inert("seq_parallel_communication_data_type", "\"fp32\"", "type of reductions of DeepSpeed's sequence parallelism",
            "gradients are reduced in the type in which they are summed");
  SectionBase autocast(table, "torch_autocast");
  autocast.refused("PyTorch's autocast");
  autocast.unsupported("enabled", "false", "PyTorch's autocast");
  autocast.unsupported("dtype", "\"bfloat16\"", "the lower precision type");
  autocast.unsupported("lower_precision_safe_modules", "null", "modules that run in that type");
  SectionBase amp(table, "amp");
  amp.refused("NVIDIA's amp");
  amp.unsupported("enabled", "false", "NVIDIA's amp");
  amp.unsupported("opt_level", "\"O1\"", "its level");
  amp.unsupported("loss_scale", "\"dynamic\"", "its loss scale").type(KeyType::Any);
  amp.unsupported("keep_batchnorm_fp32", "null", "its exception for batch norm");
  amp.unsupported("master_weights", "null", "its master weights");
}

}  // namespace trivet::config

// parallel.*, tensor_parallel.*, expert_parallel.*
#include "engine/config/refuse.h"
#include "engine/config/section_builder.h"
#include "engine/config/tables.h"

namespace trivet::config {
namespace {

void set_rank_order(Config& config, const JsonNode& node) {
  config.parallel.rank_order.clear();
  for (const JsonNode& item : node.items) {
    const std::optional<Axis> axis = from_name<Axis>(item.text);
    if (item.kind != JsonKind::String || !axis) throw std::invalid_argument("use a list of " + accepted_names<Axis>());
    config.parallel.rank_order.push_back(*axis);
  }
}

std::string get_rank_order(const Config& config) {
  std::string text;
  for (const Axis axis : config.parallel.rank_order) text += (text.empty() ? "" : ", ") + as_json(axis);
  return "[" + text + "]";
}

void set_autotp_size(Config& config, const JsonNode& node) {
  if (node.integer > 0) config.parallel.tensor = node.integer;  // 0, DeepSpeed's default: off
}

void add_tensor_parallel(KeyTable& table) {
  SectionBase tensor(table, "tensor_parallel");
  tensor
      .custom("autotp_size", KeyType::Integer, "the same as parallel.tensor; 0: off", set_autotp_size,
              [](const Config& c) { return c.parallel.tensor > 1 ? std::to_string(c.parallel.tensor) : std::string("0"); })
      .at_least(0)
      .alias_of("parallel.tensor");
  tensor.inert("enabled", "false", "a switch that DeepSpeed does not have", "autotp_size, or parallel.tensor, decides");
  tensor.unsupported("vocab_parallel_lm_head", "null", "split the head by vocabulary; Trivet always does");
  tensor.inert("vocab_parallel_ce_backend", "\"torch\"", "kernel of the split cross-entropy", "there is one such kernel");
  tensor.unsupported("dtype", "\"fp16\"", "type of the parameters");
  tensor.unsupported("keep_module_on_host", "false", "keep the module on the host");
  tensor.unsupported("kernel_inject", "false", "inject inference kernels");
  tensor.inert("tp_overlap_comm", "false", "overlap the all-reduce of input gradients",
               "this sum always overlaps the weights' gradient");
  tensor.unsupported("preset_model", "null", "split a known model");
  tensor.unsupported("injection_policy_tuple", "null", "names of row-parallel layers");
  tensor.unsupported("tp_size", "1", "name of autotp_size in configs of inference").instead("parallel.tensor");
  tensor.other_name("tensor_parallel", "tp");
  for (const char* section : {"tensor_parallel", "tensor_parallel.tp"})
    table.advise(section, "parallel.tensor sets the number of ranks that share each layer here");
  SectionBase tp(table, "tensor_parallel.tp");
  tp.unsupported("tp_size", "1", "older name of autotp_size").instead("parallel.tensor");
  tp.unsupported("tp_grain_size", "1", "granularity of uneven splits");
  tp.unsupported("mpu", "null", "model-parallel unit of a Python program");
  tp.unsupported("tp_group", "null", "process group of a Python program");
  SectionBase partition(table, "tensor_parallel.partition_config");
  partition.unsupported("use_default_specs", "true", "use DeepSpeed's rules");
  partition.unsupported("layer_specs", "[]", "custom rules");
}

void set_autoep_size(Config& config, const JsonNode& node) {
  if (node.integer > 1) config.parallel.expert = node.integer;  // 1, DeepSpeed's default: off
}

// Another name of a key of model.experts, whose own default leaves it to the model.
template <typename T>
KeyRefiner add_of_router(SectionBase& expert, const std::string& name, KeyType type, const std::string& same,
                         T& (*member)(Config&)) {
  const auto set = [member](Config& config, const JsonNode& node) {
    if (node.kind == JsonKind::Null || node.text == "auto") return;
    if constexpr (type_of<T>() == KeyType::Integer || type_of<T>() == KeyType::Number)
      if (node.kind != JsonKind::Number || !(node.number > 0) || (std::is_integral_v<T> && !node.is_integer))
        throw std::invalid_argument("use a number above 0, without a fraction if it counts, or leave it out");
    from_json(member(config), node);
  };
  const auto get = [member](const Config& config) { return as_json(member(const_cast<Config&>(config))); };
  return expert.custom(name, type, "the same as model.experts." + same, set, get)
      .alias_of("model.experts." + same)
      .active_when("the model has experts", [](const Config& c) { return c.model.experts.enabled(); })
      .default_json(type == KeyType::Bool || type == KeyType::Integer ? "null" : "\"auto\"");
}

void add_router_of_deepspeed(SectionBase& expert) {
  using kernels::ExpertScore;
  add_of_router<ExpertScore>(expert, "score_func", KeyType::Enum, "score", [](Config& c) -> ExpertScore& {
    return c.model.experts.rule.score;
  }).names({"auto", "softmax", "sigmoid"});
  add_of_router<int64_t>(expert, "top_k", KeyType::Any, "per_token",
                         [](Config& c) -> int64_t& { return c.model.experts.per_token; });
  add_of_router<double>(expert, "routed_scaling_factor", KeyType::Any, "scale",
                        [](Config& c) -> double& { return c.model.experts.rule.scale; });
  add_of_router<bool>(expert, "route_norm", KeyType::Bool, "normalize", [](Config& c) -> bool& {
    return c.model.experts.rule.normalize;
  }).nullable();
  add_of_router<int64_t>(expert, "num_expert_groups", KeyType::Integer, "groups", [](Config& c) -> int64_t& {
    return c.model.experts.rule.groups;
  }).nullable();
  add_of_router<int64_t>(expert, "num_limited_groups", KeyType::Integer, "groups_per_token", [](Config& c) -> int64_t& {
    return c.model.experts.rule.groups_per_token;
  }).nullable();
  expert.unsupported("route_scale", "1.0", "factor of the weights of experts").instead("expert_parallel.routed_scaling_factor");
  expert
      .inert("score_apply", "\"auto\"", "where an expert's weight multiplies",
             "weights multiply after an expert's first product, which is the same as \"post\" but for rounding")
      .names({"auto", "post"})
      .refuses({"pre"});
  expert.unsupported("load_balance_coeff", "null", "rate of the biases of routers").instead("model.experts.bias_update_rate");
}

void add_expert_parallel(KeyTable& table) {
  SectionBase expert(table, "expert_parallel");
  expert.switched("expert parallelism");
  expert.custom(
      "enabled", KeyType::Bool, "the section counts", [](Config&, const JsonNode&) {},
      [](const Config& c) {
        const GivenKey* given = find_given(c, "expert_parallel.enabled");
        return given ? given->value : std::string("false");
      });
  expert
      .custom("autoep_size", KeyType::Integer, "the same as parallel.expert", set_autoep_size,
              [](const Config& c) { return std::to_string(c.parallel.expert); })
      .at_least(1)
      .alias_of("parallel.expert");
  const char* const known = "the model's own description says so";
  for (const char* name :
       {"preset_model", "moe_layer_pattern", "router_pattern", "expert_pattern", "expert_w1", "expert_w2", "expert_w3",
        "num_experts_attr", "top_k_attr", "has_shared_experts", "shared_experts_pattern", "shared_experts_gate_pattern"})
    expert.inert(name, "null", "where the experts are in the model", known);
  const char* const one = "there is one way here, which gives the same bits on every layout";
  expert.inert("use_grouped_mm", "true", "grouped matrix products", one);
  expert.inert("disable_triton_grouped_mm", "false", "compute them without Triton", one);
  expert.inert("combine_impl", "\"auto\"", "how the rows of a token are added", one);
  expert.inert("row_weighting_impl", "\"auto\"", "how rows get their weights", one);
  expert.inert("gate_up_impl", "\"separate\"", "compute the gate and up products as one", one);
  expert.inert("async_split_plan", "false", "copy counts of tokens to the host while other work runs", one);
  const char* const exchange = "rows go in as many rounds as ranks share the experts";
  expert.inert("comm_backend", "\"comm\"", "what exchanges tokens", exchange);
  expert.inert("comm_num_sm", "12", "parts of a GPU for it", exchange);
  expert.inert("comm_qp_margin", "4", "connections for it", exchange);
  expert.inert("comm_max_tokens_per_rank", "0", "tokens for which it has buffers", exchange);
  expert.unsupported("expert_activation", "null", "activation of experts").instead("model.gate_activation");
  expert.inert("validate_folding_routing", "false", "compare what tensor ranks chose",
               "tensor ranks choose from the same logits");
  add_router_of_deepspeed(expert);
  expert.unsupported("expert_tensor_parallel_size", "1", "ranks that share one expert; here these are the tensor ranks")
      .instead("parallel.tensor");
}

}  // namespace

void add_parallel_keys(KeyTable& table) {
  using P = ParallelConfig;
  Section<P> parallel(table, "parallel", [](Config& c) -> P& { return c.parallel; });
  parallel.own();
  parallel.key("tensor", &P::tensor, "ranks that share each layer").at_least(1);
  parallel.key("pipeline", &P::pipeline, "pipeline ranks that share the layers").at_least(1);
  parallel
      .key("context", &P::context,
           "ranks that share the tokens of each sequence; with reproducible \"layout\" it has to divide parallel.context_grain")
      .at_least(1);
  parallel
      .key("context_kind", &P::context_kind,
           "what context ranks do for attention: \"ulysses\" exchanges tokens for heads, of which each rank needs its own; "
           "\"gather\" collects keys and values, whatever the heads; \"ring\" hands them from rank to rank; \"ulysses_ring\" "
           "exchanges tokens for heads among neighbours, and hands keys and values on between these; \"auto\" is \"ulysses\" "
           "where heads allow it, else \"gather\"")
      .active_when("parallel.context is more than 1", [](const Config& c) { return c.parallel.context > 1; });
  parallel
      .key("context_ulysses", &P::context_ulysses,
           "context ranks that exchange tokens for heads, for example those of one host; it has to divide parallel.context and "
           "fit the heads; 0: as many as possible")
      .at_least(0)
      .active_when("parallel.context_kind is \"ulysses_ring\"", [](const Config& c) {
        return c.parallel.context > 1 && c.parallel.context_kind == ContextKind::UlyssesRing;
      });
  parallel
      .key("context_grain", &P::context_grain,
           "leaves of each sequence, a power of two: sums over tokens add the leaves in a balanced tree, so that every "
           "parallel.context that divides this gives the same bits; part of the mathematics, like the microbatch; 1: only "
           "parallel.context 1 keeps its bits, and nothing is added in leaves")
      .between(1, kMaxContextGrain)
      .active_when("reproducible is \"layout\"", [](const Config& c) { return c.reproducible == Reproducible::Layout; });
  parallel.key("expert", &P::expert, "ranks that share the experts").at_least(1);
  parallel
      .key("sequence_parallel", &P::sequence_parallel,
           "between blocks each tensor rank holds only its own tokens, so norms, residuals, dropout and their saved "
           "activations shrink to 1/tensor; with reproducible \"layout\" it needs a parallel.context_grain that "
           "parallel.tensor divides")
      .active_when("parallel.tensor is more than 1", [](const Config& c) { return c.parallel.tensor > 1; });
  parallel.custom(
      "rank_order", KeyType::List,
      "the order of the axes in rank numbering, slowest-varying first; an axis of size 1 may be left out, but not \"data\"",
      set_rank_order, get_rank_order);
  add_tensor_parallel(table);
  add_expert_parallel(table);
}

}  // namespace trivet::config

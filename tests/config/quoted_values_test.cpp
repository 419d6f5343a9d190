// Texts in place of numbers and switches, where DeepSpeed reads them; and other values that DeepSpeed takes. What pydantic 2
// does with each text in its lax mode was tried with its BaseModel.
#include <gmock/gmock.h>

#include "engine/config/deepspeed.h"
#include "engine/config/explain.h"
#include "tests/config/support.h"

namespace trivet {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

Config config_with(const std::string& text) { return parse_config(text, "ds.json"); }

int64_t bucket_of(const std::string& json) {
  return config_with(R"({"zero_optimization": {"reduce_bucket_size": )" + json + "}}").zero.reduce_bucket_size;
}

bool overlap_of(const std::string& json) {
  return config_with(R"({"zero_optimization": {"overlap_comm": )" + json + "}}").zero.overlap_comm;
}

TEST(QuotedValues, AnIntegerIsReadAsPydanticReadsIt) {
  for (const auto& [text, value] : std::vector<std::pair<std::string, int64_t>>{
           {"5", 5}, {"5.0", 5}, {" 7 ", 7}, {"1_000", 1000}, {"+3", 3}, {"007", 7}, {"5.", 5}, {"200000000", 200'000'000}})
    EXPECT_EQ(bucket_of("\"" + text + "\""), value) << text;
  for (const std::string text : {"5e8", "0x10", "", "5.5", "1__0", "_1", "1_", "five", ".", "-", "1 2"})
    EXPECT_EQ(refusal(R"({"zero_optimization": {"reduce_bucket_size": ")" + text + "\"}}"),
              "bad.json:1:46: zero_optimization.reduce_bucket_size: \"" + text + "\" is not accepted; an integer is expected");
}

TEST(QuotedValues, ANumberIsReadAsPydanticReadsIt) {
  const auto scale_of = [](const std::string& text) {
    return config_with(R"({"fp16": {"enabled": true, "loss_scale": ")" + text + "\"}}").fp16.loss_scale;
  };
  EXPECT_EQ(scale_of("1e3"), 1000);
  EXPECT_EQ(scale_of(".5"), 0.5);
  EXPECT_EQ(scale_of("5."), 5);
  EXPECT_EQ(scale_of(" 2 "), 2);
  EXPECT_EQ(scale_of("1_0"), 10);
  EXPECT_EQ(scale_of("0.25"), 0.25);
  EXPECT_THAT(refusal(R"({"fp16": {"loss_scale": "dynamic"}})"),
              HasSubstr("\"dynamic\" is not accepted; a number is expected"));
}

TEST(QuotedValues, AnIntegerKeepsItsBounds) {
  EXPECT_EQ(refusal(R"({"zero_optimization": {"stage": "4"}})"),
            "bad.json:1:33: zero_optimization.stage: 4 is not accepted; use 0 to 3");
  EXPECT_EQ(config_with(R"({"zero_optimization": {"stage": "2"}})").zero.stage, 2);
}

TEST(QuotedValues, ASwitchIsReadAsPydanticReadsIt) {
  for (const char* on : {"\"true\"", "\"True\"", "\"ON\"", "\"yes\"", "\"1\"", "\"t\"", "\"Y\"", "1", "1.0"})
    EXPECT_TRUE(overlap_of(on)) << on;
  for (const char* off : {"\"false\"", "\"OFF\"", "\"No\"", "\"0\"", "\"f\"", "\"n\"", "0"})
    EXPECT_FALSE(overlap_of(off)) << off;
  for (const char* neither : {"\"enabled\"", "\" true \"", "\"\"", "2", "-1"})
    EXPECT_THAT(refusal(std::string(R"({"zero_optimization": {"overlap_comm": )") + neither + "}}"),
                HasSubstr("is not accepted; true or false is expected"))
        << neither;
}

// DeepSpeed reads these with its own code, or not at all, and would stop or train wrongly.
TEST(QuotedValues, ElsewhereTheValueItselfIsNeeded) {
  for (const char* text : {R"({"train_batch_size": "8"})", R"({"gradient_clipping": "1.0"})", R"({"steps_per_print": "10"})",
                           R"({"optimizer": {"type": "Adam", "params": {"lr": "1e-3"}}})", R"({"timeline": {"step": "1"}})",
                           R"({"flops_profiler": {"enabled": true, "profile_step": "1"}})"})
    EXPECT_THAT(refusal(text), HasSubstr("is not accepted; a")) << text;
}

TEST(QuotedValues, ExplainShowsTheNumber) {
  EXPECT_EQ(config_with(R"({"zero_optimization": {"stage": "2", "overlap_comm": "yes"}})").given[0].value, "2");
  EXPECT_EQ(config_with(R"({"zero_optimization": {"stage": "2", "overlap_comm": "yes"}})").given[1].value, "true");
}

std::string with_warmup_type(const std::string& name) {
  return R"({"training": {"steps": 10}, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": ")" + name + "\"}}}";
}

TEST(WarmupTypes, AnUnknownOneIsLogAndALineSaysSo) {
  for (const char* name : {"cosine", "exponential", "constant"}) {
    const Config config = config_with(with_warmup_type(name));
    EXPECT_EQ(config.scheduler.warmup_type, WarmupType::Log) << name;
    EXPECT_THAT(differences_from_deepspeed(config), Contains(std::string("scheduler.params.warmup_type: \"") + name +
                                                             "\" is no shape of a warm-up; \"log\" is taken, as in DeepSpeed"));
  }
  for (const char* name : {"log", "linear"})
    EXPECT_THAT(differences_from_deepspeed(config_with(with_warmup_type(name))),
                Not(Contains(HasSubstr("scheduler.params.warmup_type"))));
  EXPECT_EQ(config_with(with_warmup_type("linear")).scheduler.warmup_type, WarmupType::Linear);
}

TEST(WarmupTypes, AMisspeltOneIsRefused) {
  for (const char* name : {"Linear", "linaer", "LINEAR", "lineer", "logg"})
    EXPECT_THAT(refusal(with_warmup_type(name)), HasSubstr("is not accepted; use one of \"log\", \"linear\"")) << name;
}

TEST(CommunicationDataType, HasTheNamesOfDeepSpeed) {
  EXPECT_EQ(config_with(R"({"communication_data_type": "FP32"})").communication_dtype, DType::Float32);
  EXPECT_EQ(config_with(R"({"communication_data_type": null})").communication_dtype, std::nullopt);
  EXPECT_EQ(config_with(R"({"fp16": {"enabled": true}, "communication_data_type": "fp16"})").communication_dtype,
            DType::Float16);
  for (const char* name : {"bf16", "bfp16", "BFP16"})
    EXPECT_EQ(config_with(std::string(R"({"bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"},
                                         "communication_data_type": ")") +
                          name + "\"}")
                  .communication_dtype,
              DType::BFloat16)
        << name;
}

TEST(CommunicationDataType, AnotherNameIsRefused) {
  EXPECT_THAT(refusal(R"({"communication_data_type": "fp8"})"), HasSubstr("\"fp8\" is not accepted; use one of \"fp32\", "));
}

TEST(LoggedOperations, HaveTheNamesOfDeepSpeedOrOurs) {
  const auto names = [](const std::string& list) {
    return config_with(R"({"comms_logger": {"enabled": true, "prof_all": false, "prof_ops": )" + list + "}}")
        .comms_logger.prof_ops;
  };
  EXPECT_EQ(names(R"(["all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single", "recv", "isend"])"),
            (std::vector<std::string>{"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "receive", "send"}));
  EXPECT_EQ(refusal(R"({"comms_logger": {"enabled": true, "prof_ops": ["all_sum"]}})"),
            "bad.json:1:48: comms_logger.prof_ops: [\"all_sum\"] is not accepted; use a list of \"all_reduce\", "
            "\"reduce_scatter\", \"all_gather\", \"broadcast\", \"all_to_all\", \"all_to_all_v\", \"send\", \"receive\", "
            "\"barrier\"");
}

}  // namespace
}  // namespace trivet

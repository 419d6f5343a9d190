// Runs `trivet plan --search`, `trivet estimate` and `trivet doctor` as a user does.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// "614,200" for 614234, up to a million.
std::string in_four_digits(double value) {
  if (value < 1000) return fmt::format("{:.4g}", value);
  const double unit = std::pow(10, std::floor(std::log10(value)) - 3);
  const long long rounded = std::llround(std::round(value / unit) * unit);
  return fmt::format("{},{:03}", rounded / 1000, rounded % 1000);
}

class Planning : public testing::Test {
 protected:
  Planning() {
    folder.write("llama.json", R"({
      "model": {"type": "llama", "layers": 32, "hidden_size": 4096, "heads": 32, "key_value_heads": 8, "feed_forward_size": 14336,
                "sequence_length": 8192, "vocabulary": 128256},
      "data": {"train": "tokens.bin"}, "training": {"steps": 1}, "train_batch_size": 256, "bf16": {"enabled": true},
      "optimizer": {"type": "AdamW", "params": {"lr": 0.0003}}
    })");
  }
  void refused(const std::string& arguments, int code, const std::string& message) {
    const Output output = folder.run(arguments);
    EXPECT_EQ(output.code, code) << arguments;
    EXPECT_THAT(output.errors, HasSubstr(message));
  }
  Folder folder;
};

TEST_F(Planning, SearchRanksLayoutsAndSaysWhyTheOthersLose) {
  const Output output = folder.run("plan llama.json --world-size 64 --cluster h100 --search --top 3");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("cluster   h100: NVIDIA H100 SXM 80 GB"));
  EXPECT_THAT(output.text, HasSubstr("why not\n"));
  EXPECT_THAT(output.text, HasSubstr("% slower: "));
  const Output as_json = folder.run("plan llama.json --world-size 64 --cluster h100 --search --top 3 --json");
  const auto data = nlohmann::json::parse(as_json.text);
  ASSERT_EQ(data["ranking"].size(), 3);
  const auto& mesh = data["ranking"][0]["mesh"];
  EXPECT_EQ(mesh["pipeline"].get<int>() * mesh["data"].get<int>() * mesh["tensor"].get<int>(), 64);
  EXPECT_LE(data["ranking"][0]["step_seconds"].get<double>(), data["ranking"][1]["step_seconds"].get<double>());
  EXPECT_GT(data["ranking"][0]["model_flops_utilization"].get<double>(), 0.2);
}

// What --search prints, and --verify plans, says the same under each name that the config uses.
TEST_F(Planning, SearchContradictsNoOtherNameOfAKey) {
  const std::string names =
      "--set sequence_parallel_size=2 --set tensor_parallel.autotp_size=4 --set zero_optimization.cpu_offload=true "
      "--set zero_optimization.stage=1 --set pipeline.stages=2";
  const Output output = folder.run("plan llama.json --world-size 64 --cluster h100 --search --top 1 --verify --json " + names);
  ASSERT_EQ(output.code, 0) << output.errors;
  const auto best = nlohmann::json::parse(output.text)["ranking"][0];
  const auto& config = best["config"];
  EXPECT_EQ(config["sequence_parallel_size"], config["parallel.context"]);
  EXPECT_EQ(config["tensor_parallel.autotp_size"], config["parallel.tensor"]);
  EXPECT_EQ(config["pipeline.stages"], config["parallel.pipeline"]);
}

TEST_F(Planning, SearchTakesAClusterFromAFile) {
  folder.write("ours.json", R"({"like": "h200", "name": "ours", "nodes": 4, "price_per_device_hour": 2})");
  const Output output = folder.run("plan llama.json --world-size 32 --cluster ours.json --search");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("cluster   ours: NVIDIA H200"));
  EXPECT_THAT(output.text, HasSubstr(" for 1 T, at 2 per device and hour"));
  for (const char* search : {"", " --search"})
    refused(std::string("plan llama.json --world-size 64 --cluster ours.json") + search, 2,
            "cluster \"ours\": 64 devices are more than it has (4 nodes of 8); use at most 32");
}

TEST_F(Planning, SearchRefusesWhatItCannotAnswer) {
  refused("plan llama.json --world-size 8 --search", 2, "--search: needs --cluster, the machines to search for: \"a100\"");
  refused("plan llama.json --world-size 8 --cluster h100 --top 3", 2, "plan: --top requires --search");
  refused("plan llama.json --world-size 8 --price 3", 2,
          "--price: only a predicted step has a price; give --cluster or --profile, too");
  refused("plan llama.json --world-size 8 --tokens 1T", 2, "--tokens: only a predicted step says how long they take; give");
  for (const char* tokens : {"1Q", "T", "-3", "nan", "1e300"})
    refused(std::string("plan llama.json --world-size 8 --cluster h100 --tokens=") + tokens, 2,
            "is not a number of tokens, such as 15T, 300B, 20M or 1e12");
  EXPECT_THAT(folder.run("plan llama.json --world-size 64 --cluster h100 --tokens 0.5T").text,
              HasSubstr("\nrun       500 B tokens: "));
  refused("plan llama.json --world-size 8 --cluster h300 --search", 2,
          "cluster: \"h300\" is neither a file nor one of \"a100\"");
  refused("plan llama.json --world-size 35 --cluster h100 --search --set train_batch_size=16", 2,
          "search: no layout divides 35 devices among 34 blocks and a batch of 16");
  const std::string too_few = "plan llama.json --world-size 1 --cluster a100-40 --search --set optimizer.type=Lamb";
  refused(too_few, 19, "--search: no layout of 1 devices fits; the smallest is pipeline 1 x data 1 x tensor 1");
  refused(too_few, 19, " GiB over; 8 devices are enough: pipeline ");
}

// The time of ranks that share experts has a part of its own, which grows with --expert-imbalance.
TEST_F(Planning, PredictsRanksThatShareExperts) {
  folder.write("mixture.json", R"({"model": {"type": "llama", "layers": 2, "hidden_size": 256, "heads": 4,
    "sequence_length": 1024, "vocabulary": 512, "experts": {"count": 8, "per_token": 2, "feed_forward_size": 256}},
    "train_batch_size": 16, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}})");
  const std::string plan = "plan mixture.json --world-size 8 --cluster h100 --set parallel.expert=4";
  const Output output = folder.run(plan);
  ASSERT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("\n  expert  "));
  EXPECT_THAT(output.text, HasSubstr("\nnetwork   tensor, expert and data axes communicate for "));
  const auto expert = [&](const std::string& flags) {
    return nlohmann::json::parse(folder.run(plan + " --json" + flags).text)["seconds"]["expert"].get<double>();
  };
  EXPECT_GT(expert(""), expert(" --expert-imbalance 1"));
  EXPECT_GT(expert(" --expert-imbalance 1.5"), expert(""));
  refused(plan + " --expert-imbalance 0.5", 2,
          "0.5 is not accepted; it is the rows of the fullest rank over their mean, from 1");
  refused("plan mixture.json --world-size 8 --expert-imbalance 2", 2, "--expert-imbalance requires --cluster");
  const Output searched = folder.run("plan mixture.json --world-size 8 --cluster h100 --search");
  EXPECT_THAT(searched.text, HasSubstr("\nexpert    2, 4, 8 ranks that share experts are tried"));
  EXPECT_THAT(searched.text, testing::ContainsRegex("\n  expert [1248]  .* slower: "));
}

TEST_F(Planning, VerifyPlansTheFirst) {
  const Output output = folder.run("plan llama.json --world-size 8 --cluster h200 --search --verify --top 1 --json");
  ASSERT_EQ(output.code, 0) << output.errors;
  const auto data = nlohmann::json::parse(output.text);
  EXPECT_EQ(data["planned"], true);
  std::string flags;
  for (const auto& [key, value] : data["ranking"][0]["config"].items()) flags += " --set '" + key + "=" + value.dump() + "'";
  const auto plan = nlohmann::json::parse(folder.run("plan llama.json --world-size 8 --json" + flags).text);
  EXPECT_EQ(plan["memory_bytes"]["total"], data["ranking"][0]["memory_bytes"]["total"]);
  EXPECT_LE(plan["memory_bytes"]["total"].get<double>(), 0.95 * 138.0 * (1 << 30));
  refused("plan llama.json --verify", 2, "plan: --verify requires --search");
}

// The page is one file and has the numbers of the JSON in tables next to the pictures.
TEST_F(Planning, PageHasTheNumbersOfThePlan) {
  const std::string plan =
      "plan llama.json --world-size 32 --cluster h100 --price 2 --set parallel.pipeline=4 "
      "--set train_micro_batch_size_per_gpu=1 --set pipeline.schedule=zb-h1 --json --html page.html";
  const Output output = folder.run(plan);
  ASSERT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.errors, HasSubstr("plan: the page is page.html\n"));
  const auto data = nlohmann::json::parse(output.text);
  const std::string page = folder.read("page.html");
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page, EndsWith("</html>\n"));
  EXPECT_THAT(page, HasSubstr("<title>Plan of 32 x NVIDIA H100 SXM 80 GB</title>"));
  EXPECT_THAT(page, HasSubstr("a run can use 74.1 GiB"));
  EXPECT_THAT(page, HasSubstr(fmt::format("<td>{:.2f}</td></tr>", data["memory_bytes"]["total"].get<double>() / (1 << 30))));
  const double step = data["step_seconds"];
  for (const auto& [name, value] : data["seconds"].items())
    EXPECT_THAT(page, HasSubstr(fmt::format("<tr><td>{}</td><td>{:.4g}</td><td>{:.1f}</td></tr>", name, value.get<double>(),
                                            100 * value.get<double>() / step)));
  EXPECT_THAT(page, HasSubstr(fmt::format("{} tokens/s, {:.1f} % model FLOPs utilization; {:.4g} for 1 M tokens",
                                          in_four_digits(data["tokens_per_second"]),
                                          100 * data["model_flops_utilization"].get<double>(),
                                          1e6 * data["price"]["per_token"].get<double>())));
  EXPECT_THAT(page, HasSubstr("zb-h1: P 4, M 32, makespan "));
  // Where most microbatches are in flight, the map of memory over the schedule shows the planned total.
  EXPECT_THAT(page, HasSubstr("<h2>Memory over the schedule</h2>"));
  EXPECT_THAT(page,
              HasSubstr(fmt::format("<title>{:.4g} GiB</title>", data["memory_bytes"]["total"].get<double>() / (1 << 30))));
  for (const char* elsewhere : {"<script", "src=", "href=", "url("}) EXPECT_THAT(page, Not(HasSubstr(elsewhere)));
  EXPECT_FALSE(std::filesystem::exists(folder.at("page.html.tmp")));
}

TEST_F(Planning, PageOfASearchHasItsRankingAndWhyNot) {
  folder.write("odd.json", R"({"like": "h100", "device": {"name": "<b>&\"fast\"</b>"}})");
  const Output output =
      folder.run("plan llama.json --world-size 64 --cluster odd.json --search --top 3 --json --html page.html --tokens 1T");
  ASSERT_EQ(output.code, 0) << output.errors;
  const auto data = nlohmann::json::parse(output.text);
  const std::string page = folder.read("page.html");
  EXPECT_THAT(page, HasSubstr("<title>Search of 64 x &lt;b&gt;&amp;&quot;fast&quot;&lt;/b&gt;</title>"));
  EXPECT_THAT(page, Not(HasSubstr("<b>")));
  EXPECT_THAT(page, HasSubstr("<p>1 T tokens: "));
  for (const auto& of : data["ranking"])
    EXPECT_THAT(page,
                HasSubstr(fmt::format("<tr><td>{:.3f}</td><td>{:.1f}</td><td>{:.1f}</td><td>pipeline {} x data {} x tensor {}",
                                      of["step_seconds"].get<double>(), 100 * of["model_flops_utilization"].get<double>(),
                                      of["memory_bytes"]["total"].get<double>() / (1 << 30), of["mesh"]["pipeline"].get<int>(),
                                      of["mesh"]["data"].get<int>(), of["mesh"]["tensor"].get<int>())));
  for (const auto& alternative : data["why_not"])
    EXPECT_THAT(page, HasSubstr(fmt::format("<tr><td>{}</td><td>{}</td></tr>", alternative["choice"].get<std::string>(),
                                            alternative["why"].get<std::string>())));
  // The heat map includes the fastest layout.
  EXPECT_THAT(page, HasSubstr(fmt::format(">{:.3g}</text>", data["ranking"][0]["step_seconds"].get<double>())));
}

// 4 ranks x 3 boxes x 2048 microbatches are more than 20,000 boxes; for 1664 microbatches they are not.
TEST_F(Planning, PageDrawsTheFirstMicrobatchesOfALongStep) {
  const std::string plan =
      "plan llama.json --world-size 4 --set parallel.pipeline=4 --set train_micro_batch_size_per_gpu=1 "
      "--set train_batch_size=2048 --set model.layers=2 --html page.html";
  EXPECT_EQ(folder.run(plan + " --cluster h100").code, 0);
  EXPECT_THAT(folder.read("page.html"), HasSubstr("1f1b, the first 1664 of 2048 microbatches: P 4, M 1664, makespan "));
  EXPECT_EQ(folder.run(plan).code, 0);
  EXPECT_THAT(folder.read("page.html"), Not(HasSubstr("<h2>Schedule</h2>")));
}

TEST_F(Planning, PageIsWrittenWholeOrNotAtAll) {
  refused("plan llama.json --html nowhere/page.html", 2,
          "--html: create nowhere/page.html.tmp: No such file or directory; give a file in a folder that can be written to");
  refused("plan llama.json --html .", 2, "--html: . is a folder; name a file");
  folder.write("page.html", "before");
  EXPECT_EQ(folder.run("plan llama.json --html page.html --force").code, 0);
  EXPECT_THAT(folder.read("page.html"), HasSubstr("<title>Plan of 1 rank</title>"));
}

// Planning a candidate's config gives the candidate's numbers.
TEST_F(Planning, CandidatesAreConfigsToTrainWith) {
  const Output output = folder.run("plan llama.json --world-size 16 --cluster a100-40 --search --top 2 --json");
  const auto data = nlohmann::json::parse(output.text);
  ASSERT_EQ(data["ranking"].size(), 2);
  for (const auto& candidate : data["ranking"]) {
    std::string flags;
    for (const auto& [key, value] : candidate["config"].items()) flags += " --set '" + key + "=" + value.dump() + "'";
    const Output of = folder.run("plan llama.json --world-size 16 --cluster a100-40 --json" + flags);
    ASSERT_EQ(of.code, 0) << of.errors;
    const auto plan = nlohmann::json::parse(of.text);
    for (const char* axis : {"pipeline", "data", "tensor"}) EXPECT_EQ(plan["mesh"][axis], candidate["mesh"][axis]);
    EXPECT_EQ(plan["seconds"], candidate["seconds"]);
    EXPECT_EQ(plan["step_seconds"], candidate["step_seconds"]);
    EXPECT_EQ(plan["model_flops_utilization"], candidate["model_flops_utilization"]);
    EXPECT_NEAR(plan["memory_bytes"]["total"].get<double>(), candidate["memory_bytes"]["total"].get<double>(),
                0.04 * plan["memory_bytes"]["total"].get<double>());  // docs/planning.md, "How good it is"
  }
}

TEST_F(Planning, OfOneConfigSaysWhereTheTimeGoesAndWhetherItFits) {
  const std::string plan =
      "plan llama.json --world-size 32 --cluster h100 --price 2.5 --set parallel.tensor=8 "
      "--set parallel.pipeline=2 --set train_micro_batch_size_per_gpu=1 --set zero_optimization.stage=1";
  const Output text = folder.run(plan), as_json = folder.run(plan + " --json");
  ASSERT_EQ(as_json.code, 0) << as_json.errors;
  const auto data = nlohmann::json::parse(as_json.text);
  const double step = data["step_seconds"], tokens = data["tokens_per_second"];
  EXPECT_NEAR(tokens, 256.0 * 8192 / step, 1e-9 * tokens);
  EXPECT_NEAR(data["model_flops_utilization"].get<double>(), data["flops_per_token"].get<double>() * tokens / (32 * 989e12),
              1e-12);
  EXPECT_DOUBLE_EQ(data["price"]["per_1e9_tokens"], 1e9 * 32 * 2.5 / 3600 / tokens);
  EXPECT_EQ(data["fits"], true);
  EXPECT_EQ(data["over_bytes"], 0);
  EXPECT_THAT(text.text, HasSubstr("mesh      pipeline 2 x data 2 x tensor 8, 32 ranks"));  // the plan itself
  EXPECT_THAT(text.text, HasSubstr(fmt::format("step      {:.4g} s, {} tokens/s\n", step, in_four_digits(tokens))));
  EXPECT_THAT(text.text, Not(testing::ContainsRegex("[0-9]e[+-][0-9]"))) << "numbers as people write them";
  for (const auto& [name, value] : data["seconds"].items())
    EXPECT_THAT(text.text, HasSubstr(fmt::format("  {:<12} {:>8.3f} s  {:>7.1f} %\n", name, value.get<double>(),
                                                 100 * value.get<double>() / step)));
  const double total = data["memory_bytes"]["total"].get<double>() / (1 << 30);
  EXPECT_THAT(text.text, HasSubstr(fmt::format("  total        {:>8.2f} GiB {:>6.1f} %: fits\n", total, 100 * total / 74.1)));
  EXPECT_THAT(text.text, HasSubstr("memory of the rank that needs most, out of 74.10 GiB on each device (78.00 GiB less a "
                                   "reserve of 3.90 GiB)\n"));
  EXPECT_EQ(data["cluster"]["reserve_bytes"], (int64_t{78} << 30) / 20);
}

TEST_F(Planning, TheReserveOfAClusterFileDecidesWhatFits) {
  const std::string plan = "plan llama.json --world-size 32 --set train_micro_batch_size_per_gpu=1 --set parallel.tensor=8 ";
  const auto prediction = [&](int64_t reserve) {
    folder.write("ours.json", fmt::format(R"({{"like": "h100", "device": {{"reserve_bytes": {}}}}})", reserve));
    return nlohmann::json::parse(folder.run(plan + "--cluster ours.json --json").text);
  };
  const auto all = prediction(0);
  const int64_t memory = int64_t{78} << 30, total = all["memory_bytes"]["total"];
  EXPECT_EQ(all["fits"], true);
  EXPECT_EQ(prediction(memory - total)["fits"], true);
  EXPECT_EQ(prediction(memory - total + 1)["fits"], false);
  EXPECT_EQ(prediction(memory - total + 1)["over_bytes"], 1);
}

TEST_F(Planning, OfOneConfigThatDoesNotFitSaysWhatIsShort) {
  const std::string plan = "plan llama.json --world-size 1 --cluster a100-40 --set train_micro_batch_size_per_gpu=1";
  const Output text = folder.run(plan), as_json = folder.run(plan + " --json");
  EXPECT_EQ(text.code, 0) << text.errors;
  const auto data = nlohmann::json::parse(as_json.text);
  EXPECT_EQ(data["fits"], false);
  // Each of the 8,030,261,248 parameters has two bytes of weight, four of gradient and twelve of optimizer.
  const auto& bytes = data["memory_bytes"];
  const double parameters = 8'030'261'248;
  EXPECT_EQ(bytes["parameters"].get<double>(), 2 * parameters);
  EXPECT_EQ(bytes["gradients"].get<double>(), 4 * parameters);
  EXPECT_EQ(bytes["optimizer"].get<double>(), 12 * parameters);
  // Activations of the T = 8192 tokens of a sequence: the embedding's output; for each block the outputs of the two norms, qkv,
  // the outputs of attention's core and of its projection, the gated and the activated feed-forward, its output, and in float32
  // one statistic for each head and norm; and in the head its norm's output, statistic and gradient, and of an eighth of the
  // tokens the logits in float32 and their gradients, which is more than a block has in its backward.
  const double T = 8192, H = 4096, F = 14336, V = 128256, kv = 1024, heads = 32;
  const double block = 2 * (2 * H + (H + 2 * kv) + 2 * H + 3 * F + H) + 4 * (heads + 2);
  EXPECT_EQ(bytes["activations"].get<double>(), T * (2 * H + 32 * block) + T * (4 * H + 4) + T / 8 * V * 6);
  EXPECT_LT(bytes["buffers"].get<double>(), 1 << 16);  // a few sums and flags: nothing is sharded or sent
  double total = 0;
  for (const char* part : {"parameters", "gradients", "optimizer", "activations", "buffers"})
    total += bytes[part].get<double>();
  EXPECT_EQ(bytes["total"].get<double>(), total);
  const double over = total - static_cast<double>((int64_t{38} << 30) - (int64_t{38} << 30) / 20);
  EXPECT_EQ(data["over_bytes"].get<double>(), over);
  EXPECT_THAT(text.text, HasSubstr(fmt::format(" %: {:.2f} GiB over\n", over / (1 << 30))));
}

TEST_F(Planning, RefusesWhatTheCostModelHasNoWordFor) {
  const std::string plan = "plan llama.json --world-size 8 --cluster h100 --set device=cuda ";
  const std::string zero = "--set zero_optimization.stage=3 --set zero_optimization.";
  refused(plan + zero + "offload_param.device=cpu", 2,
          "zero_optimization.offload_param.device: \"cpu\" is not described by the cost model; use \"none\"");
  refused(plan + zero + "offload_param.device=cpu --search", 2, "zero_optimization.offload_param.device: \"cpu\"");
  refused(plan + zero + "offload_optimizer.device=nvme --set zero_optimization.offload_optimizer.nvme_path=/tmp", 2,
          "zero_optimization.offload_optimizer.device: \"nvme\" is not described by the cost model, which knows no disks");
  refused(plan + zero + "offload_optimizer.device=cpu --set zero_optimization.offload_optimizer.ratio=0.5", 2,
          "zero_optimization.offload_optimizer.ratio: 0.5 is not described");
  for (const auto& [given, message] :
       {std::pair{"mics_shard_size=4", "mics_shard_size: 4 is not described by the cost model; use -1"},
        {"zero_hpz_partition_size=4", "zero_hpz_partition_size: 4 is not described"},
        {"zero_quantized_weights=true", "zero_quantized_weights: true is not described"},
        {"zero_quantized_gradients=true", "zero_quantized_gradients: true is not described"}}) {
    refused(plan + zero + given, 2, std::string("zero_optimization.") + message);
    refused(plan + zero + given + " --search", 2, std::string("zero_optimization.") + message);
  }
  refused(plan + "--set activation_checkpointing.mode=full --set activation_checkpointing.every=2", 2,
          "activation_checkpointing.every: 2 is not described by the cost model; use 1");
  for (const char* search : {"", "--search "})
    refused(plan + search + "--set activation_checkpointing.mlp_slice_tokens=64", 2,
            "activation_checkpointing.mlp_slice_tokens: 64 is not described by the cost model; use 0");
  refused(plan + "--search --set parallel.context=2 --set parallel.context_kind=ring", 2,
          "parallel.context_kind: 2 context ranks with \"ring\" are not searched, only those that exchange tokens for heads");
  refused(plan + "--search --set parallel.context=2 --set parallel.context_kind=ulysses_ring", 2,
          "parallel.context_kind: 2 context ranks with \"ulysses_ring\" are not searched");
  refused(plan + "--set activation_checkpointing.mode=full --set activation_checkpointing.cpu_checkpointing=true", 2,
          "activation_checkpointing.cpu_checkpointing: true is not described by the cost model; use false");
  refused(plan + "--set pipeline.partition=uniform --set parallel.pipeline=2", 2,
          "pipeline.partition: is not how the cost model partitions stages");
  folder.write("bare.json", R"({"device": {"memory_bytes": 1e12, "memory_bytes_per_second": 1e12, "matrix_flops": 1e14,
    "float32_flops": 1e13, "product_efficiency": 0.5, "launch_seconds": 0}, "devices_per_node": 1, "nodes": 8,
    "outside": {"bytes_per_second": 1e10}})");
  refused("plan llama.json --world-size 8 --cluster bare.json --set device=cuda " + zero + "offload_optimizer.device=cpu", 2,
          "host: is missing, and zero_optimization.offload_optimizer needs it");
}

TEST_F(Planning, EstimateSaysWhatDeepSpeedsEstimatorsSay) {
  const Output output = folder.run("estimate --parameters 2851e6 --largest-layer 32e6 --gpus-per-node 8");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text,
              HasSubstr("    3         71.69         0.12   offload_param=cpu, offload_optimizer=cpu, zero_init=1\n"));
  EXPECT_THAT(output.text, HasSubstr("    2        127.45        11.28   offload_optimizer=none\n"));
  EXPECT_THAT(output.text, HasSubstr(" of 2,851,000,000 parameters, 32,000,000 in the largest layer,\n"));
  const Output small = folder.run("estimate --parameters 106880 --largest-layer 16384 --gpus-per-node 1");
  EXPECT_THAT(small.text, HasSubstr(" of 106,880 parameters, 16,384 in the largest layer,\n"));
  EXPECT_THAT(small.text, HasSubstr("stage     host MiB      GPU MiB\n"));
  // The largest module of the config's model is an embedding: 128256 x 4096.
  const auto data = nlohmann::json::parse(folder.run("estimate llama.json --json").text);
  EXPECT_EQ(data["largest_layer_parameters"].get<double>(), 128256.0 * 4096);
  EXPECT_NEAR(data["parameters"].get<double>(), 8.03e9, 0.01e9);
  EXPECT_EQ(data["estimates"].size(), 8);
  refused("estimate", 2, "estimate: give a config, a model with --init-from, or --parameters and --largest-layer");
  refused("estimate llama.json --parameters 5", 2, "estimate: give a config, a model with --init-from, or --parameters");
}

TEST_F(Planning, DoctorSaysWhatIsThereAndWhatIsMissing) {
  const Output output = folder.run("doctor --quick");
  EXPECT_EQ(output.code, 0) << output.errors;
  EXPECT_THAT(output.text, HasSubstr("processor "));
  EXPECT_THAT(output.text, HasSubstr("GiB free in ."));
  const auto data = nlohmann::json::parse(folder.run("doctor --quick --json").text);
  ASSERT_EQ(data.size(), 7);
  EXPECT_EQ(data[1]["subject"], "memory");
  EXPECT_GT(data[1]["total_bytes"].get<double>(), 1e8);
  refused("doctor --quick --directory /nowhere", 2, "doctor: disk: ");
}

}  // namespace
}  // namespace trivet::test

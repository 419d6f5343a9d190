// trivet evaluate MODEL DATA: the loss of a model that was saved on data.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/run_job.h"
#include "cli/standard_streams.h"
#include "cli/usage.h"
#include "core/log.h"
#include "core/printable.h"
#include "trainer/evaluate.h"

namespace trivet::cli {
namespace {

struct EvaluateArguments {
  std::string model, data;
  std::vector<std::string> overrides;
  int ranks = 0;
  bool json = false;
};

std::string to_text(const Evaluation& found, bool of_words, const EvaluateArguments& arguments) {
  std::string text = fmt::format("model   {}\ndata    {}: {}\nloss    {:.4f} over {} target{} of {} sample{}", found.model,
                                 arguments.data, found.data, found.loss, found.targets, found.targets == 1 ? "" : "s",
                                 found.samples, found.samples == 1 ? "" : "s");
  if (found.correct)
    text += fmt::format(", {:.2f} % right", 100 * static_cast<double>(*found.correct) / static_cast<double>(found.targets));
  if (of_words) text += fmt::format(", perplexity {:.4g}", std::exp(found.loss));
  return text + "\n";
}

std::string to_json(const Evaluation& found, bool of_words, const EvaluateArguments& arguments) {
  nlohmann::ordered_json json{{"model", arguments.model}, {"data", arguments.data},   {"loss", found.loss},
                              {"targets", found.targets}, {"samples", found.samples}, {"notes", found.notes}};
  if (found.correct) json["correct"] = *found.correct;
  if (of_words) json["perplexity"] = std::exp(found.loss);
  return json.dump(2) + "\n";
}

void run(const EvaluateArguments& arguments) {
  if (is_idle_task()) return;
  const Config config = evaluation_config(arguments.model, arguments.data, arguments.overrides);
  run_job(arguments.ranks, config.communication, [&](RankBody rank) {
    const Evaluation found = evaluate(config, rank.world, {.threads = rank.threads, .local_rank = rank.local_rank});
    if (rank.world.rank() != 0) return;
    const bool of_words = !found.correct;
    if (!arguments.json)
      for (const std::string& note : found.notes) Log().info(note);
    std::fputs(
        (arguments.json ? to_json(found, of_words, arguments) : printable_lines(to_text(found, of_words, arguments))).c_str(),
        stdout);
  });
}

}  // namespace

void add_evaluate(CLI::App& program) {
  auto arguments = std::make_shared<EvaluateArguments>();
  CLI::App* command = program.add_subcommand("evaluate", "Measure the loss of a checkpoint or a model of Hugging Face on data");
  command->footer(
      "Examples:\n"
      "  trivet evaluate checkpoints/best held_out.txt\n"
      "  trivet evaluate ./Qwen2.5-0.5B questions.jsonl --set training.objective=sft --set data.chat_template=chatml\n"
      "  trivet launch --num_gpus 4 trivet evaluate checkpoints held_out.tokens --set zero_optimization.stage=3\n"
      "What the run of a checkpoint said of objective, precision and the form of the data holds here, too. Texts are cut into\n"
      "samples of model.sequence_length tokens (at most 1024, unless --set says more); --set data.packing=isolated scores\n"
      "each document by itself.");
  command
      ->add_option(
          "model", arguments->model,
          "directory of checkpoints, or one of them: DIR/step-00000200, DIR/best; or a folder in Hugging Face's format")
      ->required();
  command->add_option("data", arguments->data, "what data.train may name (docs/data.md): texts, lines of JSON, tokens, images")
      ->required();
  command->add_option("--ranks", arguments->ranks, "run this many ranks as threads of this process")->check(from_to(1, 1024));
  command
      ->add_option("--set", arguments->overrides,
                   "key=value: sets a key of the config, or with an object of JSON a section; may be repeated")
      ->take_all()
      ->allow_extra_args(false);
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { print_without_waiting(Printing::Result, [&] { run(*arguments); }); });
}

}  // namespace trivet::cli

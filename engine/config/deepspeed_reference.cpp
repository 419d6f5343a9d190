// Writes docs/deepspeed.md.
#include <fmt/format.h>

#include <algorithm>

#include "engine/config/deepspeed.h"
#include "engine/config/key_table.h"

namespace trivet {
namespace {

using namespace config;

const char* const kDeepSpeedIntroduction = R"(# DeepSpeed's keys

Generated from the key table in `engine/config`: `trivet config reference --deepspeed > docs/deepspeed.md`. A test fails when this page is
out of date. See also: [models of Hugging Face](hugging_face.md) and [PyTorch's DDP](ddp.md).

A config that was written for DeepSpeed is used as it is: `trivet train ds_config.json`. Only what DeepSpeed leaves to the Python program has
to be added, in the file or with `--set`: the sections `model`, `data` and `training` ([config.md](config.md); a whole example is in
[from_the_trainer.md](from_the_trainer.md)). `trivet config check` says what becomes of each key that is not used as it stands, and a run says
it at its start:

* **same**: the key does what it does in DeepSpeed.
* **different**: it works, but not in the same way; the table says how DeepSpeed differs.
* **no effect**: the key is accepted, and the run is the same whatever its value is.
* **not used**: what the key asks for is missing here, but it changes no weight. It is accepted, and one line says so.
* **refused**: it would change weights, and Trivet does not have it. Its default is accepted, and so is a section that is switched off.

## What differs

`trivet config check` and the first lines of a run say what the run does otherwise than DeepSpeed 0.19.8 with the same file; what changes the
numbers comes first. Most of it is about keys that the file does not have:

* without an optimizer there is AdamW, where DeepSpeed asks the program;
* `weight_decay` leaves out biases and norms (`optimizer.decay_all`);
* gradients are clipped to a norm of 1 where `gradient_clipping` is not given, as in 0.19.8, while older versions do not clip;
* gradients of a model in bf16 are summed in fp32, where DeepSpeed sums them in bf16 (`data_types.grad_accum_dtype`), and ranks send them in
  the type in which they are summed (`communication_data_type`);
* a 0 stands for another value in `total_num_steps` (the steps of the run), `warmup_max_lr`, `muon_lr`, `adam_lr` (`lr`) and
  `cycle_second_step_size` (the first half), where DeepSpeed takes it as it is;
* `fp16.enabled` and `bf16.enabled` that are `"auto"` train in float32, because only Hugging Face's Trainer fills them in.

A line is printed whenever its difference applies to the run, whoever wrote the file. It is left out where the file settles the matter with a
key: `"gradient_clipping": 1.0`, `"decay_all": false`, `"grad_accum_dtype": "fp32"`. A file without any key of DeepSpeed has none.

## What is accepted with a line

Comments (`_comment`, `//`) are accepted with one line, and so is what DeepSpeed ignores and nothing here depends on:

* top-level sections, switches and texts of other programs, and numbers that such programs have for themselves (`num_processes`);
* sections of other programs that are switched off (`"fp8": {"enabled": false}`);
* keys that DeepSpeed does not read in `pipeline`, `activation_checkpointing`, `aio`, `flops_profiler`, `data_types` and `timers`;
* `optimizer.adam_w_mode` and its like where they state a default.

A section or a switch under another name (`optim`, `optimizer_config`, `fp16_enabled`) is a mistake if it would have an effect under its
right name, although DeepSpeed ignores it; the message says the name.

Any other unknown key is refused, because it may be a misspelt or misplaced one, or a number that was meant to have an effect. All mistakes
of a file are reported together. Arguments of Hugging Face's Trainer, configs of Accelerate and a config inside another object are
recognised, and the message says what to give instead.

## All keys

The tables have the keys of all versions of DeepSpeed. Version 0.19.8 itself refuses some of them: `amp`, `compression_training`,
`curriculum_learning` outside of `data_efficiency`, `eigenvalue`, `elasticity`, `graph_harvesting`, `nebula`, `progressive_layer_drop`,
`quantize_training`, `sparse_attention`, `sparse_gradients`, and in `zero_optimization` those of MiCS and LoCo. It no longer has the
1-bit optimizers (`OneBitAdam`, `OneBitLamb`, `ZeroOneAdam`), nor does Trivet. Other files for older versions work here as the tables say.

)";

std::string column(std::string text) {
  for (size_t at = text.find('|'); at != std::string::npos; at = text.find('|', at + 2)) text.replace(at, 1, "\\|");
  return text;
}

std::string what_becomes_of(const KeyEntry& entry) {
  if (const Feature* feature = key_table().feature_around(entry.path)) {
    if (feature->changes_weights) return fmt::format("refused: Trivet does not have {}", feature->name);
    return "not used" + (feature->instead.empty() ? "" : ": use " + feature->instead);
  }
  const std::string differs = entry.difference.empty() ? "" : "; DeepSpeed: " + entry.difference;
  switch (entry.effect) {
    case Effect::Works: return entry.difference.empty() ? "same" : "different; DeepSpeed: " + entry.difference;
    case Effect::Inert: return "no effect: " + entry.reason + differs;
    case Effect::NotUsed: return "not used" + (entry.instead.empty() ? "" : ": use " + entry.instead);
    case Effect::NotImplemented: return "refused" + (entry.instead.empty() ? "" : ": use " + entry.instead);
  }
  return "";
}

std::string what_auto_means(const KeyEntry& entry) {
  if (entry.default_json == "\"auto\"" || key_table().feature_around(entry.path)) return "";
  if (!entry.auto_refused.empty()) return "refused";
  if (!entry.take_auto) return "the default";
  Config config;
  const std::string taken = entry.take_auto(config);
  return taken.substr(0, taken.find(", the default of"));
}

std::string table_of_section(const std::string& section) {
  std::string text = fmt::format("### {}\n\n| key | default | what becomes of it | `\"auto\"` |\n|---|---|---|---|\n",
                                 section.empty() ? "Top level" : "`" + section + "`");
  for (const KeyEntry& entry : key_table().entries())
    if (entry.section() == section && entry.origin != Origin::Own)
      text += fmt::format("| `{}` | `{}` | {} | {} |\n", entry.name(), entry.default_json, column(what_becomes_of(entry)),
                          what_auto_means(entry));
  return text + "\n";
}

std::string table_of_other_names() {
  std::string text = "### Other names\n\n| DeepSpeed also accepts | for |\n|---|---|\n";
  for (const auto& [other, path] : key_table().other_names()) text += fmt::format("| `{}` | `{}` |\n", other, path);
  return text;
}

}  // namespace

std::string deepspeed_reference() {
  std::string text = kDeepSpeedIntroduction;
  std::vector<std::string> sections;
  for (const KeyEntry& entry : key_table().entries())
    if (entry.origin != Origin::Own && std::find(sections.begin(), sections.end(), entry.section()) == sections.end())
      sections.push_back(entry.section());
  for (const std::string& section : sections) text += table_of_section(section);
  return text + table_of_other_names();
}

}  // namespace trivet

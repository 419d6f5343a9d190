#include "engine/config/reference.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/config/key_table.h"

namespace trivet {
namespace {

using namespace config;

const char* const kIntroduction = R"(# Configuration

Generated from the key table in `engine/config`: `trivet config reference > docs/config.md`. A test fails when this page is out of date.

A config is a JSON file in DeepSpeed's vocabulary; comments (`//`, `#`, `/* */`) and a comma after the last value are allowed. Keys that
DeepSpeed has keep their name, meaning and default. `--set key=value` on the command line replaces or adds a key
(`--set zero_optimization.stage=3`); an object of JSON replaces a whole section (`--set 'scheduler={"type": "WarmupLR"}'`).

* Unknown keys, keys given twice, wrong types and values out of range are refused, each with file, line and column.
* A config may have at most 1 MiB and 64 levels of nesting, and must be UTF-8: text that is not UTF-8 is refused, and the message names its
  key. A file whose name is not UTF-8 has to be renamed.
* Only the first 20 mistakes are shown; the rest are counted.
* `"auto"` means what it means to DeepSpeed and to Hugging Face's Trainer, and a line says what was taken ([deepspeed.md](deepspeed.md));
  keys of Trivet do not accept it, except for `device` and `cuda_graph`. `null` means the default, for keys whose type says so and for whole
  sections.
* A key of DeepSpeed that would change weights and that Trivet does not implement is accepted at its default and, in a section whose
  `enabled` is false, at any value. Otherwise it is refused by name. One that changes no weight is accepted and listed.
* Keys that have no effect in a run are listed by `trivet config check`. It also refuses a config without a batch size, unless the config
  has a section `autotuning`, and a `train_batch_size` that no number of data-parallel ranks can train; a run checks its own number.
* DeepSpeed's other names are accepted, such as `bfloat16` for `bf16`; `"zero_optimization": true` means stage 1.

)";

std::string type_column(const KeyEntry& entry) {
  std::string text;
  switch (entry.type) {
    case KeyType::Bool: text = "bool"; break;
    case KeyType::Integer: text = "integer"; break;
    case KeyType::Number: text = "number"; break;
    case KeyType::String: text = "string"; break;
    case KeyType::List: text = "list"; break;
    case KeyType::Object: text = "object"; break;
    case KeyType::Any: text = "any"; break;
    case KeyType::Enum:
      for (const std::string& name : entry.shown_names()) text += (text.empty() ? "" : ", ") + quoted(name);
      break;
  }
  if (entry.bounds.limited()) text += ", " + entry.bounds.text();
  return entry.nullable ? text + " or null" : text;
}

std::string meaning_column(const KeyEntry& entry) {
  std::string text = entry.meaning;
  if (!entry.selected_by.empty()) {
    text += " (";
    for (const std::string& name : entry.selected_by) text += (text.back() == '(' ? "" : ", ") + name;
    text += ")";
  }
  if (!entry.active_when.empty()) text += "; takes effect only when " + entry.active_when;
  if (entry.effect == Effect::Inert) text += "; **no effect**: " + entry.reason;
  const Feature* feature = key_table().feature_around(entry.path);
  if (entry.effect == Effect::NotUsed || (feature && !feature->changes_weights)) {
    const std::string& instead = feature ? feature->instead : entry.instead;
    text += instead.empty() ? "; **not used**" : "; **not used**, use " + instead;
  } else if (entry.effect == Effect::NotImplemented)
    text += entry.instead.empty() ? "; **not implemented**" : "; **not implemented**, use " + entry.instead;
  return text;
}

std::string default_column(const KeyEntry& entry) {
  std::string text = "`" + entry.default_json + "`";
  return entry.default_note.empty() ? text : text + "; " + entry.default_note;
}

std::string section_reference(const std::string& section) {
  std::string text = fmt::format("## {}\n\n| key | type | default | meaning |\n|---|---|---|---|\n",
                                 section.empty() ? "Top level" : "`" + section + "`");
  for (const KeyEntry& entry : key_table().entries())
    if (entry.section() == section)
      text += fmt::format("| `{}` | {} | {} | {} |\n", entry.name(), type_column(entry), default_column(entry),
                          meaning_column(entry));
  return text + "\n";
}

}  // namespace

std::string config_reference() {
  std::string text = kIntroduction;
  std::vector<std::string> sections;
  for (const KeyEntry& entry : key_table().entries())
    if (std::find(sections.begin(), sections.end(), entry.section()) == sections.end()) sections.push_back(entry.section());
  for (const std::string& section : sections) text += section_reference(section);
  while (text.ends_with("\n\n")) text.pop_back();
  return text;
}

}  // namespace trivet

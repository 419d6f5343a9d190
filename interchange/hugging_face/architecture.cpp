#include "interchange/hugging_face/architecture.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"

namespace trivet::hugging_face {

std::span<const Architecture> architectures() {
  static const Architecture all[] = {gpt2(), llama(), mistral(), qwen2(), qwen3(), phi3(), gemma2(), gemma3()};
  return all;
}

const Architecture& architecture_of(const std::string& model_type, const std::string& path) {
  const auto found = std::ranges::find(architectures(), std::string_view(model_type), &Architecture::model_type);
  if (found != architectures().end()) return *found;
  std::string known;
  for (const Architecture& architecture : architectures())
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", architecture.model_type);
  throw ConfigError(
      fmt::format("{}: model_type: \"{}\" is not accepted; use one of {}", printable(path), printable(model_type), known));
}

}  // namespace trivet::hugging_face

#include "interchange/foreign/other_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>

#include "core/error.h"
#include "core/printable.h"
#include "data/file_kind.h"

namespace trivet::foreign {
namespace {

constexpr int64_t kLookBytes = 4096;

std::string first_bytes(const ReadableFile& file) {
  std::string bytes(static_cast<size_t>(std::min(file.size(), kLookBytes)), '\0');
  file.read_exactly(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

// Advises what to do with a file that is no text.
std::string advice_for(std::string_view what) {
  if (what.starts_with("packed with")) return "unpack it";
  if (what.find("archive") != std::string_view::npos) return "unpack it, and put the files of the model here";
  if (what == "a file of torch.save") return "give it the name of such a file, such as pytorch_model.bin or adapter_model.bin";
  if (what == "a file of safetensors") return "give it the name of such a file: model.safetensors or adapter_model.safetensors";
  if (what == "a GGUF model") return "write the model with save_pretrained of transformers, which makes model.safetensors";
  return "get the file again";
}

}  // namespace

void refuse_other_content(const ReadableFile& file, const char* expected) {
  constexpr size_t kShownBytes = 40;
  const std::string bytes = first_bytes(file), path = printable(file.path());
  if (bytes.empty()) return;
  const data::FileLook look = data::look_into_beginning(file.path(), bytes, file.size() <= kLookBytes);
  const auto refuse = [&](const std::string& message) {
    throw CheckpointError(ExitCode::Usage, fmt::format("{}: {}", path, message));
  };
  if (look.what.starts_with("a pointer of Git LFS"))
    refuse("is a pointer of Git LFS, not the weights; get the file itself: git lfs pull");
  if (look.kind != data::FileKind::Unread)
    refuse(fmt::format("is a text, not {}; it begins with \"{}\"; get the file again", expected,
                       printable(bytes.substr(0, bytes.find_first_of("\r\n")), kShownBytes)));
  // A torch older than 1.6 saved pickles. Whoever reads the file says what is wrong with one of the expected kind.
  if (look.finding.empty() && look.what != "a pickle of Python" && look.what != expected)
    refuse(fmt::format("is {}, not {}; {}", look.what, expected, advice_for(look.what)));
}

}  // namespace trivet::foreign

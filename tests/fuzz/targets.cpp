#include "tests/fuzz/targets.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <stdexcept>

#include "core/printable.h"

namespace trivet::fuzz {
namespace {

constexpr std::array kTargets{Target{"config", config},
                              Target{"overrides", overrides},
                              Target{"cluster", cluster},
                              Target{"schedule", schedule},
                              Target{"block_costs", block_costs},
                              Target{"profile", profile},
                              Target{"loss_bits", loss_bits},
                              Target{"tokenizer", tokenizer},
                              Target{"tiktoken", tiktoken},
                              Target{"sentencepiece", sentencepiece},
                              Target{"pattern", pattern},
                              Target{"merges", merges},
                              Target{"tokens", tokens},
                              Target{"megatron", megatron},
                              Target{"json_line", json_line},
                              Target{"zstd", zstd},
                              Target{"idx", idx},
                              Target{"cifar", cifar},
                              Target{"png", png},
                              Target{"word_labels", word_labels},
                              Target{"network", network},
                              Target{"manifest", manifest},
                              Target{"run_state", run_state},
                              Target{"safetensors", safetensors},
                              Target{"shard", shard},
                              Target{"model_index", model_index},
                              Target{"pretrained_model", pretrained_model},
                              Target{"pickle", pickle},
                              Target{"torch_file", torch_file},
                              Target{"llama2_c", llama2_c},
                              Target{"llm_c", llm_c},
                              Target{"meta_llama", meta_llama},
                              Target{"zero_checkpoint", zero_checkpoint},
                              Target{"hostfile", hostfile},
                              Target{"tf_config", tf_config},
                              Target{"environment", environment},
                              Target{"frames", frames},
                              Target{"agent", agent},
                              Target{"world", world},
                              Target{"environment_file", environment_file},
                              Target{"run_metrics", run_metrics},
                              Target{"run_events", run_events},
                              Target{"run_plan", run_plan},
                              Target{"run_predictions", run_predictions},
                              Target{"http_request", http_request},
                              Target{"hvd_requests", hvd_requests}};

// The folder is in memory if the machine has such a folder.
std::string folder() {
  static const std::string path = [] {
    const std::string base = std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path().string();
    return base + "/trivet_fuzz_" + std::to_string(::getpid()) + "_";
  }();
  return path;
}

}  // namespace

std::span<const Target> targets() { return kTargets; }

void require(bool holds, const char* promise) {
  if (!holds) throw std::logic_error(std::string("fuzz: broken promise: ") + promise);
}

void check_refusal(const Error& error, std::initializer_list<ExitCode> codes) {
  const std::string message = error.what();
  require(std::find(codes.begin(), codes.end(), error.exit_code()) != codes.end(), "the exit code of a refusal is documented");
  require(!message.empty() && message.size() < 32768, "a message has a bounded length");
  require(printable_lines(message) == message, "a message is fit for a terminal");
}

InputFile::InputFile(const std::string& name, std::string_view content) : path_(folder() + name) {
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const ssize_t written = ::write(file, content.data(), content.size());
  ::close(file);
  if (written != static_cast<ssize_t>(content.size())) throw std::runtime_error(path_ + ": cannot be written");
}

InputFile::~InputFile() { ::unlink(path_.c_str()); }

}  // namespace trivet::fuzz

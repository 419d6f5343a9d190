// Every reader of bytes that Trivet did not produce itself, as a function of those bytes. libFuzzer runs them on bytes that it
// invents (libfuzzer_program.cpp, scripts/fuzz), test_fuzz on the files of seeds/NAME: examples, and every input that once
// failed.
//
// A target returns if the input was accepted and everything promised for it holds, or if it was refused as the reader
// documents. Anything else, including an exception of another class, is a defect.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"

namespace trivet::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::string_view input);
};

std::span<const Target> targets();

// Throws std::logic_error: the input broke a promise.
void require(bool holds, const char* promise);

// Checks what is promised of a refusal: one of these exit codes, and a message that a terminal can show.
void check_refusal(const Error& error, std::initializer_list<ExitCode> codes);

// Returns false if `read` refused its input.
template <typename Read>
bool accepts(std::initializer_list<ExitCode> codes, Read&& read) {
  try {
    read();
    return true;
  } catch (const Error& error) {
    check_refusal(error, codes);
    return false;
  }
}

// A file with this content that exists as long as the object. A second one with the same name overwrites the first.
class InputFile {
 public:
  InputFile(const std::string& name, std::string_view content);
  ~InputFile();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// One function for each file format or message; its seeds are in seeds/NAME.
void config(std::string_view input);
void overrides(std::string_view input);
void cluster(std::string_view input);
void schedule(std::string_view input);
void block_costs(std::string_view input);
void profile(std::string_view input);
void loss_bits(std::string_view input);
void tokenizer(std::string_view input);
void tiktoken(std::string_view input);
void sentencepiece(std::string_view input);
void pattern(std::string_view input);
void merges(std::string_view input);
void tokens(std::string_view input);
void megatron(std::string_view input);
void json_line(std::string_view input);
void zstd(std::string_view input);
void idx(std::string_view input);
void cifar(std::string_view input);
void png(std::string_view input);
void word_labels(std::string_view input);
void network(std::string_view input);
void manifest(std::string_view input);
void run_state(std::string_view input);
void safetensors(std::string_view input);
void shard(std::string_view input);
void model_index(std::string_view input);
void pretrained_model(std::string_view input);
void pickle(std::string_view input);
void torch_file(std::string_view input);
void llama2_c(std::string_view input);
void llm_c(std::string_view input);
void meta_llama(std::string_view input);
void zero_checkpoint(std::string_view input);
void hostfile(std::string_view input);
void tf_config(std::string_view input);
void environment(std::string_view input);
void frames(std::string_view input);
void agent(std::string_view input);
void world(std::string_view input);
void environment_file(std::string_view input);
void run_metrics(std::string_view input);
void run_events(std::string_view input);
void run_plan(std::string_view input);
void run_predictions(std::string_view input);
void http_request(std::string_view input);
void hvd_requests(std::string_view input);

}  // namespace trivet::fuzz

// Encodes documents with a tokenizer, for bench/compare_tokenizers: tokenizer_bench TOKENIZER DOCUMENTS IDS text|special
//
// DOCUMENTS is a list of records, each a uint32 count and as many bytes. IDS becomes a list of pairs of records: the ids
// (int32) of a document, and the bytes to which they are decoded. Prints one JSON object: seconds to load, to encode and to
// decode, on one thread.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/text_file.h"
#include "data/tokenizer.h"

namespace {

using namespace trivet;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<std::string> split_documents(const std::string& all) {
  std::vector<std::string> documents;
  for (size_t at = 0; at + 4 <= all.size();) {
    uint32_t bytes = 0;
    std::memcpy(&bytes, all.data() + at, sizeof bytes);
    documents.push_back(all.substr(at + 4, bytes));
    at += 4 + bytes;
  }
  return documents;
}

int run(char** arguments) {
  const auto start = std::chrono::steady_clock::now();
  const auto tokenizer = data::load_tokenizer(arguments[1]);
  const double load_s = seconds_since(start);
  const auto documents = split_documents(data::read_text(arguments[2]));
  const bool special = std::strcmp(arguments[4], "special") == 0;
  std::vector<std::vector<int32_t>> ids;
  const auto began = std::chrono::steady_clock::now();
  int64_t bytes = 0;
  for (const std::string& document : documents) {
    ids.push_back(special ? tokenizer->encode_with_special(document) : tokenizer->encode(document));
    bytes += static_cast<int64_t>(document.size());
  }
  const double encode_s = seconds_since(began);
  const auto decoding = std::chrono::steady_clock::now();
  std::vector<std::string> decoded;
  for (const auto& list : ids) decoded.push_back(tokenizer->decode(list));
  const double decode_s = seconds_since(decoding);

  std::ofstream out(arguments[3], std::ios::binary);
  int64_t tokens = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const auto count = static_cast<uint32_t>(ids[i].size()), text_bytes = static_cast<uint32_t>(decoded[i].size());
    out.write(reinterpret_cast<const char*>(&count), sizeof count);
    out.write(reinterpret_cast<const char*>(ids[i].data()), static_cast<std::streamsize>(count * sizeof(int32_t)));
    out.write(reinterpret_cast<const char*>(&text_bytes), sizeof text_bytes);
    out.write(decoded[i].data(), text_bytes);
    tokens += count;
  }
  std::printf(
      "{\"tokens\": %ld, \"bytes\": %ld, \"vocabulary\": %ld, \"load_s\": %.3f, \"encode_s\": %.3f, \"decode_s\": %.3f}\n",
      static_cast<long>(tokens), static_cast<long>(bytes), static_cast<long>(tokenizer->vocabulary_size()), load_s, encode_s,
      decode_s);
  return out ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) {
    std::fprintf(stderr, "usage: tokenizer_bench TOKENIZER DOCUMENTS IDS text|special\n");
    return 2;
  }
  try {
    return run(arguments);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}

// Token files that other programs write: Megatron's indexed dataset, llm.c's shards and NumPy's arrays.
//
//   Megatron   NAME.bin: ids back to back; NAME.idx: "MMIDIDX\0\0", version, dtype, lengths and byte offsets of the sequences,
//              and the sequences at which documents begin
//   llm.c      256 x int32 (magic 20240520, version 1, count; or 20240801, 7, count), then uint16 or uint32 ids; each document
//              begins with id 50256 (or 128000)
//   NumPy      "\x93NUMPY", version, a dictionary with type and shape, then the values: one dimension, or a
//              document in each row
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/token_file.h"

namespace trivet::data {

// True for NAME.idx, and for NAME.bin if there is a NAME.idx next to it.
bool is_megatron(const std::string& path);
std::string data_file_of(const std::string& index_path);  // NAME.bin of NAME.idx
bool is_llm_c(std::string_view content);
bool is_numpy(std::string_view content);

std::shared_ptr<StoredTokenFile> open_megatron(const std::string& path);
std::shared_ptr<StoredTokenFile> open_llm_c(const std::string& path);
std::shared_ptr<StoredTokenFile> open_numpy(const std::string& path);
// Ids back to back without a header, such as nanoGPT's train.bin. Nothing says where documents end.
std::shared_ptr<StoredTokenFile> open_ids(const std::string& path, TokenType type);

}  // namespace trivet::data

// Recognizes a file by its content: its first bytes, unpacked if it is gzip or zstd. The name of a file decides nothing here
// but in a contradiction: a file that is called .json, or .parquet, and is something else.
//
//   text              in UTF-8, without NUL
//   objects of JSON   one on each line, one after another over several lines, or in one list
//   ids of tokens     the formats of token_file.h
//   not read          columns (Parquet, Arrow), archives, images, models, programs, bytes of no known kind ...
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::data {

enum class FileKind { Text, JsonLines, JsonSequence, JsonList, Tokens, Unread };

inline bool is_json(FileKind kind) {
  return kind == FileKind::JsonLines || kind == FileKind::JsonSequence || kind == FileKind::JsonList;
}

struct FileLook {
  FileKind kind = FileKind::Text;
  std::string what = "";       // in words: "a Parquet file"
  std::string advice = "";     // advice for a file that is not read, or for JSON without documents
  bool takes_pattern = false;  // the advice is good for a pattern of files, too
  bool may_be_ids = false;     // ids of tokens without a header may begin so
  std::string finding = "";    // why a file of no known kind is no text: "holds NUL at byte 12"
  // For JSON: the keys of the first object, if it ends within the bytes that were looked at, and whether one of them
  // can be the text of a document (json_lines.h).
  std::string keys = "";
  bool has_documents = true;
  int64_t bytes_elsewhere = 0;  // size of the file that a pointer of Git LFS stands for
};

// Returns the name without .gz or .zst at its end.
std::string name_without_packing(const std::string& path);
// NAME.jsonl or NAME.ndjson; or these and NAME.json. The name may end with .gz or .zst after that.
bool is_called_lines(const std::string& path);
bool is_called_json(const std::string& path);

// Reads the beginning of a file. Throws DataError for one that is missing, empty, unreadable or damaged.
FileLook look_into(const std::string& path);
// The same for the first bytes of a file, as they are stored: packed data is not unpacked. `is_whole`: the file has no more.
FileLook look_into_beginning(const std::string& path, std::string bytes, bool is_whole);

// Throws DataError: what the file is, and what to do with it.
[[noreturn]] void refuse_unread(const std::string& path, const FileLook& look);
// Throws DataError for a text that holds NUL or is not UTF-8, as `finding` says: "holds NUL at byte 12".
[[noreturn]] void refuse_bytes(const std::string& path, const std::string& finding);

}  // namespace trivet::data

// Chooses the files that are read as data, out of those that a config or a command names, and reports the rest.
//
// A file that is named is read as what it is (file_kind.h), or refused. In a folder (folder_walk.h), these are read:
//
//   objects of JSON          whatever the names of their files, if the first one has a key of documents; any .jsonl
//   texts                    whose names end with .txt, .text or .md, also with .gz or .zst after it
//   files of tokens          if there are no texts
//
// README.md, tokenizer.json and the like are left out next to other data. A folder is refused if most of its bytes would be
// left out, if it holds both the training files of a data set and those for tests, or a text both packed and not.
#pragma once

#include <string>
#include <vector>

#include "data/file_kind.h"
#include "data/options.h"

namespace trivet::data {

struct InputFile {
  std::string path;
  FileKind kind = FileKind::Text;
  bool any_bytes = false;  // the text may hold NUL, and bytes that are not UTF-8
};

struct InputFiles {
  std::vector<InputFile> texts;     // and objects of JSON, in the order in which they are read
  std::vector<std::string> tokens;  // files of tokens
  std::vector<std::string> notes;   // files that are read and left out of folders, in a line each
};

// The purpose for which a folder is read. Files of tokens next to texts are left out; those that Prepare finds may have
// been made from the texts, and do not count as most of the folder.
enum class FolderUse { Train, Validate, Prepare };

// Throws DataError for a file or a folder that is not read. With ReadAs::UInt16 and UInt32, `tokens` are the files of ids.
InputFiles find_inputs(const std::vector<std::string>& names, ReadAs read_as, FolderUse use);

}  // namespace trivet::data

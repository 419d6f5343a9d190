// The formats of other programs that a model can be read from. Each reader presents its model as one of transformers
// (interchange/foreign/model_source.h), so that everything else is the same for all.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/file_system.h"
#include "interchange/foreign/model_source.h"

namespace trivet::hugging_face {

struct ModelFormat {
  std::string_view name;  // trivet checkpoint import NAME
  std::string_view what;  // for --help: "a folder in Hugging Face's format"
  std::string_view path;  // for --help: the contents of the file or folder
  std::string_view example;
  bool (*is_format)(FileSystem& files, const std::string& path);
  // `config`: a config.json that is somewhere else; empty: there is none. Only some formats need one.
  foreign::ModelSource (*open)(FileSystem& files, const std::string& path, const std::string& config);
  bool takes_config = false;
};

// The first that fits a file or folder is its format.
std::span<const ModelFormat> model_formats();
// Null: none of these. Throws CheckpointError (Usage) if the format is known but cannot be read.
const ModelFormat* format_of(FileSystem& files, const std::string& path);
// `format`: one of the names; empty: the one that fits, or, if none does, Hugging Face's, whose error says what is absent.
foreign::ModelSource open_model(FileSystem& files, const std::string& path, std::string_view format = "",
                                const std::string& config = "");

}  // namespace trivet::hugging_face

#include "interchange/hugging_face/import.h"

#include <fmt/format.h>

#include <exception>

#include "core/error.h"
#include "core/printable.h"
#include "data/tokenizer.h"
#include "data/tokenizers/of_model.h"
#include "engine/checkpoint/checkpoint_store.h"
#include "engine/checkpoint/finite_source.h"
#include "engine/config/explain.h"
#include "model/model.h"
#include "zero/placement.h"

namespace trivet::hugging_face {

using checkpoint::Piece;
namespace {

// The weights of another program. Whoever saves what it reads sees an error of reading as one of saving, so the error is kept.
class SourceOfImport final : public checkpoint::TensorSource {
 public:
  explicit SourceOfImport(const checkpoint::TensorSource& weights) : weights_(weights, "checkpoint import") {}

  std::string source() const override { return weights_.source(); }
  const checkpoint::TensorInfo* find(const std::string& name) const override { return weights_.find(name); }
  void read(std::span<const Piece> wanted) const override {
    try {
      weights_.read(wanted);
    } catch (const Error&) {
      error_ = std::current_exception();
      throw;
    }
  }
  // Calls save(). Throws the error of reading if that is why it failed.
  template <typename Save>
  void save_with(Save&& save) const {
    try {
      save();
    } catch (const Error&) {
      if (error_) std::rethrow_exception(error_);
      throw;
    }
  }

 private:
  checkpoint::FiniteSource weights_;
  mutable std::exception_ptr error_;  // a save of one rank reads in one thread
};

// A tensor that stays in its file until a part of it is wanted.
class TensorInFile final : public zero::StagedTensor {
 public:
  TensorInFile(const checkpoint::TensorSource& source, std::string name, const Shape& shape)
      : source_(source), name_(std::move(name)), shape_(shape) {}
  DType dtype() const override { return DType::Float32; }
  int64_t elements() const override { return shape_.elements(); }
  int64_t granule_elements() const override { return 1; }
  zero::PendingCopy read(int64_t first, TensorView to) override {
    const Piece piece = checkpoint::whole_box_piece(name_, shape_, first, to);
    source_.read({&piece, 1});
    return {};
  }
  zero::PendingCopy write(int64_t, ConstTensorView) override { throw std::logic_error("import: a model is not written"); }

  Piece as_piece() {
    Piece piece = checkpoint::whole_box_piece(name_, shape_, 0, {nullptr, dtype(), {elements()}});
    piece.staged = this;
    return piece;
  }

 private:
  const checkpoint::TensorSource& source_;
  std::string name_;
  Shape shape_;
};

std::vector<TensorInFile> tensors_of(const checkpoint::TensorSource& source, const model::Description& description) {
  const model::Model model = model::build(description);
  std::vector<TensorInFile> tensors;
  for (size_t layer = 0; layer < model.layers.size(); ++layer)
    for (size_t i = 0; i < model.layers[layer]->parameters().size(); ++i) {
      const ParameterSpec& spec = model.layers[layer]->parameters()[i];
      if (spec.tied_to.empty()) tensors.emplace_back(source, parameter_name(model, layer, i), spec.shape);
    }
  return tensors;
}

// Notes files that are broken; without a tokenizer, nothing else reads them.
void note_broken_role_file(const std::string& directory, std::vector<std::string>& notes) {
  try {
    data::check_role_files(directory);
  } catch (const Error& error) {
    notes.emplace_back(error.what());
  }
}

// The text of the folder's tokenizer; empty, with a note, if there is none that fits.
std::string find_tokenizer(FileSystem& files, const std::string& directory, int64_t vocabulary,
                           std::vector<std::string>& notes) {
  std::string path = directory + "/tokenizer.json";
  if (files.kind(path) == EntryKind::Missing) path = directory + "/tokenizer.model";
  const EntryKind kind = files.kind(path);
  if (kind == EntryKind::Missing) {
    notes.emplace_back("the folder has no tokenizer.json or tokenizer.model, so the checkpoint holds no tokenizer");
    note_broken_role_file(directory, notes);
    return "";
  }
  if (kind != EntryKind::File) {
    notes.push_back(fmt::format("the tokenizer was left out: {} is a folder, a pipe or a device; put the file itself there",
                                printable(path)));
    return "";
  }
  try {
    const auto tokenizer = data::load_tokenizer(path);
    if (tokenizer->vocabulary_size() <= vocabulary) {
      if (std::string note = data::note_on_end_of_text(path, *tokenizer); !note.empty()) notes.push_back(std::move(note));
      return tokenizer->to_text();
    }
    notes.push_back(
        fmt::format("the tokenizer was left out: it has {} tokens, the model {}", tokenizer->vocabulary_size(), vocabulary));
  } catch (const Error& error) {
    notes.push_back(fmt::format("the tokenizer was left out: {}", error.what()));
  }
  return "";
}

}  // namespace

Imported import_model(FileSystem& files, const PretrainedModel& pretrained, const std::string& output, FileSystem& models) {
  if (!checkpoint::list_steps(files, output).empty())
    throw ConfigError(fmt::format("--output {}: holds checkpoints already; choose another directory", printable(output)));
  Imported imported{.step = output + "/" + checkpoint::step_directory_name(0), .notes = pretrained.notes()};
  checkpoint::RunState state;
  state.tokenizer = find_tokenizer(models, pretrained.folder(), pretrained.description().vocabulary_size, imported.notes);
  const SourceOfImport source(pretrained.weights());
  std::vector<TensorInFile> tensors = tensors_of(source, pretrained.description());
  std::vector<Piece> pieces;
  for (TensorInFile& tensor : tensors) pieces.push_back(tensor.as_piece());
  checkpoint::CheckpointStore store(files, {.directory = output, .run_id = kImportedRunId, .section = "--output"});
  source.save_with([&] {
    store.save({.step = 0, .pieces = pieces, .state = to_text(state), .config = explain_as_json(pretrained.config())}, {});
  });
  return imported;
}

}  // namespace trivet::hugging_face

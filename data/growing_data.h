// The .tokens files of a folder to which another program adds files while a run trains on them (data.grows).
//
// Files that are taken up together, before the same epoch, follow each other like those that a pattern names, and are a source
// of their own. From that epoch on, an epoch has the samples of all sources. Earlier epochs read the same as before.
//
//   epoch     0         1         2                              3 ...
//   sources   a.tokens  a.tokens  a.tokens, b.tokens c.tokens    the same until more are taken up
//   samples   40        40        40 + 25
//
// This class opens what it is told to. When which files are taken up, the ranks decide together (trainer/intake.h). One thread
// at a time; the sources that train() returned before do not change and may be read by other threads.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/training_data.h"

namespace trivet::data {

// A file that was taken up. A checkpoint keeps these (checkpoint/run_state.h).
struct TakenFile {
  int64_t first_epoch = 0;  // counted from 0
  std::string name;         // in the folder
  std::string digest;
  bool operator==(const TakenFile&) const = default;
};

class GrowingData final : public TrainingData {
 public:
  // Opens no file. Throws DataError if options.data.train is neither a folder nor a name such as "folder/web-*.tokens".
  GrowingData(DataOptions options, int64_t sequence_length);

  const std::string& folder() const { return folder_; }
  // The names of files that were not taken up, in order. Hidden files, folders and further names of one file are left out.
  // Throws DataError if the folder cannot be read.
  std::vector<std::string> new_files() const;
  // Identifies the content of a file; empty: there is no such file, or somebody is still writing it. Throws DataError if it is
  // a file that this run cannot read.
  std::string digest_of(const std::string& name) const;

  // Takes up files from this epoch on, which must be later than that of all files before. Returns false, and takes up none, if
  // they do not have enough tokens for one sample; throws DataError if they are the first.
  bool take_up(int64_t epoch, const std::vector<std::string>& names);
  // Forgets what was taken up, and takes up these instead.
  void restore(const std::vector<TakenFile>& files);
  const std::vector<TakenFile>& files() const { return files_; }  // in the order of their epochs
  int64_t tokens() const;                                         // in all files

  // The rest is as for any data. Something must have been taken up.
  std::shared_ptr<const SampleSource> train() const override { return train_; }
  std::shared_ptr<const SampleSource> validation() const override { return parts_.at(0).data->validation(); }
  std::string train_digest() const override { return train_->digest(); }
  std::string validation_digest() const override { return parts_.at(0).data->validation_digest(); }
  std::string sizes() const override;
  std::vector<std::string> notes() const override { return notes_; }
  std::string in_words(std::span<const int32_t> targets) const override { return parts_.at(0).data->in_words(targets); }
  std::shared_ptr<Tokenizer> tokenizer() const override { return parts_.at(0).data->tokenizer(); }
  int64_t vocabulary_size() const override { return parts_.at(0).data->vocabulary_size(); }
  GrowingData* growing() override { return this; }

 private:
  // The files that were taken up together.
  struct Part {
    int64_t first_epoch, tokens;
    std::unique_ptr<TrainingData> data;
  };
  std::string path_of(const std::string& name) const;
  OpenedBefore opened_before() const;
  std::shared_ptr<const SampleSource> joined() const;

  std::string folder_, pattern_;
  DataOptions options_;
  int64_t sequence_length_;
  std::vector<Part> parts_;
  std::vector<TakenFile> files_;
  std::vector<std::string> notes_;             // on the first files
  mutable std::vector<std::string> repeated_;  // names of files that the last new_files() left out for their other names
  int64_t validation_tokens_ = 0;
  std::shared_ptr<const SampleSource> train_;  // null: nothing was taken up
};

}  // namespace trivet::data

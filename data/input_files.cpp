#include "data/input_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/printable.h"
#include "core/shell_words.h"
#include "data/data_error.h"
#include "data/file_pattern.h"
#include "data/folder_walk.h"
#include "data/names_of_files.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

// "1.2 MB"
std::string size_in_words(int64_t bytes) {
  constexpr std::array kUnits{"bytes", "kB", "MB", "GB", "TB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1000 && unit + 1 < kUnits.size(); ++unit) size /= 1000;
  return unit == 0 ? fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s") : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

std::string files_in_words(size_t count) { return count == 1 ? "1 file" : fmt::format("{} files", count); }

// A name is shown as a whole, however long it is.
std::string name_in_words(const std::string& name) { return printable(name, 4096); }

// The first two texts that are the same by their names, but for how they are packed.
std::optional<std::pair<std::string, std::string>> packed_twice(const std::vector<InputFile>& texts) {
  std::map<std::string, std::string> known;  // by the name without packing
  for (const InputFile& file : texts) {
    const auto [first, is_new] = known.try_emplace(name_without_packing(file.path), file.path);
    if (!is_new) return std::pair(first->second, file.path);
  }
  return {};
}

constexpr const char* kReadTexts =
    "to read every text of the folder, set data.read_as to \"text\" (--read-as text of `trivet data prepare`)";

// The first ones.
std::string list_in_words(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  const size_t shown = std::min(names.size(), kMost);
  return fmt::format("{}{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                     shown < names.size() ? fmt::format(" and {} more", names.size() - shown) : "");
}

// Files of one kind.
struct FileGroup {
  std::vector<std::string> paths;
  int64_t bytes = 0;
  std::string advice;
  bool takes_pattern = false;  // FileLook
};
using FileGroups = std::map<std::string, FileGroup>;  // by what they are

int64_t bytes_of_all(const FileGroups& groups) {
  int64_t bytes = 0;
  for (const auto& [what, group] : groups) bytes += group.bytes;
  return bytes;
}

// "a Parquet file: data/a.parquet (1.2 MB)", "lines of JSON: 3 files (4.5 GB), the first is a.jsonl"
std::string in_words(const std::string& folder, const FileGroups& groups) {
  std::string text;
  for (const auto& [what, group] : groups) {
    const std::string first = name_in_words(group.paths[0].substr(std::min(folder.size() + 1, group.paths[0].size())));
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", what,
                        group.paths.size() == 1 ? fmt::format("{} ({})", first, size_in_words(group.bytes))
                                                : fmt::format("{}, {} and so on ({})", files_in_words(group.paths.size()),
                                                              first, size_in_words(group.bytes)));
  }
  return text;
}

// Chooses from the files of a folder.
class FolderChoice {
 public:
  FolderChoice(std::string folder, ReadAs read_as, FolderUse use)
      : folder_(without_slash(std::move(folder))), read_as_(read_as), use_(use), walk_(walk_folder(folder_)) {}

  void add_to(InputFiles& inputs) {
    for (const FoundFile& file : walk_.files)
      if (read_as_ != ReadAs::Bytes && comes_with_data(file.path))
        about_.push_back(file);
      else
        consider(file);
    read_what_comes_with_data_if_alone();
    leave_out_other_names();
    if (!texts_.empty() && !tokens_.empty()) leave_out_tokens();
    refuse_or_leave_out_no_texts();
    if (texts_.empty() && tokens_.empty()) refuse_empty();
    refuse_most_left_out();
    check_splits(inputs);
    add_notes(inputs);
    std::vector<InputFile> texts;
    for (const Candidate& file : texts_) texts.push_back(file.input);
    refuse_packed_twice(texts);
    inputs.texts.insert(inputs.texts.end(), texts.begin(), texts.end());
    for (const FoundFile& file : tokens_) inputs.tokens.push_back(file.path);
  }

 private:
  struct Candidate {
    InputFile input;
    int64_t bytes = 0;
    std::string what;
  };

  static std::string without_slash(std::string folder) {
    while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
    return folder;
  }

  static void put(FileGroups& groups, const std::string& what, const FoundFile& file, const std::string& advice = "") {
    FileGroup& group = groups[what];
    group.paths.push_back(file.path);
    group.bytes += file.bytes;
    if (group.advice.empty()) group.advice = advice;
  }

  void leave_out(const FoundFile& file, const FileLook& look) {
    put(left_out_, look.what, file, look.advice);
    left_out_[look.what].takes_pattern = look.takes_pattern;
  }

  void consider(const FoundFile& file) {
    if (file.bytes == 0) return put(left_out_, "empty", file, "get these files again, or leave them out");
    if (is_log_of_rank(file.path)) return put(not_data_, "what ranks have printed, by the names", file);
    if (is_draft(file.path)) return put(left_out_, "unfinished or older copies by their names", file);
    switch (read_as_) {
      case ReadAs::Bytes: texts_.push_back({{file.path, FileKind::Text, true}, file.bytes, "any bytes"}); return;
      case ReadAs::UInt16:
      case ReadAs::UInt32: return consider_as_ids(file);
      default: break;
    }
    consider_look(file, look_into(file.path));
  }

  void consider_as_ids(const FoundFile& file) {
    const FileLook look = look_into(file.path);
    if (look.may_be_ids)
      tokens_.push_back(file);
    else if (look.kind == FileKind::Unread)
      leave_out(file, look);
    else
      put(left_out_, look.what, file, "leave out data.read_as, which says that the files hold ids of tokens without a header");
  }

  void consider_look(const FoundFile& file, const FileLook& look) {
    const bool json = is_json(look.kind);
    if (look.kind == FileKind::Tokens && read_as_ == ReadAs::Auto) {
      tokens_.push_back(file);
    } else if (!look.finding.empty() && (has_name_of_text(file.path) || is_called_json(file.path))) {
      no_texts_.emplace_back(file, look);
    } else if (look.kind == FileKind::Unread || look.kind == FileKind::Tokens) {
      leave_out({file.path, std::max(file.bytes, look.bytes_elsewhere)}, look);
    } else if (read_as_ == ReadAs::Text) {
      texts_.push_back({{file.path, FileKind::Text}, file.bytes, "text"});
    } else if (json && (look.has_documents || is_called_lines(file.path))) {
      texts_.push_back({{file.path, look.kind}, file.bytes, look.what});
    } else if (json) {
      put(left_out_, "JSON without texts", file,
          fmt::format("the first object of {} has {}, but a document has \"text\", \"prompt\" and \"completion\", or "
                      "\"messages\"{}",
                      name_in_words(file.path), look.keys.empty() ? "no keys" : look.keys,
                      look.advice.empty() ? "" : ": " + look.advice));
    } else if (has_name_of_text(file.path)) {
      texts_.push_back({{file.path, FileKind::Text}, file.bytes, "text"});
    } else {
      put(left_out_, fmt::format("texts that are called {}", ending_of(file.path)), file, kReadTexts);
    }
  }

  // "a.jsonl.gz": ".jsonl.gz"
  static std::string ending_with_packing(const std::string& path) {
    const std::string plain = name_without_packing(path);
    return fs::path(plain).extension().string() + path.substr(plain.size());
  }

  static std::string ending_of(const std::string& path) {
    const std::string ending = fs::path(path).extension().string();
    return ending.empty() ? name_in_words(fs::path(path).filename().string()) : "*" + name_in_words(ending);
  }

  // A file with several hard links is read under its first name.
  void leave_out_other_names() {
    MetFiles met;
    const auto is_repeated = [&](const std::string& path) {
      if (met.is_new(path)) return false;
      walk_.repeated.push_back(path);
      return true;
    };
    std::erase_if(texts_, [&](const Candidate& file) { return is_repeated(file.input.path); });
    std::erase_if(tokens_, [&](const FoundFile& file) { return is_repeated(file.path); });
  }

  // In a folder that holds nothing else, these files are what is meant.
  void read_what_comes_with_data_if_alone() {
    if (!texts_.empty() || !tokens_.empty() || bytes_of_all(left_out_) > 0) return;
    for (const FoundFile& file : std::exchange(about_, {})) consider(file);
  }

  void refuse_packed_twice(const std::vector<InputFile>& texts) const {
    const auto twice = packed_twice(texts);
    if (!twice) return;
    bad_file(folder_, fmt::format("holds {} and {}, which differ only in how they are packed, by their names; each document of "
                                  "them would count twice. Remove one of them, or name those to read, such as \"{}/*{}\"",
                                  name_in_folder(twice->first), name_in_folder(twice->second), folder_,
                                  fs::path(twice->second).extension().string()));
  }

  std::string name_in_folder(const std::string& path) const {
    return name_in_words(path.substr(std::min(folder_.size() + 1, path.size())));
  }

  void leave_out_tokens() {
    for (const FoundFile& file : tokens_) put(use_ == FolderUse::Prepare ? not_data_ : left_out_, "files of tokens", file);
    left_out_advice_ =
        fmt::format("it holds texts and files of tokens: name those of one kind, such as \"{}/*.tokens\"", folder_);
    tokens_.clear();
  }

  // Where texts are read, one of them that is no text is an error, as where it is named alone.
  void refuse_or_leave_out_no_texts() {
    if (!no_texts_.empty() && tokens_.empty()) refuse_bytes(no_texts_[0].first.path, no_texts_[0].second.finding);
    for (const auto& [file, look] : no_texts_) leave_out(file, look);
  }

  FileGroups groups_read() const {
    FileGroups read;
    for (const Candidate& file : texts_) put(read, file.what, {file.input.path, file.bytes});
    for (const FoundFile& file : tokens_) put(read, "files of tokens", file);
    return read;
  }

  // Advises what to do about the largest group.
  std::string advice() const {
    if (!left_out_advice_.empty()) return left_out_advice_;
    const auto most = std::ranges::max_element(left_out_, {}, [](const auto& one) { return one.second.bytes; });
    const std::string move = "move the other files out of the folder, or name those that are data, such as \"FOLDER/*.txt\"";
    if (most == left_out_.end() || most->second.advice.empty()) return move;
    const auto json = std::ranges::find_if(texts_, [](const Candidate& file) { return is_json(file.input.kind); });
    if (most->second.advice == kReadTexts && json != texts_.end())  // these would be read as text, too
      return fmt::format(
          "move the other files out of the folder, or name those that are data, such as \"{}\"",
          name_in_words((fs::path(json->input.path).parent_path() / ("*" + ending_with_packing(json->input.path))).string()));
    return for_all(most->second);
  }

  // The advice for the first file of a group, for all of them.
  std::string for_all(const FileGroup& group) const {
    std::string advice = group.advice;
    const std::string first = quoted(name_in_words(group.paths[0]));
    const size_t at = advice.find(first);
    if (group.paths.size() == 1 || at == std::string::npos) return advice;
    if (!group.takes_pattern) return advice + ", and likewise for the others";
    const std::string ending = fs::path(group.paths[0]).extension().string();
    return advice.replace(at, first.size(), quoted(name_in_words(folder_ + "/**/*" + ending)));
  }

  [[noreturn]] void refuse_empty() const {
    if (left_out_.empty()) {
      const std::string rest = rest_in_words();
      bad_file(
          folder_,
          fmt::format("is a folder without data{}; texts have names that end with .txt, .text or .md (and .gz or .zst), "
                      "and objects of JSON may have any name{}{}",
                      rest.empty() ? "" : ". It holds " + rest,
                      walk_.broken.empty() ? "" : "; get the files that the links lead to, or name their folder",
                      walk_.hidden == 0 ? "" : "; hidden files, whose names begin with \".\", are read if they are named"));
    }
    bad_file(folder_, fmt::format("is a folder in which nothing is read. It holds {}. What to do: {}",
                                  in_words(folder_, left_out_), advice()));
  }

  void refuse_most_left_out() const {
    const int64_t left_out = bytes_of_all(left_out_), read = bytes_of_all(groups_read());
    if (left_out > read)
      bad_file(folder_, fmt::format("most of this folder would be left out ({} of {}). Read would be {}. Left out would be {}. "
                                    "What to do: {}",
                                    size_in_words(left_out), size_in_words(left_out + read), in_words(folder_, groups_read()),
                                    in_words(folder_, left_out_), advice()));
  }

  // Returns a path that names only the files with this name: their folder, or a pattern for the files next to this one.
  std::string named_alone(const std::string& name, bool (*is_so)(const std::set<std::string>&)) const {
    fs::path found = folder_;
    const fs::path path(name);
    for (auto part = path.begin(); part != path.end(); ++part) {
      const std::string spelled = part->string();
      const std::set<std::string> words = words_in(spelled);
      if (std::next(part) == path.end())
        for (const std::string& word : words) {
          const std::string letters = small_letters(spelled);
          const std::string shown = letters.find(word) == std::string::npos ? "held" : word;  // held_out is a word
          if (is_so({word}))
            return name_in_words((found / ("*" + spelled.substr(letters.find(shown), shown.size()) + "*")).string());
        }
      found /= *part;
      if (is_so(words)) return name_in_words(found.string());
    }
    return name_in_words((folder_ / path).string());
  }

  // Training on what a data set has for tests makes its tests worthless. A folder with both is refused; with names of tests
  // alone it may be anything.
  void check_splits(InputFiles& inputs) const {
    std::vector<std::string> held_out, training;
    const auto add = [&](const std::string& path) {
      const std::string name = name_in_folder(path);
      const std::set<std::string> words = words_in(name);
      if (is_for_tests(words))
        held_out.push_back(name);
      else if (is_for_training(words))
        training.push_back(name);
    };
    for (const Candidate& file : texts_) add(file.input.path);
    for (const FoundFile& file : tokens_) add(file.path);
    const bool is_all = held_out.size() == texts_.size() + tokens_.size();
    if (held_out.empty() || (is_all && use_ == FolderUse::Prepare)) return;
    if (use_ == FolderUse::Validate) {
      if (!training.empty())
        bad_file(folder_,
                 fmt::format("holds files for tests or validation, such as {}, and {} for training by {} name: {}, which "
                             "would be evaluated on. Name the former alone, such as \"{}\"",
                             held_out[0], files_in_words(training.size()), training.size() == 1 ? "its" : "their", training[0],
                             named_alone(held_out[0], is_for_tests)));
      return;
    }
    const std::string found = fmt::format("{} for tests or validation by {} name: {}", files_in_words(held_out.size()),
                                          held_out.size() == 1 ? "its" : "their", held_out[0]);
    if (!training.empty())
      bad_file(folder_,
               fmt::format("holds training files, such as {}, and {}, which would be trained on. Name the training files "
                           "alone, such as \"{}\"; those for validation in data.validation",
                           training[0], found, named_alone(training[0], is_for_training)));
    inputs.notes.push_back(
        fmt::format("{}: reads {}; if it is not meant for training, name the other files, such as "
                    "\"{}/NAME*\", and this one in data.validation",
                    folder_, found, folder_));
  }

  void add_notes(InputFiles& inputs) const {
    inputs.notes.push_back(fmt::format("{}: reads {}", folder_, in_words(folder_, groups_read())));
    const std::string left_out = rest_in_words();
    if (!left_out.empty()) inputs.notes.push_back(fmt::format("{}: leaves out {}", folder_, left_out));
  }

  // Describes the files that are not read.
  std::string rest_in_words() const {
    FileGroups rest = left_out_;
    for (const auto& [what, group] : not_data_) rest[what] = group;
    for (const FoundFile& file : about_) put(rest, "what comes with the data", file);
    for (const std::string& path : walk_.repeated) put(rest, "other names of what is read", {path, 0});
    for (const std::string& path : walk_.broken) put(rest, "links that lead nowhere", {path, 0});
    for (const std::string& path : walk_.special) put(rest, "pipes and devices", {path, 0});
    std::string text = in_words(folder_, rest);
    if (walk_.hidden > 0)
      text += fmt::format("{}hidden: {}", text.empty() ? "" : "; ",
                          walk_.hidden == 1 ? "1 entry" : fmt::format("{} entries", walk_.hidden));
    return text;
  }

  std::string folder_;
  ReadAs read_as_;
  FolderUse use_;
  FolderWalk walk_;
  std::vector<Candidate> texts_;
  std::vector<FoundFile> tokens_, about_;
  std::vector<std::pair<FoundFile, FileLook>> no_texts_;  // by their names they are
  FileGroups left_out_, not_data_;                        // the latter do not count
  std::string left_out_advice_;
};

void add_file(const std::string& path, ReadAs read_as, InputFiles& inputs) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status) && (!error || fs::status_known(status))) refuse_missing(path);
  if (!fs::exists(status)) bad_file(path, "cannot be opened: " + error.message());
  switch (read_as) {
    case ReadAs::Text:
    case ReadAs::Bytes: inputs.texts.push_back({path, FileKind::Text, read_as == ReadAs::Bytes}); return;
    case ReadAs::UInt16:
    case ReadAs::UInt32: inputs.tokens.push_back(path); return;
    case ReadAs::Auto: break;
  }
  const FileLook look = look_into(path);
  if (look.kind == FileKind::Unread) refuse_unread(path, look);
  if (look.kind == FileKind::Tokens)
    inputs.tokens.push_back(path);
  else
    inputs.texts.push_back({path, look.kind});
}

// A file that two of the names lead to is read once.
void leave_out_other_names(InputFiles& inputs) {
  MetFiles met;
  std::vector<std::string> repeated;
  const auto is_repeated = [&](const std::string& path) {
    if (met.is_new(path)) return false;
    repeated.push_back(name_in_words(path));
    return true;
  };
  std::erase_if(inputs.texts, [&](const InputFile& file) { return is_repeated(file.path); });
  std::erase_if(inputs.tokens, is_repeated);
  if (repeated.empty()) return;
  inputs.notes.push_back(fmt::format("leaves out {}, which {} read already under another name", list_in_words(repeated),
                                     repeated.size() == 1 ? "is" : "are"));
}

// A list or a pattern may mean to have both; a folder is refused (check_splits).
void note_splits(const std::vector<std::string>& names, FolderUse use, InputFiles& inputs) {
  if (use == FolderUse::Validate) return;
  std::vector<std::string> held_out, training;
  for (const std::string& name : names) {
    const std::set<std::string> words = words_in(fs::path(name).filename().string());
    if (is_for_tests(words))
      held_out.push_back(name_in_words(name));
    else if (is_for_training(words))
      training.push_back(name_in_words(name));
  }
  if (held_out.empty() || training.empty()) return;
  inputs.notes.push_back(fmt::format(
      "reads training files, such as {}, and together with them files for tests or validation by their names: {}; if "
      "these are not meant for training, name the training files alone",
      training[0], list_in_words(held_out)));
}

// For a list or a pattern. A folder with such files is refused.
void note_packed_twice(InputFiles& inputs) {
  if (const auto twice = packed_twice(inputs.texts); twice)
    inputs.notes.push_back(
        fmt::format("reads {} and {}, which differ only in how they are packed, by their names; if they are "
                    "the same, each document of them counts twice: name one of them",
                    name_in_words(twice->first), name_in_words(twice->second)));
}

void note_what_comes_with_data(const std::vector<std::string>& names, InputFiles& inputs) {
  std::vector<std::string> about;
  for (const InputFile& file : inputs.texts)
    if (comes_with_data(file.path) && std::ranges::find(names, file.path) != names.end())
      about.push_back(name_in_words(file.path));
  if (about.empty() || about.size() == inputs.texts.size()) return;
  inputs.notes.push_back(
      fmt::format("reads {} as data, too, which by {} only {} with data; if that is not meant, name the "
                  "other files alone",
                  list_in_words(about), about.size() == 1 ? "its name" : "their names", about.size() == 1 ? "comes" : "come"));
}

}  // namespace

InputFiles find_inputs(const std::vector<std::string>& names, ReadAs read_as, FolderUse use) {
  InputFiles inputs;
  for (const std::string& name : names)
    if (std::error_code none; fs::is_directory(name, none))
      FolderChoice(name, read_as, use).add_to(inputs);
    else
      add_file(name, read_as, inputs);
  leave_out_other_names(inputs);
  note_splits(names, use, inputs);
  note_packed_twice(inputs);
  note_what_comes_with_data(names, inputs);
  return inputs;
}

}  // namespace trivet::data

// Decides whether a command may write to a place that its user has named.
//
// A command first names everything that it reads, then checks each place that it will write to, before any long work:
//
//   OutputGuard guard(force);
//   guard.reads("gpt.json", "the config");
//   guard.reads_data("texts", "data.train");
//   guard.check({.path = "m.jsonl", .key = "--metrics", .what = "metrics of trivet train", .is_own = is_metrics});
//
// Two rules hold for all commands. No output is the same file as an input, whatever names and links lead to it, and none lies
// in a folder all of whose files are read as data. And a file that Trivet did not write is replaced only if the user forces it;
// Trivet knows its own files by how they begin, not by their names. Force never covers inputs.
//
// Who could change the links between the check and the write could also write to the files: this guards against mistakes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trivet {

// Pages for browsers that Trivet writes have this in their first kilobyte.
inline constexpr std::string_view kOwnPage = R"(<meta name="generator" content="trivet">)";
bool is_own_page(std::string_view beginning);

enum class Force : uint8_t { NotOffered, No, Yes };  // whether the command has --force, and whether it was given

struct Output {
  std::string path;
  std::string key;                                       // that names it: "--metrics"; begins the message
  std::string what;                                      // what Trivet writes there, in the plural: "metrics of trivet train"
  bool (*is_own)(std::string_view beginning) = nullptr;  // gets a file's first 4 KiB; null: no file is Trivet's
  bool in_place = false;                                 // written where it is, so that a device or a FIFO is accepted, too
};

class OutputGuard {
 public:
  explicit OutputGuard(Force force = Force::NotOffered) : force_(force) {}

  // What is read. `name` says in messages what it is: "data.train". Nothing happens if the path is empty or does not exist.
  void reads(const std::string& path, const std::string& name);       // a file, or the files in a folder
  void reads_data(const std::string& path, const std::string& name);  // a folder counts with all that will be in it
  // Files of a folder whose names match.
  void reads_matching(const std::string& folder, std::function<bool(std::string_view)> matches, const std::string& name);

  // Throw ConfigError.
  void check(const Output& output) const;
  void check_not_input(const Output& output) const;  // the first rule alone
  // A folder in which Trivet writes files under these names; a "*" at the beginning stands for any characters.
  void check_files_in(const std::string& folder, const std::vector<std::string>& names, const Output& file) const;
  // A folder that is to be Trivet's alone: it holds no input, and does not lie in data.
  void check_folder(const std::string& folder, const std::string& key) const;

 private:
  using Identity = std::pair<dev_t, ino_t>;
  struct Pattern {
    Identity folder;
    std::function<bool(std::string_view)> matches;
    std::string name;
  };
  void reads_tree(const std::string& folder, const std::string& name, bool is_data);
  void refuse_input(const std::string& path, const Output& output) const;
  void refuse_data(const std::string& path, const std::string& key) const;
  void refuse_foreign(const Output& output) const;

  Force force_;
  std::map<Identity, std::string> files_, data_folders_;     // what they are
  std::vector<std::pair<std::string, std::string>> inputs_;  // paths of files, and what they are
  std::vector<Pattern> patterns_;
};

}  // namespace trivet

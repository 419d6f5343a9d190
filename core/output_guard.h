// Decides whether a command may write to a place that its user has named.
//
// A command first names everything that it reads, then checks each place that it will write to, before any long work:
//
//   OutputGuard guard(force);
//   guard.reads("gpt.json", "the config");
//   guard.reads_data("texts", "data.train");
//   guard.check({.path = "m.jsonl", .key = "--metrics", .what = "metrics of trivet train", .is_own = is_metrics});
//
// Three rules hold for all commands. No output is the same file as an input, whatever names and links lead to it, and none lies
// in a folder all of whose files are read as data. No two outputs are one file, or lie in each other's places. And a file that
// Trivet did not write is replaced only if the user forces it; Trivet knows its own files by how they begin, not by their
// names. Force never covers inputs or other outputs.
//
// Files that the launcher of this process reads and writes (core/named_files.h) count, too.
//
// Whoever can change links between check and write can also write to the files: this guards against mistakes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/named_files.h"

namespace trivet {

// Pages for browsers that Trivet writes have this in their first kilobyte.
inline constexpr std::string_view kOwnPage = R"(<meta name="generator" content="trivet">)";
bool is_own_page(std::string_view beginning);

enum class Force : uint8_t { NotOffered, No, Yes };  // whether the command has --force, and whether it was given

struct Output {
  std::string path;
  std::string key;   // names the output: "--metrics"; begins the message
  std::string what;  // the content that Trivet writes there, in the plural: "metrics of trivet train"
  bool (*is_own)(std::string_view beginning) = nullptr;  // gets a file's first 4 KiB; null: no file is Trivet's
  bool in_place = false;                                 // written where it is, so that a device or a FIFO is accepted, too
  std::string group = {};                                // outputs of one group may share places; empty: those of one key
};

class OutputGuard {
 public:
  explicit OutputGuard(Force force = Force::NotOffered);

  // Registers inputs. `name` says in messages what one is: "data.train". Ignores a path that is empty or absent.
  void reads(const std::string& path, const std::string& name);  // a file, or the files in a folder
  // A folder counts with all that will be in it. Throws ConfigError if an output of the launcher is among that.
  void reads_data(const std::string& path, const std::string& name);
  // Files of a folder whose names match.
  void reads_matching(const std::string& folder, std::function<bool(std::string_view)> matches, const std::string& name);

  // Throw ConfigError. Each output is compared with those that were checked before.
  void check(const Output& output);
  void check_not_input(const Output& output);  // without the rule about files that Trivet did not write
  // A folder in which Trivet writes files under these names; a "*" at the beginning or the end stands for any characters.
  void check_files_in(const std::string& folder, const std::vector<std::string>& names, const Output& file);
  // The same for files that Trivet replaces or adds only where they are its own.
  void check_names_in(const std::string& folder, const std::vector<std::string>& names, const std::string& key);
  // A folder that is to be Trivet's alone: it holds no input, and does not lie in data.
  void check_folder(const std::string& folder, const std::string& key) const;
  // A folder that was named as an input is not the folder of results.
  void check_not_input_folder(const std::string& folder, const std::string& key) const;

 private:
  using Identity = std::pair<dev_t, ino_t>;
  struct Pattern {
    Identity folder;
    std::function<bool(std::string_view)> matches;
    std::string name;
  };
  // Files of one output, in a folder: one name, or a pattern as in check_files_in.
  struct Place {
    std::filesystem::path folder;
    std::string name;
    bool is_pattern = false;
    std::string key, group;
  };
  void reads_tree(const std::string& folder, const std::string& name, bool is_data);
  void writes(const std::string& path, const std::string& key, const std::string& group);  // a file
  void add_names(const std::string& folder, const std::vector<std::string>& names, const std::string& key,
                 const std::string& group);
  void refuse_other_output(const Place& place, const std::string& path) const;
  void note(const Place& place, const std::string& path);
  void refuse_input(const std::string& path, const Output& output) const;
  void refuse_data(const std::string& path, const std::string& key) const;
  void refuse_foreign(const Output& output) const;

  Force force_;
  std::map<Identity, std::string> files_, data_folders_;     // names of both, for messages
  std::map<Identity, std::string> named_folders_;            // inputs that are folders, without what is in them
  std::map<Identity, std::string> written_;                  // files that are there and will be written, with their keys
  std::vector<Place> places_;                                // where all outputs go
  std::vector<std::pair<std::string, std::string>> inputs_;  // paths of files, and what they are
  std::vector<Pattern> patterns_;
  std::vector<NamedFile> of_launcher_;  // outputs
};

}  // namespace trivet

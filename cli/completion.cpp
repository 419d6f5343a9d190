// trivet completion SHELL, and trivet man-pages DIRECTORY, which the installation runs. Both describe the command line as the
// program itself parses it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/self_description/command_tree.h"
#include "cli/self_description/completion.h"
#include "cli/self_description/man_page.h"
#include "cli/usage.h"
#include "core/error.h"
#include "core/output_guard.h"

namespace trivet::cli {
namespace {

void print_completion(const CLI::App& program, const std::string& shell) {
  const Command described = describe_command(program);
  const std::string script = shell == "bash"  ? bash_completion(described)
                             : shell == "zsh" ? zsh_completion(described)
                                              : fish_completion(described);
  std::fputs(script.c_str(), stdout);
}

bool is_manual(std::string_view beginning) { return beginning.starts_with(".TH "); }

void write_man_pages(const CLI::App& program, const std::string& directory) {
  for (const ManPage& page : man_pages(describe_command(program), std::string(kVersion))) {
    const std::string path = directory + "/" + page.file;
    OutputGuard().check({.path = path, .key = "man-pages", .what = "a page of a manual", .is_own = is_manual});
    std::ofstream file(path);
    file << page.text;
    file.close();
    if (!file) throw ConfigError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
}

}  // namespace

void add_completion(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("completion", "Print a script that completes trivet's command line in a shell");
  command->footer(
      "Examples:\n"
      "  source <(trivet completion bash)                                        in this shell, or in ~/.bashrc\n"
      "  source <(trivet completion zsh)                                         after compinit, or in ~/.zshrc\n"
      "  trivet completion fish > ~/.config/fish/completions/trivet.fish\n"
      "Trivet's packages install these scripts.");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->callback([&program, shell] { print_completion(program, *shell); });
}

void add_man_pages(CLI::App& program) {
  auto directory = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("man-pages", "Write the manual's pages into a directory");
  command->group("");  // for the installation
  command->add_option("directory", *directory, "a directory that exists")->required();
  command->callback([&program, directory] { write_man_pages(program, *directory); });
}

}  // namespace trivet::cli

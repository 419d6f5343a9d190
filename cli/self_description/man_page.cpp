#include "cli/self_description/man_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string_view>
#include <utility>

namespace trivet::cli {
namespace {

// Characters that roff would otherwise replace by typographic ones, which a user cannot search or paste into a shell; and the
// backslash.
constexpr std::pair<char, std::string_view> kEscapes[] = {{'\\', "\\e"},  {'-', "\\-"},   {'\'', "\\(aq"},
                                                          {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};

// Text of a line of roff. A dot at the beginning of a line would make it a request.
std::string escaped(std::string_view text) {
  std::string roff;
  bool at_begin = true;
  for (const char one : text) {
    if (at_begin && one == '.') roff += "\\&";
    const auto found =
        std::find_if(std::begin(kEscapes), std::end(kEscapes), [one](const auto& escape) { return escape.first == one; });
    if (found != std::end(kEscapes))
      roff += found->second;
    else
      roff += one;
    at_begin = one == '\n';
  }
  return roff;
}

std::string as_typed(std::string_view text) { return fmt::format(".PP\n.EX\n{}\n.EE\n", escaped(text)); }

std::string page_name(std::string name) {
  for (char& one : name)
    if (one == ' ') one = '-';
  return name;
}

std::string upper(std::string text) {
  for (char& one : text) one = static_cast<char>(std::toupper(static_cast<unsigned char>(one)));
  return text;
}

// Whatever the footer says before its examples, and the examples.
struct Footer {
  std::string text, examples;
};

Footer split_footer(std::string footer) {
  while (footer.ends_with('\n')) footer.pop_back();
  for (const std::string_view title : {"Examples:", "Example:"}) {
    const size_t at = footer.starts_with(title) ? 0 : footer.find(fmt::format("\n{}", title));
    if (at == std::string::npos) continue;
    std::string text = footer.substr(0, at);
    while (text.ends_with('\n')) text.pop_back();
    const size_t begin = footer.find_first_not_of(" \n", at + (at == 0 ? 0 : 1) + title.size());
    if (begin == std::string::npos) return {text, ""};
    // The first example keeps the indentation that the others have.
    const size_t line = footer.rfind('\n', begin);
    const bool on_own_line = line != std::string::npos && line > at;
    return {text, footer.substr(on_own_line ? line + 1 : begin)};
  }
  return {footer, ""};
}

std::string paragraphs(const std::string& text) {
  std::string roff;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find("\n\n", begin);
    roff += ".PP\n" + escaped(std::string_view(text).substr(begin, end - begin)) + "\n";
    if (end == std::string::npos) break;
    begin = text.find_first_not_of('\n', end);
    if (begin == std::string::npos) break;
  }
  return roff;
}

std::string synopsis(const Command& command) {
  std::string line = fmt::format("\\fB{}\\fR", escaped(command.name));
  if (!command.options.empty()) line += " [\\fIoptions\\fR]";
  if (!command.commands.empty() && !command.commands_are_optional) line += " \\fIcommand\\fR ...";
  for (const Argument& argument : command.positionals) {
    const std::string name = fmt::format("\\fI{}\\fR{}", escaped(argument.names[0]), argument.repeats ? " ..." : "");
    line += argument.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty() && command.commands_are_optional) line += " [\\fIcommand\\fR ...]";
  if (command.takes_program) line += " \\fIprogram\\fR [\\fIarguments\\fR]";
  return line;
}

std::string described(const Argument& argument) {
  std::string names;
  for (const std::string& name : argument.names) {
    const char font = name.starts_with('-') ? 'B' : 'I';
    names += fmt::format("{}\\f{}{}\\fR", names.empty() ? "" : ", ", font, escaped(name));
  }
  if (!argument.value.empty() && argument.names[0].starts_with('-'))
    names +=
        argument.value_is_optional ? fmt::format(" [\\fI{}\\fR]", argument.value) : fmt::format(" \\fI{}\\fR", argument.value);
  std::string text = escaped(argument.description);
  if (argument.required && argument.names[0].starts_with('-')) text += " (required)";
  if (!argument.choices.empty())
    text += fmt::format("\n.br\nAccepted: {}", escaped(fmt::format("{}", fmt::join(argument.choices, ", "))));
  return fmt::format(".TP\n{}\n{}\n", names, text);
}

std::string arguments_of(const Command& command, const std::string& request) {
  std::string roff;
  if (!command.positionals.empty()) {
    roff += fmt::format("{} {}\n", request, request == ".SH" ? "ARGUMENTS" : "Arguments");
    for (const Argument& argument : command.positionals) roff += described(argument);
  }
  if (!command.options.empty()) {
    roff += fmt::format("{} {}\n", request, request == ".SH" ? "OPTIONS" : "Options");
    for (const Argument& argument : command.options) roff += described(argument);
  }
  return roff;
}

// A command below the page's own.
std::string subsection(const Command& command) {
  const Footer footer = split_footer(command.footer);
  std::string roff = fmt::format(".SH {}\n{}\n", escaped(upper(last_word(command))), synopsis(command));
  roff += paragraphs(command.description) + paragraphs(footer.text) + arguments_of(command, ".SS");
  if (!footer.examples.empty()) roff += ".SS Examples\n" + as_typed(footer.examples);
  return roff;
}

// The first sentence of the description.
std::string summary_of(const Command& command) {
  std::string summary = command.description.substr(0, command.description.find(". "));
  summary.resize(std::min(summary.size(), summary.find(';')));
  if (summary.ends_with('.') && !summary.ends_with("...")) summary.pop_back();
  return summary;
}

std::string head_of_page(const Command& command, const std::string& version) {
  return fmt::format(".TH {} 1 \"\" \"trivet {}\" \"Trivet\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n.SH DESCRIPTION\n",
                     escaped(upper(page_name(command.name))), version, escaped(page_name(command.name)),
                     escaped(summary_of(command)), synopsis(command));
}

std::string page_of_command(const Command& command, const std::string& version) {
  const Footer footer = split_footer(command.footer);
  std::string roff = head_of_page(command, version) + paragraphs(command.description) + paragraphs(footer.text);
  roff += arguments_of(command, ".SH");
  if (!footer.examples.empty()) roff += ".SH EXAMPLES\n" + as_typed(footer.examples);
  for (const Command* below : all_commands(command))
    if (below != &command) roff += subsection(*below);
  return roff + ".SH SEE ALSO\n.BR trivet (1)\n";
}

std::string page_of_program(const Command& program, const std::string& version) {
  std::string roff =
      head_of_page(program, version) + paragraphs(program.description) + arguments_of(program, ".SH") + ".SH COMMANDS\n";
  for (const Command& command : program.commands)
    roff += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(page_name(command.name)), escaped(command.description));
  roff += ".SH EXIT STATUS\n";
  roff += paragraphs(
      "0 after success, 2 for a mistake in the command line, in a config or in a file. The page exit_codes "
      "of Trivet's documentation (Debian: trivet-doc) explains the other codes.");
  roff += ".SH SEE ALSO\n";
  for (const Command& command : program.commands)
    roff += fmt::format(".BR {} (1){}\n", escaped(page_name(command.name)), &command == &program.commands.back() ? "" : ",");
  return roff;
}

}  // namespace

std::vector<ManPage> man_pages(const Command& program, const std::string& version) {
  std::vector<ManPage> pages{{program.name + ".1", page_of_program(program, version)}};
  for (const Command& command : program.commands)
    pages.push_back({page_name(command.name) + ".1", page_of_command(command, version)});
  return pages;
}

}  // namespace trivet::cli

#include "data/encoded_parts.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <span>

#include "core/found_file.h"
#include "core/printable.h"
#include "data/data_error.h"
#include "data/hash.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNumberDigits = 8, kHashDigits = 16;

// "00000012-0123456789abcdef.tokens", or with what a writer appends until it has finished.
bool is_part(const std::string& name) {
  if (name.size() < kNumberDigits + 1 + kHashDigits || name[kNumberDigits] != '-') return false;
  for (size_t i = 0; i < kNumberDigits + 1 + kHashDigits; ++i)
    if (i != kNumberDigits && std::isxdigit(static_cast<unsigned char>(name[i])) == 0) return false;
  return name.compare(kNumberDigits + 1 + kHashDigits, 7, ".tokens") == 0;
}

}  // namespace

EncodedParts::EncodedParts(std::string folder, const Tokenizer& tokenizer, const std::string& settings, bool pairs)
    : folder_(std::move(folder)),
      tokenizer_(tokenizer),
      settings_(fmt::format("{} {} {} {}", settings, tokenizer.name(), tokenizer.vocabulary_size(),
                            hexadecimal(hash_bytes(tokenizer.to_text())))),
      pairs_(pairs) {
  std::error_code error;
  if (fs::create_directory(folder_, error)) fs::permissions(folder_, fs::perms::owner_all, error);
  struct stat status {};
  if (error || ::lstat(folder_.c_str(), &status) != 0 || !S_ISDIR(status.st_mode))
    bad_file(folder_, "is needed as a folder for what is already encoded, and cannot be made" +
                          (error ? ": " + error.message() : std::string()));
  // The pieces in it are taken as they are.
  if (const std::string why = why_others_may_change(status); !why.empty())
    bad_file(folder_, why + ", so what it holds may not be what was encoded; remove it, or choose another output");
  try {
    claim_.emplace(real_file_system(), folder_);
  } catch (const FileError& failed) {
    bad_file(folder_, fmt::format("cannot be used: {}", failed.what()));
  }
  if (!claim_->other().empty())
    bad_file(folder_, fmt::format("is in use: {} is preparing the same output; wait until it has ended, or choose another "
                                  "output",
                                  printable(claim_->other())));
}

EncodedParts::~EncodedParts() {
  claim_.reset();
  std::error_code not_empty;
  fs::remove(folder_, not_empty);
}

std::string EncodedParts::file_of(int64_t number, const InputPiece& piece) const {
  StreamingHash hash;
  hash.add(fmt::format("{} {} {} {} ", settings_, piece.lines, piece.begins_document, piece.ends_document));
  hash.add(piece.text);
  return fmt::format("{}/{:08}-{}.tokens", folder_, number, hexadecimal(hash.value()));
}

bool EncodedParts::holds(const std::string& file) {
  if (!fs::exists(file)) return false;
  try {
    verify_tokens(file);
    return true;
  } catch (const DataError&) {
    return false;  // a power failure can leave a file without its content
  }
}

void EncodedParts::write(const std::string& file, const EncodedText& text) const {
  TokenFileWriter writer(file, tokenizer_, pairs_);
  writer.add_text(text);
  writer.finish();
}

void EncodedParts::copy(const std::string& file, bool goes_on, TokenFileWriter& output) const {
  constexpr int64_t kPiece = 1 << 20;
  const auto part = open_token_file(file);
  std::vector<int64_t> ends = part->document_ends();
  if (goes_on && !ends.empty()) {
    int32_t last = 0;
    part->read(part->tokens() - 1, std::span(&last, 1));
    const std::vector<std::string> names = ends_of_documents(tokenizer_);
    if (std::ranges::none_of(names, [&](const std::string& name) { return tokenizer_.special_id(name) == last; }))
      ends.pop_back();
  }
  auto end = ends.begin();
  for (int64_t first = 0; first < part->tokens(); first += kPiece) {
    EncodedText text;
    text.ids.resize(std::min(kPiece, part->tokens() - first));
    part->read(first, text.ids);
    std::vector<int32_t> targets = text.ids;
    part->ignore(first, targets);
    for (const int32_t target : targets) text.ignored.push_back(static_cast<uint8_t>(target < 0));
    const int64_t next = first + static_cast<int64_t>(text.ids.size());
    for (; end != ends.end() && *end <= next; ++end) text.document_ends.push_back(*end - first);
    output.add_text(text);
  }
}

void EncodedParts::remove() const {
  std::error_code error;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(folder_, error))
    if (is_part(entry.path().filename().string())) parts.push_back(entry.path());
  for (const fs::path& part : parts) fs::remove(part, error);
}

}  // namespace trivet::data

#include "data/token_array.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "data/data_error.h"
#include "data/hash.h"

namespace trivet::data {
namespace {

// Reads stored values, which may be unaligned: Megatron's and llm.c's headers do not align them. A number that is no id becomes
// one that is outside every vocabulary.
constexpr int64_t kMostId = std::numeric_limits<int32_t>::max();

template <typename T>
void widen(const std::byte* from, std::span<int32_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int32_t>(std::clamp<int64_t>(value, -1, kMostId));
  }
}

template <typename T>
void narrow(std::vector<std::byte>& bytes, std::span<const int32_t> ids) {
  const size_t before = bytes.size();
  bytes.resize(before + ids.size() * sizeof(T));
  for (size_t i = 0; i < ids.size(); ++i) {
    const T value = static_cast<T>(ids[i]);
    std::memcpy(bytes.data() + before + i * sizeof(T), &value, sizeof(T));
  }
}

void check_range(int64_t first, size_t count, int64_t tokens) {
  if (first < 0 || first + static_cast<int64_t>(count) > tokens)
    throw std::logic_error(
        fmt::format("tokens [{}, {}) of {} were requested", first, first + static_cast<int64_t>(count), tokens));
}

void widen_as(TokenType type, const std::byte* from, std::span<int32_t> out) {
  switch (type) {
    case TokenType::UInt8: return widen<uint8_t>(from, out);
    case TokenType::UInt16: return widen<uint16_t>(from, out);
    case TokenType::Int32: return widen<int32_t>(from, out);
    case TokenType::Int64: return widen<int64_t>(from, out);
  }
}

}  // namespace

TokenType token_type_for(int64_t vocabulary_size) {
  if (vocabulary_size <= 256) return TokenType::UInt8;
  return vocabulary_size <= 65536 ? TokenType::UInt16 : TokenType::Int32;
}

void StoredTokens::read(int64_t first, std::span<int32_t> out, int64_t vocabulary_size) const {
  check_range(first, out.size(), count);
  std::array<std::byte, 16384> piece;  // bytes as they are in the file
  const size_t most = piece.size() / bytes_of(type);
  for (size_t done = 0; done < out.size(); done += most) {
    const std::span<int32_t> part = out.subspan(done, std::min(most, out.size() - done));
    const std::span<std::byte> bytes(piece.data(), part.size() * bytes_of(type));
    file->read(offset + (first + static_cast<int64_t>(done)) * bytes_of(type), bytes);
    widen_as(type, bytes.data(), part);
  }
  if (vocabulary_size != 0) check_ids(first, out, vocabulary_size, file->path());
}

void check_ids(int64_t first, std::span<const int32_t> ids, int64_t vocabulary_size, const std::string& source) {
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocabulary_size)
      bad_file(source, fmt::format("token {} is {}, outside the vocabulary of {} (0 to {})", first + static_cast<int64_t>(i),
                                   ids[i] < 0 ? "below 0 or above 2147483647" : std::to_string(ids[i]), vocabulary_size,
                                   vocabulary_size - 1));
}

void append_packed(std::vector<std::byte>& bytes, std::span<const int32_t> ids, TokenType type) {
  switch (type) {
    case TokenType::UInt8: return narrow<uint8_t>(bytes, ids);
    case TokenType::UInt16: return narrow<uint16_t>(bytes, ids);
    case TokenType::Int32: return narrow<int32_t>(bytes, ids);
    case TokenType::Int64: return narrow<int64_t>(bytes, ids);
  }
}

TokenArray::TokenArray(std::span<const int32_t> ids, int64_t vocabulary_size)
    : type_(token_type_for(vocabulary_size)), count_(static_cast<int64_t>(ids.size())), vocabulary_size_(vocabulary_size) {
  append_packed(bytes_, ids, type_);
  const std::string_view raw(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
  digest_ = fmt::format("tokens {} vocabulary {} xxh3 {}", count_, vocabulary_size_, hexadecimal(hash_bytes(raw)));
}

TokenArray::TokenArray(EncodedText text, int64_t vocabulary_size, bool pairs)
    : TokenArray(std::span<const int32_t>(text.ids), vocabulary_size) {
  pairs_ = pairs;
  ignored_ = std::move(text.ignored);
  document_ends_ = std::move(text.document_ends);
  const auto hash_of = [](const auto& values) {
    return hexadecimal(hash_bytes({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0])}));
  };
  if (document_ends_.size() > 1) digest_ += fmt::format(" documents {} {}", document_ends_.size(), hash_of(document_ends_));
  if (!ignored_.empty()) digest_ += " ignored " + hash_of(ignored_);
  if (pairs_) digest_ += " pairs";
}

void TokenArray::ignore(int64_t first, std::span<int32_t> targets) const {
  check_range(first, targets.size(), count_);
  for (size_t i = 0; i < targets.size() && !ignored_.empty(); ++i)
    if (ignored_[first + static_cast<int64_t>(i)] != 0) targets[i] = -1;
}

void TokenArray::read(int64_t first, std::span<int32_t> out) const {
  check_range(first, out.size(), count_);
  widen_as(type_, bytes_.data() + first * bytes_of(type_), out);
}

TokenSlice::TokenSlice(std::shared_ptr<const TokenSequence> whole, int64_t first, int64_t count)
    : whole_(std::move(whole)), first_(first), count_(count) {
  check_range(first, count, whole_->tokens());
}

void TokenSlice::read(int64_t first, std::span<int32_t> out) const {
  check_range(first, out.size(), count_);
  whole_->read(first_ + first, out);
}

void TokenSlice::ignore(int64_t first, std::span<int32_t> targets) const {
  check_range(first, targets.size(), count_);
  whole_->ignore(first_ + first, targets);
}

std::vector<int64_t> TokenSlice::document_ends() const {
  std::vector<int64_t> ends;
  for (const int64_t end : whole_->document_ends()) {
    if (end <= first_) continue;
    ends.push_back(std::min(end - first_, count_));
    if (ends.back() == count_) break;
  }
  return ends;
}

std::string TokenSlice::digest() const { return fmt::format("{} part {} + {}", whole_->digest(), first_, count_); }

JoinedTokens::JoinedTokens(std::vector<std::shared_ptr<TokenSequence>> parts) : parts_(std::move(parts)) {
  int64_t end = 0;
  for (const auto& part : parts_) ends_.push_back(end += part->tokens());
}

template <typename Work>
void JoinedTokens::over_parts(int64_t first, std::span<int32_t> values, Work work) const {
  check_range(first, values.size(), tokens());
  auto part = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
  while (!values.empty()) {
    const int64_t within = first - (ends_[part] - parts_[part]->tokens());
    const auto count = std::min(values.size(), static_cast<size_t>(ends_[part] - first));
    work(*parts_[part], within, values.first(count));
    values = values.subspan(count);
    first += static_cast<int64_t>(count);
    ++part;
  }
}

void JoinedTokens::read(int64_t first, std::span<int32_t> out) const {
  over_parts(first, out, [](const TokenSequence& part, int64_t within, std::span<int32_t> some) { part.read(within, some); });
}

void JoinedTokens::ignore(int64_t first, std::span<int32_t> targets) const {
  over_parts(first, targets,
             [](const TokenSequence& part, int64_t within, std::span<int32_t> some) { part.ignore(within, some); });
}

std::vector<int64_t> JoinedTokens::document_ends() const {
  std::vector<int64_t> ends;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const std::vector<int64_t> own = parts_[part]->document_ends();
    if (own.empty() && parts_[part]->tokens() > 0) return {};
    for (const int64_t end : own) ends.push_back(ends_[part] - parts_[part]->tokens() + end);
  }
  return ends;
}

bool JoinedTokens::has_pairs() const {
  return std::ranges::all_of(parts_, [](const auto& part) { return part->has_pairs(); });
}

bool JoinedTokens::marks_prompts() const {
  return std::ranges::any_of(parts_, [](const auto& part) { return part->marks_prompts(); });
}

std::string JoinedTokens::digest() const {
  std::string all;
  for (const auto& part : parts_) all += part->digest() + "\n";
  return fmt::format("{} parts, tokens {} xxh3 {}", parts_.size(), tokens(), hexadecimal(hash_bytes(all)));
}

}  // namespace trivet::data

// Fuzz targets for data files and vocabularies.
#include <algorithm>
#include <cstring>
#include <functional>

#include "data/bpe_files.h"
#include "data/document_encoder.h"
#include "data/hash.h"
#include "data/text_file.h"
#include "data/token_file.h"
#include "data/token_header.h"
#include "data/tokenizers/pattern.h"
#include "data/tokenizers/sentencepiece.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

using namespace data;

constexpr std::initializer_list<ExitCode> kDataRefused{ExitCode::Usage, ExitCode::DataChanged};

// A tokenizer is the same after it is written and read, and its ids are in its vocabulary.
void check_stored(const Tokenizer& tokenizer) {
  const std::string written = tokenizer.to_text();
  const auto again = tokenizer_from_text(written, "written");
  require(again->to_text() == written, "what was read, written and read again is the same");
  require(again->vocabulary_size() == tokenizer.vocabulary_size(), "the vocabulary keeps its size");
  const std::string text = "The cat's 12 hats\n\n  \xE2\x82\xAC e\xCC\x81 \xE6\xB2\xB3 \xF0\x9F\x98\x80 <s> aaaaaaaa";
  accepts(kDataRefused, [&] {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    require(again->encode(text) == ids, "what was written and read again encodes alike");
    for (int32_t id : tokenizer.encode_with_special(text))
      require(id >= 0 && id < tokenizer.vocabulary_size(), "every id is in the vocabulary");
    tokenizer.decode(ids);
  });
}

// It also decodes what it encoded to the same bytes.
void check_tokenizer(const Tokenizer& tokenizer) {
  const std::string written = tokenizer.to_text();
  const auto again = tokenizer_from_text(written, "written");
  require(again->to_text() == written, "what was read, written and read again is the same");
  require(again->vocabulary_size() == tokenizer.vocabulary_size(), "the vocabulary keeps its size");
  const std::string text = "The cat's 12 hats\n\n  \xE2\x82\xAC\xFF aaaaaaaa";
  accepts(kDataRefused, [&] {  // "characters" refuses what was not in its text
    const std::vector<int32_t> ids = tokenizer.encode(text);
    require(tokenizer.decode(ids) == text, "decoding is the inverse of encoding");
    require(again->encode(text) == ids, "what was written and read again encodes alike");
  });
}

// Corrects the checksums of all but a few inputs, so that what comes after them is tried, too.
std::string with_checksums(std::string_view input) {
  std::string bytes(input);
  TokenHeader header;
  if (bytes.size() < sizeof header || !bytes.starts_with(kTokenMagic)) return bytes;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.reserved[0] != 0) return bytes;
  if (header.tokenizer_bytes <= bytes.size() - sizeof header)
    header.tokenizer_xxh3 = hash_bytes(std::string_view(bytes).substr(sizeof header, header.tokenizer_bytes));
  const auto hash_of = [&](uint64_t offset, uint64_t size) {
    return offset <= bytes.size() ? hash_bytes(std::string_view(bytes).substr(offset, size)) : 0;
  };
  header.tokens_xxh3 = hash_of(header.tokens_offset, header.tokens * header.bytes_per_token);
  if (header.version >= kTokenVersion) {
    header.documents_xxh3 = hash_of(documents_offset(header), header.documents * 8);
    header.ignored_xxh3 = hash_of(documents_offset(header) + header.documents * 8, header.ignored_bytes);
  }
  std::memcpy(bytes.data(), &header, sizeof header);
  header.header_xxh3 = hash_bytes(std::string_view(bytes).substr(0, kTokenHeaderHashed));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

void check_tokens(const std::string& path) {
  std::shared_ptr<StoredTokenFile> file;
  if (!accepts(kDataRefused, [&] { file = open_token_file(path); })) return;
  require(file->tokens() >= 0 && file->info().tokens == file->tokens(), "the number of tokens is known");
  std::vector<int32_t> ids(file->tokens());
  const bool read = accepts(kDataRefused, [&] {
    file->read(0, ids);
    file->document_ends();
  });
  require(read == accepts(kDataRefused, [&] { verify_tokens(path); }), "what can be read is verified");
  require(!file->digest().empty(), "a file has a digest");
  if (!read) return;
  const std::vector<int64_t> ends = file->document_ends();
  require(ends.empty() || ends.back() == file->tokens(), "the last document ends with the file");
  require(std::ranges::is_sorted(ends, std::less_equal<>()), "documents follow each other, and none is empty");
  std::vector<int32_t> targets = ids;
  file->ignore(0, targets);
  for (size_t i = 0; i < ids.size(); ++i)
    require(targets[i] == ids[i] || targets[i] == -1, "a target is its token, or ignored");
  if (read && !ids.empty()) {
    int32_t last = 0;
    file->read(file->tokens() - 1, {&last, 1});
    require(last == ids.back(), "a part reads as it does within the full file");
  }
}

}  // namespace

void tokenizer(std::string_view input) {
  std::shared_ptr<Tokenizer> tokenizer;
  if (accepts(kDataRefused, [&] { tokenizer = tokenizer_from_text(std::string(input), "input"); })) check_stored(*tokenizer);
}

void tiktoken(std::string_view input) {
  std::shared_ptr<Tokenizer> tokenizer;
  if (accepts(kDataRefused, [&] { tokenizer = bpe_from_tiktoken(input, "gpt2.tiktoken"); })) check_tokenizer(*tokenizer);
}

void sentencepiece(std::string_view input) {
  std::shared_ptr<Tokenizer> tokenizer;
  if (accepts(kDataRefused, [&] { tokenizer = sentencepiece_tokenizer(input, "input"); })) check_stored(*tokenizer);
}

// The first byte says how many bytes are the expression; the rest is the text.
void pattern(std::string_view input) {
  if (input.empty()) return;
  const size_t bytes = std::min<size_t>(static_cast<unsigned char>(input[0]), input.size() - 1);
  const std::string_view text = input.substr(1 + bytes);
  accepts(kDataRefused, [&] {
    const Pattern expression(std::string(input.substr(1, bytes)), "input");
    size_t done = 0;
    bool any = false;
    expression.for_each_match(text, [&](size_t begin, size_t end) {
      require(done <= begin && begin <= end && end <= text.size(), "matches follow each other");
      require(begin < end || !any || begin > done, "no match is empty where another one ends");
      done = end;
      any = true;
    });
  });
}

void merges(std::string_view input) {
  std::shared_ptr<Tokenizer> tokenizer;
  if (accepts(kDataRefused, [&] { tokenizer = bpe_from_merges(input, "input"); })) check_tokenizer(*tokenizer);
}

// The input is in our own format, llm.c's or NumPy's, which are known by their first bytes.
void tokens(std::string_view input) {
  const InputFile file("a.bin", with_checksums(input));
  check_tokens(file.path());
  const bool incomplete = is_incomplete(file.path());
  std::shared_ptr<StoredTokenFile> opened;
  if (!accepts(kDataRefused, [&] { opened = open_token_file(file.path()); })) return;
  require(!incomplete || opened->info().format != "trivet", "a file that can be opened is complete");
}

// The first byte says how many bytes at the end are the ids, the rest is the index.
void megatron(std::string_view input) {
  if (input.empty()) return;
  const size_t ids = std::min<size_t>(static_cast<unsigned char>(input[0]), input.size() - 1);
  const InputFile data("m.bin", input.substr(input.size() - ids));
  const InputFile index("m.idx", input.substr(1, input.size() - 1 - ids));
  check_tokens(data.path());
}

// The first byte chooses the chat template, whether texts end with <|endoftext|>, and whether lines are pairs of answers; the
// rest is a line.
void json_line(std::string_view input) {
  if (input.empty()) return;
  const auto choice = static_cast<unsigned char>(input[0]);
  const LineOptions options{.kind = choice % 16 >= 8 ? LineKind::Pair : LineKind::Text,
                            .chat_template = static_cast<ChatTemplate>(choice % 4),
                            .end_of_text = "<|endoftext|>",
                            .end_of_each_text = choice % 8 >= 4};
  std::vector<Document> documents;
  if (!accepts(kDataRefused, [&] { documents = documents_of_line(input.substr(1), options); })) return;
  require(documents.size() == (options.kind == LineKind::Pair ? 2 : 1), "a pair is two documents");
  const DocumentEncoder encoder(bytes_tokenizer(), {});
  EncodedText out;
  size_t bytes = 0;
  for (const Document& document : documents) {
    encoder.add(document, out);
    for (const DocumentPart& part : document) bytes += part.text.size();
  }
  require(out.ids.size() == bytes, "every byte of a document is a token");
  require(out.ignored.empty() || out.ignored.size() == out.ids.size(), "each token is ignored or not");
}

void zstd(std::string_view input) {
  const InputFile file("a.zst", input);
  accepts(kDataRefused, [&] { read_text(file.path(), int64_t{1} << 24); });
}

}  // namespace trivet::fuzz

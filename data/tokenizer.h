// Turns text into token ids and token ids into text.
//
//   bytes        a token is a byte; 256 ids, any input is valid
//   characters   a token is a UTF-8 code point of the training text; ids in code point order
//   BPE          byte-level byte-pair encoding, as in GPT-2 (bpe.h)
//
//   composed     the tokenizer of another program, read from its files (tokenizers/component.h)
//   of a model   one of these, with what the model's folder says about its tokens (tokenizers/of_model.h)
//
// Immutable, so that any number of threads may use one. A tokenizer is saved as text: bytes and characters as a short JSON
// object in Trivet's own format, BPE as a tokenizer.json that other programs read too, and that of another program as its file.
//
//   tokenizer.json           Hugging Face tokenizers      tokenizers/tokenizer_json.h
//   vocab.bpe, merges.txt    GPT-2                        bpe_files.h
//   .tiktoken                OpenAI, Qwen, Llama 3        bpe_files.h
//   tokenizer.model          sentencepiece                tokenizers/sentencepiece.h
//   .tokens                  Trivet: the tokenizer that made the file
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trivet::data {

// Special tokens that the tokenizer's own program puts around a text, such as <s>.
struct SpecialFrame {
  std::vector<int32_t> before, after;
};

// How a text is encoded. `special`: the name of a special token in it becomes the token. `begins`: no special token comes
// before it in the whole text.
struct TextToEncode {
  bool special = false;
  bool begins = true;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::string name() const = 0;  // "bytes", "characters", "bpe"
  virtual int64_t vocabulary_size() const = 0;
  // Throws DataError naming the character and its byte position if a character of the text has no id.
  // The name of a special token in the text, such as <|endoftext|>, is text like any other.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Such a name becomes the token, as in the text of a chat template.
  virtual std::vector<int32_t> encode_with_special(std::string_view text) const { return encode(text); }
  virtual std::vector<int32_t> encode_part(std::string_view text, const TextToEncode& how) const {
    return how.special ? encode_with_special(text) : encode(text);
  }
  // Checks whether token_name has a character for each byte that a token stands for (byte_alphabet.h).
  virtual bool names_in_byte_alphabet() const { return false; }
  // The inverse. An id outside the vocabulary is an error.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual std::string to_text() const = 0;
  // The id of a special token; -1: there is none of this name.
  virtual int32_t special_id(std::string_view /*name*/) const { return -1; }
  virtual SpecialFrame frame() const { return {}; }
  // A token as its file writes it; "": there is none with this id, or the tokenizer has no names for tokens.
  virtual std::string token_name(int32_t /*id*/) const { return ""; }
  virtual bool has_token(int32_t id) const { return id >= 0 && id < vocabulary_size(); }
  // The tokens that a model's folder names for the end of an answer and the beginning of a text; "": it does not say so.
  virtual std::string end_of_text() const { return ""; }
  virtual std::string begin_of_text() const { return ""; }
  // Bytes of a piece at the beginning of a long text that can be encoded by itself: about `limit`, or as many as it takes.
  virtual size_t piece_bytes(std::string_view text, size_t limit) const;
};

std::shared_ptr<Tokenizer> bytes_tokenizer();
std::shared_ptr<Tokenizer> characters_tokenizer(std::string_view training_text);

// `path` is a file, or a folder such as that of a model, which has a tokenizer.json or one of the others. The folder's
// facts about its tokens belong to it, whichever of both is named.
std::shared_ptr<Tokenizer> load_tokenizer(const std::string& path);
// Says what ends texts if the config.json of the model's folder names a token for it that the tokenizer of this path, which
// was loaded, does not have; otherwise empty.
std::string note_on_end_of_text(const std::string& path, const Tokenizer& tokenizer);
// `source` names the file in messages.
std::shared_ptr<Tokenizer> tokenizer_from_text(const std::string& text, const std::string& source);

// The file in which other programs read a tokenizer, from the text of Tokenizer::to_text; nullopt if there is none.
struct TokenizerFile {
  std::string name, content;
};
std::optional<TokenizerFile> tokenizer_file_of(const std::string& text);

// Checks whether two of these texts encode alike, whatever their models' folders say about their tokens.
bool encode_alike(const std::string& text, const std::string& other);

// The path of the tokenizer's file in the folder of a model; empty: there is none.
std::string find_tokenizer_in(const std::string& folder);

// Checks whether it may have some: a vocabulary of bytes or characters has none.
bool has_special_tokens(const Tokenizer& tokenizer);

// Returns the token that the model's folder names, otherwise <|endoftext|>, or what other programs have instead, such
// as </s>; empty: none.
std::string end_of_text_of(const Tokenizer& tokenizer);
// The tokens that end a text where texts follow each other in a file: those with usual names, and not what ends an answer in a
// chat. If there are none of these, what end_of_text_of says.
std::vector<std::string> ends_of_documents(const Tokenizer& tokenizer);
// The same of the token that begins a text, such as <s>: what the folder says, the first token of its frame, or a usual name.
std::string begin_of_text_of(const Tokenizer& tokenizer);

}  // namespace trivet::data

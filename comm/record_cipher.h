// Encrypts what a connection carries after the handshake: ChaCha20-Poly1305 (RFC 8439) by libsodium, with one key for each
// direction.
//
//   record   uint32 bytes of text (little endian) | the text, encrypted | tag, 16 bytes
//
// The nonce of a record is its number, counted from 0 in each direction. So a record that was changed, repeated, moved or left
// out does not decrypt.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace trivet::comm {

using SessionKey = std::array<unsigned char, 32>;

// The keys of one connection, as one of its ends uses them: its `send` is the other end's `receive`. Overwritten when they are
// destroyed, as is each copy.
struct SessionKeys {
  SessionKey send{}, receive{};

  ~SessionKeys();
};

class RecordCipher {
 public:
  static constexpr size_t kLongestText = 16 << 10;

  RecordCipher() = default;
  explicit RecordCipher(const SessionKeys& keys) : keys_(keys) {}
  // Appends to `out` the records that carry `text`.
  void encrypt(std::string_view text, std::string& out);
  // Appends the text of the first record in `arrived` to `out`, and returns how many bytes the record has; 0 while it is
  // incomplete. Throws CommError (Rendezvous, "sent ...") if it is not the next record of this connection.
  size_t decrypt(std::string_view arrived, std::string& out);

 private:
  SessionKeys keys_;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace trivet::comm

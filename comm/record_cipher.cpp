#include "comm/record_cipher.h"

#include <sodium.h>

#include <algorithm>

#include "core/error.h"

namespace trivet::comm {
namespace {

constexpr size_t kLengthBytes = 4, kTagBytes = crypto_aead_chacha20poly1305_ietf_ABYTES;
static_assert(std::tuple_size_v<SessionKey> == crypto_aead_chacha20poly1305_ietf_KEYBYTES);

using Nonce = std::array<unsigned char, crypto_aead_chacha20poly1305_ietf_NPUBBYTES>;

template <size_t N>
std::array<unsigned char, N> little_endian_bytes(uint64_t value) {
  std::array<unsigned char, N> bytes{};
  for (size_t i = 0; i < std::min<size_t>(N, 8); ++i) bytes[i] = static_cast<unsigned char>(value >> (8 * i));
  return bytes;
}

Nonce nonce_of(uint64_t record) { return little_endian_bytes<std::tuple_size_v<Nonce>>(record); }

const unsigned char* unsigned_bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

SessionKeys::~SessionKeys() {
  ::sodium_memzero(send.data(), send.size());
  ::sodium_memzero(receive.data(), receive.size());
}

void RecordCipher::encrypt(std::string_view text, std::string& out) {
  while (!text.empty()) {
    const std::string_view part = text.substr(0, kLongestText);
    const auto length = little_endian_bytes<kLengthBytes>(part.size());
    const size_t start = out.size() + kLengthBytes;
    out.append(length.begin(), length.end());
    out.resize(start + part.size() + kTagBytes);
    const Nonce nonce = nonce_of(sent_++);
    ::crypto_aead_chacha20poly1305_ietf_encrypt(reinterpret_cast<unsigned char*>(&out[start]), nullptr, unsigned_bytes(part),
                                                part.size(), length.data(), length.size(), nullptr, nonce.data(),
                                                keys_.send.data());
    text.remove_prefix(part.size());
  }
}

size_t RecordCipher::decrypt(std::string_view arrived, std::string& out) {
  if (arrived.size() < kLengthBytes) return 0;
  size_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) length |= static_cast<size_t>(unsigned_bytes(arrived)[i]) << (8 * i);
  const auto refuse = [] {
    throw CommError(ExitCode::Rendezvous, "sent bytes that are not encrypted with the key of this connection");
  };
  if (length == 0 || length > kLongestText) refuse();
  const size_t bytes = kLengthBytes + length + kTagBytes;
  if (arrived.size() < bytes) return 0;
  const size_t start = out.size();
  out.resize(start + length);
  const Nonce nonce = nonce_of(received_++);
  const int failed = ::crypto_aead_chacha20poly1305_ietf_decrypt(
      reinterpret_cast<unsigned char*>(&out[start]), nullptr, nullptr, unsigned_bytes(arrived.substr(kLengthBytes)),
      length + kTagBytes, unsigned_bytes(arrived), kLengthBytes, nonce.data(), keys_.receive.data());
  if (failed != 0) {
    out.resize(start);
    refuse();
  }
  return bytes;
}

}  // namespace trivet::comm

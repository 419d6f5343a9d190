#include "comm/record_cipher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace trivet::comm {
namespace {

using ::testing::HasSubstr;

constexpr size_t kAdded = 20;  // bytes that a record has beside its text: length and tag

struct Ends {
  RecordCipher joiner, zero;
};

Ends two_ends() {
  SessionKeys keys;
  keys.send.fill(1);
  keys.receive.fill(2);
  return {RecordCipher(keys), RecordCipher(SessionKeys{.send = keys.receive, .receive = keys.send})};
}

template <typename Cipher>
std::string encrypted(Cipher&& cipher, std::string_view text) {
  std::string out;
  cipher.encrypt(text, out);
  return out;
}

// The text of all records in `arrived`, or "refused".
template <typename Cipher>
std::string decrypted(Cipher&& cipher, std::string_view arrived) {
  std::string out;
  try {
    while (const size_t bytes = cipher.decrypt(arrived, out)) arrived.remove_prefix(bytes);
  } catch (const CommError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Rendezvous);
    EXPECT_THAT(error.what(), HasSubstr("sent bytes that are not encrypted with the key of this connection"));
    return "refused";
  }
  return out;
}

TEST(RecordCipher, CarriesTextInBothDirections) {
  Ends ends = two_ends();
  for (const char* text : {"first", "second", "x"}) {
    EXPECT_EQ(decrypted(ends.zero, encrypted(ends.joiner, text)), text);
    EXPECT_EQ(decrypted(ends.joiner, encrypted(ends.zero, text)), text);
  }
}

TEST(RecordCipher, CutsLongTextIntoRecords) {
  Ends ends = two_ends();
  std::string text(3 * RecordCipher::kLongestText + 1, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7);
  const std::string sent = encrypted(ends.joiner, text);
  EXPECT_EQ(sent.size(), text.size() + 4 * kAdded);
  EXPECT_EQ(decrypted(ends.zero, sent), text);
  EXPECT_EQ(encrypted(ends.joiner, ""), "");
}

TEST(RecordCipher, WaitsForTheRestOfARecord) {
  Ends ends = two_ends();
  const std::string sent = encrypted(ends.joiner, "some text");
  std::string out;
  for (size_t arrived = 0; arrived < sent.size(); ++arrived) EXPECT_EQ(ends.zero.decrypt(sent.substr(0, arrived), out), 0u);
  EXPECT_EQ(ends.zero.decrypt(sent + "more", out), sent.size());
  EXPECT_EQ(out, "some text");
}

TEST(RecordCipher, ShowsNothingOfTheTextAndNeverTheSameBytesTwice) {
  Ends ends = two_ends();
  const std::string text(64, 'a');
  const std::string first = encrypted(ends.joiner, text), second = encrypted(ends.joiner, text);
  EXPECT_EQ(first.find("aaa"), std::string::npos);
  EXPECT_NE(first, second);
}

TEST(RecordCipher, RefusesARecordWithAnyBitFlipped) {
  const std::string sent = encrypted(two_ends().joiner, "a text");
  for (size_t bit = 0; bit < 8 * sent.size(); ++bit) {
    std::string changed = sent;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    // A longer length may also leave the record incomplete.
    EXPECT_THAT(decrypted(two_ends().zero, changed), ::testing::AnyOf("refused", "")) << bit;
    EXPECT_EQ(decrypted(two_ends().zero, changed + std::string(1 << 15, 'x')), "refused") << bit;
  }
}

TEST(RecordCipher, RefusesRecordsThatAreRepeatedMovedLeftOutOrSentBack) {
  RecordCipher sender = two_ends().joiner;
  const std::string one = encrypted(sender, "one"), two = encrypted(sender, "two");
  EXPECT_EQ(decrypted(two_ends().zero, one + two), "onetwo");
  EXPECT_EQ(decrypted(two_ends().zero, one + one), "refused");
  EXPECT_EQ(decrypted(two_ends().zero, two + one), "refused");
  EXPECT_EQ(decrypted(two_ends().zero, two), "refused");
  EXPECT_EQ(decrypted(two_ends().joiner, one), "refused");
}

TEST(RecordCipher, RefusesALengthThatNoRecordHasBeforeItArrives) {
  EXPECT_EQ(decrypted(two_ends().zero, std::string(4, '\0')), "refused");
  EXPECT_EQ(decrypted(two_ends().zero, std::string("\x01\x40\0\0", 4)), "refused");  // 16 KiB + 1
  EXPECT_EQ(decrypted(two_ends().zero, std::string("\x00\x40\0\0", 4)), "");         // 16 KiB
}

}  // namespace
}  // namespace trivet::comm

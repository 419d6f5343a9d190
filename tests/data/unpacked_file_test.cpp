#include "data/unpacked_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "data/text_file.h"
#include "data/zstd.h"
#include "tests/data/files.h"
#include "tests/data/packed_text.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

class UnpackedFiles : public testing::Test {
 protected:
  test::TemporaryFolder folder_;
};

TEST_F(UnpackedFiles, AreReadInAnyPieces) {
  const std::string text = "some text, 30 bytes altogether";
  for (const std::string& path :
       {folder_.write("plain", text), folder_.write("gzip", gzip_of(text)), folder_.write("zstd", zstd_of(text)),
        folder_.write("members", gzip_of(text.substr(0, 7)) + gzip_of("") + gzip_of(text.substr(7))),
        folder_.write("frames", zstd_of(text.substr(0, 7)) + zstd_of("") + zstd_of(text.substr(7)))}) {
    for (const size_t bytes : {1, 3, 30, 100}) {
      UnpackedFile file(path);
      std::string found;
      while (file.append(found, bytes)) EXPECT_LE(found.size(), text.size());
      EXPECT_EQ(found, text) << path << " in pieces of " << bytes;
      EXPECT_EQ(file.share_read(), 1) << path;
    }
    EXPECT_EQ(read_text(path), text);
  }
}

TEST_F(UnpackedFiles, WhatTheZstdProgramPackedIsTheSame) {
  std::string expected;
  for (int line = 1; line <= 400; ++line) expected += "line " + std::to_string(line) + " of a text that zstd packs well\n";
  EXPECT_EQ(read_text(TRIVET_SOURCE_DIR "/tests/golden/texts/lines.zst"), expected);
}

// What is read of a packed file, or the message of the error without the name.
std::string outcome(const std::string& path, size_t piece) {
  std::string text;
  try {
    UnpackedFile file(path);
    while (file.append(text, piece)) {
    }
    return text;
  } catch (const DataError& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::Usage);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with(path + ": ")) << message;
    return message.substr(path.size() + 2);
  }
}

// In each byte of two members, and cut after each, and with more after the end: nothing is lost without an error.
TEST_F(UnpackedFiles, NoDamageOfGzipGoesUnseen) {
  const std::string text = "some text, 30 bytes altogether", one = gzip_of(text), two = one + one;
  const auto read = [&](const std::string& content, size_t piece = 7) {
    return outcome(folder_.write("a.gz", content), piece);
  };
  EXPECT_EQ(read(two), text + text);
  constexpr size_t kTime = 4, kSystem = 9;  // from one to the other: bytes of a header that say nothing of the text
  for (size_t at = 3; at < two.size(); ++at) {
    const size_t place = at % one.size();
    if (place >= kTime && place <= kSystem) continue;
    std::string damaged = two;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
    EXPECT_TRUE(read(damaged).find(" gzip data ") != std::string::npos) << "byte " << at << ": " << read(damaged);
  }
  for (size_t bytes = 3; bytes < two.size(); ++bytes) {
    if (bytes == one.size()) continue;
    const std::string expected = fmt::format("truncated gzip data: the file ends at byte {}, after ", bytes);
    EXPECT_TRUE(read(two.substr(0, bytes)).starts_with(expected)) << read(two.substr(0, bytes));
  }
  for (const std::string& rest :
       {std::string("text"), std::string(1, '\0'), std::string(512, '\0'), std::string("\x1F\x8C"), zstd_of("x")})
    for (const size_t piece : {1, 30, 1000})
      EXPECT_EQ(read(two + rest, piece),
                fmt::format("its gzip data ends at byte {}, after 60 bytes of text, but something else "
                            "follows; copy the file again",
                            two.size()));
}

TEST_F(UnpackedFiles, NoDamageOfZstdGoesUnseen) {
  const std::string one = file_content(TRIVET_SOURCE_DIR "/tests/golden/texts/lines.zst"), two = one + one;  // with checksums
  const auto read = [&](const std::string& content) { return outcome(folder_.write("a.zst", content), 1000); };
  const size_t text_bytes = read(one).size();
  EXPECT_EQ(read(two).size(), 2 * text_bytes);
  for (size_t at = one.size() - 8; at < two.size(); at += 13) {
    std::string damaged = two;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x5A);
    EXPECT_TRUE(read(damaged).find(" zstd data") != std::string::npos) << "byte " << at << ": " << read(damaged).substr(0, 100);
    if (at > one.size() + 4) {
      EXPECT_EQ(read(damaged).find("something else follows"), std::string::npos) << "byte " << at;
    }
    if (at == one.size()) continue;
    const std::string expected = fmt::format("truncated zstd data: the file ends at byte {}, after ", at);
    EXPECT_TRUE(read(two.substr(0, at)).starts_with(expected)) << read(two.substr(0, at)).substr(0, 100);
  }
  EXPECT_EQ(read(one + "text"),
            fmt::format("its zstd data ends at byte {}, after {} bytes of text, but something else follows; "
                        "copy the file again",
                        one.size(), text_bytes));
}

// zstd -D wrote the file.
TEST_F(UnpackedFiles, ZstdWithADictionaryIsRefusedAsSuch) {
  const std::string packed(
      "\x28\xB5\x2F\xFD\x07\x58\xCB\xAF\x58\x6D\x65\x00\x00\x18\x22\x7D\x0A\x02\x3C\xDC\x86\x25\x23\x06\x40\x55\x5E\xFF\x72",
      29);
  EXPECT_EQ(outcome(folder_.write("a.zst", packed), 1000),
            "its zstd data was packed with a dictionary, without which it cannot be read (Dictionary mismatch); unpack it with "
            "zstd -d -D DICTIONARY FILE, and pack it again without one");
}

TEST_F(UnpackedFiles, ZstdIsKnownByItsFirstBytes) {
  EXPECT_TRUE(is_zstd("\x28\xB5\x2F\xFD and more"));
  EXPECT_TRUE(is_zstd("\x50\x2A\x4D\x18"));
  EXPECT_FALSE(is_zstd("\x28\xB5\x2F"));
  EXPECT_FALSE(is_zstd("text"));
}

}  // namespace
}  // namespace trivet::data

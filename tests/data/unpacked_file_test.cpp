#include "engine/data/unpacked_file.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/data/text_file.h"
#include "engine/data/zstd.h"
#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

// A frame of zstd with one block that is stored as it is (RFC 8878).
std::string stored_frame(const std::string& text) {
  const auto header = static_cast<uint32_t>(text.size() << 3 | 1);  // the last block
  std::string frame("\x28\xB5\x2F\xFD\x20", 5);
  frame += static_cast<char>(text.size());
  for (int byte = 0; byte < 3; ++byte) frame += static_cast<char>(header >> 8 * byte & 0xFF);
  return frame + text;
}

class UnpackedFiles : public testing::Test {
 protected:
  std::string gzip(const std::string& name, const std::string& text) const {
    gzFile file = gzopen(folder_.at(name).c_str(), "wb");
    gzwrite(file, text.data(), static_cast<unsigned>(text.size()));
    gzclose(file);
    return folder_.at(name);
  }
  test::TemporaryFolder folder_;
};

TEST_F(UnpackedFiles, AreReadInAnyPieces) {
  const std::string text = "some text, 30 bytes altogether";
  for (const std::string& path :
       {folder_.write("plain", text), gzip("gzip", text), folder_.write("zstd", stored_frame(text)),
        folder_.write("frames", stored_frame(text.substr(0, 7)) + stored_frame("") + stored_frame(text.substr(7)))}) {
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

TEST_F(UnpackedFiles, DamagedOrTruncatedZstdIsRefused) {
  const std::string packed = file_content(TRIVET_SOURCE_DIR "/tests/golden/texts/lines.zst");
  for (const size_t bytes : {size_t{5}, packed.size() / 2}) {
    const std::string path = folder_.write("a.zst", packed.substr(0, bytes));
    expect_error([&] { read_text(path); }, ExitCode::Usage, path + ": truncated zstd data after 0 bytes of text");
  }
  std::string damaged = packed;
  damaged[packed.size() - 1] = static_cast<char>(damaged[packed.size() - 1] ^ 1);  // of the checksum
  const std::string path = folder_.write("a.zst", damaged);
  try {
    read_text(path);
    ADD_FAILURE() << "no error";
  } catch (const DataError& error) {
    EXPECT_TRUE(std::string(error.what()).starts_with(path + ": damaged zstd data after ")) << error.what();
  }
  const std::string more = folder_.write("b.zst", packed + "text");
  EXPECT_THROW(read_text(more), DataError) << "what follows is no frame";
}

TEST_F(UnpackedFiles, ZstdIsKnownByItsFirstBytes) {
  EXPECT_TRUE(is_zstd("\x28\xB5\x2F\xFD and more"));
  EXPECT_TRUE(is_zstd("\x50\x2A\x4D\x18"));
  EXPECT_FALSE(is_zstd("\x28\xB5\x2F"));
  EXPECT_FALSE(is_zstd("text"));
}

}  // namespace
}  // namespace trivet::data

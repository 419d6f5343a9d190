// Files are read as what they are, whatever they are called, or refused with what to do.
#include "data/file_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "data/dataset.h"
#include "data/prepare.h"
#include "data/text_check.h"
#include "data/token_file.h"
#include "tests/data/expect_error.h"
#include "tests/data/packed_text.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using namespace std::string_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

DataOptions reading(const std::string& path, ReadAs read_as = ReadAs::Auto) {
  DataOptions options;
  options.data.train = path;
  options.data.validation_fraction = 0;
  options.data.read_as = read_as;
  return options;
}

// "3: " and the text of a data set of 3 documents, or the message of the error.
std::string outcome(const DataOptions& options) {
  try {
    const Dataset dataset = open_dataset(options);
    std::vector<int32_t> ids(static_cast<size_t>(dataset.train->tokens()));
    dataset.train->read(0, ids);
    return std::to_string(dataset.train->document_ends().size()) + ": " + dataset.tokenizer->decode(ids);
  } catch (const DataError& error) {
    return error.what();
  }
}

// The same of what `trivet data prepare` makes of it.
std::string prepared(const test::TemporaryFolder& folder, const std::string& path, ReadAs read_as = ReadAs::Auto) {
  PrepareOptions options;
  options.inputs = {path};
  options.output = folder.at("prepared.tokens");
  options.read_as = read_as;
  options.replace = true;
  try {
    prepare(options);
  } catch (const DataError& error) {
    return error.what();
  }
  return outcome(reading(options.output));
}

TEST(FileKinds, ObjectsOfJsonAreDocumentsWhateverTheirFileIsCalled) {
  const std::string lines = "{\"text\": \"a b\"}\n{\"text\": \"c\"}\n",
                    list = "[\n  {\"text\": \"a b\"},\n  {\"text\": \"c\"}\n]\n";
  const std::string pretty = "{\n  \"text\": \"a b\"\n}\n{\n  \"text\": \"c\"\n}\n";
  const test::TemporaryFolder folder;
  for (const std::string& content :
       {lines, list, pretty, "\xEF\xBB\xBF" + lines, "\xEF\xBB\xBF" + list, "\n \r\n" + lines,
        "[{\"text\":\"a b\"},{\"text\":\"c\"}]"s, "{\"text\": \"a b\"} {\"text\": \"c\"}"s,
        "{\"text\": \"a b\"}{\"text\": \"c\"}\n"s, "{\"text\": \"a b\"},\n{\"text\": \"c\"},\n"s,
        "{\"text\": \"a b\"} ;{\"text\": \"c\"};"s, "{\"text\": \"a b\"},{\"text\": \"c\"}"s,
        "\x1E{\"text\": \"a b\"}\n\x1E\x1E{\"text\": \"c\"}\n"s, "{\"text\": \"a b\"}\n\x1E{\"text\": \"c\"}\x1E"s,
        "[\"a b\", \"c\"]"s, "\xEF\xBB\xBF [\n\"a b\"\n,\n\"c\"\n]\n"s, "[\"\\u0061 \\u0062\",\"c\"]\n"s,
        "{\"id\": {\"x\": [1, {\"}\": \"]\\\"\"}]}, \"text\": \"a b\"}\r\n{\"text\": \"c\"}"s})
    for (const std::string name : {"a.json", "a.jsonl", "a.txt", "a", "a.json.gz", "a.zst"})
      for (const std::string& packed : {content, gzip_of(content), zstd_of(content)}) {
        const std::string path = folder.write(name, packed);
        EXPECT_EQ(outcome(reading(path)), "2: a bc") << name << " of " << content;
        if (name == "a.json") {
          EXPECT_EQ(prepared(folder, path), "2: a bc") << content;
        }
      }
}

TEST(FileKinds, LongObjectsAreReadInAnyPieces) {
  const test::TemporaryFolder folder;
  std::string list = "[", lines, expected = "40: ";
  for (int i = 0; i < 40; ++i) {
    const std::string text = std::to_string(i) + " " + std::string(5000, static_cast<char>('a' + i % 26));
    list += (i > 0 ? ",\n\n" : "") + ("{\n\"id\": 1,\n\"text\":\n \""s + text + "\"}");
    lines += "{\"text\": \"" + text + "\"}\n";
    expected += text;
  }
  PrepareOptions options;
  options.output = folder.at("prepared.tokens");
  options.replace = true;
  for (const std::string& content : {list + "]", lines})
    for (const size_t piece : {100, 7777, 1 << 24}) {
      options.inputs = {folder.write("a.json", content)};
      options.piece_bytes = piece;
      prepare(options);
      EXPECT_EQ(outcome(reading(options.output)), expected) << piece;
    }
}

TEST(FileKinds, WhatIsWrongWithJsonIsSaidWithItsPlace) {
  const test::TemporaryFolder folder;
  const std::string name = folder.at("a.json") + ": ", good = "{\"text\": \"a\"}";
  const auto expect = [&](const std::string& content, const std::string& message) {
    EXPECT_EQ(outcome(reading(folder.write("a.json", content))), name + message) << content;
  };
  expect("[" + good + ", " + good, "ends at byte 29 inside its list of objects; the file is truncated, or no JSON");
  expect("[" + good + ", {\"text\": \"b", "ends at byte 27 inside object 2; the file is truncated, or no JSON");
  expect("[" + good + "]\n[" + good + "]",
         "has \"[\" at byte 16, after 1 objects of JSON, where the end of the file was expected");
  expect("[" + good + ", 3]", "has \"3\" at byte 16, after 1 objects of JSON, where an object was expected");
  expect("[" + good + " " + good + "]", "has \"{\" at byte 15, after 1 objects of JSON, where \",\" or \"]\" was expected");
  expect("{\n\"text\": \"a\"}, , {\"text\": \"b\"}",
         "has \",\" at byte 16, after 1 objects of JSON, where another object, or the end, was expected");
  expect("[" + good + ", {\"text\": \"b\nc\"}]", "object 2 has a string with a line break in it, at byte 27");
  expect("[" + good + ", {\"story\": \"once upon\"}]",
         "object 2: has \"story\"; it must have \"text\", \"prompt\" and \"completion\", or \"messages\": if \"story\" is the "
         "text, "
         "write it as \"text\"");
  const std::string by_name =
      "is JSON by its name only (it begins neither with an object nor with a list of objects), which is not read; write an "
      "object "
      "on each line, such as {\"text\": ...}; if it is a text, set data.read_as to \"text\" (--read-as text of `trivet data "
      "prepare`)";
  for (const char* content : {"plain text", "[\"a\" and \"b\"]", "[]", "3", "{text: 1}"}) expect(content, by_name);
  EXPECT_THAT(outcome(reading(folder.write("a.jsonl", "plain text"))), HasSubstr("a.jsonl: line 1: is not JSON"));
  for (const char* content :
       {"[\"Yes\", he said", "[\"a\"] is a list", "[1], and [2, 3]", "\"Yes.\"\n\"No.\"\n", "{\"level\": 1}, as above",
        "plain { text", "[Chorus]\nLa", "{\\rtf1", "{ \"quoted\" }", "[{x}]", "{}, or nothing", "{\"a\" is a key"})
    EXPECT_EQ(outcome(reading(folder.write("a.txt", content))), "1: "s + content);
  const std::string broken = "is an object of JSON with \"text\" after which \"";
  for (const auto& [content, what] :
       {std::pair(good + " 0.5\n" + good, broken + "0.5\" follows, and not another object, which"),
        {good + ",,\n" + good, broken + ",,\" follows"},
        {good + "|\n", broken + "|\" follows"},
        {"[[\"a\", \"b\"], [\"c\"]]"s, "is a list of lists in JSON, which is not read; write"},
        {"[1, 2,\n 3]\n"s, "is a list of numbers in JSON, which is not read; save ids"}})
    EXPECT_THAT(outcome(reading(folder.write("a.txt", content))), HasSubstr("a.txt: " + what)) << content;
  for (const auto& [content, what] : {std::pair("[\"a\", 3]"s, "has \"3\" at byte 6, after 1 texts of JSON, where a text was"),
                                      {"[\"a\", \"b"s, "ends at byte 8 inside text 2; the file is truncated"},
                                      {good + ",\n" + good + "\n]", "has \"]\" at byte 29, after 2 objects of JSON"}})
    EXPECT_THAT(outcome(reading(folder.write("a.txt", content))), HasSubstr(what)) << content;
  EXPECT_THAT(outcome(reading(folder.write("log.txt", "{\"level\": 3}\n"))),
              AllOf(HasSubstr("line 1: has \"level\"; it must have"), HasSubstr("set data.read_as to \"text\"")));
  EXPECT_EQ(outcome(reading(folder.write("a.json", "{\"text\": 1}"), ReadAs::Text)), "1: {\"text\": 1}");
  EXPECT_EQ(prepared(folder, folder.at("a.json"), ReadAs::Text), "1: {\"text\": 1}");
}

TEST(FileKinds, WhatIsNotReadIsNamedWithWhatToDo) {
  struct Case {
    std::string content, what, advice;
  };
  std::string tar(600, '\0');
  tar.replace(0, 5, "a.txt"), tar.replace(257, 5, "ustar");
  std::string npz("PK\x03\x04", 4), torch = npz, zip = npz;
  npz.resize(30), torch.resize(30), zip.resize(30);
  npz[26] = 7, torch[26] = 16, zip[26] = 5;
  npz += "ids.npy\x93NUMPY", torch += "archive/data.pkl\x80\x02", zip += "a.txt\xff";
  const std::vector<Case> cases{
      {"PAR1\x15\x04\0\0PAR1"s, "a Parquet file", "data_files=sys.argv[1], split='train').to_json('data.jsonl')\" FILE"},
      {"ARROW1\0\0\xff\xff\xff\xff"s, "an Arrow file",
       "pa.ipc.open_file(sys.argv[1]).read_all()).to_json('data.jsonl')\" FILE"},
      {"\xff\xff\xff\xff\x10\0\0\0"s, "a stream of Arrow",
       "datasets.Dataset.from_file(sys.argv[1]).to_json('data.jsonl')\" FILE"},
      {"FEA1\0\0"s, "a Feather file",
       "pandas.read_feather(sys.argv[1]).to_json('data.jsonl', orient='records', lines=True)\" FILE"},
      {npz, "a NumPy archive (.npz)", "numpy.save"},
      {torch, "a file of torch.save", "numpy.save"},
      {zip, "a zip archive", "unzip FILE"},
      {tar, "a tar archive", "tar -xf FILE"},
      {"BZh91AY&SY\xe1\x10"s, "packed with bzip2", "bunzip2 FILE"},
      {"\xFD\x37zXZ\0\0"s, "packed with xz", "unxz < FILE > NAME"},
      {"\x04\x22\x4D\x18\x60"s, "packed with lz4", "unpack it"},
      {"\x89PNG\r\n\x1a\n\0\0\0\x0d"s, "a PNG image", "models of text read no images"},
      {"\xff\xd8\xff\xe0\0\x10JFIF"s, "a JPEG image", "store it as PNG"},
      {"\x80\x04\x95\x10\0"s, "a pickle of Python", "numpy.save"},
      {"\x10\0\0\0\0\0\0\0{\"a\":{}}"s, "a file of safetensors", "weights"},
      {"GGUF\x03\0\0\0"s, "a GGUF model", "weights"},
      {"SQLite format 3\0\x10"s, "a database of SQLite", "lines of JSON"},
      {"%PDF-1.5\n%\xbf\xf7"s, "a PDF document", "pdftotext FILE"},
      {"%PDF-1.7\n1 0 obj\n", "a PDF document", "pdftotext FILE"},
      {"MMIDIDX\0\0\x01"s, "a Megatron index", "call it NAME.idx"},
      {"\xff\xfeh\0i\0"s, "text in UTF-16", "iconv -f UTF-16"},
      {"\xff\xfe\0\0h\0\0\0"s, "text in UTF-32", "iconv -f UTF-32"},
      {"\0\0\xfe\xff\0\0\0h"s, "text in UTF-32", "iconv -f UTF-32"},
      {"\x1F\x8B\x07\0"s, "packed with gzip by a method that is not known", "unpack it"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 123456\n"s, "a pointer of Git LFS, not the data",
       "git lfs pull"},
  };
  const test::TemporaryFolder folder;
  for (const auto& [content, what, advice] : cases)
    for (const std::string name : {"a.txt", "a.jsonl", "a.bin", "a", "a.parquet", "a.md"}) {
      const std::string path = folder.write(name, content);
      std::string expected = advice;
      if (const size_t at = expected.find("FILE"); at != std::string::npos) expected.replace(at, 4, path);
      EXPECT_THAT(outcome(reading(path)), AllOf(StartsWith(path + ": is " + what), HasSubstr(expected))) << name;
      EXPECT_EQ(prepared(folder, path), outcome(reading(path)));
    }
  EXPECT_THAT(outcome(reading(folder.write("it's $a.parquet", "PAR1\x15\x04\0\0PAR1"s))),
              testing::EndsWith("\" '" + folder.path() + "/it'\\''s $a.parquet'"))
      << "a word of a shell";
  folder.write("index.json", "{}");
  for (const auto& [name, what] : {std::pair("shard.00000.mds", "a shard of MosaicML's streaming"),
                                   {"chunk-0-12.bin", "a chunk of LitData"},
                                   {"train.tfrecord-00000-of-00002", "a file of TFRecord"}})
    EXPECT_THAT(outcome(reading(folder.write(name, "\x02\0\0\0\xff"s))), HasSubstr("is "s + what + ", which is not read"))
        << name;
  for (const std::string& packed : {gzip_of("PAR1\x15\0\0"s), zstd_of("PAR1\x15\0\0"s)})
    EXPECT_THAT(outcome(reading(folder.write("a.json.gz", packed))),
                AllOf(HasSubstr("a.json.gz: is a Parquet file, packed with "), HasSubstr("unpack it first ("),
                      HasSubstr("a.json.gz > NAME), then write it as lines"), testing::EndsWith("\" NAME")));
  const std::string xz = "\xFD\x37zXZ\0\0"s;
  for (const std::string& packed : {gzip_of(xz), zstd_of(xz)})
    EXPECT_THAT(outcome(reading(folder.write("a.json.gz", packed))),
                AllOf(HasSubstr("a.json.gz > NAME), then "), HasSubstr("unpack it (unxz < NAME > NAME_2)")));
  EXPECT_THAT(outcome(reading(folder.write("a.gz", gzip_of(gzip_of("text"))))),
              HasSubstr("is packed with gzip, and then with gzip, which is not read; unpack it, and pack the text only once"));
  EXPECT_THAT(outcome(reading(folder.write("a.gz", gzip_of("TRIVTOK\n\0\0"s)))),
              AllOf(HasSubstr("a.gz > NAME.tokens)"), testing::Not(HasSubstr("then"))));
}

TEST(FileKinds, AFileIsNoFileOfTokensByItsNameAlone) {
  const test::TemporaryFolder folder;
  for (const char* name : {"a.tokens", "a.npy", "a.idx"})
    for (const std::string& content : {"a text"s, "{\"text\": \"a\"}\n"s, gzip_of("a text")}) {
      const std::string said = prepared(folder, folder.write(name, content));
      EXPECT_THAT(said, testing::Not(HasSubstr("already a token file"))) << name;
      EXPECT_THAT(said, StartsWith(folder.at(name))) << name;
    }
  EXPECT_THAT(prepared(folder, folder.write("a.tokens", "a text")), HasSubstr("give it another name, such as NAME.txt"));
  std::filesystem::create_directory(folder.at("wiki"));  // as WikiText is published
  folder.write("wiki/wiki.train.tokens", " = A = \n\n text\n");
  EXPECT_THAT(prepared(folder, folder.at("wiki")), HasSubstr("give it another name, such as NAME.txt"));
}

TEST(FileKinds, AByteOrderMarkIsNoPartOfAText) {
  const test::TemporaryFolder folder;
  const std::string mark = "\xEF\xBB\xBF", text = "caf\xC3\xA9 " + mark + "au lait";
  for (const std::string& packed : {mark + text, gzip_of(mark + text)}) {
    const std::string path = folder.write("a.txt", packed);
    EXPECT_EQ(outcome(reading(path)), "1: " + text) << "a mark inside is kept";
    EXPECT_EQ(prepared(folder, path), "1: " + text);
    EXPECT_EQ(outcome(reading(path, ReadAs::Bytes)), "1: " + mark + text);
  }
  PrepareOptions options;
  options.inputs = {folder.at("a.txt")};
  options.output = folder.at("pieces.tokens");
  options.piece_bytes = 1;
  prepare(options);
  EXPECT_EQ(outcome(reading(options.output)), "1: " + text);
  EXPECT_THAT(outcome(reading(folder.write("mark.txt", mark))), HasSubstr("mark.txt: is empty"));
  EXPECT_THAT(prepared(folder, folder.at("mark.txt")), HasSubstr("mark.txt: is empty"));
}

TEST(FileKinds, TheFirstBytesOfPackedDataAreNoText) {
  const test::TemporaryFolder folder;
  for (const auto& [name, content] : {std::pair("a.gz", "\x1F"), {"a.txt", "\x1F\x8B"}, {"a.zst", "\x28\xB5"}, {"a.zst", "("}})
    EXPECT_EQ(outcome(reading(folder.write(name, content))),
              folder.at(name) + ": is truncated: it ends in the first bytes of packed data; copy it again");
  EXPECT_EQ(outcome(reading(folder.write("a.txt", "("))), "1: (");
}

TEST(FileKinds, ATextThatBeginsLikeAnotherFileIsAText) {
  const test::TemporaryFolder folder;
  for (const char* content : {"PAR1 is a mark", "BZh as in bzip2", "GGUF models", "RIFF", "%PDF-1.5 begins a PDF", "II*", "PK"})
    EXPECT_EQ(outcome(reading(folder.write("a.txt", content))), "1: "s + content);
  EXPECT_EQ(outcome(reading(folder.write("a.txt.gz", "not packed"))), "1: not packed");
  EXPECT_EQ(outcome(reading(folder.write("wiki.pt", "texto"))), "1: texto");
}

// In one piece, and in pieces so small that characters are cut.
TEST(FileKinds, BytesThatNoTextHoldsAreRefusedUnlessTheyAreAskedFor) {
  struct Case {
    std::string text;
    std::string finding;
  };
  const std::string long_text(100'000, 'x');
  const std::vector<Case> cases{{"caf\xE9 au lait", "is not UTF-8 at byte 3 (0xe9)"},
                                {"ab\0cd"s, "holds NUL at byte 2"},
                                {"\xC3\xA9\xC3", "is not UTF-8 at byte 2 (0xc3)"},
                                {"\xE2\x82\xAC\x80", "is not UTF-8 at byte 3 (0x80)"},
                                {"a\xC0\x80", "is not UTF-8 at byte 1 (0xc0)"},
                                {"a\xED\xA0\x80", "is not UTF-8 at byte 1 (0xed)"},
                                {"\xF4\x90\x80\x80", "is not UTF-8 at byte 0 (0xf4)"},
                                {long_text + "\0"s, "holds NUL at byte 100000"},
                                {long_text + "\xF0\x9F\x98", "is not UTF-8 at byte 100000 (0xf0)"}};
  const test::TemporaryFolder folder;
  for (const auto& [text, finding] : cases) {
    for (const std::string& packed : {text, gzip_of(text)}) {
      const std::string path = folder.write("a.txt", packed);
      EXPECT_THAT(outcome(reading(path)), AllOf(HasSubstr(path + ": " + finding), HasSubstr("data.read_as \"uint16\"")))
          << finding;
      EXPECT_EQ(prepared(folder, path), outcome(reading(path)));
      EXPECT_EQ(outcome(reading(path, ReadAs::Bytes)), "1: " + text);
      EXPECT_EQ(prepared(folder, path, ReadAs::Bytes), "1: " + text);
    }
    for (const size_t piece : {1, 2, 3, 7}) {
      TextCheck check;
      for (size_t at = 0; at < text.size(); at += piece) check.add(std::string_view(text).substr(at, piece));
      check.finish();
      EXPECT_EQ(check.in_words(), finding) << "in pieces of " << piece;
    }
  }
  const std::string good = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80 and\r\n\ttext of more than eight bytes \x7F\x01";
  for (const size_t piece : {1, 2, 3, 5, 100}) {
    TextCheck check;
    for (size_t at = 0; at < good.size(); at += piece) check.add(std::string_view(good).substr(at, piece));
    check.finish();
    EXPECT_TRUE(check.is_text()) << piece;
  }
}

TEST(FileKinds, IdsWithoutAHeaderAreReadIfTheyAreAskedFor) {
  const test::TemporaryFolder folder;
  const std::vector<uint16_t> ids{464, 0, 50256, 11, 262};
  std::string content(2 * ids.size(), '\0');
  std::memcpy(content.data(), ids.data(), content.size());
  const std::string path = folder.write("train.bin", content);
  EXPECT_THAT(outcome(reading(path)), AllOf(HasSubstr("train.bin: "), HasSubstr("data.read_as \"uint16\"")));
  DataOptions options = reading(path, ReadAs::UInt16);
  options.vocabulary = VocabularyKind::Size;
  options.vocabulary_size = 50257;
  const auto read = [](const DataOptions& from) {
    const auto train = open_dataset(from).train;
    std::vector<int32_t> found(static_cast<size_t>(train->tokens()));
    train->read(0, found);
    return found;
  };
  EXPECT_EQ(read(options), (std::vector<int32_t>{464, 0, 50256, 11, 262}));
  folder.write("val.bin", content.substr(0, 4));
  options.data.train = folder.at("*.bin");
  EXPECT_EQ(read(options), (std::vector<int32_t>{464, 0, 50256, 11, 262, 464, 0}));
  options.data.read_as = ReadAs::UInt32;
  options.data.train = folder.write("train.bin", content.substr(0, 8));
  options.vocabulary_size = 1 << 30;
  EXPECT_EQ(read(options), (std::vector<int32_t>{464, 50256 + (11 << 16)}));
  options.data.train = folder.write("odd.bin", "odd");
  expect_error([&] { open_dataset(options); }, ExitCode::Usage,
               options.data.train +
                   ": has 3 bytes, which is no multiple of the 4 bytes of an id; data.read_as is for ids without "
                   "a header");
  options.data.train = folder.write("a.bin", gzip_of("packed!!"));
  EXPECT_THROW(open_dataset(options), DataError);
}

}  // namespace
}  // namespace trivet::data

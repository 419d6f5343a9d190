#include "data/file_kind.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/bounded_json.h"
#include "core/printable.h"
#include "core/shell_words.h"
#include "data/data_error.h"
#include "data/data_file.h"
#include "data/gzip.h"
#include "data/json_objects.h"
#include "data/record_advice.h"
#include "data/text_check.h"
#include "data/token_file.h"
#include "data/unpacked_file.h"
#include "data/zstd.h"

namespace trivet::data {
namespace {

using namespace std::string_view_literals;

constexpr size_t kLookBytes = size_t{1} << 16;
constexpr std::string_view kWhitespace = " \t\r\n";

constexpr std::string_view kUnpack = "unpack it, or pack the text with gzip or zstd";
constexpr std::string_view kUnpackOnce = "unpack it, and pack the text only once";
constexpr std::string_view kNoData = "name texts, objects of JSON or files of tokens (docs/data.md)";
constexpr std::string_view kConvertImage =
    "store it as PNG for a model of images (magick FILE png:FILE); models of text read no images";
constexpr std::string_view kModel = "it holds weights, which --init-from reads; name the data it was trained on";
constexpr std::string_view kNoText =
    "ids of tokens without a header, such as nanoGPT's train.bin, are read with data.read_as \"uint16\"; a text in another "
    "encoding can be converted (iconv -f LATIN1 -t UTF-8); a text of any bytes is read with data.read_as \"bytes\" (--read-as "
    "bytes of `trivet data prepare`)";
constexpr std::string_view kEmpty = "empty";
constexpr std::string_view kTable = "write its texts as lines of JSON: {\"text\": ...} for each";

// A kind of file that begins with `magic`, after `offset` bytes. Marks that are all ASCII could begin a text, so they count
// only where the file is no text, or has the name `ending`. FILE in the advice stands for the name, as a word of a shell.
struct Magic {
  std::string_view magic;
  size_t offset;
  std::string_view what, advice, ending = "";
  bool takes_pattern = false;  // the advice is good for a pattern of files, too
  bool is_ascii() const {
    return std::ranges::all_of(magic, [](char byte) { return byte >= ' ' && byte <= '~'; });
  }
};

constexpr std::array kMagics{
    Magic{"PAR1"sv, 0, "a Parquet file",
          "write it as lines of JSON: python3 -c \"import sys, datasets; datasets.load_dataset('parquet', "
          "data_files=sys.argv[1], split='train').to_json('data.jsonl')\" FILE",
          ".parquet", true},
    Magic{"ARROW1"sv, 0, "an Arrow file",
          "write it as lines of JSON: python3 -c \"import sys, pyarrow as pa, datasets; "
          "datasets.Dataset(pa.ipc.open_file(sys.argv[1]).read_all()).to_json('data.jsonl')\" FILE",
          ".arrow"},
    Magic{"\xFF\xFF\xFF\xFF"sv, 0, "a stream of Arrow",
          "write it as lines of JSON: python3 -c \"import sys, datasets; "
          "datasets.Dataset.from_file(sys.argv[1]).to_json('data.jsonl')\" FILE"},
    Magic{"FEA1"sv, 0, "a Feather file",
          "write it as lines of JSON: python3 -c \"import sys, pandas; pandas.read_feather(sys.argv[1]).to_json('data.jsonl', "
          "orient='records', lines=True)\" FILE",
          ".feather"},
    Magic{"ORC"sv, 0, "an ORC file", kTable, ".orc"},
    Magic{"Obj\x01"sv, 0, "an Avro file", kTable},
    Magic{"SQLite format 3\0"sv, 0, "a database of SQLite", kTable},
    Magic{"\x89HDF\r\n\x1a\n"sv, 0, "an HDF5 file", kTable},
    Magic{"MMIDIDX\0\0"sv, 0, "a Megatron index", "call it NAME.idx, and put its NAME.bin next to it"},
    Magic{"TNTIDX\0\0"sv, 0, "an index of fairseq's older format",
          "write the data with Megatron's preprocess_data.py, or its texts as lines of JSON"},
    Magic{"BZh"sv, 0, "packed with bzip2", "unpack it (bunzip2 FILE), or pack the text with gzip or zstd", ".bz2"},
    Magic{"\xFD\x37zXZ\0"sv, 0, "packed with xz", "unpack it (unxz < FILE > NAME), or pack the text with gzip or zstd"},
    Magic{"\x5D\0\0\x80\0"sv, 0, "packed with lzma", kUnpack},
    Magic{"\x04\x22\x4D\x18"sv, 0, "packed with lz4", kUnpack},
    Magic{"\x1F\x9D"sv, 0, "packed with compress", kUnpack},
    Magic{"\x1F\x8B\x08"sv, 0, "packed with gzip", kUnpackOnce},
    Magic{"\x1F\x8B"sv, 0, "packed with gzip by a method that is not known", kUnpack},
    Magic{"\x28\xB5\x2F\xFD"sv, 0, "packed with zstd", kUnpackOnce},
    Magic{"\xFF\x06\0\0sNaPpY"sv, 0, "packed with snappy", kUnpack},
    Magic{"7z\xBC\xAF\x27\x1C"sv, 0, "an archive of 7-Zip", kUnpack},
    Magic{"Rar!\x1A\x07"sv, 0, "a RAR archive", kUnpack},
    Magic{"ustar"sv, 257, "a tar archive", "unpack it (tar -xf FILE) and name the folder"},
    Magic{"\x89PNG\r\n\x1a\n"sv, 0, "a PNG image", "models of text read no images; models of images do (docs/data.md)"},
    Magic{"\xFF\xD8\xFF"sv, 0, "a JPEG image", kConvertImage},
    Magic{"GIF8"sv, 0, "a GIF image", kConvertImage, ".gif"},
    Magic{"II*\0"sv, 0, "a TIFF image", kConvertImage},
    Magic{"MM\0*"sv, 0, "a TIFF image", kConvertImage},
    Magic{"RIFF"sv, 0, "a RIFF file (sound, a film or a WebP image)", kNoData},
    Magic{"%PDF-"sv, 0, "a PDF document", "extract its text (pdftotext FILE)", ".pdf"},
    Magic{"GGUF"sv, 0, "a GGUF model", "it holds weights, which are not read; name the data it was trained on", ".gguf"},
    Magic{"\x7F\x45LF"sv, 0, "a program", kNoData},
    Magic{"\xFF\xFE\0\0"sv, 0, "text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE"},
    Magic{"\xFF\xFE"sv, 0, "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"},
    Magic{"\xFE\xFF"sv, 0, "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"},
    Magic{"\0\0\xFE\xFF"sv, 0, "text in UTF-32", "convert it: iconv -f UTF-32 -t UTF-8 FILE"}};

constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec/v";

struct Beginning {
  std::string path;
  std::string bytes;         // unpacked
  std::string_view packing;  // "gzip", "zstd" or empty
  bool is_whole = false;     // the file has no more bytes
};

// Checks whether the file ends before the mark of gzip, or that of zstd in a file called so, is complete.
bool is_cut_magic(const Beginning& file) {
  const std::string_view bytes = file.bytes;
  return "\x1F\x8B\x08"sv.starts_with(bytes) || ("\x28\xB5\x2F\xFD"sv.starts_with(bytes) && file.path.ends_with(".zst"));
}

Beginning read_beginning(const std::string& path) {
  UnpackedFile file(path);
  Beginning beginning{.path = path, .bytes = {}, .packing = file.packing()};
  beginning.is_whole = !file.append(beginning.bytes, kLookBytes);
  if (beginning.is_whole && beginning.packing.empty() && is_cut_magic(beginning))
    bad_file(path, "is truncated: it ends in the first bytes of packed data; copy it again");
  return beginning;
}

std::string with_name(std::string_view advice, const std::string& path) {
  std::string text(advice), name = quoted(printable(path, 4096));
  if (advice.find("load_dataset") != std::string_view::npos)  // which takes a name for a pattern
    for (size_t at = 0; (at = name.find('[', at)) != std::string::npos; at += 3) name.replace(at, 1, "[[]");
  for (size_t at = 0; (at = text.find("FILE", at)) != std::string::npos; at += name.size()) text.replace(at, 4, name);
  return text;
}

// Advice on FILE, of which NAME is to be made, for what NAME holds: a file that is read and written at once would be empty.
std::string of_unpacked(std::string_view advice) {
  std::string text(advice);
  if (const size_t at = text.find("> NAME"); at != std::string::npos) text.insert(at + 6, "_2");
  return with_name(text, "NAME");
}

FileLook unread(const Beginning& file, std::string what, std::string_view advice) {
  if (!file.packing.empty())
    what += fmt::format("{} {}", what.starts_with("packed with") ? ", and then with" : ", packed with", file.packing);
  const auto names = [&](std::string_view word) { return advice.find(word) != std::string_view::npos; };
  const bool inside = !file.packing.empty() && names("FILE") && !names("tar -xf");  // tar unpacks both
  if (!inside) return {.kind = FileKind::Unread, .what = std::move(what), .advice = with_name(advice, file.path)};
  const std::string unpack = file.packing == "gzip" ? "gunzip" : "unzstd";
  return {.kind = FileKind::Unread,
          .what = std::move(what),
          .advice = with_name("unpack it first (" + unpack + " < FILE > NAME), then ", file.path) + of_unpacked(advice)};
}

FileLook unread(const Beginning& file, const Magic& one) {
  FileLook look = unread(file, std::string(one.what), one.advice);
  look.takes_pattern = one.takes_pattern;
  constexpr size_t kCertain = 6;  // bytes with which no ids begin by chance
  look.may_be_ids = one.magic.size() < kCertain && (one.ending.empty() || !file.path.ends_with(one.ending));
  return look;
}

// ---- what is not read

template <typename T>
T little_endian(std::string_view bytes) {
  T value = 0;
  std::memcpy(&value, bytes.data(), std::min(bytes.size(), sizeof value));
  return value;
}

// The mark of a version, and what it begins with: a frame, a container, a name or a number.
bool is_pickle(std::string_view bytes) {
  if (bytes.size() < 3 || bytes[0] != '\x80') return false;
  return bytes[1] == 2 || bytes[1] == 3 ? "}](cX\x8A"sv.find(bytes[2]) != std::string_view::npos
                                        : (bytes[1] == 4 || bytes[1] == 5) && bytes[2] == '\x95';
}

// The length of a header of JSON, and the header.
bool is_safetensors(std::string_view bytes) {
  constexpr uint64_t kMostHeader = uint64_t{1} << 30;
  return bytes.size() > 9 && bytes.substr(8, 2) == "{\"" && little_endian<uint64_t>(bytes) < kMostHeader;
}

// A zip archive by its first entry, which says what wrote it.
FileLook look_into_zip(const Beginning& file) {
  const std::string_view bytes = file.bytes;
  const std::string_view name =
      bytes.size() > 30 ? bytes.substr(30, little_endian<uint16_t>(bytes.substr(26, 2))) : std::string_view();
  if (name.ends_with(".npy")) return unread(file, "a NumPy archive (.npz)", "save one array of ids with numpy.save");
  if (name.ends_with("data.pkl")) return unread(file, "a file of torch.save", "save ids of tokens with numpy.save");
  return unread(file, "a zip archive", "unpack it (unzip FILE) and name the folder");
}

// Formats of many samples that have no mark, by the names that their writers give: "shard.00000.mds", "chunk-0-12.bin" next to
// an index.json.
std::string_view shard_by_name(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  if (name.ends_with(".mds")) return "a shard of MosaicML's streaming";
  if (name.ends_with(".tfrecord") || name.find(".tfrecord-") != std::string::npos) return "a file of TFRecord";
  std::error_code none;
  const bool has_index = std::filesystem::exists(std::filesystem::path(path).parent_path() / "index.json", none);
  if (has_index && name.starts_with("chunk-") && name.ends_with(".bin")) return "a chunk of LitData";
  return "";
}

bool begins_with(const Magic& one, std::string_view bytes) {
  return bytes.substr(std::min(one.offset, bytes.size())).starts_with(one.magic);
}

FileLook maybe_ids(FileLook look) {
  look.may_be_ids = true;
  return look;
}

// Files whose first bytes are those of no text.
FileLook look_into_bytes(const Beginning& file, const TextCheck& check) {
  const std::string_view bytes = file.bytes;
  for (const std::string_view zip : {"PK\x03\x04"sv, "PK\x05\x06"sv})
    if (bytes.starts_with(zip)) return maybe_ids(look_into_zip(file));
  for (const Magic& one : kMagics)
    if (begins_with(one, bytes)) return unread(file, one);
  if (is_pickle(bytes))
    return maybe_ids(unread(file, "a pickle of Python", "save ids of tokens with numpy.save, or texts as lines of JSON"));
  if (is_safetensors(bytes)) return unread(file, "a file of safetensors", kModel);
  if (const std::string_view shard = shard_by_name(file.path); !shard.empty()) return unread(file, std::string(shard), kTable);
  FileLook look = unread(file, "no text", kNoText);
  look.finding = check.in_words();
  look.may_be_ids = true;
  return look;
}

// The size that a pointer of Git LFS states.
int64_t size_of_pointer(std::string_view text) {
  constexpr std::string_view kSize = "\nsize ";
  const size_t at = text.find(kSize);
  int64_t size = 0;
  if (at != std::string_view::npos) std::from_chars(text.data() + at + kSize.size(), text.data() + text.size(), size);
  return size;
}

// A version follows the mark on the first line: "%PDF-1.7". A document may be ASCII throughout.
bool is_pdf(std::string_view bytes) {
  return bytes.starts_with("%PDF-") && bytes.size() > 8 && bytes[5] >= '1' && bytes[5] <= '9' && bytes[6] == '.' &&
         (bytes[8] == '\n' || bytes[8] == '\r');
}

// Texts that stand for something else.
bool look_into_marks(const Beginning& file, FileLook& look) {
  const std::string_view bytes = file.bytes;
  if (bytes.starts_with(kLfsPointer)) {
    look = unread(file, "a pointer of Git LFS, not the data", "get the file itself: git lfs pull");
    look.bytes_elsewhere = size_of_pointer(bytes);
    return true;
  }
  for (const Magic& one : kMagics)
    if (begins_with(one, bytes) &&
        (!one.is_ascii() || (!one.ending.empty() && file.path.ends_with(one.ending)) || is_pdf(bytes))) {
      look = unread(file, one);
      return true;
    }
  return false;
}

// ---- JSON

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kWhitespace), text.size()));
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

// Where the string that begins the text ends; npos: not within it.
size_t end_of_string(std::string_view text) {
  for (size_t at = 1; at < text.size(); ++at) {
    if (text[at] == '\\')
      ++at;
    else if (text[at] == '"')
      return at + 1;
  }
  return std::string_view::npos;
}

// Where the object that begins the text ends; npos: not within it.
size_t end_of_object(std::string_view text) {
  int64_t depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (byte == '"') {
      const size_t end = end_of_string(text.substr(at));
      if (end == std::string_view::npos) return end;
      at += end - 1;
    }
    if (byte == '{' || byte == '[') ++depth;
    if ((byte == '}' || byte == ']') && --depth == 0) return at + 1;
  }
  return std::string_view::npos;
}

// Checks whether the text begins as an object of JSON does: {"key": or {}.
bool begins_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  text = without_spaces(text.substr(1));
  if (text.starts_with('}')) return true;
  if (!text.starts_with('"')) return false;
  const size_t end = end_of_string(text);
  if (end == std::string_view::npos) return true;
  text = without_spaces(text.substr(end));
  return text.empty() || text.starts_with(':');
}

// Parses the first object of a file. If it is no JSON, the reader of lines says why.
void read_keys(std::string_view object, FileLook& look) {
  constexpr int kLevels = 64;
  if (!json_excess(object, {.levels = kLevels}).empty()) return;
  const auto json = nlohmann::json::parse(object, nullptr, false);
  if (!json.is_object()) return;
  constexpr std::array kOfDocuments{"text", "messages", "conversations", "prompt", "completion", "chosen", "rejected"};
  look.has_documents = std::ranges::any_of(kOfDocuments, [&](const char* key) { return json.contains(key); });
  for (const auto& [key, value] : json.items()) look.keys += (look.keys.empty() ? "\"" : ", \"") + printable(key, 40) + "\"";
  look.keys = printable(look.keys);
  if (!look.has_documents) look.advice = advice_for_record(json);
}

FileLook json_of(FileKind kind) {
  FileLook look{.kind = kind};
  look.what = kind == FileKind::JsonLines ? "lines of JSON" : kind == FileKind::JsonList ? "a list of JSON" : "objects of JSON";
  return look;
}

constexpr std::string_view kObjectOnEachLine =
    "write an object on each line, such as {\"text\": ...}; if it is a text, set data.read_as to \"text\" (--read-as text of "
    "`trivet data prepare`)";

// A text in which nothing was found that makes it JSON. A file with the name of lines of JSON is read as such, so that the
// error names its line.
FileLook no_json(const Beginning& file) {
  if (is_called_lines(file.path)) return json_of(FileKind::JsonLines);
  if (is_called_json(file.path))
    return unread(file, "JSON by its name only (it begins neither with an object nor with a list of objects)",
                  kObjectOnEachLine);
  return {.kind = FileKind::Text, .what = "text"};
}

// Checks whether another object follows the first one: at once, or after a comma or the like (JsonObjects).
bool goes_on_as_sequence(std::string_view next) {
  const bool is_separated = !next.empty() && is_between_objects(next[0]);
  if (is_separated) next = without_spaces(next.substr(1));
  return next.empty() || next.starts_with('{') || (is_separated && next.starts_with(kRecordSeparator));
}

// A text may begin with an object. One that would be a document, with something else after it, is hardly meant so.
FileLook text_or_broken_json(const Beginning& file, std::string_view object, std::string_view next) {
  FileLook first{.has_documents = false};
  read_keys(object, first);
  if (!first.has_documents) return no_json(file);
  return unread(file,
                fmt::format("an object of JSON with {} after which \"{}\" follows, and not another object", first.keys,
                            printable(next.substr(0, next.find('\n')), 20)),
                kObjectOnEachLine);
}

// The first object ends on the first line, or goes on over several lines, or does not end within what was read.
FileLook look_into_objects(const Beginning& file, std::string_view text) {
  const size_t end = end_of_object(text), line = text.find('\n');
  const bool is_one_line = line == std::string_view::npos;
  if (end == std::string_view::npos) {
    if (file.is_whole && !is_called_json(file.path)) return no_json(file);
    return json_of(is_one_line || is_called_lines(file.path) ? FileKind::JsonLines : FileKind::JsonSequence);
  }
  const bool ends_on_line = is_one_line || line >= end;
  const std::string_view next = without_spaces(text.substr(end));
  const bool fills_line = ends_on_line && without_spaces(text.substr(end, is_one_line ? line : line - end)).empty();
  const bool is_sequence = goes_on_as_sequence(next);
  if (!fills_line && !is_sequence && !is_called_json(file.path)) return text_or_broken_json(file, text.substr(0, end), next);
  const bool is_separated = is_sequence && !next.empty() && next[0] != '{';
  const bool lines = !is_separated && (fills_line || (is_called_lines(file.path) && ends_on_line && !is_sequence));
  FileLook look = json_of(lines ? FileKind::JsonLines : FileKind::JsonSequence);
  read_keys(text.substr(0, end), look);
  return look;
}

// "[1, 2" and nothing else but numbers.
bool is_list_of_numbers(std::string_view text) {
  return text.starts_with('[') && text.find(',') != std::string_view::npos &&
         text.find_first_not_of("0123456789+-.eE,[] \t\r\n") == std::string_view::npos;
}

// Checks whether the text begins with a string of JSON that is an element of a list: what follows it goes on with the
// list, or ends it together with the file.
bool begins_list_of_strings(const Beginning& file, std::string_view element) {
  const size_t end = element.starts_with('"') ? end_of_string(element) : std::string_view::npos;
  if (end == std::string_view::npos) return false;
  std::string_view next = without_spaces(element.substr(end));
  const bool goes_on = next.starts_with(',');
  if (next.empty() || (!goes_on && next[0] != ']')) return false;
  next = without_spaces(next.substr(1));
  constexpr std::string_view kBeginValues = "\"]{[-0123456789";
  return goes_on ? !next.empty() && kBeginValues.find(next[0]) != std::string_view::npos : next.empty() && file.is_whole;
}

FileLook look_into_list(const Beginning& file, std::string_view text) {
  const std::string_view element = without_spaces(text.substr(1));
  if (begins_list_of_strings(file, element)) {
    FileLook look = json_of(FileKind::JsonList);
    look.what = "a list of texts in JSON";
    return look;
  }
  if (is_list_of_numbers(text))
    return unread(file, "a list of numbers in JSON", "save ids of tokens with numpy.save, or name the text they are made from");
  if (element.starts_with('[') && begins_list_of_strings(file, without_spaces(element.substr(1))))
    return unread(file, "a list of lists in JSON", kObjectOnEachLine);
  if (!begins_object(element)) return no_json(file);
  FileLook look = json_of(FileKind::JsonList);
  const size_t end = end_of_object(element);
  if (end != std::string_view::npos) read_keys(element.substr(0, end), look);
  return look;
}

FileLook look_into_text(const Beginning& file) {
  std::string_view text = without_spaces(without_byte_order_mark(file.bytes));
  const bool has_mark = text.starts_with(kRecordSeparator);
  if (has_mark) text = without_spaces(text.substr(1));
  if (begins_object(text)) {
    FileLook look = look_into_objects(file, text);
    if (has_mark && look.kind == FileKind::JsonLines) look.kind = FileKind::JsonSequence, look.what = "objects of JSON";
    return look;
  }
  return text.starts_with('[') && !has_mark ? look_into_list(file, text) : no_json(file);
}

FileLook look_into(const Beginning& file) {
  if (file.bytes.empty())
    return {.kind = FileKind::Unread, .what = std::string(kEmpty), .advice = "get it again, or leave it out"};
  TextCheck check;
  check.add(file.bytes);
  if (file.is_whole) check.finish();
  if (!check.is_text()) return look_into_bytes(file, check);
  if (FileLook look; look_into_marks(file, look)) return look;
  return look_into_text(file);
}

}  // namespace

std::string name_without_packing(const std::string& path) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (path.ends_with(packed)) return path.substr(0, path.size() - packed.size());
  return path;
}

bool is_called_lines(const std::string& path) {
  const std::string name = name_without_packing(path);
  return name.ends_with(".jsonl") || name.ends_with(".ndjson");
}

bool is_called_json(const std::string& path) { return is_called_lines(path) || name_without_packing(path).ends_with(".json"); }

// Checks whether it is called NAME.npy and does not begin as such a file does. OLMo's files of ids are called so.
bool is_no_array(const std::string& path) { return !begins_token_file(DataFile(path).text(0, 8)); }

FileLook look_into(const std::string& path) {
  if (token_format_of(path) && !(path.ends_with(".npy") && is_no_array(path)))
    return {.kind = FileKind::Tokens, .what = "tokens"};
  const Beginning file = read_beginning(path);
  if (path.ends_with(".npy")) {
    FileLook look = unread(file, "no array of NumPy", kNoText);
    look.finding = "has the name of a NumPy array, but not its header";
    look.may_be_ids = true;
    return look;
  }
  if (!file.packing.empty() && begins_token_file(file.bytes))
    return {
        .kind = FileKind::Unread,
        .what = fmt::format("a file of tokens, packed with {}", file.packing),
        .advice = with_name(fmt::format("unpack it first ({} < FILE > NAME.{})", file.packing == "gzip" ? "gunzip" : "unzstd",
                                        file.bytes.starts_with("\x93NUMPY") ? "npy" : "tokens"),
                            file.path)};
  return look_into(file);
}

FileLook look_into_beginning(const std::string& path, std::string bytes, bool is_whole) {
  return look_into(Beginning{.path = path, .bytes = std::move(bytes), .packing = {}, .is_whole = is_whole});
}

void refuse_bytes(const std::string& path, const std::string& finding) {
  const std::string_view megatron = path.ends_with(".bin") ? "; Megatron's NAME.bin, with its NAME.idx next to it" : "";
  bad_file(path, fmt::format("{}, so it is no text; {}{}", finding, kNoText, megatron));
}

void refuse_unread(const std::string& path, const FileLook& look) {
  if (!look.finding.empty()) refuse_bytes(path, look.finding);
  if (look.what == kEmpty) bad_file(path, "is empty; " + look.advice);
  bad_file(path, fmt::format("is {}, which is not read; {}", look.what, look.advice));
}

}  // namespace trivet::data

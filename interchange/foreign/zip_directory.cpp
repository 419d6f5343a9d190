#include "interchange/foreign/zip_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/printable.h"
#include "engine/checkpoint/strict_json.h"

namespace trivet::foreign {

using checkpoint::corrupt;
namespace {

// Sizes and signatures of the records, in the order in which a file holds them.
constexpr int64_t kLocalBytes = 30, kCentralBytes = 46, kEnd64Bytes = 56, kLocatorBytes = 20, kEndBytes = 22;
constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd64 = 0x06064b50, kLocator = 0x07064b50, kEnd = 0x06054b50;
constexpr uint16_t kZip64Extra = 1, kEncrypted = 1;
constexpr uint32_t kIn64Bits = 0xffffffff;  // the number is elsewhere, with 64 bits

// Little-endian numbers of a record, one after another.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : left_(bytes) {}
  template <typename T>
  T next() {
    T value{};
    std::memcpy(&value, text(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view text(size_t bytes) {
    const std::string_view taken = left_.substr(0, bytes);
    left_.remove_prefix(bytes);
    return taken;
  }
  size_t left() const { return left_.size(); }

 private:
  std::string_view left_;
};

std::string read_at(const ReadableFile& file, int64_t offset, int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_exactly(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

struct Directory {
  uint64_t entries = 0, bytes = 0, offset = 0;
};

// The record at the end of the file, or the larger one before it if there is one.
Directory find_directory(const ReadableFile& file, const std::string& path) {
  const int64_t size = file.size(), end_offset = size - kEndBytes;
  if (end_offset < 0) corrupt(path, fmt::format("{} bytes are too few for a zip archive", size));
  const std::string text = read_at(file, end_offset, kEndBytes);
  Fields end(text);
  if (end.next<uint32_t>() != kEnd) corrupt(path, "does not end as an archive of torch.save does; is the file complete?");
  end.text(6);
  Directory found;
  found.entries = end.next<uint16_t>();
  found.bytes = end.next<uint32_t>();
  found.offset = end.next<uint32_t>();
  int64_t limit = end_offset;
  if (end_offset >= kLocatorBytes) {
    const std::string locator_text = read_at(file, end_offset - kLocatorBytes, kLocatorBytes);
    Fields locator(locator_text);
    if (locator.next<uint32_t>() == kLocator) {
      locator.text(4);
      const auto offset = locator.next<uint64_t>();
      if (offset > static_cast<uint64_t>(end_offset - kLocatorBytes) ||
          static_cast<int64_t>(offset) + kEnd64Bytes > end_offset - kLocatorBytes)
        corrupt(path, fmt::format("its directory is said to end at byte {}, the file has {}", offset, size));
      const std::string end64_text = read_at(file, static_cast<int64_t>(offset), kEnd64Bytes);
      Fields end64(end64_text);
      if (end64.next<uint32_t>() != kEnd64) corrupt(path, "the end of its directory is damaged");
      end64.text(28);
      found.entries = end64.next<uint64_t>();
      found.bytes = end64.next<uint64_t>();
      found.offset = end64.next<uint64_t>();
      limit = static_cast<int64_t>(offset);
    }
  }
  if (found.bytes > static_cast<uint64_t>(kZipDirectoryLimitBytes))
    corrupt(path, fmt::format("its directory has {} bytes; at most {} are accepted", found.bytes, kZipDirectoryLimitBytes));
  if (found.offset > static_cast<uint64_t>(limit) || found.bytes > static_cast<uint64_t>(limit) - found.offset)
    corrupt(path, fmt::format("its directory is said to be at bytes {} to {}, the file has {}", found.offset,
                              found.offset + found.bytes, size));
  return found;
}

struct Central {
  std::string name;
  uint64_t bytes = 0, stored_bytes = 0, header = 0;
  uint32_t crc32 = 0;
  uint16_t flags = 0, method = 0;
};

// Takes numbers that are marked as stored elsewhere from the entry's extra fields.
void take_64_bits(std::string_view extra, Central& entry, const std::string& where) {
  if (entry.bytes != kIn64Bits && entry.stored_bytes != kIn64Bits && entry.header != kIn64Bits) return;
  Fields fields(extra);
  while (fields.left() >= 4) {
    const auto id = fields.next<uint16_t>(), bytes = fields.next<uint16_t>();
    if (bytes > fields.left()) break;
    Fields numbers(fields.text(bytes));
    if (id != kZip64Extra) continue;
    for (uint64_t* number : {&entry.bytes, &entry.stored_bytes, &entry.header})
      if (*number == kIn64Bits) {
        if (numbers.left() < 8) corrupt(where, "its size is absent");
        *number = numbers.next<uint64_t>();
      }
    return;
  }
  corrupt(where, "its size is absent");
}

Central next_central(Fields& directory, const std::string& path) {
  const auto need = [&](size_t bytes) {
    if (directory.left() < bytes) corrupt(path, "its directory ends in the middle of an entry");
  };
  need(kCentralBytes);
  if (directory.next<uint32_t>() != kCentral) corrupt(path, "an entry of its directory is damaged");
  directory.text(4);
  Central entry;
  entry.flags = directory.next<uint16_t>();
  entry.method = directory.next<uint16_t>();
  directory.text(4);
  entry.crc32 = directory.next<uint32_t>();
  entry.stored_bytes = directory.next<uint32_t>();
  entry.bytes = directory.next<uint32_t>();
  const auto name = directory.next<uint16_t>(), extra = directory.next<uint16_t>(), comment = directory.next<uint16_t>();
  directory.text(8);
  entry.header = directory.next<uint32_t>();
  need(size_t{name} + extra + comment);
  entry.name = directory.text(name);
  take_64_bits(directory.text(extra), entry, fmt::format("{}: entry \"{}\"", path, printable(entry.name)));
  directory.text(comment);
  return entry;
}

// Where the content begins: after the entry's own header, whose length only that header says.
int64_t content_offset(const ReadableFile& file, const Central& entry, int64_t end, const std::string& where) {
  const auto name_bytes = static_cast<int64_t>(entry.name.size());
  if (entry.header > static_cast<uint64_t>(end) || end - static_cast<int64_t>(entry.header) < kLocalBytes + name_bytes)
    corrupt(where, "lies outside of the file");
  const auto offset = static_cast<int64_t>(entry.header);
  const std::string text = read_at(file, offset, kLocalBytes + name_bytes);
  Fields header(text);
  if (header.next<uint32_t>() != kLocal) corrupt(where, "its header is damaged");
  header.text(22);
  const auto name = header.next<uint16_t>(), extra = header.next<uint16_t>();
  if (name != entry.name.size() || header.text(name) != entry.name) corrupt(where, "its header has another name");
  const int64_t begin = offset + kLocalBytes + name_bytes + extra;
  if (begin > end || entry.bytes > static_cast<uint64_t>(end - begin)) corrupt(where, "lies outside of the file");
  return begin;
}

}  // namespace

bool is_zip(const ReadableFile& file) {
  if (file.size() < 4) return false;
  const std::string text = read_at(file, 0, 4);
  return Fields(text).next<uint32_t>() == kLocal;
}

std::map<std::string, ZipEntry> read_zip_directory(const ReadableFile& file) {
  const std::string path = printable(file.path());
  const Directory found = find_directory(file, path);
  const auto begin = static_cast<int64_t>(found.offset);
  const std::string text = read_at(file, begin, static_cast<int64_t>(found.bytes));
  Fields directory(text);
  std::map<std::string, ZipEntry> entries;
  std::vector<std::pair<int64_t, int64_t>> ranges;  // ranges of header and content
  while (directory.left() > 0) {
    const Central central = next_central(directory, path);
    const std::string where = fmt::format("{}: entry \"{}\"", path, printable(central.name));
    if (central.method != 0 || (central.flags & kEncrypted) != 0 || central.bytes != central.stored_bytes)
      throw CheckpointError(
          ExitCode::Usage,
          where + ": is compressed or encrypted, which torch.save does not do; save the file again with torch");
    const ZipEntry entry{content_offset(file, central, begin, where), static_cast<int64_t>(central.bytes), central.crc32};
    if (!entries.emplace(central.name, entry).second) corrupt(where, "is there twice");
    ranges.emplace_back(static_cast<int64_t>(central.header), entry.offset + entry.bytes);
  }
  if (entries.size() != found.entries)
    corrupt(path, fmt::format("its directory has {} entries, {} were announced", entries.size(), found.entries));
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second) corrupt(path, "two of its entries overlap");
  return entries;
}

}  // namespace trivet::foreign

#include "data/images.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/text_file.h"
#include "data/word_folder.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCifarPixels = 3 * 32 * 32;
constexpr std::string_view kImagesPart = "images-idx3", kLabelsPart = "labels-idx1";

uint32_t big_endian(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

std::string read_bytes(const std::string& path) { return read_text(path, kMaxImageBytes, "a file of images"); }

// An IDX file: two zero bytes, the type (8: bytes), the number of dims, the dims as 32-bit big-endian numbers, the elements.
struct IdxFile {
  std::string bytes;
  std::vector<int64_t> dims;
  size_t header() const { return 4 + 4 * dims.size(); }
};

IdxFile read_idx_file(const std::string& path, uint32_t dims, const char* what) {
  IdxFile file{read_bytes(path), {}};
  const uint32_t expected = 0x800 + dims;
  if (file.bytes.size() < 4 + 4 * size_t{dims} || big_endian(file.bytes, 0) != expected)
    bad_file(path, fmt::format("is not an IDX file of {}: it has {} bytes and should begin with {:08x}", what,
                               file.bytes.size(), expected));
  int64_t elements = 1;
  for (size_t dim = 0; dim < dims; ++dim) {
    file.dims.push_back(big_endian(file.bytes, 4 + 4 * dim));
    if (file.dims.back() < 1 || file.dims.back() > kMaxImageBytes / elements)
      bad_file(path, fmt::format("says that a dim has the size {}; sizes from 1 to {} bytes in all are accepted",
                                 file.dims.back(), kMaxImageBytes));
    elements *= file.dims.back();
  }
  const auto given = static_cast<int64_t>(file.bytes.size() - file.header());
  if (given != elements)
    bad_file(path, fmt::format("says that it has {} elements of {}, but {} bytes follow; the file is damaged or incomplete",
                               elements, what, given));
  return file;
}

template <typename T>
std::vector<T> elements_of(const IdxFile& file) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(file.bytes.data());
  return {bytes + file.header(), bytes + file.bytes.size()};
}

// The file itself or its packed form, whichever exists. Some programs unpack files next to the packed ones.
std::optional<std::string> find(const fs::path& folder, const std::string& name) {
  const std::string file = (folder / name).string(), packed = file + ".gz";
  std::error_code ignored;
  const bool exists = fs::is_regular_file(file, ignored), exists_packed = fs::is_regular_file(packed, ignored);
  if (exists && exists_packed && read_bytes(file) != read_bytes(packed))
    bad_file(packed, fmt::format("does not hold what {} holds; remove one of them", printable(file)));
  if (exists) return file;
  return exists_packed ? std::optional(packed) : std::nullopt;
}

std::string labels_of(const std::string& images_path) {
  std::string name = fs::path(images_path).filename().string();
  const size_t at = name.find(kImagesPart);
  if (at == std::string::npos)
    bad_file(images_path, fmt::format("the name of a file of IDX images must contain \"{}\", so that its labels are found in a "
                                      "file of the same name with \"{}\"",
                                      kImagesPart, kLabelsPart));
  name.replace(at, kImagesPart.size(), kLabelsPart);
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  const fs::path folder = fs::path(images_path).parent_path();
  if (const auto labels = find(folder, name)) return *labels;
  bad_file(images_path, fmt::format("its labels are missing: there is no file {} or {}.gz", (folder / name).string(), name));
}

Images read_idx_pair(const std::string& images_path) { return read_idx(images_path, labels_of(images_path)); }

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The file of this name in a folder; throws if there is none.
std::string required(const std::string& folder, const std::string& name) {
  if (const auto found = find(folder, name)) return *found;
  bad_file(folder, fmt::format("has no file {}, which an archive of this format has", name));
}

OpenedImages open_idx(const std::string& path) {
  if (!is_folder(path)) return {read_idx_pair(path), {}};
  OpenedImages opened{read_idx_pair(required(path, "train-images-idx3-ubyte")), {}};
  if (const auto test = find(path, "t10k-images-idx3-ubyte")) opened.test = read_idx_pair(*test);
  return opened;
}

OpenedImages open_cifar(const std::string& path, ImageFormat format) {
  const bool ten = format == ImageFormat::Cifar10;
  const int labels = ten ? 1 : 2;
  if (!is_folder(path)) return {read_cifar({path}, labels), {}};
  std::vector<std::string> files;
  if (!ten) files.push_back(required(path, "train.bin"));
  for (int batch = 1; ten && batch <= 5; ++batch) files.push_back(required(path, fmt::format("data_batch_{}.bin", batch)));
  OpenedImages opened{read_cifar(files, labels), {}};
  if (const auto test = find(path, ten ? "test_batch.bin" : "test.bin")) opened.test = read_cifar({*test}, labels);
  return opened;
}

bool has_folder(const std::string& path) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored))
    if (entry.is_directory(ignored) && !entry.path().filename().string().starts_with(".")) return true;
  return false;
}

// The folder of the training images: "train", if there is one.
std::string training_folder(const std::string& path) { return is_folder(path + "/train") ? path + "/train" : path; }

// The folder of the test images, which is next to "train"; nothing: there is none. No other folder there is read.
std::optional<std::string> test_folder(const std::string& path) {
  if (!is_folder(path + "/train")) return {};
  std::vector<std::string> others;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error))
    if (const std::string name = at->path().filename().string();
        name != "train" && !name.starts_with(".") && is_folder(at->path().string()))
      others.push_back(name);
  if (error) bad_file(path, "cannot be read: " + error.message());
  std::ranges::sort(others);
  constexpr std::array kTests{"test", "val", "valid", "validation"};
  if (others.empty()) return {};
  const std::string other = path + "/" + printable(others[0]);
  if (others.size() > 1)
    bad_file(path,
             fmt::format("has the folders {} next to train, of which one can be read, for validation; name the folders of "
                         "images themselves: data.train {}/train and, say, data.validation {}",
                         fmt::join(others, ", "), path, other));
  if (std::ranges::find(kTests, others[0]) == kTests.end())
    bad_file(other, fmt::format("is not read: next to train there may be test images, in {}; take the folder away, or "
                                "name that of the images itself: {}/train",
                                fmt::join(kTests, ", "), path));
  return path + "/" + others[0];
}

OpenedImages open_folders(const std::string& path, std::vector<std::string> class_names) {
  if (!is_folder(path)) bad_file(path, "is no folder; name one that has a folder of PNG files for each class");
  const std::optional<std::string> test = test_folder(path);
  OpenedImages opened{read_image_folder(training_folder(path), class_names), {}};
  if (test) opened.test = read_image_folder(*test, class_names);
  opened.class_names = std::move(class_names);
  return opened;
}

OpenedImages open_words(const std::string& path, std::string characters) {
  if (!is_folder(path)) bad_file(path, fmt::format("is no folder; name one that has PNG files and a file {}", kWordLabels));
  const std::optional<std::string> test = test_folder(path);
  OpenedImages opened{read_word_folder(training_folder(path), characters), {}};
  if (test) opened.test = read_word_folder(*test, characters);
  return opened;
}

ImageFormat format_of_folder(const std::string& path) {
  std::error_code ignored;
  if (find(path, "train-images-idx3-ubyte")) return ImageFormat::Idx;
  if (find(path, "data_batch_1.bin")) return ImageFormat::Cifar10;
  if (find(path, "train.bin")) return ImageFormat::Cifar100;
  if (fs::exists(fs::path(training_folder(path)) / kWordLabels, ignored)) return ImageFormat::Words;
  if (has_folder(path)) return ImageFormat::Png;
  bad_file(
      path,
      "is no folder of images: it has no train-images-idx3-ubyte (MNIST), data_batch_1.bin (CIFAR-10), train.bin (CIFAR-100), "
      "labels.txt (words) or folders of PNG files; name a folder that has one of them, or a file");
}

ImageFormat format_of_file(const std::string& path) {
  if (fs::path(path).filename().string().find(kImagesPart) != std::string::npos) return ImageFormat::Idx;
  const auto bytes = static_cast<int64_t>(read_bytes(path).size());
  const bool ten = bytes % (1 + kCifarPixels) == 0, hundred = bytes % (2 + kCifarPixels) == 0;
  if (ten && hundred) bad_file(path, "may be of CIFAR-10 or CIFAR-100; set data.format to \"cifar10\" or \"cifar100\"");
  if (ten || hundred) return ten ? ImageFormat::Cifar10 : ImageFormat::Cifar100;
  bad_file(path,
           fmt::format("is not recognized: its name does not contain \"{}\" (IDX), and its {} bytes are no multiple of {} "
                       "(CIFAR-10) or {} (CIFAR-100)",
                       kImagesPart, bytes, 1 + kCifarPixels, 2 + kCifarPixels));
}

}  // namespace

int64_t Images::class_count() const {
  return classes.empty() ? 0 : int64_t{1} + *std::max_element(classes.begin(), classes.end());
}

Images read_idx(const std::string& images_path, const std::string& labels_path) {
  const IdxFile images = read_idx_file(images_path, 3, "images"), labels = read_idx_file(labels_path, 1, "labels");
  if (images.dims[0] != labels.dims[0])
    bad_file(labels_path, fmt::format("has {} labels, but {} has {} images", labels.dims[0], images_path, images.dims[0]));
  return {.channels = 1,
          .rows = images.dims[1],
          .cols = images.dims[2],
          .pixels = elements_of<uint8_t>(images),
          .classes = elements_of<int32_t>(labels)};
}

Images read_cifar(const std::vector<std::string>& paths, int labels) {
  const int64_t record = labels + kCifarPixels;
  Images images{.channels = 3, .rows = 32, .cols = 32, .pixels = {}, .classes = {}};
  for (const std::string& path : paths) {
    const std::string bytes = read_bytes(path);
    const auto size = static_cast<int64_t>(bytes.size());
    if (size % record != 0)
      bad_file(path, fmt::format("is not a file of CIFAR-{}: its {} bytes are no multiple of {}, the size of a record",
                                 labels == 1 ? 10 : 100, size, record));
    for (int64_t at = 0; at < size; at += record) {
      const uint8_t label = static_cast<uint8_t>(bytes[at + labels - 1]);
      if (label >= (labels == 1 ? 10 : 100))
        bad_file(path, fmt::format("record {} has the class {}, but CIFAR-{} has classes up to {}", at / record, label,
                                   labels == 1 ? 10 : 100, labels == 1 ? 9 : 99));
      images.classes.push_back(label);
      images.pixels.insert(images.pixels.end(), bytes.begin() + at + labels, bytes.begin() + at + record);
    }
  }
  return images;
}

OpenedImages open_images(const std::string& path, ImageFormat format, std::vector<std::string> class_names,
                         std::string characters) {
  if (format == ImageFormat::Auto) format = is_folder(path) ? format_of_folder(path) : format_of_file(path);
  switch (format) {
    case ImageFormat::Idx: return open_idx(path);
    case ImageFormat::Png: return open_folders(path, std::move(class_names));
    case ImageFormat::Words: return open_words(path, std::move(characters));
    default: return open_cifar(path, format);
  }
}

}  // namespace trivet::data

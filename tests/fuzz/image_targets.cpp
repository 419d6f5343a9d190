// Fuzz targets for images, and for the layers that a config lists for them.
#include <zlib.h>

#include <algorithm>

#include "core/printable.h"
#include "data/images.h"
#include "data/png.h"
#include "data/word_folder.h"
#include "model/family.h"
#include "tests/fuzz/targets.h"

namespace trivet::fuzz {
namespace {

using namespace data;

constexpr std::initializer_list<ExitCode> kImageRefused{ExitCode::Usage};

void check_images(const Images& images) {
  require(images.count() > 0, "there are images");
  require(static_cast<int64_t>(images.pixels.size()) == images.count() * images.bytes_of_one(),
          "every image has all its pixels");
  for (const int32_t number : images.classes)
    require(number >= 0 && number < images.class_count(), "classes are below their number");
}

// A PNG image with right checksums, so that what comes after them is tried, too.
std::string with_sums(std::string_view input) {
  constexpr size_t kAround = 12;
  std::string bytes(input);
  for (size_t at = 8; at + kAround <= bytes.size();) {
    size_t length = 0;
    for (size_t i = at; i < at + 4; ++i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
    if (length > bytes.size() - at - kAround) break;
    const auto sum = ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data() + at + 4), static_cast<uInt>(4 + length));
    for (size_t i = 0; i < 4; ++i) bytes[at + 8 + length + i] = static_cast<char>(sum >> (24 - 8 * i) & 0xff);
    at += kAround + length;
  }
  return bytes;
}

}  // namespace

// The first byte says how many bytes at the end are the file of labels, the rest is that of images.
void idx(std::string_view input) {
  if (input.empty()) return;
  const size_t labels = std::min<size_t>(static_cast<unsigned char>(input[0]), input.size() - 1);
  const InputFile label_file("labels-idx1", input.substr(input.size() - labels));
  const InputFile image_file("images-idx3", input.substr(1, input.size() - 1 - labels));
  Images images;
  if (!accepts(kImageRefused, [&] { images = read_idx(image_file.path(), label_file.path()); })) return;
  check_images(images);
}

// The first byte says how many labels a record has, how many records there are, and whether a byte follows them. Records are
// long, so the file is the rest of the input, repeated.
void cifar(std::string_view input) {
  if (input.size() < 2) return;
  constexpr size_t kPixels = 3 * 32 * 32;
  const auto shape = static_cast<unsigned char>(input[0]);
  const int labels = 1 + shape % 2;
  const size_t size = shape / 64 * (labels + kPixels) + shape / 32 % 2;
  std::string content;
  while (content.size() < size) content += input.substr(1);
  content.resize(size);
  const InputFile file("batch.bin", content);
  Images images;
  if (!accepts(kImageRefused, [&] { images = read_cifar({file.path()}, labels); })) return;
  check_images(images);
}

void png(std::string_view input) {
  Picture picture;
  if (!accepts(kImageRefused, [&] { picture = read_png(with_sums(input), "input"); })) return;
  require(picture.channels == 1 || picture.channels == 3, "an image is gray or RGB");
  require(picture.rows >= 1 && picture.cols >= 1 && picture.rows * picture.cols <= kMaxPngPixels, "sizes are within the limit");
  require(static_cast<int64_t>(picture.pixels.size()) == picture.channels * picture.rows * picture.cols,
          "all pixels are there");
}

void word_labels(std::string_view input) {
  std::vector<WordLabel> labels;
  if (!accepts(kImageRefused, [&] { labels = parse_word_labels(input, "labels.txt"); })) return;
  require(!labels.empty(), "there is a label");
  std::string written;
  for (const WordLabel& label : labels) {
    require(!label.file.empty() && label.file.find('/') == std::string::npos, "a file is in the folder");
    require(printable_lines(label.file) == label.file, "the name of a file is fit for a terminal");
    require(!label.text.empty() && static_cast<int64_t>(label.text.size()) <= kMaxWordLength, "lengths are within the limit");
    written += label.file + "\t" + label.text + "\n";
  }
  const std::vector<WordLabel> again = parse_word_labels(written, "labels.txt");
  require(again.size() == labels.size() && again.back().text == labels.back().text, "labels that are written are read again");
}

// Lines are layers; the first byte says how large images are.
void network(std::string_view input) {
  if (input.empty()) return;
  const int64_t size = static_cast<unsigned char>(input[0]);
  model::Description description{.type = model::Type::Sequential, .input = {1 + size % 4, size, size}};
  for (size_t at = 1; at <= input.size();) {
    const size_t end = std::min(input.find('\n', at), input.size());
    description.network.emplace_back(input.substr(at, end - at));
    at = end + 1;
  }
  if (const auto problem = model::find_problem(description)) {
    require(printable_lines(problem->text) == problem->text, "a message is fit for a terminal");
    require(!problem->text.empty() && (problem->key == "network" || problem->key == "input"), "a problem has a key and a text");
    return;
  }
  const model::Model model = model::build(description);
  const bool spells = model.sample.spelled;  // then the last line is the loss
  require(model.layers.size() == description.network.size() + (spells ? 0 : 1),
          "each line is a layer, and the loss is the last");
  Shape shape = model.sample.inputs_of(2);
  for (size_t i = 0; i + 1 < model.layers.size(); ++i) shape = model.layers[i]->output_shape(shape);
  require(shape.dims() == (spells ? 3 : 2) && shape[0] == 2 && shape[shape.dims() - 1] == model.sample.classes,
          "there is a number for each class, or for each class and token");
  require(!spells || 2 * model.sample.targets.elements() - 1 <= shape[1], "there are tokens for the longest text");
}

}  // namespace trivet::fuzz

// Images with classes or texts, as a data set keeps them: one byte for each colour of a pixel.
//
//   IDX         MNIST's format: a file of images and one of labels, plain or .gz
//   CIFAR       the binary archives of CIFAR-10 and CIFAR-100: records of label and 3 x 32 x 32 bytes, in files *.bin
//   PNG         a folder with a folder for each class, which has its images; or "train" and "test", which are such folders.
//               The classes are numbered in the order of their names.
//   words       a folder of PNG files with a file labels.txt, or "train" and "test", which are such folders; the targets
//               are the characters of the labels (data/word_folder.h)
//
// All of it is read into memory. Errors are DataErrors that name the file, what it holds, and what is accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/options.h"

namespace trivet::data {

inline constexpr int64_t kMaxImageBytes = int64_t{16} << 30;  // size of a file, unpacked

struct Images {
  int64_t channels = 0, rows = 0, cols = 0;
  std::vector<uint8_t> pixels;   // [images, channels, rows, cols]
  std::vector<int32_t> classes;  // [images, places]; unused places have -1
  int64_t places = 1;            // numbers of a target
  std::string characters;        // for texts: character number n is characters[n - 1]; empty for classes

  int64_t count() const { return static_cast<int64_t>(classes.size()) / places; }
  bool spelled() const { return !characters.empty(); }
  int64_t bytes_of_one() const { return channels * rows * cols; }
  int64_t class_count() const;  // the largest class + 1
};

// The pair of files of an IDX set, such as train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz.
Images read_idx(const std::string& images_path, const std::string& labels_path);

// Files of CIFAR records, one after another. `labels`: 1 for CIFAR-10; 2 for CIFAR-100, whose second ("fine") label is the
// class.
Images read_cifar(const std::vector<std::string>& paths, int labels);

// The images of a folder that has a folder of PNG files for each class. `classes`: the names that are accepted, in order;
// empty: those of the folder, which are put there.
Images read_image_folder(const std::string& path, std::vector<std::string>& classes);

// The images of a path, and those for tests if it is the folder of an archive that has some.
struct OpenedImages {
  Images train;
  std::optional<Images> test;
  std::vector<std::string> class_names = {};  // names of folders of PNG files, in order
};

// Opens a folder of an archive, or a file. ImageFormat::Auto recognizes what it is by names and content. `class_names`: the
// only folders that classes of PNG files may have, in order; `characters`: the only ones that texts may have, in order; empty:
// any.
OpenedImages open_images(const std::string& path, ImageFormat format, std::vector<std::string> class_names = {},
                         std::string characters = {});

}  // namespace trivet::data

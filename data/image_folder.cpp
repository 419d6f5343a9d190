#include "data/image_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "core/printable.h"
#include "data/data_error.h"
#include "data/file_kind.h"
#include "data/png.h"
#include "data/text_file.h"

namespace trivet::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxPngBytes = int64_t{64} << 20;

// The names in a folder in order, without hidden ones.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (std::string name = at->path().filename().string(); !name.starts_with(".")) names.push_back(std::move(name));
  if (error) bad_file(folder, "cannot be read: " + error.message());
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> classes_of(const std::string& folder) {
  std::vector<std::string> classes = names_in(folder);
  for (const std::string& name : classes)
    if (std::error_code unreadable; !fs::is_directory(folder + "/" + name, unreadable))
      bad_file(folder + "/" + printable(name), "is no folder; each class has a folder of PNG files here");
  if (classes.empty()) bad_file(folder, "is empty; put a folder of PNG files for each class there");
  return classes;
}

// Says what the file is instead.
[[noreturn]] void refuse_picture(const std::string& path) {
  const FileLook look = look_into(path);
  bad_file(path, fmt::format("is {}; images of a folder must be PNG images{}", look.what,
                             look.kind == FileKind::Unread && !look.advice.empty() ? ": " + look.advice : ""));
}

}  // namespace

void add_picture(const std::string& path, Images& images) {
  const std::string bytes = read_text(path, kMaxPngBytes, "a PNG image");
  if (!is_png(bytes)) refuse_picture(path);
  const Picture picture = read_png(bytes, path);
  if (images.pixels.empty()) {
    images.channels = picture.channels;
    images.rows = picture.rows;
    images.cols = picture.cols;
  }
  if (picture.channels != images.channels || picture.rows != images.rows || picture.cols != images.cols)
    bad_file(path,
             fmt::format("is [{}, {}, {}] (channels, rows, columns), but the images before are [{}, {}, {}]; all must be alike",
                         picture.channels, picture.rows, picture.cols, images.channels, images.rows, images.cols));
  if (static_cast<int64_t>(images.pixels.size() + picture.pixels.size()) > kMaxImageBytes)
    bad_file(path, fmt::format("with it, there are more than {} bytes of pixels; use fewer images", kMaxImageBytes));
  images.pixels.insert(images.pixels.end(), picture.pixels.begin(), picture.pixels.end());
}

Images read_image_folder(const std::string& path, std::vector<std::string>& classes) {
  const std::vector<std::string> here = classes_of(path);
  const bool trains = classes.empty();
  if (trains) classes = here;
  Images images;
  for (const std::string& name : here) {
    const auto known = std::ranges::find(classes, name);
    const std::string folder = path + "/" + name;
    if (known == classes.end()) bad_file(folder, "is a class that the training images do not have");
    const std::vector<std::string> files = names_in(folder);
    if (trains && files.empty())
      bad_file(folder, "has no PNG files; a class needs images to be learned: put them there, or take the folder away");
    for (const std::string& file : files) {
      add_picture(folder + "/" + file, images);
      images.classes.push_back(static_cast<int32_t>(known - classes.begin()));
    }
  }
  if (images.count() == 0) bad_file(path, "has no PNG files in the folders of its classes");
  return images;
}

}  // namespace trivet::data

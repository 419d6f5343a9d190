// Sets of images: what is read from each format, and the full message for each file that is not what it should be.
#include "data/images.h"

#include <gtest/gtest.h>

#include "tests/data/expect_error.h"
#include "tests/data/files.h"
#include "tests/data/packed_text.h"
#include "tests/support/image_files.h"
#include "tests/support/temporary_folder.h"

namespace trivet::data {
namespace {

using test::idx_text, test::PngText;

class ImageFiles : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.at(name); }
  std::string write(const std::string& name, std::string_view content) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    return folder_.write(name, content);
  }
  // Two images of 1 x 3 pixels.
  std::string write_idx(const std::string& prefix, const std::string& labels = "\x07\x02") const {
    write(prefix + "-labels-idx1-ubyte", idx_text({static_cast<uint32_t>(labels.size())}, labels));
    return write(prefix + "-images-idx3-ubyte", idx_text({2, 1, 3}, "abcdef"));
  }
  static std::string gray(char value) { return PngText{.cols = 2, .stored = std::string{'\0', value, value}}.text(); }
  void expect_refused(const std::string& what, ImageFormat format, const std::string& message) {
    expect_error([&] { open_images(what, format); }, ExitCode::Usage, message);
  }

 private:
  test::TemporaryFolder folder_;
};

std::vector<uint8_t> bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

TEST_F(ImageFiles, OfAnIdxFolderAreForTrainingAndTests) {
  write_idx("set/train");
  write_idx("set/t10k", "\x01\x05");
  const OpenedImages opened = open_images(path("set"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.channels, 1);
  EXPECT_EQ(opened.train.rows, 1);
  EXPECT_EQ(opened.train.cols, 3);
  EXPECT_EQ(opened.train.pixels, bytes_of("abcdef"));
  EXPECT_EQ(opened.train.classes, (std::vector<int32_t>{7, 2}));
  EXPECT_EQ(opened.train.class_count(), 8);
  ASSERT_TRUE(opened.test);
  EXPECT_EQ(opened.test->classes, (std::vector<int32_t>{1, 5}));
}

TEST_F(ImageFiles, OfOneIdxFileAreForTraining) {
  const OpenedImages opened = open_images(write_idx("some"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.count(), 2);
  EXPECT_FALSE(opened.test);
}

TEST_F(ImageFiles, ThatAreNotIdxAreRefused) {
  const std::string images = write_idx("a");
  write("a-labels-idx1-ubyte", idx_text({3}, "abc"));
  expect_refused(images, ImageFormat::Auto, path("a-labels-idx1-ubyte") + ": has 3 labels, but " + images + " has 2 images");
  write("a-labels-idx1-ubyte", idx_text({2, 1}, "ab"));
  expect_refused(
      images, ImageFormat::Auto,
      path("a-labels-idx1-ubyte") + ": is not an IDX file of labels: it has 14 bytes and should begin with 00000801");
  write("a-images-idx3-ubyte", idx_text({2, 1, 3}, "abcde"));
  expect_refused(images, ImageFormat::Auto,
                 images + ": says that it has 6 elements of images, but 5 bytes follow; the file is damaged or incomplete");
  write("a-images-idx3-ubyte", idx_text({2, 1, 3}, "abcdefg"));
  expect_refused(images, ImageFormat::Auto,
                 images + ": says that it has 6 elements of images, but 7 bytes follow; the file is damaged or incomplete");
  write("a-images-idx3-ubyte", idx_text({2, 0, 3}, ""));
  expect_refused(images, ImageFormat::Auto,
                 images + ": says that a dim has the size 0; sizes from 1 to 17179869184 bytes in all are accepted");
  write("a-images-idx3-ubyte", idx_text({0xffffffff, 0xffffffff, 0xffffffff}, ""));
  expect_refused(images, ImageFormat::Auto,
                 images + ": says that a dim has the size 4294967295; sizes from 1 to 17179869184 bytes in all are accepted");
  write("a-images-idx3-ubyte", "abc");
  expect_refused(images, ImageFormat::Auto,
                 images + ": is not an IDX file of images: it has 3 bytes and should begin with 00000803");
}

TEST_F(ImageFiles, UnpackedNextToPackedAreTheSame) {
  const std::string images = write_idx("p"), packed = images + ".gz", labels = path("p-labels-idx1-ubyte");
  write("p-labels-idx1-ubyte.gz", gzip_of(idx_text({2}, "ab")));
  write("p-labels-idx1-ubyte", idx_text({2}, "ab"));
  EXPECT_EQ(open_images(images, ImageFormat::Auto).train.count(), 2);
  write("p-labels-idx1-ubyte.gz", gzip_of(idx_text({2}, "ba")));
  expect_refused(images, ImageFormat::Auto, labels + ".gz: does not hold what " + labels + " holds; remove one of them");
}

TEST_F(ImageFiles, NeedLabels) {
  const std::string images = write("b-images-idx3-ubyte", idx_text({1, 1, 1}, "a"));
  expect_refused(
      images, ImageFormat::Auto,
      images + ": its labels are missing: there is no file " + path("b-labels-idx1-ubyte") + " or b-labels-idx1-ubyte.gz");
  const std::string other = write("c.idx", idx_text({1, 1, 1}, "a"));
  expect_refused(other, ImageFormat::Idx,
                 other +
                     ": the name of a file of IDX images must contain \"images-idx3\", so that its labels are found in a file "
                     "of the same name with \"labels-idx1\"");
}

// A record with all bytes alike; CIFAR-100's has a coarse label before.
std::string record(const std::string& labels, char pixel) { return labels + std::string(3 * 32 * 32, pixel); }

TEST_F(ImageFiles, OfCifar10AreInFiveFilesAndATest) {
  for (int batch = 1; batch <= 5; ++batch)
    write("cifar/data_batch_" + std::to_string(batch) + ".bin",
          record({static_cast<char>(batch)}, static_cast<char>(10 * batch)));
  const OpenedImages without = open_images(path("cifar"), ImageFormat::Auto);
  EXPECT_FALSE(without.test);
  EXPECT_EQ(without.train.channels, 3);
  EXPECT_EQ(without.train.rows, 32);
  EXPECT_EQ(without.train.classes, (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(without.train.pixels[3072], 20);
  write("cifar/test_batch.bin", record("\x09", 'x'));
  EXPECT_EQ(open_images(path("cifar"), ImageFormat::Auto).test->classes, (std::vector<int32_t>{9}));
  std::filesystem::remove(path("cifar/data_batch_4.bin"));
  expect_refused(path("cifar"), ImageFormat::Auto,
                 path("cifar") + ": has no file data_batch_4.bin, which an archive of this format has");
}

TEST_F(ImageFiles, OfCifar100HaveTheirFineLabels) {
  write("hundred/train.bin", record("\x03\x63", 'a') + record("\x04\x11", 'b'));
  const OpenedImages opened = open_images(path("hundred"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.classes, (std::vector<int32_t>{99, 17}));
  EXPECT_EQ(opened.train.pixels[0], 'a');
  EXPECT_EQ(open_images(path("hundred/train.bin"), ImageFormat::Auto).train.count(), 2);
}

TEST_F(ImageFiles, ThatAreNotCifarAreRefused) {
  const std::string file = write("d.bin", record("\x0a", 'a'));
  expect_refused(file, ImageFormat::Auto, file + ": record 0 has the class 10, but CIFAR-10 has classes up to 9");
  expect_refused(file, ImageFormat::Cifar100,
                 file + ": is not a file of CIFAR-100: its 3073 bytes are no multiple of 3074, the size of a record");
  write("d.bin", "abc");
  expect_refused(file, ImageFormat::Auto,
                 file +
                     ": is not recognized: its name does not contain \"images-idx3\" (IDX), and its 3 bytes are no multiple of "
                     "3073 (CIFAR-10) or 3074 (CIFAR-100)");
}

TEST_F(ImageFiles, InFoldersAreNumberedByTheNamesOfTheirClasses) {
  write("animals/train/dog/2.png", gray(2));
  write("animals/train/dog/1.png", gray(1));
  write("animals/train/cat/9.png", gray(9));
  write("animals/test/dog/5.png", gray(5));
  write("animals/train/.hidden", "");
  const OpenedImages opened = open_images(path("animals"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.classes, (std::vector<int32_t>{0, 1, 1}));
  EXPECT_EQ(opened.train.pixels, (std::vector<uint8_t>{9, 9, 1, 1, 2, 2}));
  EXPECT_EQ(opened.test->classes, (std::vector<int32_t>{1}));  // though there is no cat
  const OpenedImages alone = open_images(path("animals/train"), ImageFormat::Auto);
  EXPECT_EQ(alone.train.count(), 3);
  EXPECT_FALSE(alone.test);
}

TEST_F(ImageFiles, OfWordsHaveTheCharactersOfTheirLabels) {
  for (const char* name : {"words/train/1.png", "words/train/2.png", "words/test/3.png"})
    write(name, gray(static_cast<char>(name[12] - '0')));
  write("words/train/labels.txt", "1.png\tba\r\n\n2.png\ta bc\n");
  write("words/test/labels.txt", "3.png\tcab");
  const OpenedImages opened = open_images(path("words"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.characters, " abc");
  EXPECT_EQ(opened.train.places, 4);
  EXPECT_EQ(opened.train.count(), 2);
  EXPECT_EQ(opened.train.classes, (std::vector<int32_t>{3, 2, -1, -1, 2, 1, 3, 4}));
  EXPECT_EQ(opened.train.class_count(), 5);
  EXPECT_EQ(opened.train.pixels, (std::vector<uint8_t>{1, 1, 2, 2}));
  EXPECT_EQ(opened.test->places, 3);
  EXPECT_EQ(opened.test->classes, (std::vector<int32_t>{4, 2, 3}));
  EXPECT_EQ(opened.test->characters, " abc");
  const OpenedImages alone = open_images(path("words/test"), ImageFormat::Words);
  EXPECT_EQ(alone.train.classes, (std::vector<int32_t>{3, 1, 2}));
  const OpenedImages numbered_alike = open_images(path("words/test"), ImageFormat::Words, {}, opened.train.characters);
  EXPECT_EQ(numbered_alike.train.classes, (std::vector<int32_t>{4, 2, 3}));
  EXPECT_EQ(numbered_alike.train.characters, " abc");
}

// Archives of images in folders of their classes may have a list of the classes.
TEST_F(ImageFiles, InFoldersMayComeWithAListOfClasses) {
  for (const char* name : {"animals/train/cat/1.png", "animals/test/cat/2.png"}) write(name, gray(1));
  write("animals/labels.txt", "cat\n");
  const OpenedImages opened = open_images(path("animals"), ImageFormat::Auto);
  EXPECT_EQ(opened.train.classes, (std::vector<int32_t>{0}));
  EXPECT_FALSE(opened.train.spelled());
  EXPECT_TRUE(opened.test);
}

TEST_F(ImageFiles, OfWordsWithoutRightLabelsAreRefused) {
  write("words/1.png", gray(1));
  const auto expect_label_refused = [&](const std::string& labels, const std::string& message) {
    write("words/labels.txt", labels);
    expect_refused(path("words"), ImageFormat::Auto, path("words/labels.txt") + message);
  };
  expect_label_refused("", ": is empty");
  expect_label_refused("\n", ": has no lines; write a line for each image: the name of a PNG file, a tab, and the text");
  expect_label_refused("1.png word", ":1: \"1.png word\" has no tab; write the name of a PNG file, a tab, and the text");
  expect_label_refused("1.png\ta\n../1.png\ta", ":2: \"../1.png\" is not accepted; name a PNG file of this folder");
  expect_label_refused(std::string("1.png\0x\ta", 9), ":1: \"1.png\\x00x\" is not accepted; name a PNG file of this folder");
  expect_label_refused("\x1b[2J1.png\ta", ":1: \"\\x1b[2J1.png\" is not accepted; name a PNG file of this folder");
  expect_label_refused("\xc2\x9b.png\ta", ":1: \"\\u009b.png\" is not accepted; name a PNG file of this folder");
  expect_label_refused("1.png\t", ":1: the text has 0 characters; use 1 to 1024");
  expect_label_refused("1.png\t" + std::string(1025, 'a'), ":1: the text has 1025 characters; use 1 to 1024");
  expect_label_refused("1.png\ta\tb", ":1: \"a\\tb\" has characters other than letters, digits, signs and spaces of ASCII");
  write("words/labels.txt", "1.png\ta\n2.png\tb\n");
  expect_refused(path("words"), ImageFormat::Auto, path("words/2.png") + ": no such file");
  write("two/train/1.png", gray(1));
  write("two/train/labels.txt", "1.png\tab");
  write("two/test/1.png", gray(1));
  write("two/test/labels.txt", "1.png\tac");
  expect_refused(path("two"), ImageFormat::Auto,
                 path("two/test/labels.txt") + ": \"ac\" has the character 'c', which the training images do not have");
  expect_refused(path("two/train/1.png"), ImageFormat::Words,
                 path("two/train/1.png") + ": is no folder; name one that has PNG files and a file labels.txt");
}

TEST_F(ImageFiles, InFoldersThatDoNotFitAreRefused) {
  write("set/cat/1.png", gray(1));
  write("set/cat/2.png", PngText{.cols = 3, .stored = std::string(4, '\0')}.text());
  expect_refused(path("set"), ImageFormat::Auto,
                 path("set/cat/2.png") +
                     ": is [1, 1, 3] (channels, rows, columns), but the images before are [1, 1, 2]; all must be alike");
  write("set/cat/2.png", "GIF89a");
  expect_refused(path("set"), ImageFormat::Auto, path("set/cat/2.png") + ": is text; images of a folder must be PNG images");
  std::filesystem::rename(path("set/cat/2.png"), path("set/cat/2.gif"));
  expect_refused(path("set"), ImageFormat::Auto,
                 path("set/cat/2.gif") +
                     ": is a GIF image; images of a folder must be PNG images: store it as PNG for a model of images (magick " +
                     path("set/cat/2.gif") + " png:" + path("set/cat/2.gif") + "); models of text read no images");
  write("set/cat/2.gif", gray(2));
  EXPECT_EQ(open_images(path("set"), ImageFormat::Auto).train.count(), 2) << "an image is what it is, not what it is called";
  write("set/readme", "");
  expect_refused(path("set"), ImageFormat::Auto,
                 path("set/readme") + ": is no folder; each class has a folder of PNG files here");
  write("two/train/cat/1.png", gray(1));
  write("two/test/cow/1.png", gray(1));
  expect_refused(path("two"), ImageFormat::Auto, path("two/test/cow") + ": is a class that the training images do not have");
  std::filesystem::create_directory_symlink("loop", path("two/train/loop"));
  expect_refused(path("two"), ImageFormat::Auto,
                 path("two/train/loop") + ": is no folder; each class has a folder of PNG files here");
  std::filesystem::remove(path("two/train/loop"));
  std::filesystem::rename(path("two/test"), path("two/extra"));
  expect_refused(path("two"), ImageFormat::Auto,
                 path("two/extra") +
                     ": is not read: next to train there may be test images, in test, val, valid, "
                     "validation; take the folder away, or name that of the images itself: " +
                     path("two/train"));
  write("two/val/cat/1.png", gray(1));
  expect_refused(path("two"), ImageFormat::Auto,
                 path("two") +
                     ": has the folders extra, val next to train, of which one can be read, for validation; name the "
                     "folders of images themselves: data.train " +
                     path("two/train") + " and, say, data.validation " + path("two/extra"));
  std::filesystem::remove_all(path("two/extra"));
  EXPECT_EQ(open_images(path("two"), ImageFormat::Auto).test->count(), 1);
  std::filesystem::create_directories(path("none/cat"));
  expect_refused(
      path("none"), ImageFormat::Auto,
      path("none/cat") + ": has no PNG files; a class needs images to be learned: put them there, or take the folder away");
  std::filesystem::create_directories(path("empty"));
  expect_refused(path("empty"), ImageFormat::Png, path("empty") + ": is empty; put a folder of PNG files for each class there");
  expect_refused(
      path("empty"), ImageFormat::Auto,
      path("empty") +
          ": is no folder of images: it has no train-images-idx3-ubyte (MNIST), data_batch_1.bin (CIFAR-10), "
          "train.bin (CIFAR-100), labels.txt (words) or folders of PNG files; name a folder that has one of them, or a file");
}

}  // namespace
}  // namespace trivet::data

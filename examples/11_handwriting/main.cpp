// Draws words with handwriting fonts, as a data set for a model that reads texts: PNG files and labels.txt (docs/data.md).
//
//   example_11_handwriting --words /usr/share/dict/words --output words
//
// The test words are others than the training words, so that a model has to read letters. All draws come from the seed: the
// same options give the same files.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "data/images.h"
#include "font.h"
#include "png_file.h"

namespace {

namespace fs = std::filesystem;
using handwriting::Font;
using handwriting::Hand;

constexpr size_t kShortest = 2, kLongest = 10;  // letters of a word
constexpr size_t kTestShare = 10;               // one word of ten is for tests
constexpr size_t kMostImages = 1'000'000;       // in one part
constexpr int kNoFont = 77;

struct Options {
  std::string words, output = "words";
  std::vector<std::string> fonts;
  size_t train = 20000, test = 2000;
  uint64_t seed = 1234;
  bool check = false;
};

constexpr std::string_view kOptionNames[] = {"--words", "--output", "--font", "--train", "--test", "--seed"};
constexpr const char* kUsage =
    "usage: example_11_handwriting --words TEXT_FILE [--output FOLDER] [--font FILE]... [--train 20000] [--test 2000] [--seed "
    "1234]\n"
    "       example_11_handwriting --check\n";

// The fonts of Debian's packages fonts-breip, fonts-femkeklaver and fonts-dancingscript that are installed.
std::vector<std::string> installed_fonts() {
  std::vector<std::string> found;
  for (const char* path : {"/usr/share/fonts/truetype/breip/Breip.ttf", "/usr/share/fonts/truetype/femkeklaver/femkeklaver.ttf",
                           "/usr/share/fonts/opentype/dancingscript/DancingScript-Regular.otf",
                           "/usr/share/fonts/opentype/dancingscript/DancingScript-Bold.otf"})
    if (fs::exists(path)) found.emplace_back(path);
  return found;
}

// A number without a sign and without anything after it.
template <typename Number>
Number read_number(const std::string& name, const std::string& text, Number least, Number most) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most)
    throw std::runtime_error(name + ": \"" + text + "\" is not accepted; use " + std::to_string(least) + " to " +
                             std::to_string(most));
  return number;
}

Options read_options(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (name == "--check") {
      options.check = true;
      continue;
    }
    if (std::ranges::find(kOptionNames, name) == std::end(kOptionNames))
      throw std::runtime_error("\"" + name + "\" is not an option");
    if (++i == arguments.size()) throw std::runtime_error(name + ": the value is missing");
    const std::string& value = arguments[i];
    if (name == "--words")
      options.words = value;
    else if (name == "--output")
      options.output = value;
    else if (name == "--font")
      options.fonts.push_back(value);
    else if (name == "--train")
      options.train = read_number(name, value, size_t{1}, kMostImages);
    else if (name == "--test")
      options.test = read_number(name, value, size_t{1}, kMostImages);
    else
      options.seed = read_number(name, value, uint64_t{0}, std::numeric_limits<uint64_t>::max());
  }
  if (options.words.empty() && !options.check)
    throw std::runtime_error("--words is missing; name a text (Debian: apt-get install wamerican, /usr/share/dict/words)");
  if (options.fonts.empty()) options.fonts = installed_fonts();
  return options;
}

bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

// The different words of a text that have only small letters, in the order of the alphabet.
std::vector<std::string> words_of(std::istream& text) {
  std::set<std::string> words;
  for (std::string word; text >> word;) {
    while (!word.empty() && !is_letter(word.back())) word.pop_back();  // a comma or a full stop
    if (word.size() >= kShortest && word.size() <= kLongest && std::ranges::all_of(word, is_letter)) words.insert(word);
  }
  return {words.begin(), words.end()};
}

// Numbers from 0 to 1 for image `number` of a part of the set.
class Draws {
 public:
  Draws(uint64_t seed, const std::string& part, size_t number) : key_(trivet::random_key(seed, part)), number_(number) {}
  double next() {
    const trivet::PhiloxBlock block = trivet::philox(key_, number_, count_++);
    return static_cast<double>(trivet::unit_float(block[0]));
  }
  size_t below(size_t limit) { return std::min(limit - 1, static_cast<size_t>(next() * static_cast<double>(limit))); }

 private:
  uint64_t key_, number_, count_ = 0;
};

std::vector<std::string> shuffled(std::vector<std::string> words, uint64_t seed) {
  Draws draws(seed, "words", 0);
  for (size_t i = words.size(); i > 1; --i) std::swap(words[i - 1], words[draws.below(i)]);
  return words;
}

Hand draw_hand(Draws& draws) {
  Hand hand;
  for (double* number : {&hand.size, &hand.slant, &hand.left, &hand.height, &hand.ink}) *number = draws.next();
  return hand;
}

struct Part {
  std::string name;
  size_t images = 0;
  std::vector<std::string> words;
};

void write_part(const Options& options, const std::vector<std::unique_ptr<Font>>& fonts, const Part& part) {
  const fs::path folder = fs::path(options.output) / part.name;
  fs::create_directories(folder);
  std::ofstream labels(folder / "labels.txt");
  if (!labels) throw std::runtime_error((folder / "labels.txt").string() + ": cannot be written");
  for (size_t i = 0; i < part.images; ++i) {
    Draws draws(options.seed, part.name, i);
    const std::string& word = part.words[draws.below(part.words.size())];
    const Font& font = *fonts[draws.below(fonts.size())];
    const std::string file = std::to_string(i) + ".png";
    handwriting::write_png((folder / file).string(), font.draw(word, draw_hand(draws)));
    labels << file << '\t' << word << '\n';
  }
  if (!labels.flush()) throw std::runtime_error((folder / "labels.txt").string() + ": cannot be written");
}

void write_all(const Options& options, const std::vector<std::string>& words) {
  const size_t held = words.size() / kTestShare;
  if (held == 0)
    throw std::runtime_error("there are only " + std::to_string(words.size()) + " words of " + std::to_string(kShortest) +
                             " to " + std::to_string(kLongest) + " small letters, but at least " + std::to_string(kTestShare) +
                             " are needed; name a longer text with --words");
  const std::vector<std::string> order = shuffled(words, options.seed);
  std::vector<std::unique_ptr<Font>> fonts;
  for (const std::string& path : options.fonts) fonts.push_back(std::make_unique<Font>(path));
  const auto end_of_test = order.begin() + static_cast<std::ptrdiff_t>(held);
  write_part(options, fonts, {"train", options.train, {end_of_test, order.end()}});
  write_part(options, fonts, {"test", options.test, {order.begin(), end_of_test}});
}

struct TemporaryFolder {
  fs::path path = fs::temp_directory_path() / ("handwriting-" + std::to_string(std::random_device()()));
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

// A font of squares in the format BDF, which has bitmaps, with the letters from a to `last`.
std::string bitmap_font(char last) {
  std::string text =
      "STARTFONT 2.1\nFONT squares\nSIZE 8 75 75\nFONTBOUNDINGBOX 8 8 0 0\nSTARTPROPERTIES 2\nCHARSET_REGISTRY \"ISO10646\"\n"
      "CHARSET_ENCODING \"1\"\nENDPROPERTIES\nCHARS " +
      std::to_string(last - 'a' + 1) + "\n";
  for (char letter = 'a'; letter <= last; ++letter)
    text += std::string("STARTCHAR ") + letter + "\nENCODING " + std::to_string(letter) +
            "\nSWIDTH 500 0\nDWIDTH 8 0\nBBX 8 8 0 0\nBITMAP\nFF\nFF\nFF\nFF\nFF\nFF\nFF\nFF\nENDCHAR\n";
  return text + "ENDFONT\n";
}

void check_refused(const fs::path& font, const std::string& text, const std::string& reason) {
  std::ofstream(font) << text;
  try {
    Font{font.string()};
  } catch (const std::runtime_error& error) {
    if (std::string(error.what()).find(reason) != std::string::npos) return;
    throw;
  }
  throw std::runtime_error("a font was accepted, of which should be said: " + reason);
}

void check_bad_fonts() {
  const TemporaryFolder folder;
  fs::create_directories(folder.path);
  const fs::path font = folder.path / "font";
  check_refused(font, "", "no font");
  check_refused(font, "These are words.\n", "no font");
  check_refused(font, bitmap_font('q'), "lacks the letter 'r'");
  check_refused(font, bitmap_font('z'), "bitmaps instead of outlines");
}

// Draws a few words and reads them with Trivet's reader.
void check(Options options) {
  const TemporaryFolder folder;
  options.output = folder.path.string();
  options.train = 30, options.test = 10;
  // All letters occur in many words, so that the test words have none that the training words lack.
  const std::vector<std::string> words{"ant",  "rat",  "tan",  "sea",  "neat",  "rest", "star", "earn", "seat", "tears",
                                       "near", "east", "rats", "nest", "stare", "tar",  "eat",  "rent", "sent", "tree"};
  write_all(options, words);
  const trivet::data::OpenedImages read = trivet::data::open_images(options.output, trivet::ImageFormat::Auto);
  if (read.train.count() != 30 || !read.test || read.test->count() != 10) throw std::runtime_error("images are missing");
  if (read.train.rows != handwriting::kRows || read.train.cols != handwriting::kColumns)
    throw std::runtime_error("images have another shape");
  const int64_t size = read.train.bytes_of_one();
  for (int64_t image = 0; image < read.train.count(); ++image) {
    const auto first = read.train.pixels.begin() + image * size;
    const auto ink = std::count_if(first, first + size, [](uint8_t pixel) { return pixel > 64; });
    if (ink < 20 || ink > size / 2) throw std::runtime_error("an image has " + std::to_string(ink) + " dark pixels");
  }
  std::cout << "40 words were drawn and read\n";
}

int run(const Options& options) {
  if (options.check) check_bad_fonts();
  if (options.fonts.empty()) {
    std::cerr << "no handwriting font is installed; apt-get install fonts-breip fonts-femkeklaver fonts-dancingscript, or name "
                 "fonts with --font FILE\n";
    return kNoFont;
  }
  if (options.check) {
    check(options);
    return 0;
  }
  std::ifstream text(options.words);
  if (!text || fs::is_directory(options.words))
    throw std::runtime_error("--words " + options.words + ": cannot be read; name a text (Debian: apt-get install wamerican)");
  const std::vector<std::string> words = words_of(text);
  write_all(options, words);
  std::cout << options.output << ": " << options.train << " training and " << options.test << " test images of " << words.size()
            << " words in " << options.fonts.size() << " fonts\n";
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(read_options({arguments + 1, arguments + count}));
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n' << kUsage;
    return 1;
  }
}

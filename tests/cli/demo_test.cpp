// trivet demo on a text of a few sentences.
#include <gmock/gmock.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/program.h"

namespace trivet::test {
namespace {

void write_text(const Folder& folder, const std::string& name) {
  std::ofstream file(folder.path() + "/" + name);
  for (int line = 0; line < 2000; ++line) file << "Sentence " << line * line << " says that " << line << " is a number.\n";
}

TEST(Demo, TrainsGeneratesAndResumesOnATextOfTheUser) {
  const Folder folder;
  write_text(folder, "text.txt");
  const Output output = folder.run("demo --text text.txt --directory here --steps 3");
  ASSERT_EQ(output.code, 0) << output.errors << output.text;
  EXPECT_THAT(output.text, testing::HasSubstr("$ trivet launch --num_gpus 2 trivet train demo.json --set training.steps=3"));
  EXPECT_THAT(output.text, testing::HasSubstr("\nSentence"));
  EXPECT_THAT(output.text, testing::HasSubstr("checkpoint checkpoints, step 53"));
  EXPECT_THAT(folder.read("here/demo.json"), testing::HasSubstr("\"train\": \"text.tokens\""));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/text.tokens"));
}

// A program "bible" that ends with this exit code, and the PATH in which it is found first.
std::string with_bible(const Folder& folder, int code) {
  const std::string program = folder.path() + "/bible";
  std::ofstream(program) << "#!/bin/sh\n"
                            "test \"$*\" = '-f gen1:1-rev22:21' || exit 9\n"
                            "seq 2000 | sed 's/^/In the beginning /'\nexit "
                         << code << "\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  return "env PATH=" + folder.path() + ":$PATH";
}

TEST(Demo, TrainsOnTheBible) {
  const Folder folder;
  const Output output = folder.run_in(with_bible(folder, 0), "demo --steps 3");
  ASSERT_EQ(output.code, 0) << output.errors << output.text;
  EXPECT_THAT(output.text, testing::HasSubstr("kjv.txt: 42893 bytes"));
  EXPECT_THAT(output.text, testing::HasSubstr("--prompt 'In the beginning' --tokens 300\nIn the beginning"));
  EXPECT_EQ(folder.read("trivet-demo/kjv.txt").substr(0, 20), "In the beginning 1\nI");
}

TEST(Demo, DoesNotTrainOnHalfABible) {
  const Folder folder;
  const Output output = folder.run_in(with_bible(folder, 1), "demo --steps 3");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, testing::HasSubstr("demo: \"bible -f gen1:1-rev22:21\" ended with exit code 1"));
}

TEST(Demo, NamesThePackageWhereThereIsNoText) {
  const Folder folder;
  const Output output = folder.run_in("env PATH=" + folder.path(), "demo");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, testing::HasSubstr("install it (apt install bible-kjv), or give a text of your own"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/trivet-demo"));
}

TEST(Demo, DoesNotTouchADirectoryOfSomethingElse) {
  const Folder folder;
  write_text(folder, "text.txt");
  std::filesystem::create_directories(folder.path() + "/mine/checkpoints");
  const Output output = folder.run("demo --text text.txt --directory mine");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, testing::HasSubstr("--directory mine: is not empty, and not from an earlier demo with this text"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/mine/checkpoints"));
}

// A folder with configs/demo.json is not from an earlier demo: the user's own training may have left its checkpoints there.
TEST(Demo, DoesNotTakeACopyOfItsConfigForAnEarlierDemo) {
  const Folder folder;
  std::filesystem::create_directories(folder.path() + "/mine/checkpoints");
  std::filesystem::copy_file(TRIVET_SOURCE_DIR "/configs/demo.json", folder.path() + "/mine/demo.json");
  const Output output = folder.run_in(with_bible(folder, 0), "demo --directory mine");
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.errors, testing::HasSubstr("--directory mine: is not empty, and not from an earlier demo with this text"));
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/mine/checkpoints"));
}

TEST(Demo, DoesNotFollowLinksInADirectoryOfAnotherUser) {
  const Folder folder;
  std::filesystem::create_directories(folder.path() + "/theirs");
  if (::chown((folder.path() + "/theirs").c_str(), 54321, 54321) != 0) GTEST_SKIP() << "only root can give away a directory";
  const Output output = folder.run_in(with_bible(folder, 0), "demo --directory theirs");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.errors, "trivet: error: --directory theirs: belongs to another user; give another directory\n");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/theirs"));
}

TEST(Demo, DoesNotReplaceAFileByItsDirectory) {
  const Folder folder;
  write_text(folder, "text.txt");
  const Output output = folder.run("demo --text text.txt --directory text.txt");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.errors, "trivet: error: --directory text.txt: is not a directory\n");
}

TEST(Demo, RefusesATextThatItWouldOverwrite) {
  const Folder folder;
  std::filesystem::create_directories(folder.path() + "/here/checkpoints");
  for (const char* name : {"here/text.tokens", "here/checkpoints/text.txt", "here/demo.json"}) {
    write_text(folder, name);
    const std::string text = folder.read(name);
    const Output output = folder.run(std::string("demo --text ") + name + " --directory here --steps 3");
    EXPECT_EQ(output.code, 2);
    EXPECT_EQ(output.errors, std::string("trivet: error: --text ") + name +
                                 ": the demo would overwrite or remove this file; give it another --directory\n");
    EXPECT_EQ(folder.read(name), text);
  }
}

TEST(Demo, EndsWithTheFirstCommandThatFails) {
  const Folder folder;
  std::ofstream(folder.path() + "/text.txt") << "too short to train on\n";
  const Output output = folder.run("demo --text text.txt --directory here --steps 3");
  EXPECT_NE(output.code, 0);
  EXPECT_THAT(output.errors, testing::HasSubstr("demo: \"trivet "));
  EXPECT_THAT(output.text, testing::Not(testing::HasSubstr("Next")));
}

TEST(Demo, CanBeRunAgainAfterItFailed) {
  const Folder folder;
  std::ofstream(folder.path() + "/text.txt") << "too short to train on\n";
  EXPECT_NE(folder.run("demo --text text.txt --directory here --steps 3").code, 0);
  write_text(folder, "text.txt");
  std::filesystem::create_directories(folder.path() + "/here/checkpoints/of-the-earlier-demo");
  const Output output = folder.run("demo --text text.txt --directory here --steps 3");
  EXPECT_EQ(output.code, 0) << output.errors << output.text;
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/here/checkpoints/of-the-earlier-demo"));
}

TEST(Demo, BeginsWithAFewCharactersOfATextWithoutSpaces) {
  const Folder folder;
  std::ofstream file(folder.path() + "/text.txt");
  file << "--\nx";
  for (int number = 0; number < 20'000; ++number) file << "ä" << number * 7919;  // 2 bytes: not cut in the middle
  file.close();
  const Output output = folder.run("demo --text text.txt --directory here --steps 3");
  ASSERT_EQ(output.code, 0) << output.errors << output.text;
  EXPECT_THAT(output.text, testing::HasSubstr("--prompt 'xä0ä7919ä15838ä23757ä31676' --tokens"));
}

TEST(Demo, SaysThatThereIsNoSuchText) {
  const Output missing = Folder().run("demo --text none.txt");
  EXPECT_EQ(missing.code, 2);
  EXPECT_EQ(missing.errors, "trivet: error: --text none.txt: No such file or directory\n");
  const Output folder = Folder().run("demo --text .");
  EXPECT_EQ(folder.code, 2);
  EXPECT_EQ(folder.errors, "trivet: error: --text .: is not a file\n");
  const Output empty = Folder().run("demo --text ''");
  EXPECT_EQ(empty.code, 2);
  EXPECT_EQ(empty.errors,
            "trivet: error: demo: --text: an empty value is not accepted; give it a value, or leave it out; see trivet demo "
            "--help\n");
}

TEST(Demo, RefusesAnEmptyText) {
  const Folder folder;
  std::ofstream(folder.path() + "/text.txt") << " \n";
  const Output output = folder.run("demo --text text.txt");
  EXPECT_EQ(output.code, 2);
  EXPECT_EQ(output.errors, "trivet: error: --text text.txt: the file holds no text\n");
}

}  // namespace
}  // namespace trivet::test

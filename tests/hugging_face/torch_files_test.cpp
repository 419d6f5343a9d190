// Tests weights in files of torch.save: tests/golden/torch_files has those of the golden model llama-tied, written by torch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file_system.h"
#include "interchange/foreign/pickle.h"
#include "interchange/foreign/pt_file.h"
#include "interchange/hugging_face/model_files.h"
#include "interchange/hugging_face/pretrained_model.h"
#include "interchange/hugging_face/same_model.h"
#include "tests/support/memory_file_system.h"

namespace trivet::hugging_face {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kGolden = TRIVET_SOURCE_DIR "/tests/golden/";
const std::string kWhole = kGolden + "torch_files/whole/pytorch_model.bin";

std::vector<float> values_of(const checkpoint::TensorSource& source, const std::string& name, int64_t first, int64_t count) {
  std::vector<float> data(count);
  const checkpoint::Piece piece =
      checkpoint::whole_box_piece(name, source.find(name)->shape, first, {data.data(), DType::Float32, {count}});
  source.read({&piece, 1});
  return data;
}

void expect_same_weights(const std::string& folder) {
  const ModelFiles expected(real_file_system(), kGolden + "hf/llama-tied");
  const ModelFiles files(real_file_system(), kGolden + "torch_files/" + folder);
  for (const std::string& name : expected.names()) {
    ASSERT_NE(files.find(name), nullptr) << name;
    const Shape& shape = expected.find(name)->shape;
    ASSERT_EQ(files.find(name)->shape, shape) << name;
    EXPECT_EQ(values_of(files, name, 0, shape.elements()), values_of(expected, name, 0, shape.elements())) << name;
    EXPECT_EQ(values_of(files, name, 5, 7), values_of(expected, name, 5, 7)) << name;
  }
}

TEST(TorchFiles, HoldTheWeightsThatTorchSaved) { expect_same_weights("whole"); }
TEST(TorchFiles, MayBeSeveralWithViewsOfOneStorage) { expect_same_weights("shards"); }

TEST(TorchFiles, OfAModelWithATiedHeadMakeTheSameModelAsSafetensors) {
  const PretrainedModel expected(real_file_system(), kGolden + "hf/llama-tied");
  const PretrainedModel model(real_file_system(), kGolden + "torch_files/whole");
  EXPECT_THAT(model.notes(), testing::IsEmpty());
  EXPECT_EQ(model_difference(model.description(), expected.description()), "");
  EXPECT_NE(model.digest(), expected.digest());
}

TEST(TorchFiles, AreNotReadBesideSafetensors) {
  support::MemoryFileSystem files;
  files.create_directory("/model");
  for (const std::string name : {"config.json", "model.safetensors"})
    write_text(files, "/model/" + name, read_text(real_file_system(), kGolden + "hf/llama-tied/" + name, 1 << 20));
  write_text(files, "/model/pytorch_model.bin", "is not opened");
  EXPECT_EQ(ModelFiles(files, "/model").digest(), ModelFiles(real_file_system(), kGolden + "hf/llama-tied").digest());
}

TEST(TorchFiles, AnIndexNamesOnlyFilesOfItsKindInItsFolder) {
  for (const std::string name : {"../x.bin", "x.safetensors", "/x.bin"})
    EXPECT_THAT([&] { parse_index(R"({"weight_map": {"x": ")" + name + "\"}}", "index", kTorchFiles.ending); },
                ThrowsMessage<Error>(HasSubstr("use the name of a .bin file in the same folder")));
}

// As PyTorch's tutorials, DistributedDataParallel and torch.compile leave them. A name that only some have is the model's own.
TEST(TorchFiles, MayBeWrapped) {
  const auto names = [](const std::string& name) {
    const auto file = real_file_system().open(kGolden + "torch_files/wrapped/" + name + ".bin");
    foreign::TensorFiles tensors(name);
    foreign::add_state_dict(foreign::PtFile(*file), tensors);
    tensors.remove_wrapper();
    return tensors.names();
  };
  for (const char* name : {"inside", "distributed", "compiled"})
    EXPECT_THAT(names(name), testing::UnorderedElementsAre("x", "y")) << name;
  EXPECT_THAT(names("partly"), testing::UnorderedElementsAre("module.x", "y"));
}

// Files of tests/golden/torch_files/refused, and what is said of them.
TEST(TorchFiles, WhatIsNoWeightIsRefusedByNameAndNotExecuted) {
  const auto open = [](const std::string& name) {
    const auto file = real_file_system().open(kGolden + "torch_files/refused/" + name);
    foreign::TensorFiles tensors(name);
    foreign::add_state_dict(foreign::PtFile(*file), tensors);
  };
  EXPECT_THAT([&] { open("command.bin"); },
              ThrowsMessage<CheckpointError>(AllOf(HasSubstr("it uses \"posix.system\""), HasSubstr("nothing of the file was "
                                                                                                    "executed"))));
  EXPECT_FALSE(std::filesystem::exists("executed"));
  EXPECT_THAT([&] { open("transposed.bin"); },
              ThrowsMessage<CheckpointError>(HasSubstr("tensor \"x\" is not stored row by row")));
  EXPECT_THAT([&] { open("protocol.bin"); }, ThrowsMessage<CheckpointError>(HasSubstr("pickle protocol 4 is not accepted")));
}

// A file in memory that is the golden one but for some bytes.
class DamagedTorchFile : public testing::Test {
 protected:
  DamagedTorchFile() { files_.create_directory("/m"); }
  void open(const std::string& text) {
    write_text(files_, "/m/x.bin", text);
    const auto file = files_.open("/m/x.bin");
    foreign::TensorFiles tensors("x.bin");
    foreign::add_state_dict(foreign::PtFile(*file), tensors);
    files_.remove("/m/x.bin");
  }
  template <typename Message>
  void expect_refused(const std::string& text, const Message& message) {
    EXPECT_THAT([&] { open(text); }, ThrowsMessage<CheckpointError>(message));
  }
  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos);
    return text.replace(at, from.size(), to);
  }

  support::MemoryFileSystem files_;
  const std::string whole_ = read_text(real_file_system(), kWhole, 1 << 20);
};

TEST_F(DamagedTorchFile, IsRefused) {
  open(whole_);
  for (size_t bytes = 0; bytes < whole_.size(); bytes += 1 + bytes / 40)
    EXPECT_THROW(open(whole_.substr(0, bytes)), CheckpointError) << bytes;
  expect_refused("x" + whole_.substr(1), HasSubstr("is no zip archive"));
  expect_refused("<html>\n", HasSubstr("is a text, not a file of torch.save; it begins with \"<html>\"; get the file again"));
  expect_refused("\x80\x02}q", HasSubstr("is no zip archive, as torch.save makes since torch 1.6"));
  // The pickle lies in the file as it is, with a checksum.
  expect_refused(replaced(whole_, "OrderedDict", "OrderedDicx"), HasSubstr("does not have the checksum"));
}

TEST_F(DamagedTorchFile, WithACompressedOrMissingEntryIsRefused) {
  // The directory's entry of data.pkl: its method of compression is 36 bytes before its name.
  std::string text = whole_;
  const size_t name = text.rfind("/data.pkl"), begin = text.rfind("PK\x01\x02", name);
  text[begin + 10] = 8;
  expect_refused(text, HasSubstr("is compressed or encrypted"));
  text = whole_;
  text[text.rfind("/data.pkl") + 8] = 'x';
  expect_refused(text, HasSubstr("its header has another name"));
}

std::string refusal(const std::string& pickle) {
  try {
    const foreign::Pickle read(pickle, "file");
    return "accepted";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

TEST(Pickles, AreRefusedIfTheyContradictThemselves) {
  using std::string_literals::operator""s;
  EXPECT_EQ(refusal("\x80\x02}."s), "accepted");
  EXPECT_THAT(refusal("\x80\x02}"s), HasSubstr("ends in the middle of an instruction"));
  EXPECT_THAT(refusal("\x80\x02}.}"s), HasSubstr("goes on after its end"));
  EXPECT_THAT(refusal("\x80\x02}}."s), HasSubstr("leaves more than one value"));
  EXPECT_THAT(refusal("\x80\x02."s), HasSubstr("takes a value that is not there"));
  EXPECT_THAT(refusal("\x80\x02(t"s
                      "0"),
              HasSubstr("the instruction 0x30 at byte 4 is none that torch.save writes"));
  EXPECT_THAT(refusal("\x80\x02h\x07."s), HasSubstr("takes a value that is not there"));
  EXPECT_THAT(refusal("\x80\x02}(K\x01u."s), HasSubstr("sets a key without a value"));
  EXPECT_THAT(refusal("\x80\x02]K\x01K\x02s."s), HasSubstr("sets an item of no dict"));
  EXPECT_THAT(refusal("\x80\x02"
                      "cbuiltins\neval\n."s),
              HasSubstr("it uses \"builtins.eval\""));
  EXPECT_THAT(refusal("\x80\x02"
                      "ctorch\nSize"s),
              HasSubstr("ends in the middle of a name"));
  EXPECT_THAT(refusal("\x80\x02X\xff\xff\xff\x7f."s), HasSubstr("ends in the middle of an instruction"));
}

TEST(Pickles, OfCheckpointsMayUseAnyNameAsData) {
  using std::string_literals::operator""s;
  // posix.system("echo"), and a call whose result is given an item, as a dict with defaults is.
  const std::string call =
      "\x80\x02"
      "cposix\nsystem\nX\x04\0\0\0echo\x85R"s;
  const foreign::Pickle pickle(call + "K\x01K\x02s.", "file", foreign::AcceptedNames::Any);
  EXPECT_TRUE(pickle.root().is_object("posix.system"));
  ASSERT_EQ(pickle.root().items.size(), 1U);
  EXPECT_EQ(pickle.root().items[0]->text, "echo");
  EXPECT_THAT(refusal(call + "."), HasSubstr("it uses \"posix.system\""));
}

// A short program can call a long name a hundred thousand times.
TEST(Pickles, ObjectsShareTheirName) {
  const std::string name(10'000, 'n');
  std::string text = "\x80\x02(c" + name + "\nf\nq\x01)R";
  for (int i = 0; i < 100'000; ++i) text += "h\x01)R";
  const foreign::Pickle pickle(text + "t.", "file", foreign::AcceptedNames::Any);
  ASSERT_EQ(pickle.root().items.size(), 100'001U);
  EXPECT_EQ(pickle.root().items.front()->text, name + ".f");
  EXPECT_EQ(pickle.root().items.front()->text.data(), pickle.root().items.back()->text.data());
}

TEST(Pickles, ThatGrowWithoutBoundAreRefused) {
  std::string text = "\x80\x02N";
  // Pairs of pairs of pairs ... cost a value each; lists that copy themselves cost their items.
  for (int i = 0; i < 2'100'000; ++i) text += "\x85";
  EXPECT_THAT(refusal(text + "."), HasSubstr("has more than 2000000 values"));
}

TEST(Pickles, KeepTheLastValueOfAKey) {
  using std::string_literals::operator""s;
  const foreign::Pickle pickle("\x80\x02}(X\x01\0\0\0aK\x01X\x01\0\0\0aK\x02u."s, "file");
  const foreign::PickleValue* const found = foreign::find_member(pickle.root(), "a");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->number, 2);
  EXPECT_EQ(foreign::find_member(pickle.root(), "b"), nullptr);
}

}  // namespace
}  // namespace trivet::hugging_face

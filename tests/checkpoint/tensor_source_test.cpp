// Tests tensors that are made of rows of other tensors, as weights of another program would be.
#include "engine/checkpoint/tensor_source.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "core/error.h"

namespace trivet::checkpoint {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Element (r, c) of tensor t is 1000 t + 10 r + c.
class Theirs final : public TensorSource {
 public:
  Theirs() {
    add("q", 1, {4, 3});
    add("k", 2, {2, 3});
    add("v", 3, {2, 3});
    add("wide", 4, {2, 5});
    add("bias", 5, {4});
  }
  std::string source() const override { return "their.file"; }
  const TensorInfo* find(const std::string& name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  void read(std::span<const Piece> wanted) const override {
    for (const Piece& piece : wanted) {
      const std::vector<float>& from = values_.at(piece.name);
      const int64_t columns = piece.shape.dims() > 1 ? piece.shape[1] : 1,
                    width = piece.shape.dims() > 1 ? piece.box_shape[1] : 1;
      const int64_t left = piece.shape.dims() > 1 ? piece.box_start[1] : 0;
      for (int64_t i = 0; i < piece.count; ++i) {
        const int64_t row = piece.box_start[0] + (piece.first + i) / width, column = left + (piece.first + i) % width;
        ASSERT_LT(row, piece.shape[0]);
        piece.data.as<float>()[i] = from[row * columns + column];
      }
    }
  }

 private:
  void add(const std::string& name, int number, const Shape& shape) {
    tensors_[name] = {DType::Float32, shape};
    const int64_t columns = shape.dims() > 1 ? shape[1] : 1;
    for (int64_t i = 0; i < shape.elements(); ++i)
      values_[name].push_back(static_cast<float>(1000 * number + 10 * (i / columns) + i % columns));
  }
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::vector<float>> values_;
};

const Theirs kTheirs;
const MappedSource::Table kTable{{"qkv", {{"q"}, {"k"}, {"v"}}}, {"last rows", {{"q", 2, 2}, {"k", 1}}}, {"bias", {{"bias"}}}};
// [7, 2]: the columns of "wide" and two of the rows of its transpose once more.
const MappedSource::Table kTransposed{{"tall", {{"wide", 0, 0, true}, {"wide", 2, 2, true}}}};

TEST(MappedSource, ATensorIsTheRowsOfTheirsOneAfterAnother) {
  const MappedSource mapped(kTheirs, kTable);
  ASSERT_TRUE(mapped.find("qkv"));
  EXPECT_EQ(mapped.find("qkv")->shape, (Shape{8, 3}));
  EXPECT_EQ(mapped.find("last rows")->shape, (Shape{3, 3}));
  EXPECT_EQ(mapped.find("q"), nullptr);
  std::vector<float> qkv(24), rows(9), bias(4);
  mapped.read(std::vector{whole_box_piece("qkv", {8, 3}, 0, {qkv.data(), DType::Float32, {24}}),
                          whole_box_piece("last rows", {3, 3}, 0, {rows.data(), DType::Float32, {9}}),
                          whole_box_piece("bias", {4}, 0, {bias.data(), DType::Float32, {4}})});
  EXPECT_EQ(qkv, (std::vector<float>{1000, 1001, 1002, 1010, 1011, 1012, 1020, 1021, 1022, 1030, 1031, 1032,
                                     2000, 2001, 2002, 2010, 2011, 2012, 3000, 3001, 3002, 3010, 3011, 3012}));
  EXPECT_EQ(rows, (std::vector<float>{1020, 1021, 1022, 1030, 1031, 1032, 2010, 2011, 2012}));
  EXPECT_EQ(bias, (std::vector<float>{5000, 5010, 5020, 5030}));
}

TEST(MappedSource, AddsANumberToTheRowsThatAskForIt) {
  const MappedSource mapped(kTheirs, {{"qk", {{.tensor = "q", .plus = 0.5f}, {"k"}}}});
  std::vector<float> middle(9);
  mapped.read(std::vector<Piece>{{"qk", {6, 3}, {2, 0}, {4, 3}, 1, 9, {middle.data(), DType::Float32, {9}}}});
  EXPECT_EQ(middle, (std::vector<float>{1021.5f, 1022.5f, 1030.5f, 1031.5f, 1032.5f, 2000, 2001, 2002, 2010}));
}

// Every box and every range of its elements is the same part of the whole tensor.
TEST(MappedSource, ReadsEveryPart) {
  const MappedSource mapped(kTheirs, kTable);
  std::vector<float> whole(24);
  mapped.read(std::vector{whole_box_piece("qkv", {8, 3}, 0, {whole.data(), DType::Float32, {24}})});
  for (const auto& [row, rows] : {std::pair<int64_t, int64_t>{0, 8}, {1, 6}, {3, 2}, {4, 1}, {5, 3}})
    for (const auto& [column, columns] : {std::pair<int64_t, int64_t>{0, 3}, {1, 2}, {2, 1}})
      for (int64_t first = 0; first < rows * columns; ++first)
        for (int64_t count = 1; first + count <= rows * columns; ++count) {
          std::vector<float> part(count), expected;
          mapped.read(std::vector<Piece>{
              {"qkv", {8, 3}, {row, column}, {rows, columns}, first, count, {part.data(), DType::Float32, {count}}}});
          for (int64_t i = first; i < first + count; ++i)
            expected.push_back(whole[(row + i / columns) * 3 + column + i % columns]);
          ASSERT_EQ(part, expected) << row << " " << rows << " " << column << " " << first << " " << count;
        }
}

TEST(MappedSource, ReadsEveryPartOfATransposedTensor) {
  const MappedSource mapped(kTheirs, kTransposed);
  ASSERT_TRUE(mapped.find("tall"));
  EXPECT_EQ(mapped.find("tall")->shape, (Shape{7, 2}));
  const std::vector<float> whole{4000, 4010, 4001, 4011, 4002, 4012, 4003, 4013, 4004, 4014, 4002, 4012, 4003, 4013};
  for (const auto& [row, rows] : {std::pair<int64_t, int64_t>{0, 7}, {1, 5}, {4, 3}, {6, 1}})
    for (const auto& [column, columns] : {std::pair<int64_t, int64_t>{0, 2}, {0, 1}, {1, 1}})
      for (int64_t first = 0; first < rows * columns; ++first)
        for (int64_t count = 1; first + count <= rows * columns; ++count) {
          std::vector<float> part(count), expected;
          mapped.read(std::vector<Piece>{
              {"tall", {7, 2}, {row, column}, {rows, columns}, first, count, {part.data(), DType::Float32, {count}}}});
          for (int64_t i = first; i < first + count; ++i)
            expected.push_back(whole[(row + i / columns) * 2 + column + i % columns]);
          ASSERT_EQ(part, expected) << row << " " << rows << " " << column << " " << first << " " << count;
        }
}

TEST(MappedSource, NamesBothTensorsOfABadTable) {
  const auto expect_refused = [](std::vector<TheirRows> rows, const std::string& message) {
    EXPECT_THAT([&] { MappedSource(kTheirs, {{"ours", rows}}); }, ThrowsMessage<CheckpointError>(message));
  };
  expect_refused({{"nothing"}}, "their.file: tensor \"nothing\", needed for ours, is absent; is this another model?");
  expect_refused({{"q", 3, 2}}, "their.file: tensor \"q\", needed for ours, has 4 rows, but 3 to 4 are needed");
  expect_refused({{"wide", 4, 2, true}}, "their.file: tensor \"wide\", needed for ours, has 5 columns, but 4 to 5 are needed");
  expect_refused({{"bias", 0, 0, true}},
                 "their.file: tensor \"bias\", needed for ours, has the shape [4], but a matrix is needed");
  for (const TheirRows& part : {TheirRows{"q", 0, 3}, TheirRows{"q", 1, 2}})
    expect_refused({part},
                   fmt::format("their.file: tensor \"q\", needed for ours, has 4 rows, of which row {} and later ones are "
                               "not used; is this another model?",
                               part.first == 0 ? 3 : 0));
  expect_refused(
      {{"q"}, {"wide"}},
      "their.file: tensor \"wide\", needed for ours, is float32 [2, 5], which does not continue \"q\", float32 [4, 3]");
}

TEST(MappedSource, RefusesWhatDoesNotFitBeforeItReads) {
  const MappedSource mapped(kTheirs, kTable);
  std::vector<float> data(24, -1);
  const auto read = [&](const std::string& name, const Shape& shape) {
    mapped.read(std::vector{whole_box_piece("bias", {4}, 0, {data.data(), DType::Float32, {4}}),
                            whole_box_piece(name, shape, 0, {data.data(), DType::Float32, {shape.elements()}})});
  };
  EXPECT_THAT([&] { read("q", {4, 3}); }, ThrowsMessage<CheckpointError>(HasSubstr("their.file: tensor \"q\" is not in")));
  EXPECT_THAT(
      [&] {
        read("qkv", {3, 8});
      },
      ThrowsMessage<CheckpointError>(HasSubstr("is stored as float32 [8, 3], but float32 [3, 8] is needed")));
  EXPECT_EQ(data, std::vector<float>(24, -1));
}

}  // namespace
}  // namespace trivet::checkpoint

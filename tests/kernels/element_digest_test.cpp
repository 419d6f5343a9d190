#include "kernels/element_digest.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "kernels/kernels.h"

namespace trivet::kernels::element_digest_test {
namespace {

class ElementDigestTest : public testing::Test {
 protected:
  uint64_t digest(std::vector<int64_t>& values, uint64_t key = 5, int64_t first = 0) {
    return digest_.of({values.data(), DType::Int64, {static_cast<int64_t>(values.size())}}, key, first);
  }

  const std::unique_ptr<Kernels> kernels_ = make_cpu_kernels(1);
  ElementDigest digest_{*kernels_, Device::Cpu};
};

TEST_F(ElementDigestTest, ChangesWithEveryBitOfAnElementOfAnySize) {
  for (const DType dtype : {DType::BFloat16, DType::Float32, DType::Int64}) {
    std::vector<uint8_t> bytes(3 * size_of(dtype));
    std::iota(bytes.begin(), bytes.end(), uint8_t{200});
    const auto of = [&] { return digest_.of({bytes.data(), dtype, {3}}, 7, 11); };
    const uint64_t before = of();
    for (uint8_t& byte : bytes)
      for (int bit = 0; bit < 8; ++bit) {
        byte ^= static_cast<uint8_t>(1 << bit);
        EXPECT_NE(of(), before) << name_of(dtype);
        byte ^= static_cast<uint8_t>(1 << bit);
      }
    EXPECT_EQ(of(), before);
  }
}

TEST_F(ElementDigestTest, OfASumOfIntegersIsTheSumOfTheirDigests) {
  std::vector<int64_t> a{1, -5, int64_t{1} << 62, 0}, b{7, 5, (int64_t{1} << 62) - 1, -1}, sum;
  for (size_t i = 0; i < a.size(); ++i) sum.push_back(a[i] + b[i]);
  EXPECT_EQ(digest(sum), digest(a) + digest(b));
}

TEST_F(ElementDigestTest, OfPartsAddUpToThatOfTheWhole) {
  std::vector<int64_t> whole{3, 1, 4, 1, 5, 9}, head{3, 1}, tail{4, 1, 5, 9};
  EXPECT_EQ(digest(whole, 5, 100), digest(head, 5, 100) + digest(tail, 5, 102));
}

TEST_F(ElementDigestTest, DependsOnKeyAndPlace) {
  std::vector<int64_t> values{3, 1}, exchanged{1, 3};
  EXPECT_NE(digest(values), digest(exchanged));
  EXPECT_NE(digest(values, 5), digest(values, 6));
}

}  // namespace
}  // namespace trivet::kernels::element_digest_test

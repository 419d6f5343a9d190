// No byte of a key stays in memory that its owner has given back. The owners are made in memory of the test, which looks at it
// afterwards.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

#include "comm/handshake.h"
#include "comm/record_cipher.h"
#include "comm/secret.h"

namespace trivet::comm {
namespace {

// Room for one object, which outlives it.
template <typename T>
class Room {
 public:
  template <typename... Arguments>
  T& make(Arguments&&... arguments) {
    return *(object_ = new (bytes_.data()) T(std::forward<Arguments>(arguments)...));
  }
  void destroy() { object_->~T(); }
  // Reads the bytes as they are, whether an object lives there or not.
  bool has(std::string_view key) const {
    std::string seen;
    for (const std::byte& byte : bytes_) seen += static_cast<char>(*static_cast<const volatile std::byte*>(&byte));
    return seen.find(key) != std::string::npos;
  }

 private:
  alignas(T) std::array<std::byte, sizeof(T)> bytes_{};
  T* object_ = nullptr;
};

constexpr std::string_view kKey = "sixteen bytes or more", kOther = "another secret of the test";

TEST(WipedKeys, ASecretLeavesNothingWhereItWas) {
  Room<Secret> room;
  room.make(kKey);
  ASSERT_TRUE(room.has(kKey));
  room.destroy();
  EXPECT_FALSE(room.has(kKey));
}

TEST(WipedKeys, ASecretLeavesNothingWhereItWasMovedFrom) {
  Room<Secret> from, to;
  Secret& first = from.make(kKey);
  Secret& second = to.make(std::move(first));
  EXPECT_FALSE(from.has(kKey));
  EXPECT_EQ(second.key(), kKey);

  first = std::move(second);
  EXPECT_FALSE(to.has(kKey));
  EXPECT_EQ(first.key(), kKey);
  from.destroy();
  to.destroy();
}

TEST(WipedKeys, ASecretLeavesNothingOfALongerOneThatItReplaces) {
  Room<Secret> room;
  Secret& secret = room.make(kOther);
  const Secret shorter("short");
  secret = shorter;
  EXPECT_EQ(secret.key(), "short");
  EXPECT_FALSE(room.has(kOther.substr(5)));
  const Secret& itself = secret;
  secret = itself;
  EXPECT_EQ(secret.key(), "short");
  room.destroy();
}

SessionKeys keys_of(char send, char receive) {
  SessionKeys keys;
  keys.send.fill(static_cast<unsigned char>(send));
  keys.receive.fill(static_cast<unsigned char>(receive));
  return keys;
}

TEST(WipedKeys, KeysOfAConnectionLeaveNothingWhereTheyWere) {
  Room<SessionKeys> room;
  room.make(keys_of('s', 'r'));
  ASSERT_TRUE(room.has(std::string(32, 's')));
  room.destroy();
  EXPECT_FALSE(room.has("ssss"));
  EXPECT_FALSE(room.has("rrrr"));
}

TEST(WipedKeys, AConnectionThatIsClosedLeavesNothing) {
  Room<Connection> room;
  room.make(Descriptor(), keys_of('s', 'r'), FrameLimits{});
  ASSERT_TRUE(room.has(std::string(32, 's')));
  room.destroy();
  EXPECT_FALSE(room.has("ssss"));
  EXPECT_FALSE(room.has("rrrr"));
}

}  // namespace
}  // namespace trivet::comm

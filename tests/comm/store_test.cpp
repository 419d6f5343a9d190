#include "comm/store.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/error.h"

namespace trivet::comm {
namespace {

using std::chrono::milliseconds;

TEST(Store, PublishesWhatThisRankSetsAndNothingElse) {
  std::vector<std::string> published;
  Store store([&](const std::string& key, const std::string& value) { published.push_back(key + "=" + value); });
  store.set("a", "1");
  store.apply("b", "2");
  store.set("a", "1");  // already known: not published again
  EXPECT_EQ(published, std::vector<std::string>{"a=1"});
  EXPECT_EQ(store.get("a", milliseconds(0)), "1");
  EXPECT_EQ(store.get("b", milliseconds(0)), "2");
}

TEST(Store, WaitsForAKeyOfAnotherRank) {
  Store store([](const std::string&, const std::string&) {});
  std::thread other([&] { store.apply("late", "x"); });
  EXPECT_EQ(store.get("late", milliseconds(2000)), "x");
  other.join();
}

TEST(Store, NamesTheKeysThatAreMissingAtTheDeadline) {
  Store store([](const std::string&, const std::string&) {});
  store.apply("here", "");
  EXPECT_EQ(store.wait_for({"here", "there", "nowhere"}, milliseconds(10)), (std::vector<std::string>{"there", "nowhere"}));
  EXPECT_EQ(store.get("there", milliseconds(0)), std::nullopt);
}

TEST(Store, RefusesASecondValueForAKey) {
  Store store([](const std::string&, const std::string&) {});
  store.set("a", "1");
  EXPECT_THROW(store.apply("a", "2"), CommError);
}

TEST(Store, InterruptedEndsWaitsNowAndLater) {
  Store store([](const std::string&, const std::string&) {});
  std::thread other([&] { store.interrupt(); });
  EXPECT_EQ(store.get("never", milliseconds(60000)), std::nullopt);
  EXPECT_EQ(store.get("never", milliseconds(60000)), std::nullopt);
  other.join();
}

}  // namespace
}  // namespace trivet::comm

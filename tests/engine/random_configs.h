// Draws configs at random: a value for each of a list of keys, independently. The engine refuses what cannot be combined.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace trivet {

struct Choice {
  std::string key;
  std::vector<std::string> values;  // a value listed twice is drawn twice as often
};

struct Draw {
  int ranks = 1;
  std::vector<std::string> overrides;  // "key=value" of each choice

  void set(const std::string& key, const std::string& value) {
    std::erase_if(overrides, [&](const std::string& drawn) { return drawn.starts_with(key + "="); });
    overrides.push_back(key + "=" + value);
  }
};

class Dice {
 public:
  // Uses the random engine directly, because distributions differ between standard libraries.
  size_t below(size_t end) { return random_() % end; }
  std::vector<std::string> overrides(const std::vector<Choice>& choices) {
    std::vector<std::string> overrides;
    for (const Choice& choice : choices) overrides.push_back(choice.key + "=" + choice.values[below(choice.values.size())]);
    return overrides;
  }

 private:
  std::mt19937 random_{2028};
};

// The number in an environment variable, with which scripts/nightly tests more than `otherwise`.
inline int number_from(const char* variable, int otherwise) {
  const char* const given = std::getenv(variable);
  return given ? std::atoi(given) : otherwise;
}

}  // namespace trivet

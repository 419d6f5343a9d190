// Tokens and their ids.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace trivet::data {

class TokenIds {
 public:
  void add(std::string token, int32_t id) { ids_.insert_or_assign(std::move(token), id); }
  // -1: none
  int32_t find(std::string_view token) const {
    const auto found = ids_.find(token);
    return found == ids_.end() ? -1 : found->second;
  }
  size_t size() const { return ids_.size(); }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const auto& [token, id] : ids_) visit(token, id);
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

}  // namespace trivet::data

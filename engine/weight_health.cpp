#include "engine/weight_health.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/finite.h"
#include "engine/checkpoint/manifest.h"
#include "zero/staging.h"

namespace trivet {
namespace {

double largest_finite(ConstTensorView block) {
  return dispatch_float(block.dtype, [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    Wide largest = 0;
    for (int64_t i = 0; i < block.elements(); ++i) {
      const Wide magnitude = std::abs(static_cast<Wide>(block.as<T>()[i]));
      if (magnitude > largest && magnitude <= std::numeric_limits<Wide>::max()) largest = magnitude;
    }
    return static_cast<double>(largest);
  });
}

void inspect_block(ConstTensorView block, const checkpoint::Piece& piece, int64_t first, int rank, WeightHealth& health) {
  const int64_t bad = health.finite() ? first_not_finite(block, piece.used_as) : -1;
  if (bad >= 0)
    health.not_finite = fmt::format("{} on rank {} (element {} is {})", piece.name, rank, piece.first + first + bad,
                                    not_finite_value(block, bad, piece.used_as));
  const double largest = largest_finite(block);
  if (largest <= health.largest) return;
  health.largest = largest;
  health.largest_in = piece.name;
}

WeightHealth inspect_mine(std::span<const checkpoint::Piece> pieces, kernels::Kernels& kernels, int rank) {
  WeightHealth health;
  zero::StagedTensorReader reader;
  std::vector<std::byte> memory;
  for (const checkpoint::Piece& piece : pieces) {
    if (piece.name.starts_with("optimizer.") || !is_float(piece.data.dtype)) continue;
    const int64_t most = checkpoint::kBlockBytes / size_of(piece.data.dtype);
    for (int64_t done = 0; done < piece.count; done += most) {
      const int64_t count = std::min(most, piece.count - done);
      if (piece.staged) {
        inspect_block(reader.read(*piece.staged, piece.staged_first + done, count), piece, done, rank, health);
        continue;
      }
      const ConstTensorView data = piece.data.slice(done, count);
      memory.resize(data.bytes());
      const TensorView host{memory.data(), data.dtype, data.shape};
      kernels.to_host(data, host);
      inspect_block(host, piece, done, rank, health);
    }
  }
  return health;
}

}  // namespace

WeightHealth inspect_weights(std::span<const checkpoint::Piece> pieces, kernels::Kernels& kernels,
                             const comm::Participants& ranks) {
  const WeightHealth mine = inspect_mine(pieces, kernels, ranks.rank);
  WeightHealth all;
  for (const std::string& text : ranks.gather(nlohmann::json::array({mine.not_finite, mine.largest, mine.largest_in}).dump())) {
    const auto json = nlohmann::json::parse(text);
    if (all.finite()) all.not_finite = json.at(0).get<std::string>();
    if (json.at(1).get<double>() <= all.largest) continue;
    all.largest = json.at(1);
    all.largest_in = json.at(2);
  }
  return all;
}

}  // namespace trivet

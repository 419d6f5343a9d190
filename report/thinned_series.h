// A series of points of which at most a fixed number is kept, however long it becomes: all of them at first, then every second,
// every fourth ..., and always the last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace trivet::report {

template <typename Point>
class ThinnedSeries {
 public:
  explicit ThinnedSeries(size_t most = 20'000) : most_(most) {}

  void add(const Point& point) {
    last_ = point;
    if (count_++ % stride_ != 0) return;
    if (kept_.size() == most_) halve();
    if ((count_ - 1) % stride_ == 0) kept_.push_back(point);
  }

  // Returns the points in the order in which they were added.
  std::vector<Point> points() const {
    std::vector<Point> points = kept_;
    if (last_ && (count_ - 1) % stride_ != 0) points.push_back(*last_);
    return points;
  }
  bool empty() const { return count_ == 0; }
  int64_t count() const { return count_; }    // points that were added
  int64_t stride() const { return stride_; }  // one point in so many was kept
  const Point& last() const { return *last_; }

 private:
  void halve() {
    for (size_t i = 0; 2 * i < kept_.size(); ++i) kept_[i] = kept_[2 * i];
    kept_.resize((kept_.size() + 1) / 2);
    stride_ *= 2;
  }

  size_t most_;
  int64_t count_ = 0, stride_ = 1;
  std::vector<Point> kept_;
  std::optional<Point> last_;
};

}  // namespace trivet::report

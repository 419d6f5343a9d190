// The loop that adds columns to an image, compiled per instruction set (convolution.cpp).

template <typename Sum>
void add_rows(const AddedRows<Sum>& rows) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    const Sum* from = rows.from + row * rows.from_pitch;
    Sum* to = rows.to + row * rows.to_pitch;
    if (rows.stride == 1) {
#pragma GCC ivdep
      for (int64_t col = 0; col < rows.cols; ++col) to[col] += from[col];
    } else {
      for (int64_t col = 0; col < rows.cols; ++col) to[col * rows.stride] += from[col];
    }
  }
}

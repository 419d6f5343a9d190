// Runs independent pieces of work on several threads, for kernels whose bits must not depend on the number of threads: the
// shapes alone decide what the pieces are, each piece is done by one thread, and no piece reads what another one writes.
//
// A library that is called in a piece and uses OpenMP itself (oneDNN) gets only one thread there: the setting below belongs to
// the implicit task of the parallel region and ends with it, so that nothing changes for the process or the caller.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <exception>

namespace trivet::kernels::cpu {

// body(piece) for every piece in [0, pieces). The first exception is rethrown in the caller when all pieces are done.
template <typename Body>
void for_each_piece(int64_t pieces, int threads, Body&& body) {
  if (pieces <= 0) return;
  std::exception_ptr error;
  const int team = static_cast<int>(std::clamp<int64_t>(pieces, 1, std::max(threads, 1)));
#pragma omp parallel num_threads(team)
  {
    omp_set_num_threads(1);
#pragma omp for schedule(dynamic)
    for (int64_t piece = 0; piece < pieces; ++piece) {
      try {
        body(piece);
      } catch (...) {
#pragma omp critical(trivet_for_each_piece)
        if (!error) error = std::current_exception();
      }
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace trivet::kernels::cpu

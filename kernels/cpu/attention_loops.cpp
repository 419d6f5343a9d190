#include "kernels/cpu/attention_loops.h"

#include "kernels/cpu/isa.h"

#define TRIVET_LOOPS "kernels/cpu/attention_loops.inl"
#include "kernels/cpu/for_each_isa.inl"

namespace trivet::kernels::cpu {

template <typename T>
const AttentionLoops<T>& attention_loops() {
  return *by_isa(&baseline::kLoops<T>, &v3::kLoops<T>, &v4::kLoops<T>);
}

template const AttentionLoops<float>& attention_loops<float>();
template const AttentionLoops<bfloat16>& attention_loops<bfloat16>();
template const AttentionLoops<float16>& attention_loops<float16>();
template const AttentionLoops<double>& attention_loops<double>();

}  // namespace trivet::kernels::cpu

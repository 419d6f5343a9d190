#include "kernels/token_choice.h"

#include "kernels/costs.h"
#include "kernels/rules.h"

namespace trivet::kernels {
namespace {

// `some` has the rows of the chosen tokens, `all` those of all tokens.
void check_rows(const Rules& rules, ConstTensorView some, ConstTensorView all, ConstTensorView chosen) {
  rules.types(DType::Int32, {chosen});
  rules.floating(some.dtype);
  rules.types(some.dtype, {all});
  rules.require(all.shape.dims() == 3 && some.shape.dims() == 3 && chosen.shape.dims() == 2,
                "rows must be [B, S, H] and [B, K, H], places [B, K]");
  rules.require(some.shape[0] == all.shape[0] && some.shape[2] == all.shape[2] && some.shape[1] <= all.shape[1],
                "the shapes of the rows do not match");
  rules.require(chosen.shape[0] == some.shape[0] && chosen.shape[1] == some.shape[1], "there must be a place for each row");
}

KernelCall describe_move(const char* kernel, ConstTensorView some, ConstTensorView chosen) {
  return {.kernel = kernel,
          .dtype = some.dtype,
          .sizes = rows_of(some),
          .bound = Bound::Memory,
          .bytes = total_bytes({some, some, chosen})};
}

}  // namespace

void ChooseTokens::check() const {
  const Rules rules("choose_tokens", {{"chosen", chosen}});
  rules.types(DType::Int32, {chosen});
  rules.require(chosen.shape.dims() == 2 && chosen.shape[1] <= sequence, "at most the tokens of a sequence can be chosen");
}

KernelCall ChooseTokens::describe() const {
  return {.kernel = "choose_tokens",
          .dtype = chosen.dtype,
          .sizes = rows_of(chosen),
          .bound = Bound::Memory,
          .bytes = total_bytes({chosen})};
}

void GatherTokens::check() const {
  check_rows(Rules("gather_tokens", {{"x", x}, {"chosen", chosen}, {"out", out}}), out, x, chosen);
}
KernelCall GatherTokens::describe() const { return describe_move("gather_tokens", out, chosen); }

void ScatterTokens::check() const {
  check_rows(Rules("scatter_tokens", {{"x", x}, {"chosen", chosen}, {"out", out}}), x, out, chosen);
}
KernelCall ScatterTokens::describe() const { return describe_move("scatter_tokens", x, chosen); }

}  // namespace trivet::kernels

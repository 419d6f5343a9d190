// Turns exceptions into a trivet_status and the text of trivet_last_error(): none of them may reach a C program.
#pragma once

#include <trivet/c.h>

#include <functional>
#include <new>
#include <string>

#include "core/error.h"

namespace trivet::c_api {

// Runs `work` and returns what became of it.
trivet_status guarded(const std::function<void()>& work) noexcept;

const char* last_error() noexcept;

// Throws Error (Usage).
[[noreturn]] void refuse(const std::string& what);
template <typename T>
T& given(T* pointer, const char* name) {
  if (!pointer) refuse(std::string(name) + " is NULL");
  return *pointer;
}

// Throws Error (Usage) unless `size` can be that of a struct and covers its members of version 1.0.
void check_size(size_t size, size_t least, const char* type);

}  // namespace trivet::c_api

#include "c/guard.h"

namespace trivet::c_api {
namespace {

thread_local std::string text_of_last_error;

trivet_status failed(ExitCode code, const char* text) noexcept {
  try {
    text_of_last_error = text;
  } catch (...) {  // there is no memory even for the text
    text_of_last_error.clear();
  }
  return static_cast<trivet_status>(code);
}

}  // namespace

trivet_status guarded(const std::function<void()>& work) noexcept {
  try {
    work();
    return TRIVET_OK;
  } catch (const Error& error) {
    return failed(error.exit_code(), error.what());
  } catch (const std::bad_alloc&) {
    return failed(ExitCode::OutOfMemory, "memory could not be allocated");
  } catch (const std::exception& error) {
    return failed(ExitCode::Internal, error.what());
  } catch (...) {
    return failed(ExitCode::Internal, "an exception of unknown type");
  }
}

const char* last_error() noexcept { return text_of_last_error.c_str(); }

void refuse(const std::string& what) { throw Error(ExitCode::Usage, "trivet/c.h: " + what); }

void check_size(size_t size, size_t least, const char* type) {
  if (size < least)
    refuse(std::string("size of a ") + type + " is " + std::to_string(size) + "; set it to sizeof(" + type + "), at least " +
           std::to_string(least));
}

}  // namespace trivet::c_api

#include "c/guard.h"

namespace trivet::c_api {
namespace {

thread_local std::string text_of_last_error;

constexpr bool is(ExitCode code, int status) { return static_cast<int>(code) == status; }
static_assert(is(ExitCode::Done, TRIVET_OK) && is(ExitCode::Usage, TRIVET_USAGE) && is(ExitCode::PeerLost, TRIVET_PEER_LOST) &&
                  is(ExitCode::NoProgress, TRIVET_NO_PROGRESS) && is(ExitCode::RanksDisagree, TRIVET_RANKS_DISAGREE) &&
                  is(ExitCode::Rendezvous, TRIVET_RENDEZVOUS) &&
                  is(ExitCode::CheckpointNotWritten, TRIVET_CHECKPOINT_NOT_WRITTEN) &&
                  is(ExitCode::CheckpointCorrupt, TRIVET_CHECKPOINT_CORRUPT) && is(ExitCode::Numerics, TRIVET_NUMERICS) &&
                  is(ExitCode::DataChanged, TRIVET_DATA_CHANGED) && is(ExitCode::OutOfMemory, TRIVET_OUT_OF_MEMORY) &&
                  is(ExitCode::VersionSkew, TRIVET_VERSION_SKEW) && is(ExitCode::Storage, TRIVET_STORAGE) &&
                  is(ExitCode::Device, TRIVET_DEVICE) && is(ExitCode::Internal, TRIVET_INTERNAL),
              "a trivet_status is an exit code");

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
  constexpr size_t kMost = 4096;  // a member that nobody set may have any value
  if (size < least || size > kMost || size % alignof(void*) != 0)
    refuse(std::string("size of a ") + type + " is " + std::to_string(size) + "; set it to sizeof(" + type + "), at least " +
           std::to_string(least));
}

}  // namespace trivet::c_api

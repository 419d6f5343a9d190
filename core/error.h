// Types for what can go wrong. One class per exit code (docs/exit_codes.md); libraries throw, only `cli` exits.
//
// A message holds the key or file, the value given, what is accepted and, if there is one, the next thing to do. An error that
// only a defect in Trivet can cause is std::logic_error (exit code 70).
#pragma once

#include <stdexcept>
#include <string>

namespace trivet {

enum class ExitCode : int {
  Done = 0,
  Usage = 2,
  PeerLost = 10,
  NoProgress = 11,
  RanksDisagree = 12,
  Rendezvous = 13,
  CheckpointNotWritten = 14,
  CheckpointCorrupt = 15,
  Numerics = 16,
  DataChanged = 18,
  OutOfMemory = 19,
  VersionSkew = 20,
  Storage = 21,
  Device = 22,
  Internal = 70,
};

class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ExitCode exit_code() const { return code_; }

 private:
  ExitCode code_;
};

class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ExitCode::Usage, message) {}
};

// Communication: PeerLost, NoProgress, RanksDisagree, Rendezvous or VersionSkew.
class CommError : public Error {
 public:
  using Error::Error;
};

// Usage (no GPU, too few, too old), Device (the GPU failed), VersionSkew (the CUDA module comes from another build) or
// Internal.
class DeviceError : public Error {
 public:
  using Error::Error;
};

class OutOfMemoryError : public DeviceError {
 public:
  explicit OutOfMemoryError(const std::string& message) : DeviceError(ExitCode::OutOfMemory, message) {}
};

// A file that holds weights or optimizer states while training runs (offload) could not be created, written or read.
class StorageError : public Error {
 public:
  explicit StorageError(const std::string& message) : Error(ExitCode::Storage, message) {}
};

// CheckpointNotWritten or CheckpointCorrupt.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

// Usage (a file that is missing or is not what it should be) or DataChanged.
class DataError : public Error {
 public:
  using Error::Error;
};

class NumericsError : public Error {
 public:
  explicit NumericsError(const std::string& message) : Error(ExitCode::Numerics, message) {}
};

}  // namespace trivet

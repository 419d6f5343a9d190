#include "engine/data/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/data/data_error.h"

namespace trivet::data {
namespace {

struct Descriptor {
  int number;
  ~Descriptor() { ::close(number); }
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.number < 0)
    bad_file(path, errno == ENOENT ? "no such file" : std::string("cannot be opened: ") + std::strerror(errno));
  struct stat status {};
  if (::fstat(file.number, &status) != 0) bad_file(path, std::string("cannot be examined: ") + std::strerror(errno));
  if (S_ISDIR(status.st_mode)) bad_file(path, "is a directory; name a file");
  if (status.st_size == 0) bad_file(path, "is empty");
  void* mapped = ::mmap(nullptr, static_cast<size_t>(status.st_size), PROT_READ, MAP_SHARED, file.number, 0);
  if (mapped == MAP_FAILED) bad_file(path, std::string("cannot be mapped: ") + std::strerror(errno));
  data_ = static_cast<const std::byte*>(mapped);
  bytes_ = status.st_size;
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(bytes_)); }

}  // namespace trivet::data

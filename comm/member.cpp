#include "comm/member.h"

#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

#include "comm/secret.h"
#include "core/log.h"

namespace trivet::comm {
namespace {

constexpr int kProtocol = 3;

std::string build_id_in(const char* notes, size_t size) {
  size_t at = 0;
  while (at + sizeof(ElfW(Nhdr)) <= size) {
    ElfW(Nhdr) header;
    std::memcpy(&header, notes + at, sizeof header);
    const size_t name = at + sizeof header;
    const size_t description = name + (header.n_namesz + 3) / 4 * 4;
    if (header.n_type == NT_GNU_BUILD_ID && description + header.n_descsz <= size) {
      return hexadecimal(std::string_view(notes + description, header.n_descsz));
    }
    at = description + (header.n_descsz + 3) / 4 * 4;
  }
  return {};
}

// The first object that the loader lists is the program itself.
int find_build_id(dl_phdr_info* info, size_t, void* out) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    const std::string id = build_id_in(reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr), segment.p_memsz);
    if (!id.empty()) *static_cast<std::string*>(out) = id;
  }
  return 1;
}

}  // namespace

std::string Member::where() const { return fmt::format("{}, pid {}", escape_control(host), pid); }

bool same_host(const Member& a, const Member& b) { return a.host == b.host && a.boot_id == b.boot_id; }

std::optional<Refusal> refusal_of(const Member& candidate, const std::vector<std::optional<Member>>& held) {
  const Member& zero = *held[0];
  if (!candidate.job_id.empty() && candidate.job_id != zero.job_id) {
    return Refusal{ExitCode::Rendezvous,
                   "this rank belongs to a different job than the rank 0 that answered (TRIVET_JOB_ID differs)"};
  }
  if (candidate.epoch != zero.epoch) {
    return Refusal{ExitCode::Rendezvous, fmt::format("this rank belongs to start {} of the job, rank 0 to start {}; "
                                                     "TRIVET_EPOCH must be the same on all",
                                                     candidate.epoch, zero.epoch)};
  }
  if (candidate.build != zero.build) {
    return Refusal{ExitCode::VersionSkew,
                   fmt::format("rank {} ({}) runs build {}, rank 0 ({}) runs build {}; start the same program on all ranks",
                               candidate.rank, candidate.where(), escape_control(candidate.build), zero.where(), zero.build),
                   true};
  }
  if (candidate.world_size != zero.world_size) {
    return Refusal{ExitCode::Rendezvous,
                   fmt::format("rank {} ({}) expects {} ranks, rank 0 expects {}; WORLD_SIZE must be the same on all",
                               candidate.rank, candidate.where(), candidate.world_size, zero.world_size),
                   true};
  }
  if (candidate.rank < 0 || candidate.rank >= zero.world_size) {
    return Refusal{ExitCode::Rendezvous, fmt::format("rank {} is not one of 0 to {}", candidate.rank, zero.world_size - 1)};
  }
  if (const auto& holder = held[candidate.rank]) {
    return Refusal{ExitCode::Rendezvous, fmt::format("rank {} is already held by pid {} on host {}", candidate.rank,
                                                     holder->pid, escape_control(holder->host))};
  }
  return std::nullopt;
}

std::string build_digest() {
  std::string id;
  ::dl_iterate_phdr(find_build_id, &id);
  return fmt::format("{}-{}", kProtocol, id.empty() ? "unknown" : id.substr(0, 16));
}

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

std::string this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace trivet::comm

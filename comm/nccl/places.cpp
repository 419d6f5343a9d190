#include "comm/nccl/places.h"

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <type_traits>

#include "comm/member.h"
#include "comm/nccl/error.h"
#include "core/cuda/error.h"
#include "core/error.h"

namespace trivet::comm {
namespace {

// A GpuPlace as ranks exchange it.
struct Record {
  char host[256], boot_id[64], bus_id[32];
  int64_t pid;
  int64_t nccl_version;
};
static_assert(std::is_trivially_copyable_v<Record>);

template <size_t N>
void put(char (&to)[N], const std::string& text) {
  std::strncpy(to, text.c_str(), N - 1);
}

bool same_gpu(const GpuPlace& a, const GpuPlace& b) {
  return a.host == b.host && a.boot_id == b.boot_id && a.bus_id == b.bus_id;
}

void check_versions(const std::vector<GpuPlace>& places) {
  constexpr int kOldest = NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, 0);
  for (size_t rank = 0; rank < places.size(); ++rank) {
    const GpuPlace& place = places[rank];
    if (place.nccl_version < kOldest)
      throw CommError(ExitCode::VersionSkew,
                      fmt::format("comm: rank {} (host {}) has NCCL {}; this program needs {} or newer: install it, or put its "
                                  "folder into LD_LIBRARY_PATH",
                                  rank, place.host, nccl_version_text(place.nccl_version), nccl_version_text(kOldest)));
    if (place.nccl_version != places[0].nccl_version)
      throw CommError(
          ExitCode::VersionSkew,
          fmt::format("comm: rank 0 (host {}) has NCCL {}, rank {} (host {}) has {}; all ranks need the same", places[0].host,
                      nccl_version_text(places[0].nccl_version), rank, place.host, nccl_version_text(place.nccl_version)));
  }
}

void check_pair(const GpuPlace& a, const GpuPlace& b, size_t rank_a, size_t rank_b, bool share_gpu) {
  if (!same_gpu(a, b)) return;
  if (!share_gpu)
    throw ConfigError(
        fmt::format("comm: ranks {} and {} (host {}) are both on GPU {}; start no more ranks on a host than it has "
                    "GPUs, each with its own LOCAL_RANK (for tests: TRIVET_SHARE_GPU=1)",
                    rank_a, rank_b, a.host, a.bus_id));
  if (a.pid == b.pid)
    throw ConfigError(
        fmt::format("comm: ranks {} and {} (host {}) are threads of one process on GPU {}; NCCL allows several "
                    "ranks on a GPU only as separate processes: use trivet launch",
                    rank_a, rank_b, a.host, a.bus_id));
}

}  // namespace

GpuPlace this_gpu_place() {
  GpuPlace place{.host = this_host(), .boot_id = this_boot(), .pid = getpid()};
  int device = 0;
  char bus_id[32] = "";
  CUDA_CHECK(cudaGetDevice(&device));
  CUDA_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, device));
  place.bus_id = bus_id;
  ncclGetVersion(&place.nccl_version);
  return place;
}

std::vector<GpuPlace> gather_places(ProcessGroup& host, const GpuPlace& mine) {
  Record record{};
  put(record.host, mine.host);
  put(record.boot_id, mine.boot_id);
  put(record.bus_id, mine.bus_id);
  record.pid = mine.pid;
  record.nccl_version = mine.nccl_version;
  std::vector<Record> records(static_cast<size_t>(host.size()));
  const auto stream = make_inline_stream();
  constexpr auto kBytes = static_cast<int64_t>(sizeof(Record));
  host.all_gather({&record, DType::UInt8, {kBytes}}, {records.data(), DType::UInt8, {kBytes * host.size()}}, *stream);
  std::vector<GpuPlace> places;
  for (const Record& of_rank : records)
    places.push_back({of_rank.host, of_rank.boot_id, of_rank.bus_id, of_rank.pid, static_cast<int>(of_rank.nccl_version)});
  return places;
}

void check_places(const std::vector<GpuPlace>& places, bool share_gpu) {
  check_versions(places);
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b) check_pair(places[a], places[b], a, b, share_gpu);
}

bool shares_gpu() {
  const char* value = std::getenv("TRIVET_SHARE_GPU");
  return value != nullptr && std::string(value) == "1";
}

bool any_shares_a_gpu(const std::vector<GpuPlace>& places) {
  for (size_t a = 0; a < places.size(); ++a)
    for (size_t b = a + 1; b < places.size(); ++b)
      if (places[a].boot_id == places[b].boot_id && places[a].bus_id == places[b].bus_id) return true;
  return false;
}

void prepare_shared_gpu(int world_rank) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 0); };
  set("NCCL_HOSTID", fmt::format("trivet-rank-{}", world_rank));  // otherwise NCCL refuses two ranks on one GPU
  set("NCCL_NET", "Socket");
  set("NCCL_SOCKET_IFNAME", "lo");
  for (const char* name : {"NCCL_IB_DISABLE", "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}) set(name, "1");
  for (const char* name : {"NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_CUMEM_ENABLE", "NCCL_RAS_ENABLE"}) set(name, "0");
  set("NCCL_MAX_CTAS", "2");  // kernels of several ranks share the multiprocessors
  set("NCCL_ALGO", "Ring");
  set("NCCL_PROTO", "Simple");
}

}  // namespace trivet::comm

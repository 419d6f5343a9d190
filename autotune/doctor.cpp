#include "autotune/doctor.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "autotune/host_facts.h"
#include "autotune/units.h"
#include "comm/transport/transport_module.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/file_system.h"
#include "engine/backend/cuda_module.h"
#include "kernels/kernels.h"

namespace trivet::autotune {
namespace {

// Returns -1 if the text does not begin with a number ("max").
double number_in(const std::string& text) {
  std::istringstream stream(text);
  double number = -1;
  return stream >> number ? number : -1;
}

// Mean seconds of `work`, repeated for about a fifth of a second after a warm-up run.
double seconds_of(const std::function<void()>& work) {
  work();
  const auto begin = Clock::now();
  int times = 0;
  double seconds = 0;
  do {
    work();
    ++times;
    seconds = seconds_since(begin);
  } while (seconds < 0.2);
  return seconds / times;
}

// Turns an exception into a finding, so that it does not end the examination.
Finding guarded(const std::string& subject, const std::function<Finding()>& examine_it) {
  try {
    return examine_it();
  } catch (const std::exception& error) {
    return {subject, Health::Missing, error.what(), "the message says what failed", {}};
  }
}

struct HostMatrix {
  HostMatrix(DType dtype, const Shape& shape) : memory(host_allocator(), meter, MemoryCategory::Buffers, dtype, shape) {}
  MemoryMeter meter;
  Buffer memory;
  operator TensorView() { return memory.view(); }
};

Finding processor(const DoctorOptions& options) {
  const std::string cpuinfo = options.system_root + "/proc/cpuinfo";
  const std::string flags = " " + line_of(cpuinfo, "flags") + " ";
  const auto has = [&](const char* flag) { return flags.find(fmt::format(" {} ", flag)) != std::string::npos; };
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cores =
      sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const std::string bf16 = has("amx_bf16") ? "AMX" : has("avx512_bf16") ? "AVX-512" : "";
  const std::string vectors = has("avx512f") ? "AVX-512" : has("avx2") ? "AVX2" : "128-bit vectors";
  Finding finding{"processor",
                  Health::Fine,
                  fmt::format("{}, {} core{}, {}{}; caches {} KiB, {} KiB, {} MiB", processor_name(options.system_root), cores,
                              cores == 1 ? "" : "s", vectors, bf16.empty() ? "" : ", bfloat16 by " + bf16,
                              sysconf(_SC_LEVEL1_DCACHE_SIZE) >> 10, sysconf(_SC_LEVEL2_CACHE_SIZE) >> 10,
                              sysconf(_SC_LEVEL3_CACHE_SIZE) >> 20),
                  "",
                  {{"cores", cores}}};
  const std::string quota = line_of(options.system_root + "/sys/fs/cgroup/cpu.max");
  const double allowed = number_in(quota);
  if (allowed > 0) {
    std::istringstream words(quota);
    double period = 1e5;
    words >> period >> period;
    if (allowed / period < cores) {
      finding.health = Health::Note;
      finding.text += fmt::format("; a limit of {:.1f} cores", allowed / period);
      finding.advice =
          fmt::format("set OMP_NUM_THREADS so that threads x ranks are at most {:.0f}", std::max(1.0, allowed / period));
    }
  } else if (bf16.empty()) {
    finding.health = Health::Note;
    finding.advice = "bfloat16 is slower than float32 here; on GPUs it is not";
  }
  return finding;
}

Finding products(const DoctorOptions& options) {
  const auto kernels = kernels::make_cpu_kernels(options.threads);
  constexpr int64_t kSize = 1024;
  Finding finding{"products", Health::Fine, "", "", {}};
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    HostMatrix a(dtype, {kSize, kSize}), b(dtype, {kSize, kSize}), c(dtype, {kSize, kSize});
    const double seconds = seconds_of([&] { kernels->matmul({.a = TensorView(a), .b = TensorView(b), .out = c}); });
    const double rate = 2.0 * kSize * kSize * kSize / seconds;
    finding.text += fmt::format("{}{:.0f} GFLOP/s {}", finding.text.empty() ? "" : ", ", rate / 1e9, name_of(dtype));
    finding.figures.emplace_back(fmt::format("{}_flops_per_second", name_of(dtype)), rate);
  }
  HostMatrix from(DType::Float32, {1}), to(DType::Float32, {1});
  const double smallest = seconds_of([&] { kernels->copy(TensorView(from), to); });
  finding.text += fmt::format("; a small kernel takes {:.2g} us", 1e6 * smallest);
  finding.figures.emplace_back("small_kernel_seconds", smallest);
  return finding;
}

Finding memory(const DoctorOptions& options) {
  const std::string meminfo = options.system_root + "/proc/meminfo";
  const double total = 1024 * number_in(line_of(meminfo, "MemTotal")),
               free = 1024 * number_in(line_of(meminfo, "MemAvailable"));
  const double limit = number_in(line_of(options.system_root + "/sys/fs/cgroup/memory.max"));
  Finding finding{"memory",
                  Health::Fine,
                  fmt::format("{:.1f} GiB, {:.1f} free", total / kGib, free / kGib),
                  "",
                  {{"total_bytes", total}, {"free_bytes", free}}};
  if (limit > 0 && limit < total) {
    finding.health = Health::Note;
    finding.text += fmt::format("; a limit of {:.1f} GiB", limit / kGib);
    finding.figures.emplace_back("limit_bytes", limit);
    finding.advice = "a run beyond the limit is killed without a message (exit code 137): compare it with `trivet plan`";
  }
  if (!options.measures) return finding;
  const auto kernels = kernels::make_cpu_kernels(options.threads);
  constexpr int64_t kElements = int64_t{1} << 25;  // 128 MiB: larger than any cache
  HostMatrix from(DType::Float32, {kElements}), to(DType::Float32, {kElements});
  const double rate = 8.0 * kElements / seconds_of([&] { kernels->copy(TensorView(from), to); });
  finding.text += fmt::format("; copies read and write {:.1f} GB/s", rate / 1e9);
  finding.figures.emplace_back("copy_bytes_per_second", rate);
  return finding;
}

// Mean seconds of an all_reduce of float32 over ranks that are threads.
double seconds_of_sums(int ranks, int64_t elements, int times) {
  double seconds = 0;
  comm::run_threads(ranks, [&](comm::World& world) {
    HostMatrix data(DType::Float32, {elements});
    const auto stream = make_inline_stream();
    world.group().all_reduce(data, comm::ReduceOp::Sum, *stream);
    const auto begin = Clock::now();
    for (int i = 0; i < times; ++i) world.group().all_reduce(data, comm::ReduceOp::Sum, *stream);
    if (world.rank() == 0) seconds = seconds_since(begin) / times;
  });
  return seconds;
}

// Ranks that are processes of this host communicate through shared memory.
Finding ranks(const DoctorOptions& options) {
  const std::string shared = options.system_root + "/dev/shm";
  Finding finding{"ranks", Health::Fine, "", "", {}};
  double free = 0;
  try {
    free = static_cast<double>(real_file_system().free_bytes(shared));
  } catch (const std::exception&) {
    return {"ranks",
            Health::Missing,
            shared + " does not exist",
            "ranks as processes need it; ranks as threads (--ranks N) do not",
            {}};
  }
  finding.text = fmt::format("{:.0f} MiB free in {}", free / kMib, shared);
  finding.figures.emplace_back("shared_memory_free_bytes", free);
  if (free < 64 * kMib) {
    finding.health = Health::Missing;
    finding.advice = "ranks as processes need some MiB each: give the container more (docker run --shm-size 1g)";
  }
  if (!options.measures) return finding;
  constexpr int64_t kElements = int64_t{4} << 20;
  const double rate = 4.0 * kElements / seconds_of_sums(options.ranks, kElements, 8);
  const double shortest = seconds_of_sums(options.ranks, 1, 200);
  finding.text += fmt::format("; {} ranks sum {:.1f} GB/s, a number in {:.2g} us", options.ranks, rate / 1e9, 1e6 * shortest);
  finding.figures.emplace_back("all_reduce_bytes_per_second", rate);
  finding.figures.emplace_back("short_all_reduce_seconds", shortest);
  return finding;
}

// Looks for the modules that carry messages between hosts (comm/transport/transport_module.h).
Finding hosts(const DoctorOptions&) {
  std::string found, absent;
  for (const char* name : {"ucx", "gloo"}) try {
      found += (found.empty() ? "" : ", ") + comm::transport_module(name).library();
    } catch (const CommError& error) {
      if (error.exit_code() != ExitCode::Rendezvous) throw;
      absent += fmt::format("{}libtrivet_{}.so", absent.empty() ? "" : ", ", name);
    }
  if (absent.empty()) return {"hosts", Health::Fine, "jobs on several hosts can use " + found, "", {}};
  const std::string install = "install the package trivet-ucx, or build with libucx-dev installed (docs/installing.md)";
  if (found.empty())
    return {"hosts", Health::Note, fmt::format("no jobs on several hosts, for lack of {}", absent), install, {}};
  return {"hosts",
          Health::Note,
          fmt::format("jobs on several hosts can use {}; {} is missing", found, absent),
          absent.find("ucx") == std::string::npos ? "communication.transport \"gloo\" needs it"
                                                  : "with communication.transport \"gloo\"; for the usual one, " + install,
          {}};
}

// "none: the module libtrivet_cuda.so was not found (docs/cuda.md)": where it was looked for matters only to who needs it.
std::string no_gpu_in_short(std::string reason) {
  if (reason.starts_with("cuda: ")) reason.erase(0, std::string_view("cuda: ").size());
  return fmt::format("none: {} (docs/cuda.md)", reason.substr(0, std::min(reason.find("; "), reason.find(" ("))));
}

Finding gpus(const DoctorOptions& options) {
  Finding finding{"GPUs", Health::Fine, "", "", {}};
  const auto none = [&](const std::string& reason) {
    finding.health = options.needs_gpu ? Health::Missing : Health::Note;
    finding.text = options.needs_gpu ? "none: " + reason : no_gpu_in_short(reason);
    if (options.needs_gpu) finding.advice = "device \"cpu\" works; for \"cuda\" see docs/cuda.md";
    return finding;
  };
  std::string reason;
  if (find_device(reason) != Device::Cuda) return none(reason);
  const int count = cuda_module().devices().count;
  finding.figures.emplace_back("gpus", count);
  const auto alone = comm::make_single_group("doctor");
  for (int index = 0; index < count; ++index) {
    MemoryMeter meter;
    const auto backend = make_backend(Device::Cuda, {.world = *alone, .meter = meter, .local_rank = index});
    finding.text += fmt::format("{}{}, {:.1f} GiB free", index == 0 ? "" : "; ", backend->description(),
                                static_cast<double>(backend->free_bytes()) / kGib);
  }
  return finding;
}

Finding disk(const DoctorOptions& options) {
  FileSystem& files = real_file_system();
  const double free = static_cast<double>(files.free_bytes(options.directory));
  Finding finding{
      "disk", Health::Fine, fmt::format("{:.1f} GiB free in {}", free / kGib, options.directory), "", {{"free_bytes", free}}};
  constexpr int64_t kBytes = int64_t{64} << 20;
  if (free < 2.0 * kBytes) {
    finding.health = Health::Missing;
    finding.advice = "checkpoints take 12 to 16 bytes per parameter; name a directory with more space";
    return finding;
  }
  bool direct = true;
  std::unique_ptr<ScratchFile> file;
  try {
    file = files.create_scratch(options.directory + "/trivet-doctor", kBytes, true);
  } catch (const FileError& error) {
    if (error.error_number() != EINVAL) throw;
    direct = false;
    file = files.create_scratch(options.directory + "/trivet-doctor", kBytes, false);
  }
  if (!direct) {
    finding.health = Health::Note;
    finding.text += ", no uncached access";
    finding.advice = "offload to files there goes through the system's cache, which takes memory";
  }
  if (!options.measures) return finding;
  HostMatrix data(DType::UInt8, {kBytes});  // page-aligned
  const std::span bytes(static_cast<std::byte*>(TensorView(data).data), static_cast<size_t>(kBytes));
  const auto rate = [&](const auto& transfer) {
    const auto begin = Clock::now();
    for (int64_t done = 0; done < kBytes;) done += static_cast<int64_t>(transfer(done, bytes.subspan(done)));
    return static_cast<double>(kBytes) / seconds_since(begin);
  };
  const double written = rate([&](int64_t at, std::span<std::byte> part) { return file->write_some(at, part); });
  const double read = rate([&](int64_t at, std::span<std::byte> part) { return file->read_some(at, part); });
  finding.text += fmt::format("; writes {:.0f} MB/s, reads {:.0f}", written / 1e6, read / 1e6);
  finding.figures.insert(finding.figures.end(), {{"write_bytes_per_second", written}, {"read_bytes_per_second", read}});
  return finding;
}

Finding limits(const DoctorOptions&) {
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  Finding finding{"limits",
                  Health::Fine,
                  fmt::format("{} open files", files.rlim_cur),
                  "",
                  {{"open_files", static_cast<double>(files.rlim_cur)}}};
  if (files.rlim_cur < 1024) {
    finding.health = Health::Note;
    finding.advice = "many ranks need more: ulimit -n 4096";
  }
  return finding;
}

}  // namespace

std::vector<Finding> examine(const DoctorOptions& options) {
  std::vector<Finding> findings;
  const auto add = [&](const char* subject, Finding (*look)(const DoctorOptions&)) {
    findings.push_back(guarded(subject, [&] { return look(options); }));
  };
  add("processor", processor);
  if (options.measures) add("products", products);
  add("memory", memory);
  add("ranks", ranks);
  if (options.opens_modules) add("hosts", hosts);
  add("GPUs", gpus);
  add("disk", disk);
  add("limits", limits);
  return findings;
}

}  // namespace trivet::autotune

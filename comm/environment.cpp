#include <fmt/format.h>
#include <unistd.h>

#include "comm/environment_reader.h"
#include "comm/world.h"

namespace trivet::comm {
namespace {

constexpr int kAzurePort = 6105;

// MASTER_PORT if it is set, otherwise the usual port of the environment.
int port_or(const EnvironmentReader& environment, int usual) {
  return static_cast<int>(environment.number_or("MASTER_PORT", usual, 0, 65535));
}

std::string first_of(const EnvironmentReader& environment, std::initializer_list<const char*> names,
                     const std::string& otherwise) {
  for (const char* name : names) {
    if (environment.has(name)) return environment.text(name);
  }
  return otherwise;
}

// "10.0.0.4:6000" -> "10.0.0.4"
std::string host_part(const std::string& address) { return address.substr(0, address.rfind(':')); }

// torchrun itself listens on MASTER_PORT, with a store for PyTorch. Unless `trivet launch` runs under it and says the port.
bool torchrun_listens(const EnvironmentReader& environment) {
  return first_of(environment, {"TORCHELASTIC_USE_AGENT_STORE"}, "") == "True" && !environment.has("TRIVET_LAUNCHER_FD");
}

// RANK and its companions: torchrun, DeepSpeed, Azure ML's pytorch jobs, `trivet launch`.
Place from_rank_variables(const EnvironmentReader& environment) {
  Place place;
  place.source = "RANK";
  place.world_size = static_cast<int>(environment.number("WORLD_SIZE", 1, kMaxRanks));
  place.rank = static_cast<int>(environment.number("RANK", 0, place.world_size - 1));
  const char* local_size = environment.has("LOCAL_SIZE") ? "LOCAL_SIZE" : "LOCAL_WORLD_SIZE";
  place.local_size = static_cast<int>(environment.number_or(local_size, place.world_size, 1, place.world_size));
  place.local_rank =
      static_cast<int>(environment.number_or("LOCAL_RANK", place.rank % place.local_size, 0, place.local_size - 1));
  place.host_known = environment.has("LOCAL_RANK");
  if (place.world_size == 1) return place;
  place.master_address = environment.text("MASTER_ADDR");
  place.master_port = static_cast<int>(environment.number("MASTER_PORT", 0, 65535));
  if (torchrun_listens(environment)) place.master_port += place.master_port == 65535 ? -1 : 1;
  return place;
}

Place from_open_mpi(const EnvironmentReader& environment) {
  Place place;
  place.source = "OMPI_COMM_WORLD_RANK";
  place.world_size = static_cast<int>(environment.number("OMPI_COMM_WORLD_SIZE", 1, kMaxRanks));
  place.rank = static_cast<int>(environment.number("OMPI_COMM_WORLD_RANK", 0, place.world_size - 1));
  place.local_size =
      static_cast<int>(environment.number_or("OMPI_COMM_WORLD_LOCAL_SIZE", place.world_size, 1, place.world_size));
  place.local_rank = static_cast<int>(
      environment.number_or("OMPI_COMM_WORLD_LOCAL_RANK", place.rank % place.local_size, 0, place.local_size - 1));
  place.host_known = environment.has("OMPI_COMM_WORLD_LOCAL_RANK");
  const bool one_host = place.local_size == place.world_size;
  const char* azure = one_host ? "AZ_BATCHAI_MPI_MASTER_NODE" : "AZ_BATCH_MASTER_NODE";
  const bool in_azure = environment.has("AZUREML_EXPERIMENT_ID") || environment.has(azure);
  place.master_port = port_or(environment, in_azure ? kAzurePort : kUsualPort);
  if (one_host) {
    place.master_address = first_of(environment, {"MASTER_ADDR"}, "127.0.0.1");
  } else if (environment.has("MASTER_ADDR") || !environment.has(azure)) {
    place.master_address = environment.text("MASTER_ADDR");
  } else {
    place.master_address = host_part(environment.text(azure));
  }
  return place;
}

// MPICH, Intel MPI and others that start ranks with Hydra.
Place from_pmi(const EnvironmentReader& environment) {
  Place place;
  place.source = "PMI_RANK";
  place.world_size = static_cast<int>(environment.number("PMI_SIZE", 1, kMaxRanks));
  place.rank = static_cast<int>(environment.number("PMI_RANK", 0, place.world_size - 1));
  place.local_size = static_cast<int>(environment.number_or("MPI_LOCALNRANKS", place.world_size, 1, place.world_size));
  place.local_rank =
      static_cast<int>(environment.number_or("MPI_LOCALRANKID", place.rank % place.local_size, 0, place.local_size - 1));
  place.host_known = environment.has("MPI_LOCALRANKID");
  place.master_address = place.local_size == place.world_size ? first_of(environment, {"MASTER_ADDR"}, "127.0.0.1")
                                                              : environment.text("MASTER_ADDR");
  place.master_port = port_or(environment, kUsualPort);
  return place;
}

// RANK decides. Batch scripts export WORLD_SIZE alone before srun or mpirun set the rank; it must then agree with their number
// of ranks.
void check_world_size(const EnvironmentReader& environment, const Place& place) {
  if (!environment.has("WORLD_SIZE")) return;
  const int64_t said = environment.number("WORLD_SIZE", 1, kMaxRanks);
  if (said == place.world_size) return;
  if (place.source == "none") {
    throw ConfigError(fmt::format("WORLD_SIZE={}: RANK is not set; set both, or neither for a single rank", said));
  }
  throw ConfigError(
      fmt::format("WORLD_SIZE={}: contradicts the world size {} that comes with {}; set RANK too, or unset WORLD_SIZE", said,
                  place.world_size, place.source));
}

Place place_of_rank(const EnvironmentReader& environment) {
  if (environment.has("RANK")) return from_rank_variables(environment);
  if (environment.has("TF_CONFIG")) return place_from_tf_config(environment.text("TF_CONFIG"));
  if (environment.has("OMPI_COMM_WORLD_RANK")) return from_open_mpi(environment);
  if (environment.has("PMI_RANK")) return from_pmi(environment);
  // A batch script has SLURM_PROCID=0 and SLURM_NTASKS, too, but it is not one of the tasks; only srun makes a step.
  if (environment.has("SLURM_PROCID") && environment.has("SLURM_STEP_ID")) return place_from_slurm(environment);
  Place alone;
  alone.source = "none";
  return alone;
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

std::optional<std::string> idle_task(const Environment& variables) {
  const EnvironmentReader environment(variables);
  if (environment.has("RANK") || !environment.has("TF_CONFIG")) return std::nullopt;
  return idle_task_of_tf_config(environment.text("TF_CONFIG"));
}

Place place_from_environment(const Environment& variables) {
  const EnvironmentReader environment(variables);
  Place place = place_of_rank(environment);
  check_world_size(environment, place);
  place.listen_descriptor = static_cast<int>(environment.number_or("TRIVET_LISTEN_FD", -1, 3, 1 << 20));
  if (place.rank != 0) place.listen_descriptor = -1;
  if (place.world_size > 1 && place.master_port == 0 && place.listen_descriptor < 0) {
    throw ConfigError("MASTER_PORT=0: only `trivet launch` can find a free port for all ranks; set a port from 1 to 65535");
  }
  place.job_id = first_of(environment, {"TRIVET_JOB_ID"}, "");
  if (place.job_id.size() > 64 || place.job_id.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw ConfigError(
        fmt::format("TRIVET_JOB_ID={}: must be at most 64 characters of 0123456789abcdef", escape_control(place.job_id)));
  }
  place.epoch = environment.number_or("TRIVET_EPOCH", 0, 0, INT64_MAX);
  place.secret_descriptor = static_cast<int>(environment.number_or("TRIVET_SECRET_FD", -1, 3, 1 << 20));
  place.secret_file = first_of(environment, {"TRIVET_SECRET_FILE"}, "");
  place.runtime_directory = first_of(environment, {"XDG_RUNTIME_DIR"}, "");
  place.launcher_descriptor = static_cast<int>(environment.number_or("TRIVET_LAUNCHER_FD", -1, 3, 1 << 20));
  return place;
}

}  // namespace trivet::comm

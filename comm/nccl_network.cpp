#include "comm/nccl_network.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <vector>

#include "comm/network_interface.h"
#include "core/found_file.h"

namespace trivet::comm {
namespace {

std::string value_of(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

bool equal_but_for_case(const std::string& a, const std::string& b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

std::string first_line(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// The kind of an RDMA device's first active port: "InfiniBand" or "RoCE"; empty if no port is active.
std::string active_kind(const std::filesystem::path& device) {
  std::error_code ignored;
  for (const auto& port : std::filesystem::directory_iterator(device / "ports", ignored))
    if (first_line(port.path() / "state").ends_with("ACTIVE"))
      return first_line(port.path() / "link_layer") == "Ethernet" ? "RoCE" : "InfiniBand";
  return "";
}

// NCCL_IB_HCA: "mlx5_0:1,mlx5_1" are beginnings of names, "=mlx5_0" are whole names, and "^..." are those that are left out.
bool is_chosen(const std::string& device, std::string filter) {
  if (filter.empty()) return true;
  const bool excludes = filter.starts_with('^');
  if (excludes) filter.erase(0, 1);
  const bool whole = filter.starts_with('=');
  if (whole) filter.erase(0, 1);
  bool named = false;
  for (size_t begin = 0; begin <= filter.size();) {
    const size_t end = std::min(filter.find(',', begin), filter.size());
    const std::string name = filter.substr(begin, std::min(filter.find(':', begin), end) - begin);
    named = named || (!name.empty() && (whole ? device == name : device.starts_with(name)));
    begin = end + 1;
  }
  return named != excludes;
}

std::string sockets_instead_of(const std::vector<std::string>& devices, const std::string& why) {
  return fmt::format("TCP sockets, expected from NCCL's documentation; warning: {} {} not used, because {}",
                     fmt::join(devices, ", "), devices.size() == 1 ? "is" : "are", why);
}

}  // namespace

RdmaSurroundings rdma_surroundings() {
  RdmaSurroundings surroundings;
  void* const library = ::dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
  surroundings.verbs_library = library != nullptr;
  if (library) ::dlclose(library);
  return surroundings;
}

std::vector<std::string> nccl_files(const std::string& home_directory) {
  std::vector<std::string> files{"/etc/nccl.conf", "/var/run/nvidia-topologyd/virtualTopology.xml"};
  if (!home_directory.empty()) files.push_back(home_directory + "/.nccl.conf");
  return files;
}

void check_nccl_files(const std::vector<std::string>& files) {
  for (const std::string& file : files) read_found_file(file, "set NCCL's variables in the environment");
}

void check_nccl_files() {
  const passwd* user = ::getpwuid(::geteuid());
  check_nccl_files(nccl_files(user ? user->pw_dir : ""));
}

std::string expected_nccl_network(const Environment& environment, const RdmaSurroundings& surroundings) {
  const std::vector<std::string> devices = rdma_devices(surroundings.devices);
  const std::string network = value_of(environment, "NCCL_NET"), plugin = value_of(environment, "NCCL_NET_PLUGIN");
  const std::string filter = value_of(environment, "NCCL_IB_HCA");
  const bool sockets = equal_but_for_case(network, "Socket"), verbs = equal_but_for_case(network, "IB");
  if (!network.empty() && !sockets && !verbs) return fmt::format("\"{}\", as NCCL_NET requires", network);
  if (!plugin.empty() && plugin != "none" && network.empty())
    return fmt::format("the plugin \"{}\" of NCCL_NET_PLUGIN, if it can be loaded", plugin);
  if (devices.empty()) return "TCP sockets, expected because this host has no device for RDMA";
  if (sockets) return sockets_instead_of(devices, "NCCL_NET is \"Socket\"; remove it");
  if (const std::string off = value_of(environment, "NCCL_IB_DISABLE"); !off.empty() && off != "0")
    return sockets_instead_of(devices, fmt::format("NCCL_IB_DISABLE is \"{}\"; remove it", off));
  std::vector<std::string> used;
  bool any_is_active = false;
  for (const std::string& device : devices) {
    const std::string kind = active_kind(std::filesystem::path(surroundings.devices) / device);
    any_is_active = any_is_active || !kind.empty();
    if (!kind.empty() && is_chosen(device, filter)) used.push_back(fmt::format("{} ({})", kind, device));
  }
  if (!any_is_active) return sockets_instead_of(devices, "no port is active; ask who runs the network");
  if (used.empty()) return sockets_instead_of(devices, fmt::format("NCCL_IB_HCA \"{}\" chooses none that is active", filter));
  if (!surroundings.verbs_library)
    return sockets_instead_of(devices, "libibverbs.so.1 cannot be loaded; install it (Debian: libibverbs1)");
  return fmt::format("{}, expected from NCCL's documentation", fmt::join(used, ", "));
}

}  // namespace trivet::comm

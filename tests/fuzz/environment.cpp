// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Environment variables of launchers, one `NAME=value` a line, and Slurm's lists of nodes.
//
// covers: bootstrap/environment_variables.hpp
// covers: bootstrap/slurm_nodelist.hpp
// covers: bootstrap/launcher_environment.ipp

#include "input.hpp"

#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/bootstrap/slurm_nodelist.hpp>
#include <colls/os/descriptor.hpp>

#include <sys/mman.h>

#include <list>
#include <map>

namespace {

using namespace colls;

/// A file for `COLLS_SECRET_FILE`. If `text` begins with `!`, other users may read the file.
class secret_file {
 public:
  explicit secret_file(std::string_view text) : file_(::memfd_create("secret", MFD_CLOEXEC)) {
    const bool open_to_all = text.starts_with("!");
    if (open_to_all) text.remove_prefix(1);
    ::fchmod(file_.get(), open_to_all ? 0644 : 0600);
    (void)::write(file_.get(), text.data(), text.size());
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  colls::detail::descriptor file_;
};

void require_sound(const config& found) {
  fuzz::require(found.size >= 1 && found.rank >= 0 && found.rank < found.size, "a rank of a world");
  fuzz::require(
      found.local_rank >= -1 && found.local_size >= -1 && found.node >= -1 && found.nodes >= -1,
      "numbers that are not known are -1");
  fuzz::require(found.local_size < 0 || found.local_rank < found.local_size, "a local rank");
  fuzz::require(found.local_size <= found.size, "a host has at most as many ranks as the world");
  fuzz::require(found.nodes < 0 || found.node < found.nodes, "a node");
  fuzz::require(found.size == 1 || !found.address.empty(), "ranks meet somewhere");
  for (const int port : found.ports) fuzz::require(port > 0 && port < 65536, "a port");
}

void read(const std::map<std::string, std::string>& all) {
  try {
    require_sound(environment([&](const char* name) -> const char* {
      const auto found = all.find(name);
      return found == all.end() ? nullptr : found->second.c_str();
    }));
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
    fuzz::require(thrown.record().detail[0] != 0, "an error has a sentence");
  }
}

void read_lists(const std::string& text) {
  constexpr std::size_t most = 100;
  const auto hosts = colls::detail::expand_nodelist(text, most);
  fuzz::require(hosts.size() <= most, "at most the maximum number of hosts");
  for (const std::string& host : hosts) fuzz::require(!host.empty(), "a host has a name");
  const auto first = colls::detail::expand_nodelist(text, 1);
  fuzz::require(first.size() <= 1, "one host");
  for (const int node : {0, 1, 1000}) {
    fuzz::require(colls::detail::tasks_on_node(text, node) >= -1, "a number of tasks, or -1");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::input(data, size).rest();
  std::map<std::string, std::string> all;
  std::list<secret_file> files;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const std::size_t equals = std::min(line.find('='), line.size());
    const std::string name(line.substr(0, equals));
    std::string value(line.substr(std::min(equals + 1, line.size())));
    if (name.find("LIST") != std::string::npos || name.find("PER_NODE") != std::string::npos) {
      read_lists(value);
    }
    if (name == "COLLS_SECRET_FILE" && value != "/") value = files.emplace_back(value).path();
    all[name] = value;
  }
  read(all);
  return 0;
}

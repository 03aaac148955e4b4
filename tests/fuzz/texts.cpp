// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Texts of users and of other ranks: addresses, entries that ranks publish, fault plans of the
// simulator and its topologies. The first character selects the kind.
//
// covers: bootstrap/config.hpp: parse_number parse_address host_and_port
// covers: bootstrap/world_info.ipp: parse parse_world_info text world_info_text
// covers: os/cpu_affinity.hpp: read write
// covers: transport/simulated/fault_plan.hpp: parse text next_token is_at_end end number rank event duration fail name_index parse_fault duration_text
// covers: transport/simulated/network_model.hpp: parse parse_number next_part

#include "input.hpp"

#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/simulated/fault_plan.hpp>

namespace {

using namespace colls;

void read_address(std::string_view text) {
  try {
    const auto place = colls::detail::parse_address(text);
    using kind = decltype(place.kind);
    if (place.kind == kind::file) fuzz::require(place.path.starts_with("/"), "an absolute path");
    if (place.kind != kind::tcp) return;
    fuzz::require(!place.host.empty() && place.port >= 0 && place.port < 65536,
                  "a host and a port");
    const auto again = colls::detail::parse_address(
        "tcp://" + colls::detail::host_and_port(place.host, place.port));
    fuzz::require(again.host == place.host && again.port == place.port,
                  "an address that is written is read again");
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
  }
}

void read_rank(const std::string& text) {
  const auto info = colls::detail::rank_info::parse(text);
  if (!info) return;
  fuzz::require(info->address.port() != 0, "a rank listens at a port");
  const auto again = colls::detail::rank_info::parse(info->text());
  fuzz::require(again && again->address == info->address && again->host_id() == info->host_id() &&
                    again->transport == info->transport,
                "an entry that is written is read again");
}

void read_world(const std::string& text) {
  world_info all;
  all.size = 1;
  all.size += static_cast<int>(std::count(text.begin(), text.end(), '\n')) % 8;
  if (!colls::detail::parse_world_info(text, all)) return;
  for (const int node : all.node_of) {
    fuzz::require(node >= 0 && node < static_cast<int>(all.machine_of.size()), "a node is known");
  }
  for (const int machine : all.machine_of) {
    fuzz::require(machine >= 0 && machine < static_cast<int>(all.cores_of.size()),
                  "a machine is known");
  }
  world_info again;
  again.size = all.size;
  fuzz::require(colls::detail::parse_world_info(colls::detail::world_info_text(all), again),
                "what rank 0 writes the others read");
  fuzz::require(again.node_of == all.node_of && again.machine_of == all.machine_of &&
                    again.cores_of == all.cores_of && again.address_book == all.address_book,
                "and they read the same");
}

void read_plan(std::string_view text) {
  try {
    const auto plan = simulated::fault_plan::parse(text);
    fuzz::require(simulated::fault_plan::parse(plan.text()) == plan,
                  "a plan that is written is read again");
  } catch (const std::invalid_argument& wrong) {
    for (const char* at = wrong.what(); *at != 0; ++at) {
      fuzz::require(*at >= ' ' && *at <= '~', "a terminal can show it");
    }
  }
}

void read_topology(std::string_view text) {
  try {
    const auto wiring = simulated::topology::parse(text);
    fuzz::require(wiring.group >= 1 && wiring.uplinks >= 1, "a group has ranks and uplinks");
    for (const int points : wiring.extent) fuzz::require(points >= 1, "a torus has points");
  } catch (const std::invalid_argument&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  const char what = static_cast<char>(from.byte());
  const std::string text(from.rest());
  switch (what) {
    case 'a':
      read_address(text);
      break;
    case 'c':
      read_rank(text);
      break;
    case 'm':
      read_world(text);
      break;
    case 'p':
      read_plan(text);
      break;
    case 't':
      read_topology(text);
      break;
    default:
      return -1;
  }
  return 0;
}

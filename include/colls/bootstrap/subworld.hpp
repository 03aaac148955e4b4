// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that form a subworld, which is a new world of some ranks of an existing world. The
// caller of these functions exchanges the addresses of these ranks. Therefore a subworld needs no
// store (key-value service).

#include <colls/base/fingerprint.hpp>
#include <colls/bootstrap/world_info.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

namespace colls::subworld {

/// The information that each rank of the subworld sends to the other ranks of the subworld: its
/// listening address and its node. A node is a group of ranks that can connect to each other
/// through local (AF_UNIX) sockets.
struct rank_entry {
  char address[48] = {};
  std::int32_t port = 0;
  std::int32_t node = 0;
};

/// Creates the `world_info` of this process for the subworld, in which this process is rank `rank`
/// of `size`. If `size` is more than 1, opens the listeners and writes the address of the TCP
/// listener to `local`. Always writes the node of this process to `local`. The caller must send
/// `local` to the other ranks of the subworld, receive their entries, and pass the entries of all
/// ranks to `complete`.
inline std::shared_ptr<world_info> prepare(const world_info& parent, int rank, int size,
                                           rank_entry& local) {
  auto info = std::make_shared<world_info>();
  info->rank = rank;
  info->size = size;
  info->address = parent.address;
  info->key = parent.key;
  info->job = parent.job;
  info->cfg = parent.cfg;
  info->machine_of = parent.machine_of;
  info->cores_of = parent.cores_of;
  local.node = parent.node;
  if (size == 1) return info;
  if (const std::error_code ec = info->listen()) {
    detail::raise(errc::join_failed, "rank %d cannot listen at %s: %s", rank,
                  info->address.to_string().c_str(), ec.message().c_str());
  }
  const endpoint address = info->peer_listener.local();
  std::snprintf(local.address, sizeof local.address, "%s", address.address().to_string().c_str());
  local.port = address.port();
  return info;
}

/// Adds the addresses and nodes of all ranks of the subworld to `info`. `entries` must contain the
/// entry of each rank, in the order of the ranks. Throws `protocol_error` if an entry is invalid.
inline void complete(world_info& info, const std::vector<rank_entry>& entries) {
  info.node_of.clear();
  for (rank_entry entry : entries) {
    entry.address[sizeof entry.address - 1] = 0;
    boost::system::error_code invalid;
    const auto address = boost::asio::ip::make_address(entry.address, invalid);
    if (invalid && info.size > 1)
      detail::raise(errc::protocol_error, "a rank sent no valid address");
    if (entry.node < 0 || static_cast<std::size_t>(entry.node) >= info.machine_of.size()) {
      detail::raise(errc::protocol_error, "a rank sent an unknown node");
    }
    info.address_book.emplace_back(address, static_cast<std::uint16_t>(entry.port));
    info.node_of.push_back(entry.node);
    info.job = mix(info.job, static_cast<std::uint64_t>(entry.port));
  }
  info.compute_local_ranks();
}

}  // namespace colls::subworld

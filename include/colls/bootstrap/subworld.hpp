// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that form a subworld, which is a new world of some ranks of an existing world. The
// ranks exchange their addresses through the existing world. Therefore a subworld needs no store
// (key-value service).

#include <colls/base/fingerprint.hpp>
#include <colls/bootstrap/world_info.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
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

namespace colls {

/// The engine of a duplicate of a world, and the information about that duplicate.
struct duplicated_world {
  std::shared_ptr<engine> driver;
  std::shared_ptr<world_info> info;
};

/// Forms a subworld of `size` ranks of the world `parent`, in which this process is rank `rank`.
/// Its engine is that of `executor`, and `parent_driver` is the engine of `parent`.
/// `pass_texts(own, max_size)` passes texts of at most `max_size` bytes between the ranks of the
/// subworld (see `world_info::exchange`). `parent` must outlive the task. No other thread may run
/// handlers of `executor` meanwhile.
template <class PassTexts>
task<duplicated_world> duplicate_world(const world_info& parent, const engine& parent_driver,
                                       boost::asio::any_io_executor executor, int rank, int size,
                                       PassTexts pass_texts) {
  subworld::rank_entry own;
  duplicated_world result;
  result.info = subworld::prepare(parent, rank, size, own);
  result.info->pass_texts = [pass_texts = std::move(pass_texts)](std::string text) {
    return pass_texts(std::move(text), max_exchanged_size);
  };
  auto exchanging =
      result.info->exchange(std::string(reinterpret_cast<const char*>(&own), sizeof own));
  const std::vector<std::string> texts = co_await exchanging;
  std::vector<subworld::rank_entry> entries(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() != sizeof own)
      detail::raise(errc::protocol_error, "rank %zu sent no address for the new world", i);
    std::memcpy(&entries[i], texts[i].data(), sizeof own);
  }
  subworld::complete(*result.info, entries);
  result.driver = engine::get(executor);
  if (result.driver.get() != &parent_driver) {
    // A rank with two engines has two threads. One thread may compute while the other thread waits.
    // The new engine may therefore spin only if this machine has two cores for each of its ranks.
    result.driver->copy_idle_policy(parent_driver,
                                    2 * result.info->ranks_on_machine <= result.info->cores());
  }
  co_return result;
}

}  // namespace colls

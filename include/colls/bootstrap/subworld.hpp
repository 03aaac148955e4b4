// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// offshoot: how ranks that have a world form another one of their own, with nobody to meet at.

#include <colls/base/fingerprint.hpp>
#include <colls/bootstrap/world_info.hpp>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

namespace colls::offshoot {

/// What each rank tells the others: where it listens, and on which host it is.
struct card {
  char address[48] = {};
  std::int32_t port = 0;
  std::int32_t node = 0;
};

/// Opens the listeners of rank `rank` of `size`, and says where they are.
inline std::shared_ptr<membership> prepare(const membership& parent, int rank, int size,
                                           card& mine) {
  auto who = std::make_shared<membership>();
  who->rank = rank;
  who->size = size;
  who->address = parent.address;
  who->key = parent.key;
  who->job = parent.job;
  who->cfg = parent.cfg;
  who->machine_of = parent.machine_of;
  who->cores_of = parent.cores_of;
  mine.node = parent.node;
  if (size == 1) return who;
  if (const std::error_code ec = who->listen()) {
    detail::raise(errc::join_failed, "rank %d cannot listen at %s: %s", rank,
                  who->address.to_string().c_str(), ec.message().c_str());
  }
  const endpoint where = who->link_listener.local();
  std::snprintf(mine.address, sizeof mine.address, "%s", where.address().to_string().c_str());
  mine.port = where.port();
  return who;
}

/// Every rank's card is known.
inline void complete(membership& who, const std::vector<card>& cards) {
  who.node_of.clear();
  for (card each : cards) {
    each.address[sizeof each.address - 1] = 0;
    boost::system::error_code bad;
    const auto address = boost::asio::ip::make_address(each.address, bad);
    if (bad && who.size > 1) detail::raise(errc::protocol_error, "a rank told no address");
    if (each.node < 0 || static_cast<std::size_t>(each.node) >= who.machine_of.size()) {
      detail::raise(errc::protocol_error, "a rank told a host that there is not");
    }
    who.book.emplace_back(address, static_cast<std::uint16_t>(each.port));
    who.node_of.push_back(each.node);
    who.job = mix(who.job, static_cast<std::uint64_t>(each.port));
  }
  who.find_own_place();
}

}  // namespace colls::offshoot

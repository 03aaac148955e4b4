// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// make_carriers: the carriers between processes.

#include <colls/transport/interprocess/carrier/carrier_library.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_carrier.hpp>
#include <colls/transport/interprocess/carrier/socket_carrier.hpp>

#include <vector>

namespace colls::interprocess {

/// Returns the carriers of a rank in the order in which they dial a peer.
inline std::vector<std::unique_ptr<carrier>> make_carriers(engine& driver, world_info& info) {
  std::vector<std::unique_ptr<carrier>> all;
  all.push_back(std::make_unique<shared_memory_carrier>(driver, info));
  if (detail::uses_ucx(info.cfg.transport.str())) {
    all.push_back(static_cast<carrier_library*>(detail::ucx_fabric)->make_carrier(driver, info));
  } else {
    all.push_back(std::make_unique<socket_carrier>(driver, info));
  }
  return all;
}

}  // namespace colls::interprocess

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of interprocess_transport that are not defined in its class.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/carrier/make_carriers.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

namespace colls {

COLLS_ONCE interprocess_transport::interprocess_transport(std::shared_ptr<engine> driver,
                                                          std::shared_ptr<world_info> info)
    : transport_base(driver, info, interprocess::make_carriers(*driver, *info)),
      windows_(*driver, *info, connections(), matching()) {
  start_carriers();
}

COLLS_ONCE network_cost interprocess_transport::costs() const {
  network_cost all = info().shares_memory() ? hybrid_cost : tcp_cost;
  all.cores = info().min_node_cores();
  return all;
}

}  // namespace colls

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ucx: lets worlds use UCX between hosts, over InfiniBand, RoCE and whatever else UCX knows. A
// program that includes this header in one of its files, and is linked with -lucp -lucs, accepts
// the transports `ucx` and `ucx_only` (`COLLS_TRANSPORT`, `config::transport`). With `ucx`, ranks
// use UCX between hosts and shared memory inside a host; with `ucx_only`, UCX on every link.

#include <colls/transport/interprocess/carrier/carrier_library.hpp>
#include <colls/transport/ucx/ucx_carrier.hpp>

#include <memory>
#include <string>

namespace colls::ucx {
namespace detail {

class library final : public interprocess::carrier_library {
 public:
  std::string version() const override { return detail::version(); }
  std::unique_ptr<interprocess::carrier> make_carrier(engine& driver, world_info& info) override {
    return std::make_unique<ucx_carrier>(driver, info);
  }
};
inline library the_library;

inline const bool is_registered = (colls::detail::ucx_fabric = &the_library) != nullptr;

}  // namespace detail
}  // namespace colls::ucx

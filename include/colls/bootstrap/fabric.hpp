// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// fabric: a library that moves messages between hosts in place of TCP. A header that users include
// names it here, so that no other header depends on the library.

#include <string>
#include <string_view>

namespace colls {

/// A library that moves messages between hosts, such as UCX.
class fabric {
 public:
  /// Returns the version, which must be the same on all ranks. It contains no space.
  virtual std::string version() const = 0;

 protected:
  ~fabric() = default;
};

namespace detail {

/// UCX, or null if no file of the program includes <colls/transport/ucx.hpp>.
inline fabric* ucx_fabric = nullptr;

/// Returns whether ranks with this `config::transport` use UCX between hosts.
constexpr bool uses_ucx(std::string_view transport) {
  return transport == "ucx" || transport == "ucx_only";
}

/// Returns whether ranks of one host with this `config::transport` use shared memory.
constexpr bool uses_shared_memory(std::string_view transport) {
  return transport != "tcp" && transport != "ucx_only";
}

}  // namespace detail
}  // namespace colls

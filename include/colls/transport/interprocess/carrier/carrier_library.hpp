// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// carrier_library: a fabric that makes carriers.

#include <colls/bootstrap/fabric.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/carrier/carrier.hpp>

#include <memory>

namespace colls::interprocess {

/// A library whose carrier replaces that of sockets.
class carrier_library : public fabric {
 public:
  /// Returns a carrier that reaches every peer. Throws `join_failed` if the library does not work.
  virtual std::unique_ptr<carrier> make_carrier(engine& driver, world_info& info) = 0;

 protected:
  ~carrier_library() = default;
};

}  // namespace colls::interprocess

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// attach: a communicator for the memory of a device, made of one for the host's.

#include <colls/communicator.hpp>
#include <colls/cuda/staged.hpp>
#include <colls/log.hpp>

namespace colls::cuda {

/// The device of this rank: its number among the ranks of its host, modulo the devices that it
/// sees. Throws `errc::no_device` where there is none.
template <class Transport>
int device_for(const colls::communicator<Transport>& comm) {
  const int count = devices();
  const int device = comm.local_rank() % count;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  log_info("rank %d uses device %d of %d (CUDA_VISIBLE_DEVICES=%s)", comm.rank(), device, count,
           visible != nullptr ? visible : "");
  return device;
}

/// A model: every transport, through pinned memory of the host.
struct staged {};

/// The same ranks as a communicator whose calls take `device_span` in the memory of `device`:
///
///     auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(world, device);
///     co_await gpu.all_reduce(colls::device_span{weights, n});
///
/// A call's work begins after what its `options.stream` (else the device's default stream) has when
/// it is made, and has been done when it is awaited. Reductions are made by the CPU. `how` is equal
/// on all ranks; a call has how.slots pieces of how.segment bytes, rounded up to powers of two, in
/// pinned memory. Ends with `errc::no_device` where there is no such device.
template <class Model = staged, class Transport>
auto attach(colls::communicator<Transport>& comm, int device, const staging& how = {},
            options call = {}) {
  static_assert(std::is_same_v<Model, staged>, "colls: this model is not there yet");
  static_assert(!phantom_transport<Transport>,
                "colls: a simulated network has no memory that a device could reach");
  if (how.segment == 0 || how.slots < 1) {
    throw error(errc::invalid_argument, "a staging has a segment and at least one slot");
  }
  const auto make = [&](std::shared_ptr<Transport> host) {
    return std::make_shared<staged_transport<Transport>>(std::move(host), device, how);
  };
  return comm.over(mix(how.segment, static_cast<std::uint64_t>(how.slots)), make, call);
}

}  // namespace colls::cuda

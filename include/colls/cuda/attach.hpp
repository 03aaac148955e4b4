// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// attach: a communicator for the memory of a device, made of one for the host's.

#include <colls/base/log.hpp>
#include <colls/call/communicator.hpp>
#include <colls/cuda/check.hpp>
#ifdef __CUDACC__
#include <colls/cuda/half.cuh>
#endif

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

/// Why a call for the memory of `device` cannot come after what a stream has, or null.
inline const char* wrong_with(stream_ref callers, int device) {
  int before = device;
  (void)api::current_device(before);
  if (before != device) (void)api::use_device(device);  // whose default stream is meant
  bool is_captured = false;
  int of = device;
  (void)api::is_captured(is_captured, callers);
  if (callers.handle != nullptr) (void)api::device_of(of, callers);
  if (before != device) return_to(before);
  if (is_captured) return colls::detail::captured_stream;
  return of == device ? nullptr : colls::detail::other_devices_stream;
}

/// The same ranks as a communicator whose calls take `device_span` in the memory of `device`:
///
///     auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(world, device);
///     co_await gpu.all_reduce(colls::device_span{weights, n});
///
/// The model says what moves and reduces the data; its header has it, and the settings `how`, which
/// are equal on all ranks. A call's work begins after what its `options.stream` (else the device's
/// default stream) has when it is made, and has been done when it is awaited. Ends with
/// `errc::no_device` where there is no such device. Calls and awaits leave the thread's device as
/// it was, but where the process has not used that one yet: then the communicator's stays. So a
/// program of several devices calls cudaSetDevice before it allocates, as `on_device` does.
template <class Model, class Transport>
auto attach(colls::communicator<Transport>& comm, int device,
            const typename Model::settings& how = {}, options call = {}) {
  static_assert(
      requires { sizeof(Transport); },
      "colls: where COLLS_SEPARATE_COMPILATION is defined, a file that attaches a device "
      "to a world includes <colls/interprocess.hpp>");
  static_assert(!phantom_transport<Transport>,
                "colls: a simulated network has no memory that a device could reach");
  static_assert(std::is_same_v<transport_memory_t<Transport>, host_memory>,
                "colls: this communicator is one for a device already: attach the host's");
  return Model::attach(comm, device, how, call);
}

}  // namespace colls::cuda

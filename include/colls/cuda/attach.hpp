// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// attach: makes a communicator for device memory from a communicator for host memory.

#include <colls/base/log.hpp>
#include <colls/call/communicator.ipp>
#include <colls/cuda/check.hpp>
#ifdef __CUDACC__
#include <colls/cuda/half.cuh>
#endif

namespace colls::cuda {

/// Returns the number of the device that this rank should use. This is the rank's local rank modulo
/// the number of devices that the process sees. Throws `errc::no_device` if the process sees none.
template <class Transport>
int device_for(const colls::communicator<Transport>& comm) {
  const int count = devices();
  const int device = comm.local_rank() % count;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  log_info("rank %d uses device %d of %d (CUDA_VISIBLE_DEVICES=%s)", comm.rank(), device, count,
           visible != nullptr ? visible : "");
  return device;
}

/// Returns null if a call on the memory of `device` can wait for the work on `stream`. Otherwise
/// returns the reason why it cannot: the stream is being captured into a CUDA graph, or it belongs
/// to another device.
inline const char* usage_error(stream_ref stream, int device) {
  int before = device;
  (void)api::current_device(before);
  if (before != device) (void)api::use_device(device);  // the default stream depends on the device
  bool is_captured = false;
  int actual = device;
  (void)api::is_captured(is_captured, stream);
  if (stream.handle != nullptr) (void)api::device_of(actual, stream);
  if (before != device) restore_device(before);
  if (is_captured) return colls::detail::captured_stream;
  return actual == device ? nullptr : colls::detail::other_devices_stream;
}

/// Makes a communicator that has the same ranks as `comm`. Its calls take a `device_span` in the
/// memory of `device`:
///
///     auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(world, device);
///     co_await gpu.all_reduce(colls::device_span{weights, n});
///
/// `Model` (`staged`, `cuda_ipc` or `nccl`, each in a header of its own) decides how data is moved
/// and reduced. `settings` must be equal on all ranks. The options of a call on the new
/// communicator name a stream, by default the default stream of the device. The work of the call
/// begins after the work that was enqueued on this stream before the call was made. When an await
/// of the call completes, the work of the call is done. `attach` fails with `errc::no_device` if
/// there is no device with the number `device`.
///
/// A call on the new communicator, or an await of such a call, may change the thread's current
/// device to `device`. The previous device becomes current again only if the process had already
/// used the previous device. Otherwise `device` stays current, and later allocations are made
/// there. Therefore a program that uses several devices should call cudaSetDevice (or construct an
/// `on_device`) before it allocates memory.
template <class Model, class Transport>
auto attach(colls::communicator<Transport>& comm, int device,
            const typename Model::settings& settings = {}, options opts = {}) {
  static_assert(
      requires { sizeof(Transport); },
      "colls: where COLLS_SEPARATE_COMPILATION is defined, a file that attaches a device "
      "to a world includes <colls/interprocess.hpp>");
  static_assert(!phantom_transport<Transport>,
                "colls: a simulated network has no memory that a device could reach");
  static_assert(std::is_same_v<transport_memory_t<Transport>, host_memory>,
                "colls: this communicator is one for a device already: attach the host's");
  return Model::attach(comm, device, settings, opts);
}

}  // namespace colls::cuda

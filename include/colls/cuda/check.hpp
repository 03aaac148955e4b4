// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// check: turns CUDA errors into errors of colls, and counts and selects the devices of this
// process.

#include <colls/base/error.hpp>
#include <colls/call/arguments.hpp>
#include <colls/cuda/runtime_api.hpp>

namespace colls::cuda {

/// Returns the error code of colls for a CUDA status.
inline errc code_of(api::status status) {
  switch (status) {
    case api::out_of_memory:
      return errc::not_enough_memory;
    case api::stub_library:
    case api::insufficient_driver:
    case api::driver_mismatch:
    case api::no_device:
    case api::invalid_device:
      return errc::no_device;
    default:
      return errc::device_failed;
  }
}

/// Returns a failure with the error code for `status` and a text that describes `status`. The text
/// begins with `call`, the name of the CUDA function that failed, unless the error code is
/// `errc::no_device`.
inline failure cuda_failure(api::status status, const char* call) {
  failure reason(code_of(status));
  if (reason.code == errc::no_device) {
    reason.set_detail("no CUDA device: %s (%s)", api::text(status), api::name(status));
  } else {
    reason.set_detail("%s: %s (%s)", call, api::text(status), api::name(status));
  }
  return reason;
}

/// Throws `colls::error` if `status` is an error. `call` is the name of the CUDA function that
/// returned `status`.
inline void check(api::status status, const char* call) {
  if (status != api::success) throw error(cuda_failure(status, call));
}

/// Returns the number of devices that this process sees (CUDA_VISIBLE_DEVICES limits them). Throws
/// `errc::no_device` if there is no device or no driver.
inline int devices() {
  int count = 0;
  check(api::count_devices(count), "cudaGetDeviceCount");
  if (count == 0) throw error(cuda_failure(api::no_device, "cudaGetDeviceCount"));
  return count;
}

/// Makes `device` the thread's current device again, unless CUDA reports that this process does not
/// use `device`. Selecting an unused device would create a CUDA context, which takes a few hundred
/// megabytes of memory.
inline void restore_device(int device) {
  bool is_used = true;
  const bool is_known = api::is_in_use(is_used, device) == api::success;
  if (is_used || !is_known) (void)api::use_device(device);
}

/// A scope in which `device` is the thread's current device. The destructor restores the previous
/// device (see `restore_device`).
class on_device {
 public:
  explicit on_device(int device) {
    check(api::current_device(before_), "cudaGetDevice");
    // cudaSetDevice is called even if `device` is already the current device. Functions of the CUDA
    // driver API need a context, and only a call of the CUDA runtime gives the thread a context.
    check(api::use_device(device), "cudaSetDevice");
    changed_ = device != before_;
  }
  on_device(const on_device&) = delete;
  ~on_device() {
    if (changed_) restore_device(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Returns null if a call on the memory of `device` can use the buffer `data`. Otherwise returns
/// the reason why it cannot. Does not read or write the buffer. If the device has failed, returns
/// null, because the call itself reports that failure.
inline const char* usage_error(const any_buffer& data, int device) {
  const auto is_device_memory = [](const api::location& location) {
    return location.type == api::memory_type::device || location.type == api::memory_type::managed;
  };
  const std::size_t max_size = PTRDIFF_MAX / data.element_size();
  if (data.size() == 0 || data.size() > max_size) return nullptr;
  const auto* const first = static_cast<const std::byte*>(data.data());
  api::location found;
  if (api::locate(first, found) != api::success) return nullptr;
  if (!is_device_memory(found)) return colls::detail::no_device_memory;
  if (found.device != device) return colls::detail::other_devices_memory;
  const bool known = api::locate(first + bytes(data).size - 1, found) == api::success;
  const bool ends_there = known && is_device_memory(found) && found.device == device;
  return ends_there ? nullptr : colls::detail::beyond_its_memory;
}

}  // namespace colls::cuda

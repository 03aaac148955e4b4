// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// check: turns errors of CUDA into errors of colls; the devices of this process.

#include <colls/base/error.hpp>
#include <colls/call/arguments.hpp>
#include <colls/cuda/runtime_api.hpp>

namespace colls::cuda {

/// The error code of colls for a status of CUDA.
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

/// Describes a call of CUDA that failed: its name, and CUDA's text for the status.
inline failure cuda_failure(api::status status, const char* call) {
  failure reason(code_of(status));
  if (reason.code == errc::no_device) {
    reason.set_detail("no CUDA device: %s (%s)", api::text(status), api::name(status));
  } else {
    reason.set_detail("%s: %s (%s)", call, api::text(status), api::name(status));
  }
  return reason;
}

/// Throws `colls::error` if a call of CUDA failed.
inline void check(api::status status, const char* call) {
  if (status != api::success) throw error(cuda_failure(status, call));
}

/// The number of devices that this process sees (CUDA_VISIBLE_DEVICES). Throws `errc::no_device` if
/// there is none, or no driver.
inline int devices() {
  int count = 0;
  check(api::count_devices(count), "cudaGetDeviceCount");
  if (count == 0) throw error(cuda_failure(api::no_device, "cudaGetDeviceCount"));
  return count;
}

/// Makes `device` the thread's current one again, unless this process has not used it: setting it
/// would create a context there, which takes some hundred megabytes.
inline void restore_device(int device) {
  bool is_used = true;
  const bool is_known = api::is_in_use(is_used, device) == api::success;
  if (is_used || !is_known) (void)api::use_device(device);
}

/// Makes a device the thread's current one for the lifetime of this object.
class on_device {
 public:
  explicit on_device(int device) {
    check(api::current_device(before_), "cudaGetDevice");
    // Needed even if it is the current one: the driver's functions need a context, which a thread
    // has only after a call of the runtime.
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

/// Returns why a call on the memory of `device` cannot use a buffer, or null. Reads and writes
/// nothing. Null also if the device has failed: the call reports that.
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

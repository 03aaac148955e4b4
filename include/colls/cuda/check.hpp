// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Errors of CUDA as errors of colls, and the devices there are.

#include <colls/base/error.hpp>
#include <colls/call/arguments.hpp>
#include <colls/cuda/runtime_api.hpp>

namespace colls::cuda {

/// What an error of CUDA is among those of colls.
inline errc code_of(api::status how) {
  switch (how) {
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

/// A call of CUDA that went wrong: which one, and CUDA's words for it.
inline failure failed(api::status how, const char* call) {
  failure why(code_of(how));
  if (why.code == errc::no_device) {
    why.say("no CUDA device: %s (%s)", api::text(how), api::name(how));
  } else {
    why.say("%s: %s (%s)", call, api::text(how), api::name(how));
  }
  return why;
}

/// Throws `colls::error` where a call of CUDA went wrong.
inline void check(api::status how, const char* call) {
  if (how != api::success) throw error(failed(how, call));
}

/// How many devices this process sees (CUDA_VISIBLE_DEVICES); `errc::no_device` if there is none,
/// also where no driver is.
inline int devices() {
  int count = 0;
  check(api::count_devices(count), "cudaGetDeviceCount");
  if (count == 0) throw error(failed(api::no_device, "cudaGetDeviceCount"));
  return count;
}

/// Gives the thread the device back that it had. One that this process has not used stays unused:
/// to set it would make a context there, of some hundred megabytes.
inline void return_to(int device) {
  bool is_used = true;
  const bool is_known = api::is_in_use(is_used, device) == api::success;
  if (is_used || !is_known) (void)api::use_device(device);
}

/// Makes a device the thread's current one, as long as it lives.
class on_device {
 public:
  explicit on_device(int device) {
    check(api::current_device(before_), "cudaGetDevice");
    // Also where it is that already: the driver's functions need its context, which a thread that
    // has called none of the runtime's does not have.
    check(api::use_device(device), "cudaSetDevice");
    changed_ = device != before_;
  }
  on_device(const on_device&) = delete;
  ~on_device() {
    if (changed_) return_to(before_);
  }

 private:
  int before_ = 0;
  bool changed_ = false;
};

/// Why what is for the memory of `device` cannot use a buffer, or null. Nothing is read or written.
/// What a device that has failed answers is for the call to say.
inline const char* wrong_with(const any_buffer& data, int device) {
  const auto on_a_device = [](const api::location& found) {
    return found.where == api::place::device || found.where == api::place::managed;
  };
  const std::size_t most = PTRDIFF_MAX / data.element_size();
  if (data.size() == 0 || data.size() > most) return nullptr;
  const auto* const first = static_cast<const std::byte*>(data.data());
  api::location found;
  if (api::locate(first, found) != api::success) return nullptr;
  if (!on_a_device(found)) return colls::detail::no_device_memory;
  if (found.device != device) return colls::detail::other_devices_memory;
  const bool known = api::locate(first + bytes(data).size - 1, found) == api::success;
  const bool ends_there = known && on_a_device(found) && found.device == device;
  return ends_there ? nullptr : colls::detail::beyond_its_memory;
}

}  // namespace colls::cuda

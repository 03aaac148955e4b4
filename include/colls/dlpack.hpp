// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// dlpack: calls on the tensors of DLPack, which libraries for arrays exchange.

#include <colls/call/tensor_types.hpp>

#include <dlpack/dlpack.h>

#include <complex>

namespace colls {

namespace detail {

inline tensor_type type_of(const DLDataType& type) {
  if (type.lanes != 1 || type.bits % 8 != 0) return {};
  const std::size_t size = type.bits / 8;
  const auto among = [&](type_kind kind, std::size_t least, std::size_t most) {
    return size >= least && size <= most && (size & (size - 1)) == 0 ? tensor_type{kind, size}
                                                                     : tensor_type{};
  };
  constexpr int boolean = 6;  // kDLBool, which older headers do not have
  switch (static_cast<int>(type.code)) {
    case kDLInt:
      return among(type_kind::signed_integer, 1, 8);
    case kDLUInt:
      return among(type_kind::unsigned_integer, 1, 8);
    case kDLFloat:
      return among(type_kind::ieee_float, 2, 8);
    case kDLBfloat:
      return among(type_kind::brain_float, 2, 2);
    case kDLComplex:
      return among(type_kind::ieee_complex, 8, 16);
    case boolean:
      return among(type_kind::boolean, 1, 1);
    default:
      return {};
  }
}

}  // namespace detail

/// Lets calls take a `DLTensor` in host memory: `comm.all_reduce(tensor)`. The tensor may have
/// strides. It and its memory must stay alive until the operation has ended.
template <>
struct view_access<DLTensor> {
  static erased_view erase(const DLTensor& tensor) {
    if (tensor.device.device_type != kDLCPU && tensor.device.device_type != kDLCUDAHost) {
      return {{}, 0, detail::not_in_host_memory};
    }
    return detail::tensor_view(static_cast<std::byte*>(tensor.data) + tensor.byte_offset,
                               detail::type_of(tensor.dtype), tensor.ndim, tensor.shape,
                               tensor.strides);
  }
  template <class Function>
  static auto with_element(const DLTensor& tensor, const Function& function) {
    return detail::with_tensor_element<std::complex<float>, std::complex<double>>(
        detail::type_of(tensor.dtype).id(), function);
  }
};

/// Lets calls take a `DLManagedTensor`. Of a `DLManagedTensorVersioned`, pass the member
/// `dl_tensor`.
template <>
struct view_access<DLManagedTensor> {
  static constexpr bool owns = true;

  static erased_view erase(const DLManagedTensor& tensor) {
    return view_access<DLTensor>::erase(tensor.dl_tensor);
  }
  template <class Function>
  static auto with_element(const DLManagedTensor& tensor, const Function& function) {
    return view_access<DLTensor>::with_element(tensor.dl_tensor, function);
  }
};

}  // namespace colls

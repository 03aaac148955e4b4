// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// torch_tensor: calls on the tensors of libtorch.

#include <colls/call/tensor_types.hpp>

#include <ATen/core/Tensor.h>

#include <complex>

namespace colls {

namespace detail {

inline tensor_type type_of(const at::Tensor& tensor) {
  const std::size_t size = tensor.dtype().itemsize();
  switch (tensor.scalar_type()) {
    case at::ScalarType::Bool:
      return {type_kind::boolean, size};
    case at::ScalarType::Byte:
      return {type_kind::unsigned_integer, 1};
    case at::ScalarType::Char:
    case at::ScalarType::Short:
    case at::ScalarType::Int:
    case at::ScalarType::Long:
      return {type_kind::signed_integer, size};
    case at::ScalarType::Half:
    case at::ScalarType::Float:
    case at::ScalarType::Double:
      return {type_kind::ieee_float, size};
    case at::ScalarType::BFloat16:
      return {type_kind::brain_float, 2};
    case at::ScalarType::ComplexFloat:
    case at::ScalarType::ComplexDouble:
      return {type_kind::ieee_complex, size};
    default:
      return {};
  }
}

}  // namespace detail

/// Lets calls take a tensor in host memory: `comm.all_reduce(tensor)`. The tensor may have any
/// strides, and other ones on each rank. Its elements count in row-major order of its indices. A
/// call writes the elements without the knowledge of autograd, so a tensor of a graph is best
/// passed as `tensor.detach()`, under a name. The tensor must stay alive until the operation has
/// ended.
template <>
struct view_access<at::Tensor> {
  static constexpr bool owns = true;

  static erased_view erase(const at::Tensor& tensor) {
    if (!tensor.defined()) return {{}, 0, "a tensor is undefined"};
    if (!tensor.device().is_cpu()) return {{}, 0, detail::not_in_host_memory};
    if (tensor.layout() != at::kStrided) return {{}, 0, "a tensor is sparse, or has no strides"};
    if (tensor.is_conj() || tensor.is_neg()) {
      return {{},
              0,
              "a tensor is conjugated or negated lazily: pass tensor.resolve_conj().resolve_neg()"};
    }
    return detail::tensor_view(tensor.data_ptr(), detail::type_of(tensor), tensor.dim(),
                               tensor.sizes().data(), tensor.strides().data());
  }
  template <class Function>
  static auto with_element(const at::Tensor& tensor, const Function& function) {
    return detail::with_tensor_element<std::complex<float>, std::complex<double>>(
        detail::type_of(tensor).id(), function);
  }
};

}  // namespace colls

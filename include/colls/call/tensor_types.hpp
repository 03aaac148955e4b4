// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tensor_types: what calls on tensors share, whose element type is known at run time alone.

#include <colls/call/view_calls.hpp>

#include <algorithm>
#include <type_traits>

namespace colls::detail {

/// The kind and the size of a tensor's elements. `size` is 0 if colls has no such type.
struct tensor_type {
  type_kind kind = type_kind::boolean;
  std::size_t size = 0;

  std::uint32_t id() const { return id_of(kind, size); }
};

inline constexpr char not_in_host_memory[] = "a tensor is not in host memory";
inline constexpr char unknown_tensor_type[] = "colls has no elements of the type of this tensor";

/// Returns the tensor at `data` as the data of a call. `strides` may be null if the elements follow
/// each other in row-major order.
inline erased_view tensor_view(void* data, tensor_type type, std::int64_t dimensions,
                               const std::int64_t* extents, const std::int64_t* strides) {
  if (type.size == 0) return {{}, 0, unknown_tensor_type};
  strided_layout layout;
  if (dimensions < 0 || dimensions > layout.max_dimensions) {
    return {{}, 0, "a tensor has more than 8 dimensions"};
  }
  layout.dimensions = static_cast<int>(dimensions);
  const auto size = static_cast<std::int64_t>(type.size);
  std::int64_t following = size;  // the distance of rows that follow each other
  bool overflows = false;
  for (std::int64_t i = dimensions - 1; i >= 0; --i) {
    if (extents[i] < 0) return {{}, 0, "a tensor has a negative extent"};
    std::int64_t stride = following;
    if (strides != nullptr) {
      overflows |= extents[i] > 1 && __builtin_mul_overflow(strides[i], size, &stride);
    } else {
      overflows |=
          __builtin_mul_overflow(following, std::max<std::int64_t>(extents[i], 1), &following);
    }
    layout.extents[i] = static_cast<std::size_t>(extents[i]);
    layout.strides[i] = stride;
  }
  const bool is_empty = std::find(extents, extents + dimensions, 0) != extents + dimensions;
  if (overflows && !is_empty) return {{}, 0, "a tensor has more elements than memory can hold"};
  return {any_view(data, type.size, layout), type.id(), nullptr};
}

template <class First, class... Others, class Function>
auto with_listed_element(std::uint32_t type, const Function& function) {
  if constexpr (sizeof...(Others) != 0) {
    if (type != type_id<First>()) return with_listed_element<Others...>(type, function);
  }
  return function(std::type_identity<First>());
}
/// Returns `function(std::type_identity<T>())`, where `type` is the id of `T`, one of the types of
/// `tensor_view`. `Complex` is std::complex<float> and std::complex<double>.
template <class... Complex, class Function>
auto with_tensor_element(std::uint32_t type, const Function& function) {
  return with_listed_element<float, double, float16, bfloat16, std::int64_t, std::int32_t,
                             std::int16_t, std::int8_t, std::uint64_t, std::uint32_t, std::uint16_t,
                             std::uint8_t, bool, Complex...>(type, function);
}

}  // namespace colls::detail

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The loops of reductions over host memory. Built-in operations on built-in types are compiled for
// several instruction sets; which one runs is chosen when a reduction is made.

#include <colls/op.hpp>

#include <cstring>

// Functions that a compiler vectorises at every level of optimisation but -O0, and for x86-64 the
// instruction sets above the program's own. No loop adds to a product, which only some of
// them would round once, so all give the same bits (of a NaN: a NaN).
#if defined(__clang__)
#define COLLS_DETAIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define COLLS_DETAIL_VECTOR
#define COLLS_DETAIL_AVX512 \
  [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq"), clang::min_vector_width(512)]]
#else
#define COLLS_DETAIL_INDEPENDENT _Pragma("GCC ivdep")
#define COLLS_DETAIL_VECTOR [[gnu::optimize("O3")]]
#define COLLS_DETAIL_AVX512 \
  [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")]]
#endif
#if defined(__x86_64__)
#define COLLS_DETAIL_DISPATCH 1
#else
#define COLLS_DETAIL_DISPATCH 0
#endif

// Sanitizers and low levels of optimisation leave the loops as they are; that is no defect.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace colls::detail {

/// Elements at any byte: users pack them as they like.
struct packed_elements {
  template <class T>
  [[gnu::always_inline]] static inline T get(const void* from, std::size_t i) {
    if constexpr (std::is_same_v<T, bool>) {
      return get<unsigned char>(from, i) != 0;
    } else {
      union element {
        element() {}
        T value;
      } loaded;
      std::memcpy(static_cast<void*>(&loaded.value),
                  static_cast<const std::byte*>(from) + i * sizeof(T), sizeof(T));
      return loaded.value;
    }
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* to, std::size_t i, const T& value) {
    std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), static_cast<const void*>(&value),
                sizeof(T));
  }
};

/// Elements that are aligned. Compilers copy packed structs as integers, and what was stored by
/// members and is read as a whole stalls the processor.
struct aligned_elements {
  template <class T>
  [[gnu::always_inline]] static inline const T& get(const void* from, std::size_t i) {
    return static_cast<const T*>(from)[i];
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* to, std::size_t i, const T& value) {
    if constexpr (std::is_copy_assignable_v<T>) {
      static_cast<T*>(to)[i] = value;
    } else {
      packed_elements::put(to, i, value);
    }
  }
};

inline std::size_t misaligned(const void* at, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(at) % alignment;
}

/// An operation without state is made where it is used, so that nothing points to it.
template <class Op>
[[gnu::always_inline]] inline decltype(auto) operation_of(const void* state) {
  if constexpr (std::is_empty_v<Op> && std::is_default_constructible_v<Op>) {
    return Op();
  } else {
    return *static_cast<const Op*>(state);
  }
}

/// The elements of a vector loop before `out` reaches a cache line; short loops gain nothing.
template <class T>
[[gnu::always_inline]] inline std::size_t head(const void* out, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t past = misaligned(out, line);
  if (count < 16 * line / sizeof(T) || past == 0 || past % sizeof(T) != 0) return 0;
  return (line - past) / sizeof(T);
}

/// Iterations that touch nothing of each other's; the first `first` of them apart.
template <class Body>
[[gnu::always_inline]] inline void vector_loop(std::size_t first, std::size_t count,
                                               const Body& body) {
  std::size_t i = 0;
  for (std::size_t end = first; true; end = count) {
    COLLS_DETAIL_INDEPENDENT
    for (std::size_t j = i; j < end; ++j) body(packed_elements(), j);
    if (end == count) return;
    i = end;
  }
}

template <class Body>
[[gnu::always_inline]] inline void plain_loop(bool aligned, std::size_t count, const Body& body) {
  if (aligned) {
    for (std::size_t i = 0; i < count; ++i) body(aligned_elements(), i);
  } else {
    for (std::size_t i = 0; i < count; ++i) body(packed_elements(), i);
  }
}

/// Whether a loop becomes vector code and is worth its versions.
template <class... Element>
inline constexpr bool vectorises = ((number<Element> &&
                                     !std::is_same_v<Element, long double>)&&...);

/// Sums of complex numbers are sums of twice as many real ones.
template <class T, class Compute, class Op>
inline constexpr bool sums_parts = false;
template <complex_number T, class Op>
requires std::same_as<Op, plus> || std::same_as<Op, average> || is_pre_multiplied_sum<Op>
inline constexpr bool sums_parts<T, T, Op> = vectorises<decltype(T().real())>;

/// out = left (+) right, elements of type T combined in type Compute.
template <class T, class Compute, class Op>
struct combine_loop {
  static constexpr bool vector =
      sums_parts<T, Compute, Op> || (is_builtin_op<Op> && vectorises<T, Compute>);

  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* left,
                                                const void* right, std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      combine_loop<part, part, plus>::run(state, out, left, right, 2 * count);
    } else {
      decltype(auto) op = operation_of<Op>(state);
      const auto combine = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
        const T& a = elements.template get<T>(left, i);
        const T& b = elements.template get<T>(right, i);
        // Evaluated before it is stored: `out` may be an input.
        const T combined =
            static_cast<T>(op(static_cast<const Compute&>(a), static_cast<const Compute&>(b)));
        elements.put(out, i, combined);
      };
      if constexpr (vector) {
        vector_loop(head<T>(out, count), count, combine);
      } else {
        const std::size_t misalignment = misaligned(out, alignof(T)) |
                                         misaligned(left, alignof(T)) |
                                         misaligned(right, alignof(T));
        plain_loop(misalignment == 0, count, combine);
      }
    }
  }
};

/// out = four inputs combined from the left, as a chain of combine_loops has it. For vector code
/// alone: other loops wait for the processor, not for memory.
template <class T, class Compute, class Op>
struct chain_loop {
  static constexpr bool vector = combine_loop<T, Compute, Op>::vector;

  [[gnu::always_inline]] static inline void run(const void* state, void* out,
                                                const void* const* parts, std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      chain_loop<part, part, plus>::run(state, out, parts, 2 * count);
    } else {
      decltype(auto) op = operation_of<Op>(state);
      const void* const a = parts[0];
      const void* const b = parts[1];
      const void* const c = parts[2];
      const void* const d = parts[3];
      const auto combine = [&](const T& left, const T& right) __attribute__((always_inline)) {
        return static_cast<T>(
            op(static_cast<const Compute&>(left), static_cast<const Compute&>(right)));
      };
      vector_loop(
          head<T>(out, count),
          count, [&](auto elements, std::size_t i) __attribute__((always_inline)) {
            const auto get = [&](const void* from) __attribute__((always_inline)) {
              return elements.template get<T>(from, i);
            };
            const T ab = combine(get(a), get(b));
            const T abc = combine(ab, get(c));
            const T abcd = combine(abc, get(d));
            elements.put(out, i, abcd);
          });
    }
  }
};

/// out[i] = convert(in[i]) from type T to type To.
template <bool Vector, class T, class To, class Convert>
[[gnu::always_inline]] inline void convert_loop(void* out, const void* in, std::size_t count,
                                                const Convert& convert) {
  const auto one = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
    const To converted = convert(elements.template get<T>(in, i));
    elements.put(out, i, converted);
  };
  if constexpr (Vector) {
    vector_loop(head<To>(out, count), count, one);
  } else {
    plain_loop((misaligned(out, alignof(To)) | misaligned(in, alignof(T))) == 0, count, one);
  }
}

/// From T to To by way of type Compute, in which the operation prepares.
template <class T, class Compute, class To, class Op>
struct prepare_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;

  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<vector, T, To>(
        out, in, count, [&](const T& input) __attribute__((always_inline)) {
          return static_cast<To>(op.prepare(static_cast<const Compute&>(input)));
        });
  }
};

/// From T to To by way of type Compute, in which the operation finishes.
template <class T, class Compute, class To, class Op>
struct finish_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;

  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count, int ranks) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<vector, T, To>(
        out, in, count, [&](const T& result) __attribute__((always_inline)) {
          return static_cast<To>(op.finish(static_cast<const Compute&>(result), ranks));
        });
  }
};

/// Stands for an operation that neither prepares nor finishes: then conversion is all there is, and
/// it is compiled once for all operations.
struct conversion : builtin_op<0> {
  template <class T>
  COLLS_INLINE constexpr T prepare(const T& input) const {
    return input;
  }
  template <class T>
  COLLS_INLINE constexpr T finish(const T& result, int) const {
    return result;
  }
};

template <class Loop, class Signature = decltype(Loop::run)>
struct versions;
template <class Loop, class... Args>
struct versions<Loop, void(Args...)> {
  static void plain(Args... args) { Loop::run(args...); }
  COLLS_DETAIL_VECTOR static void vector(Args... args) { Loop::run(args...); }
#if COLLS_DETAIL_DISPATCH
  COLLS_DETAIL_VECTOR [[gnu::target("avx2")]] static void avx2(Args... args) { Loop::run(args...); }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_AVX512 static void avx512(Args... args) { Loop::run(args...); }
#endif
};

/// The version of a loop for the machine that runs the program.
template <class Loop>
auto best_version() {
  using loop = versions<Loop>;
  if constexpr (!Loop::vector) {
    return &loop::plain;
  } else {
#if COLLS_DETAIL_DISPATCH
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      return &loop::avx512;
    }
    if (__builtin_cpu_supports("avx2")) return &loop::avx2;
#endif
    return &loop::vector;
  }
}

}  // namespace colls::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
#undef COLLS_DETAIL_INDEPENDENT
#undef COLLS_DETAIL_VECTOR
#undef COLLS_DETAIL_AVX512

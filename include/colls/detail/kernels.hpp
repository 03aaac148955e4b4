// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The loops of reductions over host memory. Built-in operations on built-in types are compiled for
// several instruction sets; which one runs is chosen when a reduction is made.

#include <colls/op.hpp>

#include <cstring>

// A function that the compiler optimises and vectorises at every level of optimisation, and for
// x86-64 the instruction sets above the program's own. Only the loops are compiled for these; their
// bodies are the same source, without contraction, so all give the same bits.
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

namespace colls::detail {

/// Elements lie at any byte: users pack them as they like.
template <class T>
[[gnu::always_inline]] inline T load(const void* from, std::size_t i) {
  if constexpr (std::is_same_v<T, bool>) {
    return load<unsigned char>(from, i) != 0;
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
[[gnu::always_inline]] inline void store(void* to, std::size_t i, const T& value) {
  std::memcpy(static_cast<std::byte*>(to) + i * sizeof(T), static_cast<const void*>(&value),
              sizeof(T));
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

/// Independent: `out` is an input or does not touch it, and the body touches nothing else.
template <bool Independent, class Body>
[[gnu::always_inline]] inline void for_each_index(std::size_t count, const Body& body) {
  if constexpr (Independent) {
    COLLS_DETAIL_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) body(i);
  } else {
    for (std::size_t i = 0; i < count; ++i) body(i);
  }
}

/// Whether a loop becomes vector code and is worth its versions.
template <class... Element>
inline constexpr bool vectorises =
    ((number<Element> && !std::is_same_v<Element, long double>)&&...);

/// out = left (+) right, elements of type T combined in type Compute.
template <class T, class Compute, class Op>
struct combine_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute>;

  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* left,
                                                const void* right, std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    for_each_index<vector>(count, [&](std::size_t i) __attribute__((always_inline)) {
      const T a = load<T>(left, i);
      const T b = load<T>(right, i);
      store(out, i, static_cast<T>(op(static_cast<const Compute&>(a), static_cast<const Compute&>(b))));
    });
  }
};

/// From T to To by way of type Compute, in which the operation prepares.
template <class T, class Compute, class To, class Op>
struct prepare_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;

  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    for_each_index<vector>(count, [&](std::size_t i) __attribute__((always_inline)) {
      store(out, i, static_cast<To>(op.prepare(static_cast<Compute>(load<T>(in, i)))));
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
    for_each_index<vector>(count, [&](std::size_t i) __attribute__((always_inline)) {
      store(out, i, static_cast<To>(op.finish(static_cast<Compute>(load<T>(in, i)), ranks)));
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

#undef COLLS_DETAIL_INDEPENDENT
#undef COLLS_DETAIL_VECTOR
#undef COLLS_DETAIL_AVX512

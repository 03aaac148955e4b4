// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// kernels: the loops that perform reductions in CPU memory. Loops with built-in operations on
// built-in types are compiled for several instruction sets. The version to run is selected when a
// reduction is created.

#include <colls/reduction/simd.hpp>

#include <initializer_list>

// The following macros are attributes of loops and functions. COLLS_DETAIL_INDEPENDENT and
// COLLS_DETAIL_VECTOR make the compiler vectorise code at every optimisation level except -O0.
// COLLS_DETAIL_SHORT keeps clang from vectorising a short loop. COLLS_DETAIL_WIDE lets the
// compiler use, in one function, instruction sets that the rest of the program does not use.
//
// All versions of a loop give the same bits, except for NaNs. For this reason, no loop computes a
// product and then adds it to another value. For some instruction sets, the compiler would use a
// fused multiply-add, which rounds only once.
#if defined(__clang__)
#define COLLS_DETAIL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define COLLS_DETAIL_SHORT _Pragma("clang loop vectorize(disable) unroll(disable)")
#define COLLS_DETAIL_VECTOR
#define COLLS_DETAIL_WIDE(sets) [[gnu::target(sets), clang::min_vector_width(512)]]
#else
#define COLLS_DETAIL_INDEPENDENT _Pragma("GCC ivdep")
#define COLLS_DETAIL_SHORT
#define COLLS_DETAIL_VECTOR [[gnu::optimize("O3")]]
#define COLLS_DETAIL_WIDE(sets) [[gnu::target(sets ",prefer-vector-width=512")]]
#endif
#if defined(__x86_64__)
#define COLLS_DETAIL_DISPATCH 1
#else
#define COLLS_DETAIL_DISPATCH 0
#endif

// With sanitizers, and at low optimisation levels, clang does not vectorise the loops and warns
// about it. This warning is harmless and therefore disabled.
#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpass-failed"
#endif

namespace colls::detail {

/// Functions that read and write elements of any alignment, such as those of packed buffers.
struct packed_elements {
  template <class T>
  [[gnu::always_inline]] static inline T get(const void* data, std::size_t i) {
    if constexpr (std::is_same_v<T, bool>) {
      return get<unsigned char>(data, i) != 0;
    } else {
      union element {
        element() {}
        T value;
      } loaded;
      std::memcpy(static_cast<void*>(&loaded.value),
                  static_cast<const std::byte*>(data) + i * sizeof(T), sizeof(T));
      return loaded.value;
    }
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* data, std::size_t i, const T& value) {
    std::memcpy(static_cast<std::byte*>(data) + i * sizeof(T), static_cast<const void*>(&value),
                sizeof(T));
  }
};

/// Functions that read and write aligned elements. If an element is a small struct, they are faster
/// than those of `packed_elements`, for which the compiler loads such a struct as one integer. This
/// load stalls if the members of the struct were stored one by one shortly before, because the
/// processor cannot forward several stores to one load.
struct aligned_elements {
  template <class T>
  [[gnu::always_inline]] static inline const T& get(const void* data, std::size_t i) {
    return static_cast<const T*>(data)[i];
  }
  template <class T>
  [[gnu::always_inline]] static inline void put(void* data, std::size_t i, const T& value) {
    if constexpr (std::is_copy_assignable_v<T>) {
      static_cast<T*>(data)[i] = value;
    } else {
      packed_elements::put(data, i, value);
    }
  }
};

inline std::size_t misaligned(const void* address, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(address) % alignment;
}

/// Returns the operation to which `state` points. For a stateless operation, returns a new object
/// instead, so that the compiled code does not depend on the pointer.
template <class Op>
[[gnu::always_inline]] inline decltype(auto) operation_of(const void* state) {
  if constexpr (std::is_empty_v<Op> && std::is_default_constructible_v<Op>) {
    return Op();
  } else {
    return *static_cast<const Op*>(state);
  }
}

/// Returns the number of elements from `out` up to the next cache line boundary. Returns 0 if a
/// loop over `count` elements is too short to gain from alignment, or if no element begins at a
/// boundary.
template <class T>
[[gnu::always_inline]] inline std::size_t head(const void* out, std::size_t count) {
  constexpr std::size_t line = 64;
  const std::size_t past = misaligned(out, line);
  if (count < 16 * line / sizeof(T) || past == 0 || past % sizeof(T) != 0) return 0;
  return (line - past) / sizeof(T);
}

/// Calls `body` for each index below `count`. The calls must be independent of each other, so that
/// the compiler can vectorise the loop. The first `first` calls run in a loop of their own, so that
/// the main loop can begin at a cache line boundary.
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

/// True if loops over elements of these types can be vectorised. Such loops are compiled for
/// several instruction sets.
template <class... Element>
inline constexpr bool vectorises =
    ((number<Element> && !std::is_same_v<Element, long double>) && ...);

/// True if the operation is a sum and the loops treat each complex element as two real elements,
/// its real part and its imaginary part.
template <class T, class Compute, class Op>
inline constexpr bool sums_parts = false;
template <complex_number T, class Op>
  requires is_sum<Op>
inline constexpr bool sums_parts<T, T, Op> = vectorises<decltype(T().real())>;

/// The widest instruction set for which `combine_loop<T, Compute, Op>` is compiled.
template <class T, class Compute, class Op>
inline constexpr isa widest_set =
    is_arithmetic<Op> && std::same_as<Compute, float> ? widest_for<T> : isa::avx512;

template <class T, class Compute, class Op, rounding Rounding = rounding::each_step>
struct fold_loop;

/// The loop that computes out[i] = left[i] (+) right[i], where (+) is the operation. The elements
/// have type T, and the loop combines them in type Compute.
template <class T, class Compute, class Op>
struct combine_loop {
  static constexpr bool vector =
      sums_parts<T, Compute, Op> || (is_builtin_op<Op> && vectorises<T, Compute>);
  static constexpr isa widest = widest_set<T, Compute, Op>;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* left,
                                                const void* right, std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      combine_loop<part, part, plus>::template run<Set>(state, out, left, right, 2 * count);
    } else {
      decltype(auto) op = operation_of<Op>(state);
      const auto combine = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
        const T& a = elements.template get<T>(left, i);
        const T& b = elements.template get<T>(right, i);
        // `out` may be one of the inputs, so the result is first computed in a local variable.
        const T combined =
            static_cast<T>(op(static_cast<const Compute&>(a), static_cast<const Compute&>(b)));
        elements.put(out, i, combined);
      };
      if constexpr (fits_registers<T, Compute, Op, Set>()) {
        if (count == 2) {
          const void* const parts[] = {left, right};
          return fold_loop<T, Compute, Op>::pair(op, out, nullptr, parts, 2);
        }
        const void* const both[] = {left, right};
        // `run` is always inlined, so the compiler knows that there are exactly two inputs.
        fold_loop<T, Compute, Op>::template run<Set>(state, out, nullptr, both, 2, count);
      } else if constexpr (vector) {
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

/// The loop that combines `inputs` parts from left to right in type Compute. It converts the result
/// to type T and stores it to `out`, and also to `second` unless `second` is null. `out` and
/// `second` may each be one of the parts. With rounding::each_step, the result has the same bits as
/// if `combine_loop` had combined the parts one after another. This loop is used only if it can be
/// vectorised. If it cannot, the speed is limited by computation and not by memory bandwidth, so
/// reading all parts in a single pass would not be faster.
template <class T, class Compute, class Op, rounding Rounding>
struct fold_loop {
  static constexpr bool vector = combine_loop<T, Compute, Op>::vector;
  static constexpr isa widest = Rounding == rounding::at_end && std::same_as<T, float16>
                                    ? isa::avx512
                                    : combine_loop<T, Compute, Op>::widest;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, void* second,
                                                const void* const* parts, std::size_t inputs,
                                                std::size_t count) {
    if constexpr (sums_parts<T, Compute, Op>) {
      using part = decltype(T().real());
      fold_loop<part, part, plus>::template run<Set>(state, out, second, parts, inputs, 2 * count);
    } else if constexpr (fits_registers<T, Compute, Op, Set>()) {
      using registers = register_sum<T, Op, Set>;
      using cache_line = line_sum<registers>;
      const std::size_t size = count * sizeof(T);
      if (size >= cache_line::size) {
        std::size_t offset = head<T>(out, count) * sizeof(T);
        if (offset != 0)
          add_edge<cache_line, Op, Rounding>(out, second, parts, inputs, 0, 0, offset);
        offset =
            add_in_registers<cache_line, Op, Rounding>(out, second, parts, inputs, offset, size);
        if (offset == size) return;
        const std::size_t last = size - cache_line::size;
        return add_edge<cache_line, Op, Rounding>(out, second, parts, inputs, last, offset, size);
      }
      decltype(auto) op = operation_of<Op>(state);
      if (count == 2) return pair(op, out, second, parts, inputs);
      std::size_t i =
          add_in_registers<registers, Op, Rounding>(out, second, parts, inputs, 0, size) /
          sizeof(T);
      COLLS_DETAIL_SHORT
      for (; i < count; ++i) {
        Compute sum = get(parts[0], i);
        COLLS_DETAIL_SHORT
        for (std::size_t k = 1; k < inputs; ++k) sum = rounded(op(sum, get(parts[k], i)));
        packed_elements::put(out, i, static_cast<T>(sum));
        if (second != nullptr) packed_elements::put(second, i, static_cast<T>(sum));
      }
    } else {
      run_blocked(state, out, second, parts, inputs, count);
    }
  }

  /// Combines parts that have two elements each. Writes both results with one store. After two
  /// separate stores, a load that reads both results at once would stall.
  [[gnu::always_inline]] static inline void pair(const Op& op, void* out, void* second,
                                                 const void* const* parts, std::size_t inputs) {
    Compute sum[] = {get(parts[0], 0), get(parts[0], 1)};
    COLLS_DETAIL_SHORT
    for (std::size_t k = 1; k < inputs; ++k) {
      sum[0] = rounded(op(sum[0], get(parts[k], 0)));
      sum[1] = rounded(op(sum[1], get(parts[k], 1)));
    }
    const T both[] = {static_cast<T>(sum[0]), static_cast<T>(sum[1])};
    std::memcpy(out, both, sizeof both);
    if (second != nullptr) std::memcpy(second, both, sizeof both);
  }

 private:
  [[gnu::always_inline]] static inline Compute get(const void* data, std::size_t i) {
    const T& element = packed_elements::get<T>(data, i);
    return static_cast<const Compute&>(element);
  }
  [[gnu::always_inline]] static inline Compute rounded(const Compute& sum) {
    if constexpr (Rounding == rounding::each_step) {
      return static_cast<Compute>(static_cast<T>(sum));
    } else {
      return sum;
    }
  }

  /// Combines the parts block by block. A block is so small that its partial results fit into the
  /// L1 cache.
  [[gnu::always_inline]] static inline void run_blocked(const void* state, void* out, void* second,
                                                        const void* const* parts,
                                                        std::size_t inputs, std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    constexpr std::size_t block = 1024 / sizeof(Compute);
    Compute sums[block];
    for (std::size_t offset = 0; offset < count; offset += block) {
      const std::size_t n = count - offset < block ? count - offset : block;
      vector_loop(0, n, [&](auto, std::size_t i) __attribute__((always_inline)) {
        sums[i] = get(parts[0], offset + i);
      });
      for (std::size_t k = 1; k < inputs; ++k) {
        const void* const part = parts[k];
        vector_loop(0, n, [&](auto, std::size_t i) __attribute__((always_inline)) {
          sums[i] = rounded(op(sums[i], get(part, offset + i)));
        });
      }
      for (void* const dest : {out, second}) {
        if (dest == nullptr) continue;
        vector_loop(0, n, [&](auto elements, std::size_t i) __attribute__((always_inline)) {
          elements.put(dest, offset + i, static_cast<T>(sums[i]));
        });
      }
    }
  }
};

/// An operation whose `prepare` and `finish` return their input. `prepare_loop` uses it in place of
/// an operation that has no `prepare`, and `finish_loop` in place of an operation that has no
/// `finish`. The loop then only converts elements between types, and all such operations share its
/// code.
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

/// Whether a conversion from T to Compute and from Compute to To can use the processor's
/// instructions for conversions between float16 and float.
template <isa Set, class T, class Compute, class To>
inline constexpr bool converts_binary16 =
    exceeds_sse2(Set) && std::same_as<Compute, float> &&
    ((std::same_as<T, float16> && (std::same_as<To, float> || std::same_as<To, float16>)) ||
     (std::same_as<T, float> && std::same_as<To, float16>));

/// Computes out[i] = convert(in[i]), where in[i] has type T, out[i] has type To, and at least one
/// of these types is float16. Works on blocks of floats that fit into the L1 cache.
template <isa Set, class T, class To, class Convert>
[[gnu::always_inline]] inline void convert_binary16(std::byte* out, const std::byte* in,
                                                    std::size_t count, const Convert& convert) {
  using halves = register_sum<float16, plus, Set>;
  constexpr std::size_t block = 256;
  std::byte values[block * sizeof(float)];
  for (std::size_t offset = 0; offset < count; offset += block) {
    const std::size_t n = count - offset < block ? count - offset : block;
    const std::byte* source = in + offset * sizeof(T);
    if constexpr (std::same_as<T, float16>) {
      widen<halves>(values, source, n);
      source = values;
    }
    constexpr bool narrows = std::same_as<To, float16>;
    std::byte* const dest = narrows ? values : out + offset * sizeof(To);
    vector_loop(0, n, [&](auto elements, std::size_t i) __attribute__((always_inline)) {
      elements.put(dest, i, convert(elements.template get<float>(source, i)));
    });
    if constexpr (narrows) narrow<halves>(out + offset * sizeof(To), values, n);
  }
}

/// Computes out[i] = convert(in[i]), where in[i] has type T, `convert` takes a value of type
/// Compute, and out[i] has type To.
template <isa Set, bool Vector, class T, class Compute, class To, class Op, class Convert>
[[gnu::always_inline]] inline void convert_loop(void* out, const void* in, std::size_t count,
                                                const Convert& convert) {
  if constexpr (Vector && converts_binary16<Set, T, Compute, To>) {
    auto* const dest = static_cast<std::byte*>(out);
    const auto* const source = static_cast<const std::byte*>(in);
    if constexpr (!std::same_as<Op, conversion>) {
      convert_binary16<Set, T, To>(dest, source, count, convert);
    } else if constexpr (std::same_as<T, float16>) {
      widen<register_sum<float16, plus, Set>>(dest, source, count);
    } else {
      narrow<register_sum<float16, plus, Set>>(dest, source, count);
    }
  } else {
    const auto convert_element = [&](auto elements, std::size_t i) __attribute__((always_inline)) {
      const T& input = elements.template get<T>(in, i);
      const To converted = static_cast<To>(convert(static_cast<const Compute&>(input)));
      elements.put(out, i, converted);
    };
    if constexpr (Vector) {
      vector_loop(head<To>(out, count), count, convert_element);
    } else {
      plain_loop((misaligned(out, alignof(To)) | misaligned(in, alignof(T))) == 0, count,
                 convert_element);
    }
  }
}

/// The loop that applies `prepare` of the operation to each element. It converts the element from T
/// to Compute, the type in which the operation works, and converts the prepared value to To.
template <class T, class Compute, class To, class Op>
struct prepare_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;
  static constexpr isa widest = isa::avx512;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<Set, vector, T, Compute, To, Op>(
        out, in, count,
        [&](const Compute& input) __attribute__((always_inline)) { return op.prepare(input); });
  }
};

/// The loop that applies `finish` of the operation to each element. It converts the element from T
/// to Compute, the type in which the operation works, and converts the finished value to To.
template <class T, class Compute, class To, class Op>
struct finish_loop {
  static constexpr bool vector = is_builtin_op<Op> && vectorises<T, Compute, To>;
  static constexpr isa widest = isa::avx512;

  template <isa Set>
  [[gnu::always_inline]] static inline void run(const void* state, void* out, const void* in,
                                                std::size_t count, int ranks) {
    decltype(auto) op = operation_of<Op>(state);
    convert_loop<Set, vector, T, Compute, To, Op>(
        out, in, count, [&](const Compute& result) __attribute__((always_inline)) {
          return op.finish(result, ranks);
        });
  }
};

template <class Loop, class Signature = decltype(&Loop::template run<isa::basic>)>
struct versions;
template <class Loop, class... Args>
struct versions<Loop, void (*)(Args...)> {
  static void plain(Args... args) { Loop::template run<isa::basic>(args...); }
  COLLS_DETAIL_VECTOR static void vector(Args... args) { Loop::template run<isa::basic>(args...); }
#if COLLS_DETAIL_DISPATCH
  COLLS_DETAIL_VECTOR [[gnu::target("avx2,f16c")]] static void avx2(Args... args) {
    Loop::template run<isa::avx2>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE("avx512f,avx512bw,avx512vl,avx512dq") static void avx512(
      Args... args) {
    Loop::template run<isa::avx512>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE(
      "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni") static void avx512_vnni(Args... args) {
    Loop::template run<isa::avx512_vnni>(args...);
  }
  COLLS_DETAIL_VECTOR COLLS_DETAIL_WIDE(
      "avx512f,avx512bw,avx512vl,avx512dq,avx512fp16") static void avx512_fp16(Args... args) {
    Loop::template run<isa::avx512_fp16>(args...);
  }
#endif
};

template <class Loop, isa Set>
constexpr auto version() {
#if COLLS_DETAIL_DISPATCH
  if constexpr (Set == isa::avx2) return &versions<Loop>::avx2;
  if constexpr (Set == isa::avx512) return &versions<Loop>::avx512;
  if constexpr (Set == isa::avx512_vnni) return &versions<Loop>::avx512_vnni;
  if constexpr (Set == isa::avx512_fp16) return &versions<Loop>::avx512_fp16;
#endif
  if constexpr (Set == isa::basic) return &versions<Loop>::vector;
}

/// Returns the version of a loop for the widest instruction set that this processor supports.
template <class Loop>
auto best_version() {
  if constexpr (!Loop::vector) {
    return &versions<Loop>::plain;
  } else {
#if COLLS_DETAIL_DISPATCH
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq")) {
      if constexpr (Loop::widest == isa::avx512_vnni) {
        if (__builtin_cpu_supports("avx512vnni")) return version<Loop, isa::avx512_vnni>();
      }
      if constexpr (Loop::widest == isa::avx512_fp16) {
        if (__builtin_cpu_supports("avx512fp16")) return version<Loop, isa::avx512_fp16>();
      }
      return version<Loop, isa::avx512>();
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
      return version<Loop, isa::avx2>();
    }
#endif
    return version<Loop, isa::basic>();
  }
}

}  // namespace colls::detail

#if defined(__clang__)
#pragma clang diagnostic pop
#endif
#undef COLLS_DETAIL_INDEPENDENT
#undef COLLS_DETAIL_SHORT
#undef COLLS_DETAIL_VECTOR
#undef COLLS_DETAIL_WIDE

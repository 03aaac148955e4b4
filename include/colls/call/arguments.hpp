// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What users may pass as data, and the checks that refuse a wrong call before a byte is sent.

#include <colls/base/buffer.hpp>
#include <colls/base/error.hpp>
#include <colls/base/op.hpp>
#include <colls/base/shared_buffer.hpp>

#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace colls {

/// Stands for a buffer that only the root has: `comm.gather(mine, colls::none, root)`.
struct none_t {};
inline constexpr none_t none{};

/// `recv` from whoever sends first.
struct any_source_t {};
inline constexpr any_source_t any_source{};

/// A source (or destination) of point-to-point messages.
class peer {
 public:
  constexpr peer(int rank) : rank_(rank) {}                // NOLINT: a rank is a peer
  constexpr peer(any_source_t) : rank_(-1), any_(true) {}  // NOLINT
  constexpr int rank() const { return rank_; }
  constexpr bool is_any() const { return any_; }

 private:
  int rank_;
  bool any_ = false;
};

/// Where a message came from and how many elements it had.
struct received {
  int source = -1;
  std::size_t count = 0;
};

namespace detail {

template <class Range>
concept contiguous = requires(Range& data) {
  std::data(data);
  { std::size(data) } -> std::convertible_to<std::size_t>;
  requires std::is_pointer_v<decltype(std::data(data))>;
};

template <class Range>
using pointee = std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>;

/// What a buffer becomes where it is taken by value, as operations are: an array, a pointer to its
/// elements.
template <class T>
concept is_buffer_as_value =
    contiguous<T> || (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>);

/// A temporary that owns its elements would be gone before the operation ends.
template <class Range>
concept outlives_the_call = std::is_lvalue_reference_v<Range> ||
                            std::ranges::enable_borrowed_range<std::remove_cvref_t<Range>>;

}  // namespace detail

/// Data that a call may read: any contiguous range of a supported element type.
template <class Range>
concept readable_range = detail::contiguous<std::remove_reference_t<Range>>;

/// Data that a call may write.
template <class Range>
concept writable_range =
    readable_range<Range> && !std::is_const_v<detail::pointee<std::remove_reference_t<Range>>>;

template <class Range>
using range_element_t = std::remove_cv_t<detail::pointee<std::remove_reference_t<Range>>>;

namespace detail {

template <class Memory, class Range>
constexpr void check_range() {
  static_assert(std::is_same_v<Memory, device_memory> ||
                    std::is_same_v<memory_space_t<std::remove_cvref_t<Range>>, host_memory>,
                "colls: this communicator moves host memory: device_span needs one for devices, "
                "which colls::cuda::attach makes of it (<colls/cuda/staged.hpp> and its like)");
  static_assert(std::is_same_v<Memory, host_memory> ||
                    std::is_same_v<memory_space_t<std::remove_cvref_t<Range>>, device_memory>,
                "colls: this communicator moves device memory: pass a colls::device_span, or call "
                "the communicator that it was attached to");
  static_assert(outlives_the_call<Range>,
                "colls: the data is a temporary that would be destroyed before the operation ends: "
                "give it a name, or pass a std::span");
  static_assert(
      supported_type<range_element_t<Range>>,
      "colls: elements must be arithmetic, float16, bfloat16, std::complex or a trivially "
      "copyable struct that is no pointer, range or span");
}

/// The range as algorithms know it. Algorithms never write what a caller gave as input.
template <class Memory = host_memory, class Range>
any_buffer erased(Range&& data) {
  check_range<Memory, Range&&>();
  return {const_cast<range_element_t<Range>*>(std::data(data)), std::size(data),
          sizeof(range_element_t<Range>)};
}
template <class Memory = host_memory>
any_buffer erased(none_t) {
  return {};
}

/// Stands for a buffer that a call may not use; `checks` says why, in those words.
inline any_buffer unusable(const char* why) { return {const_cast<char*>(why), SIZE_MAX, 1}; }
inline constexpr char no_device_memory[] =
    "a device_span is not in the memory of a device: a pointer of the host, or one that was freed";
inline constexpr char other_devices_memory[] =
    "a device_span is in the memory of another device than the one that works on it";
inline constexpr char beyond_its_memory[] =
    "a device_span ends beyond the memory that was allocated";
inline constexpr char captured_stream[] =
    "the stream is captured into a CUDA graph, which would have nothing of the call";
inline constexpr char other_devices_stream[] =
    "the stream is of another device than the communicator's";
inline constexpr char unaligned_memory[] =
    "a device_span does not begin where its elements are aligned, as a GPU needs them";

template <class Range>
inline constexpr bool is_none = std::is_same_v<std::remove_cvref_t<Range>, none_t>;

/// Exactly the same bytes, or none in common.
inline bool partly_overlap(any_buffer one, any_buffer other) {
  const auto begin = [](const any_buffer& data) {
    return reinterpret_cast<std::uintptr_t>(data.data());
  };
  const std::size_t size = one.size() * one.element_size();
  const std::size_t other_size = other.size() * other.element_size();
  if (size == 0 || other_size == 0) return false;
  if (begin(one) == begin(other) && size == other_size) return false;
  return begin(one) < begin(other) + other_size && begin(other) < begin(one) + size;
}

/// A list of counts becomes offsets; counts that are negative or add up to more than memory can
/// hold become the offset `unfit`.
inline constexpr std::size_t unfit = PTRDIFF_MAX;
template <class Counts>
std::vector<std::size_t> count_list(const Counts& counts) {
  std::vector<std::size_t> offsets{0};
  for (const auto count : counts) {
    const auto room = unfit - offsets.back();
    const bool fits = !std::cmp_less(count, 0) && std::cmp_less_equal(count, room);
    offsets.push_back(fits ? offsets.back() + static_cast<std::size_t>(count) : unfit);
  }
  return offsets;
}

/// The first thing wrong with a call, or nothing.
class checks {
 public:
  explicit checks(collective what) : what_(what) {}

  [[gnu::format(printf, 3, 4)]] checks& require(bool holds, const char* pattern, ...) {
    if (!holds && !failed()) {
      why_.emplace(errc::invalid_argument);
      why_->operation = what_;
      std::va_list args;
      va_start(args, pattern);
      std::vsnprintf(why_->detail, sizeof why_->detail, pattern, args);
      va_end(args);
    }
    return *this;
  }
  /// A size that came of a subtraction the wrong way or of a -1, or no buffer for this call.
  checks& fits(const any_buffer& data) {
    std::size_t bytes = 0;
    const bool counts = !__builtin_mul_overflow(data.size(), data.element_size(), &bytes);
    return counts && bytes <= PTRDIFF_MAX ? *this : unfit_buffer(data);
  }
  void fail(const failure& wrong) {
    why_ = wrong;
    why_->operation = what_;
  }
  bool failed() const { return why_.has_value(); }
  /// Only after a failure.
  const failure& why() const { return *why_; }

 private:
  [[gnu::noinline, gnu::cold]] checks& unfit_buffer(const any_buffer& data) {
    for (const char* const wrong :
         {no_device_memory, other_devices_memory, beyond_its_memory, captured_stream,
          other_devices_stream, unaligned_memory, registered_and_freed, registered_elsewhere}) {
      require(data.data() != wrong, "%s", wrong);
    }
    return require(false, "a buffer has %zu elements, more than memory can hold", data.size());
  }

  collective what_;
  std::optional<failure> why_;  // seldom: a good call does not pay for its half kilobyte
};

}  // namespace detail

}  // namespace colls

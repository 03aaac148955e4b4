// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// arguments: the concepts for the data that users pass to calls, and the checks that refuse an
// invalid call before anything is sent.

#include <colls/base/buffer.hpp>
#include <colls/base/error.hpp>
#include <colls/base/op.hpp>
#include <colls/base/shared_buffer.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

namespace colls {

/// The type of `none`. If only the root has a buffer, the other ranks pass `none` in place of the
/// buffer, as in `comm.gather(data, colls::none, root)`.
struct none_t {};
inline constexpr none_t none{};

/// The type of `any_source`. With this source, `recv` accepts a message from any rank.
struct any_source_t {};
inline constexpr any_source_t any_source{};

/// The source of a point-to-point message: a rank or `any_source`.
class peer {
 public:
  constexpr peer(int rank) : rank_(rank) {}                // NOLINT: an implicit conversion
  constexpr peer(any_source_t) : rank_(-1), any_(true) {}  // NOLINT
  constexpr int rank() const { return rank_; }
  constexpr bool is_any() const { return any_; }

 private:
  int rank_;
  bool any_ = false;
};

/// The type of `any_tag`. With this tag, `recv` and `probe` accept a message with any tag.
struct any_tag_t {};
inline constexpr any_tag_t any_tag{};

/// The tag that a receive asks for: a number that is not negative, or `any_tag`.
class recv_tag {
 public:
  constexpr recv_tag(int tag) : value_(tag) {}                  // NOLINT: an implicit conversion
  constexpr recv_tag(any_tag_t) : value_(-1), is_any_(true) {}  // NOLINT
  constexpr int value() const { return value_; }
  constexpr bool is_any() const { return is_any_; }

 private:
  int value_;
  bool is_any_ = false;
};

/// The result of `recv`: the source of the message, its number of elements and its tag.
struct received {
  int source = -1;
  std::size_t count = 0;
  int tag = 0;
};

/// The neighbours of this rank in a directed graph of the ranks. If rank a lists rank b as a
/// destination, rank b lists rank a as a source, and as often. A rank may be its own neighbour.
struct neighbour_graph {
  std::vector<int> sources;       // the ranks from which this rank receives
  std::vector<int> destinations;  // the ranks to which this rank sends
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

/// Satisfied if `T`, the type of an argument passed by value, is a contiguous range or a pointer to
/// data, such as an array that has decayed. Some calls accept either a buffer or a reduction
/// operation as an argument. They use this concept to recognise a buffer.
template <class T>
concept is_buffer_as_value =
    contiguous<T> || (std::is_pointer_v<T> && !std::is_function_v<std::remove_pointer_t<T>>);

/// Satisfied by lvalues, and by temporaries that do not own their elements, such as a std::span.
/// Not satisfied by a temporary that owns its elements, because the elements would be destroyed
/// before the operation completes.
template <class Range>
concept outlives_the_call = std::is_lvalue_reference_v<Range> ||
                            std::ranges::enable_borrowed_range<std::remove_cvref_t<Range>>;

}  // namespace detail

/// A range that a call can read. Any contiguous range satisfies this concept. A call also requires
/// that the element type is a `supported_type`.
template <class Range>
concept readable_range = detail::contiguous<std::remove_reference_t<Range>>;

/// A range that a call can write: a contiguous range whose elements are not const.
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

/// Returns `data` as an `any_buffer`, which has no element type. Removes const from the elements.
/// This is safe because algorithms never write to an input.
template <class Memory = host_memory, class Range>
any_buffer to_any_buffer(Range&& data) {
  check_range<Memory, Range&&>();
  return {const_cast<range_element_t<Range>*>(std::data(data)), std::size(data),
          sizeof(range_element_t<Range>)};
}
template <class Memory = host_memory>
any_buffer to_any_buffer(none_t) {
  return {};
}

/// Returns a special `any_buffer` that replaces a buffer that a call cannot use.
/// `checks::check_size` recognises this value and records a problem with the text `reason`.
/// `reason` must be one of the texts in `checks::refuse_buffer`.
inline any_buffer unusable_buffer(const char* reason) {
  return {const_cast<char*>(reason), SIZE_MAX, 1};
}
/// Returns `data` as an `any_buffer`. If it is registered memory that a call on the communicator
/// `owner` cannot use, returns the result of `unusable_buffer`.
template <class Memory, class Range>
any_buffer to_usable_buffer(const void* owner, Range&& data) {
  if constexpr (is_registered<std::remove_cvref_t<Range>>) {
    if (const char* const problem = data.usage_error(owner)) return unusable_buffer(problem);
  }
  return to_any_buffer<Memory>(std::forward<Range>(data));
}
inline constexpr char no_device_memory[] =
    "a device_span is not in the memory of a device: a pointer of the host, or one that was freed";
inline constexpr char other_devices_memory[] =
    "a device_span is in the memory of another device than the one that works on it";
inline constexpr char beyond_its_memory[] =
    "a device_span ends beyond the memory that was allocated";
inline constexpr char captured_stream[] =
    "the stream is captured into a CUDA graph, which would not contain the call";
inline constexpr char other_devices_stream[] =
    "the stream is of another device than the communicator's";
inline constexpr char unaligned_memory[] =
    "a device_span does not begin where its elements are aligned, as a GPU needs them";

template <class Range>
inline constexpr bool is_none = std::is_same_v<std::remove_cvref_t<Range>, none_t>;

/// Returns the tag by which other ranks know a receive. A receive from any tag has the tag 0 there.
inline std::uint64_t recorded_tag(recv_tag tag) {
  return tag.is_any() ? 0 : static_cast<std::uint64_t>(tag.value());
}

/// Returns whether the memory of `a` and the memory of `b` overlap but are not identical.
inline bool overlap_partially(any_buffer a, any_buffer b) {
  const auto begin = [](const any_buffer& data) {
    return reinterpret_cast<std::uintptr_t>(data.data());
  };
  const std::size_t a_size = a.size() * a.element_size();
  const std::size_t b_size = b.size() * b.element_size();
  if (a_size == 0 || b_size == 0) return false;
  if (begin(a) == begin(b) && a_size == b_size) return false;
  return begin(a) < begin(b) + b_size && begin(b) < begin(a) + a_size;
}

/// The value that `offsets_of` returns in place of each offset after an invalid count.
inline constexpr std::size_t invalid_count = PTRDIFF_MAX;
/// Returns the offsets of consecutive blocks, followed by their total length. `counts` contains the
/// length of each block. A count is invalid if it is negative or makes the total larger than memory
/// can hold. All offsets after an invalid count are `invalid_count`.
template <class Counts>
std::vector<std::size_t> offsets_of(const Counts& counts) {
  std::vector<std::size_t> offsets{0};
  for (const auto count : counts) {
    const auto max_count = invalid_count - offsets.back();
    const bool is_valid = !std::cmp_less(count, 0) && std::cmp_less_equal(count, max_count);
    offsets.push_back(is_valid ? offsets.back() + static_cast<std::size_t>(count) : invalid_count);
  }
  return offsets;
}

/// The checks of the arguments of one call. This class records the first problem that a check finds
/// and ignores later problems.
class checks {
 public:
  explicit checks(collective coll) : operation_(coll) {}

  [[gnu::format(printf, 3, 4)]] checks& require(bool condition, const char* pattern, ...) {
    if (!condition && !failed()) {
      failure_.emplace(errc::invalid_argument);
      failure_->operation = operation_;
      std::va_list args;
      va_start(args, pattern);
      std::vsnprintf(failure_->detail, sizeof failure_->detail, pattern, args);
      va_end(args);
    }
    return *this;
  }
  /// Records a problem if the call cannot use `data`, or if `data` has more than PTRDIFF_MAX bytes.
  /// The size of a buffer can be so large if, for example, the user has converted a negative number
  /// to an unsigned type.
  checks& check_size(const any_buffer& data) {
    std::size_t bytes = 0;
    const bool has_byte_count = !__builtin_mul_overflow(data.size(), data.element_size(), &bytes);
    return has_byte_count && bytes <= PTRDIFF_MAX ? *this : refuse_buffer(data);
  }
  void fail(const failure& reason) {
    failure_ = reason;
    failure_->operation = operation_;
  }
  bool failed() const { return failure_.has_value(); }
  /// Returns the recorded problem. May be called only if `failed()` returns true.
  const failure& reason() const { return *failure_; }

 private:
  [[gnu::noinline, gnu::cold]] checks& refuse_buffer(const any_buffer& data) {
    for (const char* const problem :
         {no_device_memory, other_devices_memory, beyond_its_memory, captured_stream,
          other_devices_stream, unaligned_memory, registered_and_freed, registered_elsewhere}) {
      require(data.data() != problem, "%s", problem);
    }
    return require(false, "a buffer has %zu elements, more than memory can hold", data.size());
  }

  collective operation_;
  std::optional<failure> failure_;  // takes half a kilobyte, uninitialized in valid calls
};

inline void check_peer(checks& check, int peer, int ranks) {
  check.require(peer >= 0 && peer < ranks, "rank %d is not in 0..%d", peer, ranks - 1);
}

}  // namespace detail

}  // namespace colls

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// strided_view: a view of elements that are not contiguous in memory, such as a column or a block
// of a matrix, and the loops that pack and unpack them.

#include <colls/base/buffer.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace colls {

/// The layout of a strided view: the number of its indices along each dimension, and the distance
/// in bytes of two elements that are neighbours along it. The elements are numbered in row-major
/// order: the last index varies fastest.
struct strided_layout {
  static constexpr int max_dimensions = 8;

  int dimensions = 0;  // -1: more than `max_dimensions`, or not one stride for each extent
  std::size_t extents[max_dimensions] = {};
  std::ptrdiff_t strides[max_dimensions] = {};
};

/// A strided view whose element type is erased, with as few dimensions as possible.
class any_view {
 public:
  static constexpr int max_dimensions = strided_layout::max_dimensions;

  any_view() = default;
  any_view(const any_buffer& data)  // NOLINT: an implicit conversion
      : data_(static_cast<std::byte*>(data.data())),
        element_size_(data.element_size()),
        count_(data.size()),
        first_byte_(reinterpret_cast<std::uintptr_t>(data.data())),
        end_byte_(first_byte_ + data.size() * data.element_size()),
        extents_{data.size()},
        strides_{static_cast<std::ptrdiff_t>(data.element_size())} {}
  any_view(void* data, std::size_t element_size, const strided_layout& layout)
      : data_(static_cast<std::byte*>(data)), element_size_(element_size) {
    if (layout.dimensions < 0) {
      problem_ =
          "a strided view has more than 8 dimensions, or not one stride for each, or is a slice of "
          "indices that another view lacks";
      return;
    }
    merge_dimensions(layout);
    check_extent();
  }

  /// Returns a view that no call can use, because of `problem`.
  static any_view unusable(const char* problem) {
    any_view result;
    result.problem_ = problem;
    return result;
  }

  std::size_t size() const { return count_; }
  std::size_t element_size() const { return element_size_; }
  /// Returns the reason why no call can use the view, or null.
  const char* problem() const { return problem_; }
  /// Returns whether two elements may share memory. Such a view cannot be written.
  bool overlaps_itself() const { return overlaps_itself_; }
  bool is_contiguous() const {
    return problem_ == nullptr && dimensions_ == 1 &&
           strides_[0] == static_cast<std::ptrdiff_t>(element_size_);
  }
  /// Returns the elements of a contiguous view as a buffer.
  any_buffer contiguous() const { return {data_, count_, element_size_}; }
  bool has_memory() const { return data_ != nullptr || count_ == 0; }
  /// Returns the lowest address of the view's memory.
  std::uintptr_t first_byte() const { return first_byte_; }
  /// Returns the address of an element.
  std::byte* address(std::size_t element) const {
    std::byte* result = data_;
    for_each_row(element, 1, [&](std::byte* row, std::size_t, std::ptrdiff_t) { result = row; });
    return result;
  }
  /// Returns whether both views are known to share memory: if one of them is contiguous, or if one
  /// has no other strides than the other, apart from their signs. Other views may share memory,
  /// too.
  bool shares_elements(const any_view& other) const {
    if (!may_overlap(other)) return false;
    if (is_contiguous()) return other.has_elements_in(first_byte_, end_byte_);
    if (other.is_contiguous()) return has_elements_in(other.first_byte_, other.end_byte_);
    const any_view a = forwards();
    const any_view b = other.forwards();
    return a.dimensions_ >= b.dimensions_ ? a.shares_elements_of(b) : b.shares_elements_of(a);
  }
  /// Returns whether the memory between the first and the last byte of the view contains bytes of
  /// the memory between those of `other`.
  bool may_overlap(const any_view& other) const {
    if (count_ == 0 || other.count_ == 0) return false;
    return first_byte_ < other.end_byte_ && other.first_byte_ < end_byte_;
  }

  /// Calls `run(address, n, stride)` for rows that together are the elements `first` to
  /// `first + count - 1`. A row has `n` elements, which are `stride` bytes apart.
  template <class Run>
  void for_each_row(std::size_t first, std::size_t count, const Run& run) const {
    if (count == 0) return;
    const int last = dimensions_ - 1;
    std::size_t index[max_dimensions] = {};
    std::byte* row = data_;  // the element whose last index is 0
    for (int i = last; i >= 0; --i) {
      index[i] = first % extents_[i];
      first /= extents_[i];
      if (i != last) row += offset(i, index[i]);
    }
    while (true) {
      const std::size_t n = std::min(count, extents_[last] - index[last]);
      run(row + offset(last, index[last]), n, strides_[last]);
      count -= n;
      if (count == 0) return;
      index[last] = 0;
      for (int i = last - 1; i >= 0; --i) {
        row += strides_[i];
        if (++index[i] < extents_[i]) break;
        row -= offset(i, extents_[i]);
        index[i] = 0;
      }
    }
  }

 private:
  std::ptrdiff_t offset(int dimension, std::size_t index) const {
    return strides_[dimension] * static_cast<std::ptrdiff_t>(index);
  }

  std::uintptr_t distance(int dimension) const {
    const auto stride = static_cast<std::uintptr_t>(strides_[dimension]);
    return strides_[dimension] < 0 ? 0 - stride : stride;
  }
  // Lists the dimensions, the one with the longest distance of neighbours first.
  void order_by_distance(int (&order)[max_dimensions]) const {
    for (int i = 0; i < dimensions_; ++i) {
      int place = i;
      for (; place > 0 && distance(order[place - 1]) < distance(i); --place) {
        order[place] = order[place - 1];
      }
      order[place] = i;
    }
  }

  // Whether bytes of an element lie between these addresses.
  bool has_elements_in(std::uintptr_t begin, std::uintptr_t end) const {
    bool has_any = false;
    for_each_row(0, count_, [&](const std::byte* row, std::size_t n, std::ptrdiff_t stride) {
      auto first = reinterpret_cast<std::uintptr_t>(row);
      if (stride < 0) first -= static_cast<std::uintptr_t>(-stride) * (n - 1);
      const auto step = static_cast<std::uintptr_t>(stride < 0 ? -stride : stride);
      // The first element of the row that ends behind `begin`.
      std::uintptr_t index = 0;
      if (step != 0 && begin >= first + element_size_) {
        index = (begin - first - element_size_) / step + 1;
      }
      const std::uintptr_t place = first + index * step;
      has_any |= index < n && place < end && place + element_size_ > begin;
    });
    return has_any;
  }
  // Returns a view of the same elements, in another order, without negative strides and without
  // dimensions of one index.
  any_view forwards() const {
    any_view result = *this;
    result.data_ = reinterpret_cast<std::byte*>(first_byte_);
    result.dimensions_ = 0;
    for (int i = 0; i < dimensions_; ++i) {
      if (extents_[i] == 1) continue;
      result.extents_[result.dimensions_] = extents_[i];
      result.strides_[result.dimensions_++] = static_cast<std::ptrdiff_t>(distance(i));
    }
    return result;
  }
  // The same as `shares_elements` for views that `forwards` has made, if each stride of `other` is
  // one of this view. Otherwise returns false.
  bool shares_elements_of(const any_view& other) const {
    std::size_t others[max_dimensions];  // its extents along the dimensions of this view
    int found = 0;
    for (int i = 0; i < dimensions_; ++i) {
      others[i] = 1;
      for (int k = 0; k < other.dimensions_; ++k) {
        if (other.strides_[k] != strides_[i]) continue;
        others[i] = other.extents_[k];
        ++found;
        break;
      }
    }
    if (found != other.dimensions_) return false;
    int order[max_dimensions];
    order_by_distance(order);
    return shares_elements(others, other.data_ - data_, order, 0);
  }
  // Whether an element of the other view is at the distance `rest` from one of this view, apart
  // from differences of indices of the dimensions `order[depth]` and following.
  bool shares_elements(const std::size_t* other_extents, std::ptrdiff_t rest, const int* order,
                       int depth) const {
    const auto size = static_cast<std::ptrdiff_t>(element_size_);
    if (depth == dimensions_) return rest > -size && rest < size;
    const int i = order[depth];
    const auto own = static_cast<std::ptrdiff_t>(extents_[i]);
    const auto others = static_cast<std::ptrdiff_t>(other_extents[i]);
    if (strides_[i] == 0) return shares_elements(other_extents, rest, order, depth + 1);
    std::ptrdiff_t reach = size - 1;  // how far differences of the inner indices can go
    for (int inner = depth + 1; inner < dimensions_; ++inner) {
      const int k = order[inner];
      const std::size_t longer = std::max(extents_[k], other_extents[k]);
      reach += strides_[k] * static_cast<std::ptrdiff_t>(longer - 1);
    }
    const std::ptrdiff_t lowest = std::max((rest - reach) / strides_[i] - 1, 1 - others);
    const std::ptrdiff_t highest = std::min((rest + reach) / strides_[i] + 1, own - 1);
    for (std::ptrdiff_t k = lowest; k <= highest; ++k) {
      if (shares_elements(other_extents, rest - k * strides_[i], order, depth + 1)) return true;
    }
    return false;
  }

  // Leaves out dimensions with one index, and merges two where the rows of the inner one follow
  // each other.
  void merge_dimensions(const strided_layout& layout) {
    count_ = 1;
    for (int i = 0; i < layout.dimensions; ++i) {
      if (layout.extents[i] == 0) {
        count_ = 0;
        strides_[0] = static_cast<std::ptrdiff_t>(element_size_);
        return;
      }
    }
    int kept = 0;
    for (int i = 0; i < layout.dimensions; ++i) {
      const std::size_t extent = layout.extents[i];
      const std::ptrdiff_t stride = layout.strides[i];
      if (extent == 1) continue;
      std::ptrdiff_t row = 0;
      std::size_t merged = 0;
      if (__builtin_mul_overflow(count_, extent, &count_) ||
          __builtin_mul_overflow(extent, stride, &row)) {
        refuse_length();
        return;
      }
      if (kept > 0 && strides_[kept - 1] == row &&
          !__builtin_mul_overflow(extents_[kept - 1], extent, &merged)) {
        extents_[kept - 1] = merged;
        strides_[kept - 1] = stride;
      } else {
        extents_[kept] = extent;
        strides_[kept++] = stride;
      }
    }
    if (kept == 0) {
      extents_[0] = 1;
      strides_[0] = static_cast<std::ptrdiff_t>(element_size_);
      kept = 1;
    }
    dimensions_ = kept;
  }

  // Finds the memory between the first and the last byte of the view, and whether each element is
  // further from the next than the dimensions inside it are long.
  void check_extent() {
    if (count_ == 0) return;
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    std::uintptr_t below = 0;
    std::uintptr_t above = 0;
    bool overflows = false;
    for (int i = 0; i < dimensions_; ++i) {
      std::uintptr_t length = 0;
      std::uintptr_t& side = strides_[i] < 0 ? below : above;
      overflows |= __builtin_mul_overflow(distance(i), extents_[i] - 1, &length) ||
                   __builtin_add_overflow(side, length, &side);
    }
    std::size_t packed = 0;
    overflows |= __builtin_mul_overflow(count_, element_size_, &packed) || packed > PTRDIFF_MAX ||
                 below > begin || __builtin_add_overflow(above, element_size_, &above) ||
                 above > UINTPTR_MAX - begin || above > PTRDIFF_MAX;
    if (overflows) {
      refuse_length();
      return;
    }
    first_byte_ = begin - below;
    end_byte_ = begin + above;
    int order[max_dimensions];
    order_by_distance(order);
    std::uintptr_t inner = element_size_;
    for (int i = dimensions_; i-- > 0;) {
      overlaps_itself_ |= distance(order[i]) < inner;
      inner += distance(order[i]) * (extents_[order[i]] - 1);
    }
  }
  void refuse_length() {
    problem_ = "a strided view has more elements than memory can hold";
    count_ = 0;
  }

  std::byte* data_ = nullptr;
  std::size_t element_size_ = 1;
  std::size_t count_ = 0;
  int dimensions_ = 1;
  bool overlaps_itself_ = false;
  const char* problem_ = nullptr;
  std::uintptr_t first_byte_ = 0;
  std::uintptr_t end_byte_ = 0;
  std::size_t extents_[max_dimensions] = {0};
  std::ptrdiff_t strides_[max_dimensions] = {1};
};

namespace detail {

/// Copies `n` elements whose distances are `to_stride` and `from_stride` bytes.
template <std::size_t Size>
void copy_elements(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from,
                   std::ptrdiff_t from_stride, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    std::memcpy(to, from, Size);
    to += to_stride;
    from += from_stride;
  }
}
inline void copy_row(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from,
                     std::ptrdiff_t from_stride, std::size_t n, std::size_t size) {
  const auto contiguous = static_cast<std::ptrdiff_t>(size);
  if (to_stride == contiguous && from_stride == contiguous) {
    std::memcpy(to, from, n * size);
    return;
  }
  switch (size) {
    case 1:
      return copy_elements<1>(to, to_stride, from, from_stride, n);
    case 2:
      return copy_elements<2>(to, to_stride, from, from_stride, n);
    case 4:
      return copy_elements<4>(to, to_stride, from, from_stride, n);
    case 8:
      return copy_elements<8>(to, to_stride, from, from_stride, n);
    case 16:
      return copy_elements<16>(to, to_stride, from, from_stride, n);
    default:
      for (std::size_t i = 0; i < n; ++i) {
        std::memcpy(to, from, size);
        to += to_stride;
        from += from_stride;
      }
  }
}

}  // namespace detail

/// Copies the elements `first` to `first + count - 1` of `view` to `packed`, one behind the other.
inline void pack(const any_view& view, std::size_t first, std::size_t count, std::byte* packed) {
  const std::size_t size = view.element_size();
  view.for_each_row(first, count, [&](const std::byte* row, std::size_t n, std::ptrdiff_t stride) {
    detail::copy_row(packed, static_cast<std::ptrdiff_t>(size), row, stride, n, size);
    packed += n * size;
  });
}
/// Copies what `pack` has made of elements back to the elements `first` to `first + count - 1`.
inline void unpack(const any_view& view, std::size_t first, std::size_t count,
                   const std::byte* packed) {
  const std::size_t size = view.element_size();
  view.for_each_row(first, count, [&](std::byte* row, std::size_t n, std::ptrdiff_t stride) {
    detail::copy_row(row, stride, packed, static_cast<std::ptrdiff_t>(size), n, size);
    packed += n * size;
  });
}

namespace detail {

/// Calls `part(element, first, n)` for bytes `first` to `first + n - 1` of an element that is not
/// complete among the `count` bytes of elements of `size` bytes that begin with byte `begin`, and
/// `whole(element, n)` for `n` complete elements, in order.
template <class Part, class Whole>
void for_elements_of_bytes(std::size_t size, std::size_t begin, std::size_t count, const Part& part,
                           const Whole& whole) {
  std::size_t element = begin / size;
  if (const std::size_t skipped = begin % size; skipped != 0) {
    const std::size_t n = std::min(count, size - skipped);
    part(element++, skipped, n);
    count -= n;
  }
  whole(element, count / size);
  if (count % size != 0) part(element + count / size, 0, count % size);
}

}  // namespace detail

/// Copies `count` bytes of the packed elements of `view`, beginning with byte `begin`, to `packed`.
inline void pack_bytes(const any_view& view, std::size_t begin, std::size_t count,
                       std::byte* packed) {
  const std::size_t size = view.element_size();
  detail::for_elements_of_bytes(
      size, begin, count,
      [&](std::size_t element, std::size_t first, std::size_t n) {
        std::memcpy(packed, view.address(element) + first, n);
        packed += n;
      },
      [&](std::size_t element, std::size_t n) {
        pack(view, element, n, packed);
        packed += n * size;
      });
}
/// Copies what `pack_bytes` has made of bytes back to the elements of `view`.
inline void unpack_bytes(const any_view& view, std::size_t begin, std::size_t count,
                         const std::byte* packed) {
  const std::size_t size = view.element_size();
  detail::for_elements_of_bytes(
      size, begin, count,
      [&](std::size_t element, std::size_t first, std::size_t n) {
        std::memcpy(view.address(element) + first, packed, n);
        packed += n;
      },
      [&](std::size_t element, std::size_t n) {
        unpack(view, element, n, packed);
        packed += n * size;
      });
}

namespace detail {

/// Satisfied by std::mdspan with a strided layout, and by classes like it.
template <class View>
concept mdspan_like = requires(const View& view) {
  typename View::element_type;
  { View::rank() } -> std::convertible_to<std::size_t>;
  { view.extent(0) } -> std::convertible_to<std::size_t>;
  { view.stride(0) } -> std::convertible_to<std::ptrdiff_t>;
  { view.data_handle() } -> std::convertible_to<typename View::element_type*>;
};
template <class Range>
concept has_contiguous_elements = requires(Range& range) {
  requires std::is_pointer_v<decltype(std::data(range))>;
  { std::size(range) } -> std::convertible_to<std::size_t>;
};

}  // namespace detail

/// A view of elements of type `T` whose distances in memory are given by a stride for each
/// dimension: a column, a block, a transposed matrix. The view does not own the elements. Calls
/// take it in place of a contiguous range; its elements count in row-major order. The layouts of
/// the ranks may differ. A stride may be negative. A call that writes a view refuses one of which
/// two elements share memory.
///
///     const colls::strided_view column(&matrix[0][j], {rows}, {columns});
///     co_await comm.broadcast(column, 0);
template <class T>
class strided_view {
 public:
  using element_type = T;

  /// Makes a view that begins at `data`. Dimension i has `extents[i]` indices, whose elements are
  /// `strides[i]` elements apart. There are at most 8 dimensions.
  strided_view(T* data, std::initializer_list<std::size_t> extents,
               std::initializer_list<std::ptrdiff_t> strides)
      : strided_view(data, std::span(extents.begin(), extents.size()),
                     std::span(strides.begin(), strides.size())) {}
  strided_view(T* data, std::span<const std::size_t> extents,
               std::span<const std::ptrdiff_t> strides)
      : data_(data) {
    if (extents.size() != strides.size() || extents.size() > strided_layout::max_dimensions) {
      layout_.dimensions = -1;
      return;
    }
    layout_.dimensions = static_cast<int>(extents.size());
    for (std::size_t i = 0; i < extents.size(); ++i) {
      layout_.extents[i] = extents[i];
      constexpr auto size = static_cast<std::ptrdiff_t>(sizeof(T));
      // With one index, the stride has no effect. Other products that overflow are refused.
      if (extents[i] > 1 && __builtin_mul_overflow(strides[i], size, &layout_.strides[i])) {
        layout_.extents[i] = SIZE_MAX;
        layout_.strides[i] = size;
      }
    }
  }
  /// Makes a view of a contiguous range, such as a std::vector.
  template <class Range>
    requires detail::has_contiguous_elements<Range>
  explicit strided_view(Range& range) : strided_view(std::data(range), {std::size(range)}, {1}) {}
  /// Makes a view of a std::mdspan whose layout has strides.
  template <detail::mdspan_like View>
  explicit strided_view(const View& view) : data_(view.data_handle()) {
    constexpr std::size_t rank = View::rank();
    static_assert(rank <= strided_layout::max_dimensions,
                  "colls: a strided view has at most 8 dimensions");
    std::size_t extents[rank != 0 ? rank : 1];
    std::ptrdiff_t strides[rank != 0 ? rank : 1];
    for (std::size_t i = 0; i < rank; ++i) {
      extents[i] = static_cast<std::size_t>(view.extent(i));
      strides[i] = static_cast<std::ptrdiff_t>(view.stride(i));
    }
    *this = strided_view(data_, std::span<const std::size_t>(extents, rank),
                         std::span<const std::ptrdiff_t>(strides, rank));
  }

  int dimensions() const { return layout_.dimensions; }
  std::size_t extent(int dimension) const { return layout_.extents[dimension]; }
  T* data_handle() const { return data_; }
  /// Returns the number of elements.
  std::size_t size() const { return erased().size(); }
  /// Returns the view of `count` indices along `dimension`, beginning with the index `first`.
  strided_view slice(int dimension, std::size_t first, std::size_t count) const {
    strided_view part = *this;
    if (dimension < 0 || dimension >= layout_.dimensions || first > extent(dimension) ||
        count > extent(dimension) - first) {
      part.layout_.dimensions = -1;
      return part;
    }
    if (count != 0) {
      part.data_ = address(static_cast<std::ptrdiff_t>(first) * layout_.strides[dimension]);
    }
    part.layout_.extents[dimension] = count;
    return part;
  }
  /// Returns the view with two dimensions exchanged.
  strided_view transposed(int first = 0, int second = 1) const {
    strided_view other = *this;
    if (first < 0 || second < 0 || first >= dimensions() || second >= dimensions()) {
      other.layout_.dimensions = -1;
      return other;
    }
    std::swap(other.layout_.extents[first], other.layout_.extents[second]);
    std::swap(other.layout_.strides[first], other.layout_.strides[second]);
    return other;
  }
  any_view erased() const {
    return {const_cast<std::remove_const_t<T>*>(data_), sizeof(T), layout_};
  }

 private:
  T* address(std::ptrdiff_t offset) const {
    using byte = std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>;
    return reinterpret_cast<T*>(reinterpret_cast<byte*>(data_) + offset);
  }

  T* data_;
  strided_layout layout_;
};
template <class T>
strided_view(T*, std::initializer_list<std::size_t>, std::initializer_list<std::ptrdiff_t>)
    -> strided_view<T>;
template <class T>
strided_view(T*, std::span<const std::size_t>, std::span<const std::ptrdiff_t>) -> strided_view<T>;
template <class Range>
  requires detail::has_contiguous_elements<Range>
strided_view(Range&)
    -> strided_view<std::remove_pointer_t<decltype(std::data(std::declval<Range&>()))>>;
template <detail::mdspan_like View>
strided_view(const View&) -> strided_view<typename View::element_type>;

}  // namespace colls

template <class T>
inline constexpr bool std::ranges::enable_borrowed_range<colls::strided_view<T>> = true;

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// when_all: the only concurrency that algorithms use.

#include <colls/coroutine/task.hpp>

#include <array>
#include <tuple>
#include <variant>
#include <vector>

namespace colls {

namespace detail {

/// Counts the parts that are still under way. It never cancels a part: all have ended before the
/// parent goes on, since they refer to its buffers.
class join : public completion {
 public:
  struct part : completion {
    join* whole = nullptr;
  };

 protected:
  template <class Operation>
  void begin(Operation& operation, part& mine, completion& done) {
    mine.whole = this;
    mine.become(
        [](completion& self) noexcept {
          join& whole = *static_cast<part&>(self).whole;
          if (--whole.pending_ == 0) whole.done_->run();
        },
        done);
    if (!operation.start(mine)) ++pending_;
  }
  bool wait(completion& done) {
    done_ = &done;
    return --pending_ == 0;
  }

 private:
  completion* done_ = nullptr;
  int pending_ = 1;  // and the start itself, under which a part may run the queue (`done()`)
};

template <class Operation>
using result_of = std::remove_cvref_t<decltype(std::declval<Operation&>().result())>;

template <class Result>
inline constexpr bool is_plain = std::is_void_v<Result> || std::is_same_v<Result, std::error_code>;

/// Result of one part: void and error_code become nothing (or throw), values stay.
template <class Operation>
auto take(Operation& operation, std::exception_ptr& first) {
  using result = result_of<Operation>;
  if constexpr (std::is_void_v<result>) {
    try {
      operation.result();
    } catch (...) {
      if (!first) first = std::current_exception();
    }
    return std::monostate{};
  } else if constexpr (std::is_same_v<result, std::error_code>) {
    if (const std::error_code ec = operation.result(); ec && !first) {
      try {
        unwrap(ec);
      } catch (...) {
        first = std::current_exception();
      }
    }
    return std::monostate{};
  } else {
    std::optional<result> value;
    try {
      value.emplace(operation.result());
    } catch (...) {
      if (!first) first = std::current_exception();
    }
    return value;
  }
}

template <class Value>
Value settle(std::optional<Value>&& value) {
  return std::move(*value);
}
inline std::monostate settle(std::monostate nothing) { return nothing; }

/// What is awaited: the operation that a request makes, or the operation itself.
template <class Part>
struct made_by {
  using type = Part;
};
template <request Part>
struct made_by<Part> {
  using type = typename Part::operation;
};
template <class Part>
using awaited = typename made_by<Part>::type;

/// One part of a when_all: made where it stays, from an operation or from the request of one.
template <std::size_t Index, class Operation>
struct joined {
  template <class Request>
  [[gnu::always_inline]] explicit joined(Request&& from) : operation(std::forward<Request>(from)) {}
  Operation operation;
  join::part mine;
};

template <class Indices, class... Operations>
struct all_joined;
template <std::size_t... Index, class... Operations>
struct all_joined<std::index_sequence<Index...>, Operations...> : joined<Index, Operations>... {
  template <class... Requests>
  [[gnu::always_inline]] explicit all_joined(Requests&&... from)
      : joined<Index, Operations>(std::forward<Requests>(from))... {}
  all_joined(all_joined&& other) noexcept
      : joined<Index, Operations>(
            std::move(static_cast<joined<Index, Operations>&>(other).operation))... {}

  /// `visit(part)` for each of them, in order.
  template <class Visit>
  [[gnu::always_inline]] void each(Visit visit) {
    (visit(static_cast<joined<Index, Operations>&>(*this)), ...);
  }
  /// What `visit` gives for each, in order: braces are evaluated from the left.
  template <class Visit>
  auto all(Visit visit) {
    return std::tuple{visit(static_cast<joined<Index, Operations>&>(*this))...};
  }
};

}  // namespace detail

/// Starts all its operations and ends when all have ended; then rethrows the first error, if any.
/// Its value is nothing when no part has a value, else a tuple (std::monostate for those without).
template <class... Operations>
class [[nodiscard("co_await it")]] when_all : detail::join {
  static_assert((startable<Operations> && ...), "when_all takes operations and tasks");

 public:
  template <class... Requests>
  [[gnu::always_inline]] explicit when_all(Requests&&... from)
      : parts_(std::forward<Requests>(from)...) {}
  when_all(when_all&& other) noexcept : parts_(std::move(other.parts_)) {}

  bool start(completion& done) {
    parts_.each([&](auto& one) { begin(one.operation, one.mine, done); });
    return wait(done);
  }

  auto result() {
    std::exception_ptr first;
    if constexpr ((detail::is_plain<detail::result_of<Operations>> && ...)) {
      parts_.each([&](auto& one) { (void)detail::take(one.operation, first); });
      if (first) std::rethrow_exception(first);
    } else {
      auto values = parts_.all([&](auto& one) { return detail::take(one.operation, first); });
      if (first) std::rethrow_exception(first);
      return std::apply(
          [](auto&&... value) { return std::tuple{detail::settle(std::move(value))...}; },
          std::move(values));
    }
  }

 private:
  detail::all_joined<std::index_sequence_for<Operations...>, Operations...> parts_;
};

/// The same for a number of operations known only at run time, without values.
template <startable Operation, class Allocator>
class [[nodiscard("co_await it")]] when_all<std::vector<Operation, Allocator>> : detail::join {
 public:
  explicit when_all(std::vector<Operation, Allocator>&& operations)
      : operations_(std::move(operations)), parts_(operations_.size()) {}
  when_all(when_all&& other) noexcept
      : operations_(std::move(other.operations_)), parts_(std::move(other.parts_)) {}

  bool start(completion& done) {
    for (std::size_t i = 0; i < operations_.size(); ++i) begin(operations_[i], parts_[i], done);
    return wait(done);
  }

  void result() {
    std::exception_ptr first;
    for (Operation& operation : operations_) (void)detail::take(operation, first);
    if (first) std::rethrow_exception(first);
  }

 private:
  std::vector<Operation, Allocator> operations_;
  std::vector<part, detail::recycling_allocator<part>> parts_;
};

template <class... Parts>
when_all(Parts&&...) -> when_all<detail::awaited<Parts>...>;
template <startable Operation, class Allocator>
when_all(std::vector<Operation, Allocator>&&) -> when_all<std::vector<Operation, Allocator>>;

/// `make(i)` for i = first, ..., last - 1, all at once.
template <class Make>
auto each_of(int first, int last, const Make& make) {
  using operation = detail::awaited<decltype(make(first))>;
  std::vector<operation, detail::recycling_allocator<operation>> operations;
  operations.reserve(static_cast<std::size_t>(last > first ? last - first : 0));
  for (int i = first; i < last; ++i) (void)operations.emplace_back(make(i));
  return when_all(std::move(operations));
}

}  // namespace colls

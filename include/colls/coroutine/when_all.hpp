// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// when_all: an operation that runs other operations concurrently. Algorithms use no other form of
// concurrency.

#include <colls/coroutine/task.hpp>

#include <array>
#include <tuple>
#include <variant>
#include <vector>

namespace colls {

namespace detail {

/// The base class of `when_all`, which runs several operations (its parts) concurrently. This class
/// counts the parts that have not completed. When one part fails, the other parts continue. The
/// awaiting coroutine resumes only after all parts have completed, because the parts refer to
/// buffers of that coroutine.
class join : public completion {
 public:
  struct part : completion {
    join* owner = nullptr;
  };

 protected:
  template <class Operation>
  void begin(Operation& operation, part& member, completion& done) {
    member.owner = this;
    member.bind(
        [](completion& self) noexcept {
          join& owner = *static_cast<part&>(self).owner;
          if (--owner.pending_ == 0) owner.done_->run();
        },
        done);
    if (!operation.start(member)) ++pending_;
  }
  bool wait(completion& done) {
    done_ = &done;
    return --pending_ == 0;
  }

 private:
  completion* done_ = nullptr;
  // The number of started parts that have not completed, plus 1 until all parts have started. A
  // part may run the queue while it starts, and all earlier parts may complete during this time.
  // The added 1 keeps the count above 0 in this case.
  int pending_ = 1;
};

template <class Operation>
using result_type_of = std::remove_cvref_t<decltype(std::declval<Operation&>().result())>;

template <class Result>
inline constexpr bool is_plain = std::is_void_v<Result> || std::is_same_v<Result, std::error_code>;

/// Gets the result of `operation`, which is one part. If the part has failed and `first` is null,
/// stores the exception in `first`. Returns a std::monostate if the type of the result is void or
/// std::error_code. Otherwise returns a std::optional with the result, or an empty std::optional if
/// the part has failed.
template <class Operation>
auto take(Operation& operation, std::exception_ptr& first) {
  using result = result_type_of<Operation>;
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

/// The type of the operation that `co_await` runs for a `Part`. This type is `Part::operation` if
/// `Part` is a request, and otherwise `Part` itself.
template <class Part>
struct awaited_operation {
  using type = Part;
};
template <request Part>
struct awaited_operation<Part> {
  using type = typename Part::operation;
};
template <class Part>
using awaited = typename awaited_operation<Part>::type;

/// One part of a when_all. The constructor initialises the member `operation` with another
/// operation or with a request.
template <std::size_t Index, class Operation>
struct joined {
  template <class Request>
  [[gnu::always_inline]] explicit joined(Request&& source)
      : operation(std::forward<Request>(source)) {}
  Operation operation;
  join::part member;
};

template <class Indices, class... Operations>
struct joined_parts;
template <std::size_t... Index, class... Operations>
struct joined_parts<std::index_sequence<Index...>, Operations...> : joined<Index, Operations>... {
  template <class... Requests>
  [[gnu::always_inline]] explicit joined_parts(Requests&&... sources)
      : joined<Index, Operations>(std::forward<Requests>(sources))... {}
  joined_parts(joined_parts&& other) noexcept
      : joined<Index, Operations>(
            std::move(static_cast<joined<Index, Operations>&>(other).operation))... {}

  /// Calls `visitor(part)` for each part, in order.
  template <class Visitor>
  [[gnu::always_inline]] void for_each(Visitor visitor) {
    (visitor(static_cast<joined<Index, Operations>&>(*this)), ...);
  }
  /// Returns a tuple of the results of `function(part)` for all parts. The calls are made in order
  /// because initialisers in braces are evaluated from left to right.
  template <class Function>
  auto transform(Function function) {
    return std::tuple{function(static_cast<joined<Index, Operations>&>(*this))...};
  }
};

}  // namespace detail

/// An operation that starts all its parts and completes when all of them have completed. If any
/// parts have failed, `result` throws the error of the first failed part in argument order. A
/// when_all has no value if none of its parts has one. Otherwise its value is a tuple of the values
/// of the parts, with a std::monostate for each part that has no value.
template <class... Operations>
class [[nodiscard("co_await it")]] when_all : detail::join {
  static_assert((startable<Operations> && ...), "when_all takes operations and tasks");

 public:
  template <class... Requests>
  [[gnu::always_inline]] explicit when_all(Requests&&... sources)
      : parts_(std::forward<Requests>(sources)...) {}
  when_all(when_all&& other) noexcept : parts_(std::move(other.parts_)) {}

  bool start(completion& done) {
    parts_.for_each([&](auto& child) { begin(child.operation, child.member, done); });
    return wait(done);
  }

  auto result() {
    std::exception_ptr first;
    if constexpr ((detail::is_plain<detail::result_type_of<Operations>> && ...)) {
      parts_.for_each([&](auto& child) { (void)detail::take(child.operation, first); });
      if (first) std::rethrow_exception(first);
    } else {
      auto values =
          parts_.transform([&](auto& child) { return detail::take(child.operation, first); });
      if (first) std::rethrow_exception(first);
      return std::apply(
          [](auto&&... value) { return std::tuple{detail::settle(std::move(value))...}; },
          std::move(values));
    }
  }

 private:
  detail::joined_parts<std::index_sequence_for<Operations...>, Operations...> parts_;
};

/// A when_all whose parts are the operations in a vector. The number of parts need not be known at
/// compile time. This when_all has no value, and discards the values of its parts.
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

/// Returns a when_all of the operations `make(i)` for `i` from `first` to `last - 1`.
template <class Make>
auto each_of(int first, int last, const Make& make) {
  using operation = detail::awaited<decltype(make(first))>;
  std::vector<operation, detail::recycling_allocator<operation>> operations;
  operations.reserve(static_cast<std::size_t>(last > first ? last - first : 0));
  for (int i = first; i < last; ++i) (void)operations.emplace_back(make(i));
  return when_all(std::move(operations));
}

}  // namespace colls

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// when_any, wait_some: wait until one of several operations has ended. The operations are not
// consumed: each gives its result when it is awaited. This header includes `stop_when`, too, which
// cancels an operation.

#include <colls/call/call.hpp>
#include <colls/stop_when.hpp>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

namespace colls {

namespace detail {

/// Waits until at least one of several calls has ended. A call is passed over if it is null or has
/// been awaited already.
class any_call {
 public:
  explicit any_call(std::vector<call_base*> calls) : calls_(std::move(calls)) {
    for (call_base*& each : calls_) {
      if (each != nullptr && each->was_awaited) each = nullptr;
    }
  }
  any_call(const any_call&) = delete;
  any_call& operator=(const any_call&) = delete;
  ~any_call() { stop(); }

  bool start(completion& done) {
    if (!ended().empty() || is_empty()) return true;
    done_ = &done;
    waits_ = std::vector<wait>(calls_.size());
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i] == nullptr) continue;
      waits_[i].owner = this;
      waits_[i].bind(
          [](completion& self) noexcept {
            any_call& owner = *static_cast<wait&>(self).owner;
            owner.stop();
            owner.done_->run();
          },
          done);
      (void)calls_[i]->wait(waits_[i]);  // it has not ended
    }
    return false;
  }
  /// Called before `done` is destroyed.
  void forget(const completion& done) noexcept {
    if (done_ == &done) stop();
  }

 protected:
  /// Returns whether all calls are passed over.
  bool is_empty() const {
    return std::all_of(calls_.begin(), calls_.end(), [](auto* each) { return each == nullptr; });
  }
  /// Returns the indices of the calls that have ended, in ascending order.
  std::vector<std::size_t> ended() const {
    std::vector<std::size_t> indices;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (calls_[i] != nullptr && calls_[i]->is_done()) indices.push_back(i);
    }
    return indices;
  }

 private:
  struct wait : completion {
    any_call* owner = nullptr;
  };

  // Stops watching. Afterwards no call refers to this object.
  void stop() noexcept {
    for (std::size_t i = 0; i < waits_.size(); ++i) {
      if (waits_[i].owner == nullptr) continue;
      calls_[i]->forget(waits_[i]);
      waits_[i].withdraw();
      waits_[i].owner = nullptr;
    }
  }

  std::vector<call_base*> calls_;
  std::vector<wait> waits_;
  completion* done_ = nullptr;
};

/// Returns the call of an operation, or null if the operation was moved from.
template <class T>
call_base* call_of(const operation<T>& from) {
  return from ? &from.underlying_call() : nullptr;
}
template <class T>
std::vector<call_base*> calls_of(std::span<operation<T>> operations) {
  std::vector<call_base*> calls;
  for (const operation<T>& each : operations) calls.push_back(call_of(each));
  return calls;
}

/// What `when_any` returns. The code that awaits it constructs the operation in place.
template <std::size_t Count>
class when_any_request {
 public:
  class operation : public any_call {
   public:
    explicit operation(const when_any_request& request)
        : any_call({request.calls_.begin(), request.calls_.end()}) {}

    std::size_t result() const {
      const std::vector<std::size_t> indices = ended();
      if (!indices.empty()) return indices.front();
      throw error(errc::invalid_argument,
                  "when_any has nothing to wait for: all operations were awaited or moved from");
    }
  };

  explicit when_any_request(const std::array<call_base*, Count>& calls) : calls_(calls) {}

 private:
  std::array<call_base*, Count> calls_;
};

/// What `wait_some` returns.
template <class T>
class wait_some_request {
 public:
  class operation : public any_call {
   public:
    explicit operation(const wait_some_request& request)
        : any_call(calls_of(request.operations_)) {}

    std::vector<std::size_t> result() const { return ended(); }
  };

  explicit wait_some_request(std::span<colls::operation<T>> operations) : operations_(operations) {}

 private:
  std::span<colls::operation<T>> operations_;
};

template <class T>
inline constexpr bool is_operation = false;
template <class T>
inline constexpr bool is_operation<operation<T>> = true;

}  // namespace detail

/// Waits until at least one of the operations has ended, with a value or an error, and gives the
/// index of that operation. If several have ended, gives the lowest index. The operation keeps its
/// result, which is given when the operation is awaited. Operations that were awaited already or
/// moved from are passed over; if no other is left, throws `errc::invalid_argument`.
///
///     auto first = comm.recv(a, 1);
///     auto second = comm.recv(b, 2);
///     const std::size_t index = co_await colls::when_any(first, second);
///
/// The operations must not be moved or destroyed meanwhile. Nothing else may await them meanwhile;
/// if something does, this function or that await throws `errc::invalid_argument`. Dropping the
/// wait cancels none of them.
template <class... Operations>
auto when_any(Operations&&... operations) {
  static_assert(sizeof...(Operations) > 0 && (std::is_lvalue_reference_v<Operations> && ...),
                "colls: when_any waits for operations that outlive it: give them names");
  static_assert((detail::is_operation<std::remove_cvref_t<Operations>> && ...),
                "colls: when_any takes operations of communicators");
  const std::array<detail::call_base*, sizeof...(Operations)> calls{detail::call_of(operations)...};
  return detail::when_any_request(calls);
}

/// Waits until at least one of the operations has ended, and gives the indices of all that have
/// ended, in ascending order. Operations that were awaited already or moved from are passed over.
/// If no other is left, gives an empty vector. Everything else is as for `when_any`.
template <class T>
auto wait_some(std::span<operation<T>> operations) {
  return detail::wait_some_request<T>(operations);
}

}  // namespace colls

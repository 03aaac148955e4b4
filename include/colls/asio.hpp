// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Operations as asynchronous operations of Asio: in asio::awaitable, and with any completion token.
//
// `co_await comm.all_reduce(x)` works inside asio::awaitable, and a kept operation by
// `co_await std::move(op)`. `comm.all_reduce(x)(token)` takes use_future, callbacks, deferred and
// the like. The signature is void(error_code), or void(error_code, T) where the operation has a
// value; `comm.failed()` explains more than the code does. Not for files that nvcc compiles.

#include <colls/call/call.hpp>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/recycling_allocator.hpp>

#include <mutex>
#include <optional>

namespace colls::detail {

namespace asio = boost::asio;

/// The waits of one execution context. They own themselves, so the context destroys those that are
/// left when it ends, as it does with its own.
class foreign_waits final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  class wait {
   public:
    virtual void destroy() noexcept = 0;

   protected:
    ~wait() = default;

   private:
    friend foreign_waits;
    foreign_waits* kept_by_ = nullptr;
    wait* next_ = nullptr;
    wait* prev_ = nullptr;
  };

  explicit foreign_waits(asio::execution_context& owner) : service(owner) {}

  void add(wait& each) {
    const std::lock_guard lock(guard_);
    each.kept_by_ = this;
    each.next_ = first_;
    if (first_ != nullptr) first_->prev_ = &each;
    first_ = &each;
  }
  /// Does nothing for one that was never added.
  static void remove(wait& each) noexcept {
    if (each.kept_by_ == nullptr) return;
    const std::lock_guard lock(each.kept_by_->guard_);
    (each.prev_ != nullptr ? each.prev_->next_ : each.kept_by_->first_) = each.next_;
    if (each.next_ != nullptr) each.next_->prev_ = each.prev_;
    each.kept_by_ = nullptr;
  }

 private:
  void shutdown() override {
    while (wait* const first = first_) first->destroy();
  }

  std::mutex guard_;  // executors of one context may run on several threads
  wait* first_ = nullptr;
};

template <class T>
struct completion_signature {
  using type = void(boost::system::error_code, T);
};
template <>
struct completion_signature<void> {
  using type = void(boost::system::error_code);
};

/// An operation and the handler that waits for it. Owns itself until the handler is called.
template <class T, class Handler>
class foreign_wait final : completion, foreign_waits::wait {
  static_assert(std::is_void_v<T> || std::is_default_constructible_v<T>,
                "colls: after an error a handler gets a T() as the value");
  struct nothing {};
  using allocator_type = asio::associated_allocator_t<Handler, asio::recycling_allocator<void>>;
  using memory =
      typename std::allocator_traits<allocator_type>::template rebind_alloc<foreign_wait>;
  using executor_type = asio::associated_executor_t<Handler, asio::any_io_executor>;
  static constexpr bool brings_executor =
      !std::is_same_v<asio::associated_executor_t<Handler, nothing>, nothing>;

 public:
  static void begin(operation<T>&& awaited, Handler&& handler) {
    memory from = allocator_of(handler);
    foreign_wait* const self = from.allocate(1);
    try {
      ::new (static_cast<void*>(self)) foreign_wait(std::move(awaited), std::move(handler));
    } catch (...) {
      from.deallocate(self, 1);
      throw;
    }
    self->start();
  }

 private:
  /// What is posted. Destroys the wait if its executor never calls it.
  class delivery {
   public:
    using allocator_type = foreign_wait::allocator_type;

    explicit delivery(foreign_wait& ended) : ended_(&ended) {}
    delivery(delivery&& other) noexcept : ended_(std::exchange(other.ended_, nullptr)) {}
    ~delivery() {
      if (ended_ != nullptr) ended_->destroy();
    }
    void operator()() { std::exchange(ended_, nullptr)->complete(); }
    allocator_type get_allocator() const noexcept { return allocator_of(ended_->handler_); }

   private:
    foreign_wait* ended_;
  };

  struct canceller {
    foreign_wait* self;
    void operator()(asio::cancellation_type type) const { self->cancel(type); }
  };

  foreign_wait(operation<T>&& awaited, Handler&& handler)
      : completion([](completion& self) noexcept { static_cast<foreign_wait&>(self).hand_over(); },
                   &awaited.started().queue()),
        awaited_(std::move(awaited)),
        handler_(std::move(handler)) {
    // The queue of an operation that has ended may be gone with its communicator, so it is not
    // asked when the handler knows its executor.
    if constexpr (brings_executor) {
      work_.emplace(asio::get_associated_executor(handler_));
    } else if (const asio::any_io_executor* const own = executor_of_queue()) {
      work_.emplace(*own);
    }
  }

  static allocator_type allocator_of(const Handler& handler) {
    return asio::get_associated_allocator(handler, asio::recycling_allocator<void>());
  }
  const asio::any_io_executor* executor_of_queue() const {
    return static_cast<const asio::any_io_executor*>(queue()->executor);
  }

  void start() {
    if (awaited_.start(*this)) {
      if (work_) {
        hand_over();
      } else {
        post();
      }
      return;
    }
    if (const asio::any_io_executor* const own = executor_of_queue()) {
      asio::use_service<foreign_waits>(asio::query(*own, asio::execution::context)).add(*this);
    }
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      cancellable_ = true;
      slot.assign(canceller{this});
    }
  }

  // Calls nothing of the user: what a handler throws belongs to who runs its executor. Without any
  // executor the run queue is all there is.
  void hand_over() noexcept {
    foreign_waits::remove(*this);
    if (work_) {
      asio::post(work_->get_executor(), delivery(*this));
    } else {
      complete();
    }
  }

  void cancel(asio::cancellation_type type) {
    if (aborted_) return;
    call_base& call = awaited_.started();
    if (call.is_done()) return;
    const bool terminal =
        (type & asio::cancellation_type::terminal) != asio::cancellation_type::none;
    const bool gentle =
        (type & (asio::cancellation_type::partial | asio::cancellation_type::total)) !=
        asio::cancellation_type::none;
    const bool untouched = call.untouched != nullptr && call.untouched(call);
    if (!terminal && !(gentle && untouched)) return;
    aborted_ = true;
    {
      const operation<T> dropped = std::move(awaited_);
    }
    hand_over();
  }

  void complete() {
    if (cancellable_) asio::get_associated_cancellation_slot(handler_).clear();
    boost::system::error_code ec;
    if (aborted_) {
      ec = asio::error::operation_aborted;
    } else if (const errc code = awaited_.why().code; code != errc{}) {
      ec = make_error_code(code);
    }
    // Its memory is free again before the handler runs and asks for more.
    Handler handler = std::move(handler_);
    if constexpr (std::is_void_v<T>) {
      release(allocator_of(handler));
      std::move(handler)(ec);
    } else {
      T value = ec ? T() : awaited_.result();
      release(allocator_of(handler));
      std::move(handler)(ec, std::move(value));
    }
  }

  void release(memory from) noexcept {
    this->~foreign_wait();
    from.deallocate(this, 1);
  }

  void destroy() noexcept override {
    foreign_waits::remove(*this);
    // What they own may own what this stands on.
    const operation<T> awaited = std::move(awaited_);
    const Handler handler = std::move(handler_);
    release(allocator_of(handler));
  }

  operation<T> awaited_;
  Handler handler_;
  std::optional<asio::executor_work_guard<executor_type>> work_;
  bool cancellable_ = false;
  bool aborted_ = false;
};

template <class T, class Token>
  requires asio::completion_token_for<Token, typename completion_signature<T>::type>
struct initiate<operation<T>, Token> {
  static constexpr bool possible = true;

  struct initiation {
    template <class Handler>
    void operator()(Handler&& handler, operation<T>&& awaited) const {
      foreign_wait<T, std::decay_t<Handler>>::begin(std::move(awaited),
                                                    std::forward<Handler>(handler));
    }
  };

  template <class Given>
  static auto start(operation<T>&& awaited, Given&& token) {
    return asio::async_initiate<Given, typename completion_signature<T>::type>(initiation{}, token,
                                                                               std::move(awaited));
  }
};

}  // namespace colls::detail

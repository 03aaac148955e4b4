// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// asio: makes operations of colls usable as asynchronous operations of Asio.
//
// A coroutine that returns asio::awaitable can make a call and wait for its end with
// `co_await comm.all_reduce(x)`. It can also start an operation `op` first and wait for its end
// with `co_await std::move(op)`. `comm.all_reduce(x)(token)` accepts any completion token, such as
// use_future, a callback or deferred. The completion signature is void(error_code, T) if the
// operation returns a value of type T, and void(error_code) if it returns no value. If the
// communicator has failed, `comm.failed()` returns a record that describes the failure in more
// detail than the error code. This header cannot be compiled with nvcc.

#include <colls/base/intrusive_list.hpp>
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

/// The list of all pending waits of one execution context. A wait (see `asio_wait`) contains an
/// operation of colls and its completion handler. A wait destroys itself when its operation has
/// ended. When the context is destroyed, this service destroys the waits that are still pending,
/// just as Asio destroys its own pending operations.
class pending_waits final : public asio::execution_context::service {
 public:
  static inline asio::execution_context::id id;

  class wait {
   public:
    virtual void destroy() noexcept = 0;

   protected:
    ~wait() = default;

   private:
    friend pending_waits;
    pending_waits* owner_ = nullptr;
    list_links<wait> links_;
  };

  explicit pending_waits(asio::execution_context& owner) : service(owner) {}

  void add(wait& item) {
    const std::lock_guard lock(guard_);
    item.owner_ = this;
    all_.push_front(item);
  }
  /// Removes `item` from the list that contains it. Does nothing if no list contains `item`.
  static void remove(wait& item) noexcept {
    if (item.owner_ == nullptr) return;
    const std::lock_guard lock(item.owner_->guard_);
    item.owner_->all_.remove(item);
    item.owner_ = nullptr;
  }

 private:
  void shutdown() override {
    while (wait* const first = all_.front()) first->destroy();
  }

  std::mutex guard_;  // needed because several threads may run one context
  intrusive_list<wait, &wait::links_> all_;
};

template <class T>
struct completion_signature {
  using type = void(boost::system::error_code, T);
};
template <>
struct completion_signature<void> {
  using type = void(boost::system::error_code);
};

/// An operation and the handler that is called when the operation ends. This object owns itself and
/// destroys itself before it calls the handler.
template <class T, class Handler>
class asio_wait final : completion, pending_waits::wait {
  static_assert(std::is_void_v<T> || std::is_default_constructible_v<T>,
                "colls: after an error a handler gets a T() as the value");
  struct nothing {};
  using allocator_type = asio::associated_allocator_t<Handler, asio::recycling_allocator<void>>;
  using memory = typename std::allocator_traits<allocator_type>::template rebind_alloc<asio_wait>;
  using executor_type = asio::associated_executor_t<Handler, asio::any_io_executor>;
  static constexpr bool has_executor =
      !std::is_same_v<asio::associated_executor_t<Handler, nothing>, nothing>;

 public:
  static void begin(operation<T>&& awaited, Handler&& handler) {
    memory allocator = allocator_of(handler);
    asio_wait* const self = allocator.allocate(1);
    try {
      ::new (static_cast<void*>(self)) asio_wait(std::move(awaited), std::move(handler));
    } catch (...) {
      allocator.deallocate(self, 1);
      throw;
    }
    self->start();
  }

 private:
  /// The function object that is posted to the handler's executor. If the executor destroys this
  /// object without calling it, the destructor destroys the wait.
  class posted_completion {
   public:
    using allocator_type = asio_wait::allocator_type;

    explicit posted_completion(asio_wait& ended) : ended_(&ended) {}
    posted_completion(posted_completion&& other) noexcept
        : ended_(std::exchange(other.ended_, nullptr)) {}
    ~posted_completion() {
      if (ended_ != nullptr) ended_->destroy();
    }
    void operator()() { std::exchange(ended_, nullptr)->complete(); }
    allocator_type get_allocator() const noexcept { return allocator_of(ended_->handler_); }

   private:
    asio_wait* ended_;
  };

  struct canceller {
    asio_wait* self;
    void operator()(asio::cancellation_type type) const { self->cancel(type); }
  };

  asio_wait(operation<T>&& awaited, Handler&& handler)
      : completion(
            [](completion& self) noexcept { static_cast<asio_wait&>(self).post_completion(); },
            &awaited.underlying_call().queue()),
        awaited_(std::move(awaited)),
        handler_(std::move(handler)) {
    // If the handler has an executor of its own, this constructor does not access the run queue of
    // the operation. The run queue may no longer exist, because an operation that has ended can
    // outlive its communicator.
    if constexpr (has_executor) {
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
        post_completion();
      } else {
        post();
      }
      return;
    }
    if (const asio::any_io_executor* const own = executor_of_queue()) {
      asio::use_service<pending_waits>(asio::query(*own, asio::execution::context)).add(*this);
    }
    auto slot = asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      cancellable_ = true;
      slot.assign(canceller{this});
    }
  }

  // Posts the handler to its executor instead of calling the handler here, because an exception
  // that the handler throws has to reach the thread that runs the executor. If there is no
  // executor, calls the handler directly.
  void post_completion() noexcept {
    pending_waits::remove(*this);
    if (work_) {
      asio::post(work_->get_executor(), posted_completion(*this));
    } else {
      complete();
    }
  }

  void cancel(asio::cancellation_type type) {
    if (aborted_) return;
    call_base& call = awaited_.underlying_call();
    if (call.is_done()) return;
    const bool terminal =
        (type & asio::cancellation_type::terminal) != asio::cancellation_type::none;
    const bool withdraws =
        (type & (asio::cancellation_type::partial | asio::cancellation_type::total)) !=
        asio::cancellation_type::none;
    const bool can_withdraw = call.can_withdraw != nullptr && call.can_withdraw(call);
    if (!terminal && !(withdraws && can_withdraw)) return;
    aborted_ = true;
    {
      const operation<T> dropped = std::move(awaited_);
    }
    post_completion();
  }

  void complete() {
    if (cancellable_) asio::get_associated_cancellation_slot(handler_).clear();
    boost::system::error_code ec;
    if (aborted_) {
      ec = asio::error::operation_aborted;
    } else if (const errc code = awaited_.reason().code; code != errc{}) {
      ec = make_error_code(code);
    }
    // `release` frees the memory of this object before the handler is called. If the handler starts
    // another operation, that operation can reuse the memory.
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

  void release(memory allocator) noexcept {
    this->~asio_wait();
    allocator.deallocate(this, 1);
  }

  void destroy() noexcept override {
    pending_waits::remove(*this);
    // The operation and the handler are destroyed last, because they may own the memory resource
    // from which this object was allocated.
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
      asio_wait<T, std::decay_t<Handler>>::begin(std::move(awaited),
                                                 std::forward<Handler>(handler));
    }
  };

  template <class CompletionToken>
  static auto start(operation<T>&& awaited, CompletionToken&& token) {
    return asio::async_initiate<CompletionToken, typename completion_signature<T>::type>(
        initiation{}, token, std::move(awaited));
  }
};

}  // namespace colls::detail

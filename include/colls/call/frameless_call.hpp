// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// frameless_call: a call whose algorithm needs no coroutine. Such an algorithm consists of one
// transport operation and of local work before and after this operation.

#include <colls/algorithm/frameless.hpp>
#include <colls/call/call.hpp>

namespace colls::detail {

/// A call without a coroutine. The call owns the algorithm object and the one transport operation
/// of the algorithm.
template <channel Channel, frameless<Channel> Algorithm>
class frameless_call final : public call<void> {
 public:
  using call<void>::call;

  /// Constructs the algorithm object. `net` is the transport on which the algorithm works. `args`
  /// are the arguments of the algorithm. Must be called before the call runs.
  template <class... Args>
  [[gnu::always_inline]] void prepare(typename Channel::transport_type& net, const Args&... args) {
    algorithm_.emplace(net, *this, args...);
  }

  [[gnu::always_inline]] bool start_body(completion& done) override {
    try {
      pending_.emplace(*algorithm_);
      return pending_->operation.start(done);
    } catch (...) {
      exception_ = std::current_exception();
      return true;
    }
  }

 private:
  struct bound_algorithm {
    template <class... Args>
    [[gnu::always_inline]] bound_algorithm(typename Channel::transport_type& transport,
                                           operation_record& record, const Args&... args)
        : net(transport, record), algo(net, args...) {}

    Channel net;
    Algorithm algo;
  };
  struct pending_operation {
    [[gnu::always_inline]] explicit pending_operation(bound_algorithm& bound)
        : operation(bound.algo.request(bound.net)) {}

    frameless_operation<Algorithm, Channel> operation;
  };

  void take_result() override {
    if (exception_) std::rethrow_exception(exception_);
    unwrap_result(pending_->operation);
    algorithm_->algo.finish(algorithm_->net, pending_->operation);
    frameless_call::destroy_body();
  }
  // Always returns false. Therefore, if the user destroys the handle of an unfinished call, the
  // call is cancelled and `take_result` is not called. `take_result` would access the user's
  // buffers, which the user may already have freed.
  bool is_body_done() const override { return false; }
  void destroy_body() noexcept override {
    pending_.reset();
    algorithm_.reset();
  }

  std::optional<bound_algorithm> algorithm_;
  std::optional<pending_operation> pending_;
  std::exception_ptr exception_;
};

}  // namespace colls::detail

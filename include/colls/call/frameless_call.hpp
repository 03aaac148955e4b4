// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// step_call: a call that is one step, and needs no coroutine.

#include <colls/algorithm/frameless.hpp>
#include <colls/call/call.hpp>

namespace colls::detail {

/// Owns the step and what it awaits.
template <channel Channel, step<Channel> Step>
class step_call final : public call<void> {
 public:
  using call<void>::call;

  /// Makes the step of what its constructor takes after the channel.
  template <class... With>
  [[gnu::always_inline]] void prepare(typename Channel::transport_type& net, const With&... with) {
    made_.emplace(net, *this, with...);
  }

  [[gnu::always_inline]] bool start_body(completion& done) override {
    try {
      begun_.emplace(*made_);
      return begun_->operation.start(done);
    } catch (...) {
      thrown_ = std::current_exception();
      return true;
    }
  }

 private:
  struct made {
    template <class... With>
    [[gnu::always_inline]] made(typename Channel::transport_type& transport,
                                operation_record& record, const With&... with)
        : net(transport, record), work(net, with...) {}

    Channel net;
    Step work;
  };
  struct begun {
    [[gnu::always_inline]] explicit begun(made& of) : operation(of.work.request(of.net)) {}

    step_operation<Step, Channel> operation;
  };

  void take_result() override {
    if (thrown_) std::rethrow_exception(thrown_);
    unwrap_result(begun_->operation);
    made_->work.finish(made_->net, begun_->operation);
    step_call::destroy_body();
  }
  // What is awaited has ended, but work is left, and whoever drops the call may have freed its
  // buffers.
  bool is_body_over() const override { return false; }
  void destroy_body() noexcept override {
    begun_.reset();
    made_.reset();
  }

  std::optional<made> made_;
  std::optional<begun> begun_;
  std::exception_ptr thrown_;
};

}  // namespace colls::detail

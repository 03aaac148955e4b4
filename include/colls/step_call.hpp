// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// step_call: a call that is one step, and needs no coroutine.

#include <colls/algorithm/step.hpp>
#include <colls/call.hpp>

namespace colls::detail {

/// Owns the step and what it awaits.
template <channel Channel, step<Channel> Step>
class step_call final : public call<void> {
 public:
  using call<void>::call;

  /// Makes the step of what its constructor takes after the channel.
  template <class... With>
  [[gnu::always_inline]] void prepare(typename Channel::transport_type& net, const With&... with) {
    under_way_.emplace(net, *this, with...);
  }

 private:
  struct under_way {
    template <class... With>
    [[gnu::always_inline]] under_way(typename Channel::transport_type& transport,
                                     operation_record& record, const With&... with)
        : net(transport, record), work(net, with...), operation(work.request(net)) {}

    Channel net;
    Step work;
    step_operation<Step, Channel> operation;
  };

  bool start_body(completion& done) override { return under_way_->operation.start(done); }
  void take_result() override {
    unwrap(under_way_->operation.result());
    under_way_->work.finish(under_way_->net, under_way_->operation);
  }
  void destroy_body() noexcept override { under_way_.reset(); }

  std::optional<under_way> under_way_;
};

}  // namespace colls::detail

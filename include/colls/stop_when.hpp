// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stop_when: cancels an operation when a stop is requested through a std::stop_token.

#include <colls/call/call.hpp>

#include <stop_token>

namespace colls {

namespace detail {

/// Cancels a call when a stop is requested. The object stands between the call and the owner of the
/// call, so it learns when the call ends, and then destroys itself. The stop callback may run on
/// any thread. Therefore the callback only posts this completion, and the thread of the call
/// cancels the call. The destructor waits for a callback that runs on another thread.
class stop_watch final : call_owner, remote_completion, public recycled {
 public:
  /// Watches `watched`, which has not ended.
  static void begin(call_base& watched, const std::stop_token& token) {
    new stop_watch(watched, token);
  }

 private:
  struct request {
    stop_watch& owner;
    void operator()() const noexcept { owner.post_remotely(); }
  };

  stop_watch(call_base& watched, const std::stop_token& token)
      : remote_completion(
            [](completion& self) noexcept { static_cast<stop_watch&>(self).call_.stop(); },
            watched.queue()),
        call_(watched),
        owner_(watched.set_owner(*this)),
        callback_(token, request{*this}) {}

  void call_ended(call_base& ended_call) noexcept override {
    call_owner& owner = owner_;
    delete this;
    owner.call_ended(ended_call);
  }
  void progress() override { owner_.progress(); }
  void wake_driver() override { owner_.wake_driver(); }
  call_owner& lasting_owner() override { return owner_.lasting_owner(); }

  call_base& call_;
  call_owner& owner_;
  std::stop_callback<request> callback_;  // declared last, because the callback uses all of these
};

}  // namespace detail

/// Cancels `cancellable` when a stop is requested through `token`, and returns the operation.
/// Awaiting an operation that was cancelled throws `errc::cancelled`. A stop that is requested
/// after the operation has ended has no effect. If a stop was requested before this call, the
/// operation is cancelled at once, unless it has ended already.
///
///     std::stop_token token = source.get_token();
///     co_await colls::stop_when(token, comm.recv(data, 1));
///
/// If the operation is a send or a receive that no peer has matched, the cancellation has no effect
/// on any peer, and the communicator stays good. Otherwise the cancellation revokes the
/// communicator on all ranks.
///
/// Any thread may call `request_stop`, which does not wait for the cancellation. The thread of the
/// communicator cancels the operation when it next polls. If it sleeps in a wait, the request wakes
/// it. Only if all ranks share a thread (with the inproc transport), the thread sleeps on, for at
/// most a millisecond. In a simulated world, only the thread of the world may request a stop.
template <class T>
operation<T> stop_when(const std::stop_token& token, operation<T>&& cancellable) {
  if (cancellable) {
    detail::call_base& call = cancellable.underlying_call();
    if (token.stop_requested()) {
      call.stop();
    } else if (token.stop_possible() && !call.is_done()) {
      detail::stop_watch::begin(call, token);
    }
  }
  return std::move(cancellable);
}

}  // namespace colls

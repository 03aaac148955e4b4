// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// nccl_comm: the NCCL communicators of one rank, and the state of one call on such a communicator.
// Each call enqueues its work on a stream and then waits until the stream has done that work. The
// calls enqueue their work in the order in which the program makes the calls. If a call fails or is
// destroyed before its work is done, the call aborts NCCL's communicator.

#include <colls/channel/channel.hpp>
#include <colls/cuda/async_mutex.hpp>
#include <colls/cuda/nccl_api.hpp>
#include <colls/cuda/stream.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <thread>

namespace colls::cuda {

/// Returns the failure (the error record) of an NCCL call. The failure contains `call`, which is
/// the name of the NCCL function, and NCCL's text for the status.
inline failure nccl_failure(nccl_api::status status, const char* call) {
  failure reason(errc::device_failed);
  reason.set_detail("%s: %s", call, nccl_api::text(status));
  return reason;
}
/// Throws if `status` says that an NCCL call failed. The status in_progress is not a failure.
inline void check_nccl(nccl_api::status status, const char* call) {
  if (status != nccl_api::success && status != nccl_api::in_progress) {
    throw error(nccl_failure(status, call));
  }
}

/// A filter that delays NCCL errors that another rank may have caused. Such an error says that a
/// connection broke, but not which rank failed or why. The transport of host memory reports the
/// reason to all ranks, but its report may arrive after the NCCL error. Therefore the filter
/// ignores such errors for one second after the first one.
class remote_error_filter {
 public:
  /// Returns whether the caller must report the error `status` now. Returns false if another rank
  /// may have caused the error and at most a second has passed since the first such error. In that
  /// case the caller should continue to wait, because the transport of host memory may report the
  /// reason.
  bool is_final(nccl_api::status status) {
    if (status != nccl_api::remote_error && status != nccl_api::system_error) return true;
    const auto now = std::chrono::steady_clock::now();
    if (!first_seen_) first_seen_ = now;
    return now - *first_seen_ > std::chrono::seconds(1);
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> first_seen_;
};

/// The NCCL communicator that belongs to one communicator of colls. The first collective on the
/// communicator of colls creates the NCCL communicator.
class nccl_comm {
 public:
  explicit nccl_comm(std::uint32_t id) : id_(id) {}
  nccl_comm(const nccl_comm&) = delete;
  ~nccl_comm() {
    while (!try_destroy()) std::this_thread::yield();
  }

  std::uint32_t id() const { return id_; }
  bool is_made() const { return handle_.handle != nullptr; }
  nccl_api::comm_ref handle() const { return handle_; }
  async_mutex& mutex() { return mutex_; }

  /// Starts to create NCCL's communicator. The communicator is ready when `status` returns success.
  void make(int ranks, const nccl_api::unique_id& unique, int rank) {
    check_nccl(nccl_api::make_comm(handle_, ranks, unique, rank), "ncclCommInitRankConfig");
  }
  /// Returns in_progress if NCCL has not accepted the last NCCL call. Returns an error if NCCL's
  /// communicator was aborted, or if an NCCL call or its work on the device has failed. Returns
  /// success otherwise.
  nccl_api::status status() const {
    if (!is_made()) return nccl_api::remote_error;  // another call has aborted NCCL's communicator
    nccl_api::status state = nccl_api::success;
    const nccl_api::status result = nccl_api::async_error(handle_, state);
    return result != nccl_api::success ? result : state;
  }
  /// Aborts the communicator's work that is in flight on the device, and frees NCCL's communicator.
  /// The streams that contain this work can then continue. The results of the aborted calls are
  /// undefined.
  void abort() noexcept {
    if (is_made()) (void)nccl_api::abort(std::exchange(handle_, {}));
  }
  /// Tries to destroy NCCL's communicator without waiting. Returns true if the communicator is
  /// destroyed. Returns false if data that this rank has sent may not have arrived yet. In this
  /// case the caller must call this function again. If NCCL reports an error, or if a second has
  /// passed since the first call of this function, aborts the communicator and returns true. After
  /// the first call, the caller must not use the communicator for anything else.
  bool try_destroy() noexcept {
    if (!is_made()) return true;
    const auto now = std::chrono::steady_clock::now();
    const nccl_api::status result = finalize_time_ ? status() : nccl_api::finalize(handle_);
    if (!finalize_time_) finalize_time_ = now;
    if (result == nccl_api::in_progress && now - *finalize_time_ < std::chrono::seconds(1))
      return false;
    if (result == nccl_api::success) {
      (void)nccl_api::destroy(std::exchange(handle_, {}));
    } else {
      abort();
    }
    return true;
  }

 private:
  std::uint32_t id_;
  nccl_api::comm_ref handle_;
  std::optional<std::chrono::steady_clock::time_point> finalize_time_;
  async_mutex mutex_;
};

/// The state that the calls of one rank share: a stream, device memory, progress counters and
/// NCCL's communicators.
class nccl_context {
 public:
  explicit nccl_context(int device) : pool_(device), stream_(device) {}

  int device() const { return stream_.device(); }
  device_pool& pool() { return pool_; }

  /// Returns the stream on which a call enqueues its work. If `caller`, the stream that the user
  /// has passed, is not the default stream, returns `caller`. All ranks of a process may share the
  /// default stream. Therefore, if `caller` is the default stream, returns a stream of this object
  /// and makes it wait for the current work of the default stream. Throws if `caller` is being
  /// captured into a graph.
  stream_ref stream_for(stream_ref caller) {
    if (caller.handle != nullptr) {
      refuse_captured(caller);
      return caller;
    }
    stream_.follow(caller);
    return stream_.ref();
  }

  /// Returns the `nccl_comm` of `comm`. Creates the `nccl_comm` if there is none. Also tries to
  /// destroy the `nccl_comm` of each communicator that no longer exists on this rank. Other ranks
  /// may still run calls on such a communicator, but this rank's part of those calls is done.
  nccl_comm& comm_of(const communicator_state& comm, const tag_matcher& matcher) {
    const auto is_destroyed = [&matcher](const std::unique_ptr<nccl_comm>& known) {
      return matcher.find(known->id()) == nullptr && known->try_destroy();
    };
    comms_.erase(std::remove_if(comms_.begin(), comms_.end(), is_destroyed), comms_.end());
    for (const auto& known : comms_) {
      if (known->id() == comm.id()) return *known;
    }
    return *comms_.emplace_back(std::make_unique<nccl_comm>(comm.id()));
  }

  /// Returns an unused progress counter. In this counter, the stream of one call records how much
  /// of the call's work is done. The caller must return the counter with `give`.
  progress_counter* take_counter() {
    if (free_.empty()) {
      const on_device guard(device());
      constexpr std::size_t chunk = 256;
      words_.emplace_back(chunk);
      free_.reserve((counters_.size() / chunk + 1) * chunk);
      for (std::size_t i = 0; i < chunk; ++i) {
        words_.back().data()[i] = 0;
        free_.push_back(&counters_.emplace_back(progress_counter{words_.back().data() + i, 0}));
      }
    }
    progress_counter* const taken = free_.back();
    free_.pop_back();
    return taken;
  }
  void give(progress_counter* used) noexcept { free_.push_back(used); }

 private:
  device_pool pool_;
  std::vector<pinned_buffer<std::uint32_t>> words_;
  std::deque<progress_counter> counters_;
  std::vector<progress_counter*> free_;
  stream stream_;
  std::vector<std::unique_ptr<nccl_comm>> comms_;
};

/// One call's work on the device. If the object is destroyed before the work is done, the
/// destructor aborts NCCL's communicator and waits for the stream.
class nccl_call {
 public:
  nccl_call(nccl_context& context, nccl_comm& communicator, operation_record& record)
      : context_(context), comm_(communicator), record_(record) {}
  nccl_call(const nccl_call&) = delete;
  ~nccl_call() {
    if (has_begun_ && !is_finished_) {
      comm_.abort();
      if (counter_ != nullptr) (void)api::synchronize(queue_);
    }
    if (counter_ != nullptr) context_.give(counter_);
  }

  /// Records that the call is about to use NCCL. From then on, the destructor aborts NCCL's
  /// communicator if the call's work is not done.
  void begin() { has_begun_ = true; }
  void choose_stream() {
    queue_ = context_.stream_for(record_.stream);
    counter_ = context_.take_counter();
  }
  nccl_comm& comm() const { return comm_; }
  nccl_api::comm_ref handle() const { return comm_.handle(); }
  stream_ref work_stream() const { return queue_; }

  /// Returns a block of device memory, which stays valid until this object is destroyed.
  std::byte* scratch(std::size_t bytes) {
    return scratch_.emplace_back(context_.pool(), bytes).data();
  }
  void copy(void* dest, const void* source, std::size_t bytes) const {
    if (bytes != 0 && dest != source)
      check(api::copy(dest, source, bytes, queue_), "cudaMemcpyAsync");
  }
  /// Runs `calls()`, which calls NCCL. Meanwhile the communicator's device is the thread's current
  /// device. This is necessary because NCCL uses the current device for a communicator of one rank.
  template <class Calls>
  void enqueue(const Calls& calls) const {
    const on_device guard(context_.device());
    calls();
  }
  /// Runs `calls()` as `enqueue` does. All NCCL calls that `calls` makes form one NCCL group.
  template <class Calls>
  void grouped(const Calls& calls) const {
    const on_device guard(context_.device());
    check_nccl(nccl_api::group_start(), "ncclGroupStart");
    struct group_guard {
      bool open = true;
      ~group_guard() {
        if (open) (void)nccl_api::group_end();
      }
    } group;
    calls();
    group.open = false;
    check_nccl(nccl_api::group_end(), "ncclGroupEnd");
  }
  /// Enqueues a kernel that reduces the inputs of `pass`. The kernel belongs to colls, not to NCCL.
  void fold(const reduction& op, device_pass pass) const {
    if (pass.count == 0) return;
    const on_device guard(context_.device());
    pass.stream = queue_;
    op.run_on_device(op.op.state, pass);
  }

  /// The operation that `co_await accepted()` starts. It completes when NCCL has accepted the last
  /// NCCL call. Until then, the caller must make no other call on NCCL's communicator. The
  /// `co_await` throws if the last NCCL call or the communicator of colls has failed.
  class accept_wait;
  struct accept_request {
    using operation = accept_wait;
    nccl_call* call;
  };
  accept_request accepted() { return {this}; }

  /// The operation that `co_await finished(net)` starts. It completes when the stream has done all
  /// work that was enqueued before the `co_await`. The `co_await` throws if the communicator of
  /// colls has failed.
  template <class Channel>
  class finish_wait;
  template <class Channel>
  struct finish_request {
    using operation = finish_wait<Channel>;
    nccl_call* call;
    Channel net;
  };
  template <class Channel>
  finish_request<Channel> finished(const Channel& net) {
    return {this, net};
  }

 private:
  nccl_context& context_;
  nccl_comm& comm_;
  operation_record& record_;
  std::deque<device_pool::block> scratch_;
  progress_counter* counter_ = nullptr;
  stream_ref queue_;
  bool has_begun_ = false;
  bool is_finished_ = false;
};

class nccl_call::accept_wait : polled_condition {
 public:
  explicit accept_wait(const accept_request& wanted) : call_(*wanted.call) {}
  bool start(completion& done) {
    if (is_accepted()) return true;
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    const communicator_state& comm = *call_.record_.communicator;
    if (comm.failed()) throw error(comm.reason());
    check_nccl(state_, "NCCL");
  }

 private:
  bool is_accepted() {
    state_ = call_.comm_.status();
    const bool good = state_ == nccl_api::success;
    return good || (state_ != nccl_api::in_progress && filter_.is_final(state_));
  }
  bool poll() noexcept override {
    // If a peer has died, NCCL may return in_progress forever. Therefore the wait also ends when
    // the communicator of colls has failed.
    if (!call_.record_.communicator->failed() && !is_accepted()) return false;
    done_->post();
    return true;
  }

  nccl_call& call_;
  remote_error_filter filter_;
  nccl_api::status state_ = nccl_api::success;
  completion* done_ = nullptr;
};

template <class Channel>
class nccl_call::finish_wait : polled_condition, completion {
 public:
  explicit finish_wait(const finish_request<Channel>& wanted)
      : call_(*wanted.call),
        net_(wanted.net),
        wait_({call_.context_.device(), call_.queue_, call_.counter_}) {}
  /// Aborts NCCL's communicator if the stream has not done its work. Without the abort, the
  /// destructor of `wait_` might never return, because it waits for the stream.
  ~finish_wait() {
    if (wait_.is_awaited()) call_.comm_.abort();
  }

  bool start(completion& done) {
    done_ = &done;
    bind(
        [](completion& self) noexcept {
          auto& operation = static_cast<finish_wait&>(self);
          if (operation.done_ == nullptr) return;  // a failure has already completed the wait
          operation.on_stream_done();
          std::exchange(operation.done_, nullptr)->run();
        },
        done);
    if (wait_.start(*this)) {
      on_stream_done();
      return true;
    }
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    const communicator_state& comm = *call_.record_.communicator;
    if (comm.failed()) throw error(comm.reason());
  }

 private:
  /// Called when `wait_` has completed, or when a failure of the communicator ends the wait early.
  /// If the stream has done its work, marks the call as finished. If the stream has failed, revokes
  /// the operation. All ranks then stop waiting for messages of the operation.
  void on_stream_done() noexcept {
    try {
      wait_.result();
      call_.is_finished_ = !wait_.is_awaited();
    } catch (const error& thrown) {
      net_.revoke(thrown.record());
    }
  }
  bool poll() noexcept override {
    if (!wait_.is_awaited()) return true;
    if (!call_.record_.communicator->failed()) {
      if (++polls_ % 64 != 0) return false;
      const nccl_api::status state = call_.comm_.status();
      if (state == nccl_api::success || state == nccl_api::in_progress) return false;
      if (!filter_.is_final(state)) return false;
      net_.revoke(nccl_failure(state, "NCCL, while it was waited for"));
    }
    this->post();
    return true;
  }

  nccl_call& call_;
  Channel net_;
  unsigned polls_ = 0;
  remote_error_filter filter_;
  completion* done_ = nullptr;
  stream::wait_operation wait_;
};

}  // namespace colls::cuda

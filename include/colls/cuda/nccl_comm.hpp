// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// One rank's part in the communicators of NCCL: who may call it, what is waited for, how it ends.

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

/// A call of NCCL that went wrong: which one, and NCCL's words for it.
inline failure failed_in_nccl(nccl_api::status how, const char* call) {
  failure why(errc::device_failed);
  why.say("%s: %s", call, nccl_api::text(how));
  return why;
}
/// Throws where a call of NCCL went wrong; one that is still in progress has not.
inline void check_nccl(nccl_api::status how, const char* call) {
  if (how != nccl_api::success && how != nccl_api::in_progress) {
    throw error(failed_in_nccl(how, call));
  }
}

/// NCCL sees that a connection broke, not who has died or why: the host, which tells all ranks, may
/// need a moment more. So an error that comes from another rank counts only after a second.
class second_opinion {
 public:
  /// Whether NCCL's word is all that there will be.
  bool is_final(nccl_api::status how) {
    if (how != nccl_api::remote_error && how != nccl_api::system_error) return true;
    const auto now = std::chrono::steady_clock::now();
    if (!asked_) asked_ = now;
    return now - *asked_ > std::chrono::seconds(1);
  }

 private:
  std::optional<std::chrono::steady_clock::time_point> asked_;
};

/// NCCL's communicator of one communicator of colls, once there is one.
class nccl_clique {
 public:
  explicit nccl_clique(std::uint32_t of) : of_(of) {}
  nccl_clique(const nccl_clique&) = delete;
  ~nccl_clique() {
    while (!leaves()) std::this_thread::yield();
  }

  std::uint32_t of() const { return of_; }
  bool is_made() const { return comm_.handle != nullptr; }
  nccl_api::comm_ref comm() const { return comm_; }
  turns& line() { return line_; }

  /// Begins to make it: `state` says when it is there.
  void make(int ranks, const nccl_api::unique_id& id, int rank) {
    check_nccl(nccl_api::make_comm(comm_, ranks, id, rank), "ncclCommInitRankConfig");
  }
  /// Of the last call, and of what is under way: success, in_progress, or what went wrong.
  nccl_api::status state() const {
    if (!is_made()) return nccl_api::remote_error;  // another call had to abort it
    nccl_api::status found = nccl_api::success;
    const nccl_api::status asked = nccl_api::async_error(comm_, found);
    return asked != nccl_api::success ? asked : found;
  }
  /// Ends what is under way on the device, so that streams get on. Results are undefined then.
  void abort() noexcept {
    if (is_made()) (void)nccl_api::abort(std::exchange(comm_, {}));
  }
  /// There are no more calls: frees it, a step each time that this is asked, without waiting. True:
  /// it is free. What this rank has sent arrives first, or a second is over.
  bool leaves() noexcept {
    if (!is_made()) return true;
    const auto now = std::chrono::steady_clock::now();
    const nccl_api::status how = left_ ? state() : nccl_api::finalize(comm_);
    if (!left_) left_ = now;
    if (how == nccl_api::in_progress && now - *left_ < std::chrono::seconds(1)) return false;
    if (how == nccl_api::success) {
      (void)nccl_api::destroy(std::exchange(comm_, {}));
    } else {
      abort();
    }
    return true;
  }

 private:
  std::uint32_t of_;
  nccl_api::comm_ref comm_;
  std::optional<std::chrono::steady_clock::time_point> left_;
  turns line_;
};

/// What the calls of one rank share: a stream, memory, and its communicators of NCCL.
class nccl_area {
 public:
  explicit nccl_area(int device) : pool_(device), own_(device) {}

  int device() const { return own_.device(); }
  device_pool& pool() { return pool_; }

  /// Where a call's work goes: the caller's stream. From the default stream, which all ranks of a
  /// process may share, it goes to one of ours that follows it.
  stream_ref stream_for(stream_ref callers) {
    if (callers.handle != nullptr) {
      refuse_captured(callers);
      return callers;
    }
    own_.follow(callers);
    return own_.ref();
  }

  /// Frees those of communicators that have ended since the last call: what other ranks still do
  /// on them has this one's part.
  nccl_clique& clique_of(const communicator_state& of, const match& all) {
    const auto has_left = [&all](const std::unique_ptr<nccl_clique>& each) {
      return all.find(each->of()) == nullptr && each->leaves();
    };
    cliques_.erase(std::remove_if(cliques_.begin(), cliques_.end(), has_left), cliques_.end());
    for (const auto& known : cliques_) {
      if (known->of() == of.id()) return *known;
    }
    return *cliques_.emplace_back(std::make_unique<nccl_clique>(of.id()));
  }

  /// Of one call at a time.
  milestone* take_milestone() {
    if (spare_.empty()) {
      const on_device guard(device());
      constexpr std::size_t many = 256;
      words_.emplace_back(many);
      spare_.reserve((milestones_.size() / many + 1) * many);
      for (std::size_t i = 0; i < many; ++i) {
        words_.back().data()[i] = 0;
        spare_.push_back(&milestones_.emplace_back(milestone{words_.back().data() + i, 0}));
      }
    }
    milestone* const taken = spare_.back();
    spare_.pop_back();
    return taken;
  }
  void give(milestone* used) noexcept { spare_.push_back(used); }

 private:
  device_pool pool_;
  std::vector<pinned_buffer<std::uint32_t>> words_;
  std::deque<milestone> milestones_;
  std::vector<milestone*> spare_;
  stream own_;
  std::vector<std::unique_ptr<nccl_clique>> cliques_;
};

/// One call's work on the device: enqueued in its turn, then waited for. A call that ends before
/// its work does has it aborted first.
class nccl_call {
 public:
  nccl_call(nccl_area& area, nccl_clique& with, operation_record& record)
      : area_(area), with_(with), record_(record) {}
  nccl_call(const nccl_call&) = delete;
  ~nccl_call() {
    if (begun_ && !landed_) {
      with_.abort();
      if (passed_ != nullptr) (void)api::synchronize(on_);
    }
    if (passed_ != nullptr) area_.give(passed_);
  }

  /// From here on NCCL is called.
  void begin() { begun_ = true; }
  void choose_stream() {
    on_ = area_.stream_for(record_.stream);
    passed_ = area_.take_milestone();
  }
  nccl_clique& with() const { return with_; }
  nccl_api::comm_ref comm() const { return with_.comm(); }
  stream_ref on() const { return on_; }

  /// Device memory until the call has ended.
  std::byte* scratch(std::size_t bytes) {
    return scratch_.emplace_back(area_.pool(), bytes).data();
  }
  void copy(void* to, const void* from, std::size_t bytes) const {
    if (bytes != 0 && to != from) check(api::copy(to, from, bytes, on_), "cudaMemcpyAsync");
  }
  /// `calls()` of NCCL, on the communicator's device: of one rank NCCL launches on the thread's.
  template <class Calls>
  void enqueue(const Calls& calls) const {
    const on_device guard(area_.device());
    calls();
  }
  /// The same, and what they enqueue goes together.
  template <class Calls>
  void grouped(const Calls& calls) const {
    const on_device guard(area_.device());
    check_nccl(nccl_api::group_start(), "ncclGroupStart");
    struct closing {
      bool open = true;
      ~closing() {
        if (open) (void)nccl_api::group_end();
      }
    } group;
    calls();
    group.open = false;
    check_nccl(nccl_api::group_end(), "ncclGroupEnd");
  }
  /// By a kernel of colls.
  void fold(const reduction& by, device_pass what) const {
    if (what.count == 0) return;
    const on_device guard(area_.device());
    what.on = on_;
    by.on_device(by.op.state, what);
  }

  /// Ends when NCCL has taken what was called; until then there is no other call.
  class settling;
  struct settle_request {
    using operation = settling;
    nccl_call* of;
  };
  settle_request settled() { return {this}; }

  /// Ends when the stream has got through what was enqueued.
  template <class Channel>
  class landing;
  template <class Channel>
  struct landing_request {
    using operation = landing<Channel>;
    nccl_call* of;
    Channel net;
  };
  template <class Channel>
  landing_request<Channel> landed(const Channel& net) {
    return {this, net};
  }

 private:
  nccl_area& area_;
  nccl_clique& with_;
  operation_record& record_;
  std::deque<device_pool::block> scratch_;
  milestone* passed_ = nullptr;
  stream_ref on_;
  bool begun_ = false;
  bool landed_ = false;
};

class nccl_call::settling : watched {
 public:
  explicit settling(const settle_request& wanted) : of_(*wanted.of) {}
  bool start(completion& done) {
    if (has_settled()) return true;
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    const communicator_state& communicator = *of_.record_.communicator;
    if (communicator.failed()) throw error(communicator.why());
    check_nccl(state_, "NCCL");
  }

 private:
  bool has_settled() {
    state_ = of_.with_.state();
    const bool good = state_ == nccl_api::success;
    return good || (state_ != nccl_api::in_progress && doubt_.is_final(state_));
  }
  bool look() noexcept override {
    // A peer that is gone will never let it settle.
    if (!of_.record_.communicator->failed() && !has_settled()) return false;
    done_->post();
    return true;
  }

  nccl_call& of_;
  second_opinion doubt_;
  nccl_api::status state_ = nccl_api::success;
  completion* done_ = nullptr;
};

template <class Channel>
class nccl_call::landing : watched, completion {
 public:
  explicit landing(const landing_request<Channel>& wanted)
      : of_(*wanted.of), net_(wanted.net), stream_({of_.area_.device(), of_.on_, of_.passed_}) {}
  /// The stream gets on only after this.
  ~landing() {
    if (stream_.is_awaited()) of_.with_.abort();
  }

  bool start(completion& done) {
    done_ = &done;
    become(
        [](completion& self) noexcept {
          auto& me = static_cast<landing&>(self);
          if (me.done_ == nullptr) return;  // the stream got through after the communicator failed
          me.arrived();
          std::exchange(me.done_, nullptr)->run();
        },
        done);
    if (stream_.start(*this)) {
      arrived();
      return true;
    }
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    const communicator_state& communicator = *of_.record_.communicator;
    if (communicator.failed()) throw error(communicator.why());
  }

 private:
  /// Errors end the operation on all ranks at once: what waits beside this must end too.
  void arrived() noexcept {
    try {
      stream_.result();
      of_.landed_ = !stream_.is_awaited();
    } catch (const error& thrown) {
      net_.revoke(thrown.record());
    }
  }
  bool look() noexcept override {
    if (!stream_.is_awaited()) return true;
    if (!of_.record_.communicator->failed()) {
      if (++looks_ % 64 != 0) return false;
      const nccl_api::status state = of_.with_.state();
      if (state == nccl_api::success || state == nccl_api::in_progress) return false;
      if (!doubt_.is_final(state)) return false;
      net_.revoke(failed_in_nccl(state, "NCCL, while it was waited for"));
    }
    this->post();
    return true;
  }

  nccl_call& of_;
  Channel net_;
  unsigned looks_ = 0;
  second_opinion doubt_;
  completion* done_ = nullptr;
  stream::landing stream_;
};

}  // namespace colls::cuda

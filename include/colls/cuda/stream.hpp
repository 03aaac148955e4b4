// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Streams and events, and awaiting a stream: the GPU writes a number, the driver of the coroutine
// reads it. No thread, no call of CUDA per look.

#include <colls/coroutine/completion.hpp>
#include <colls/cuda/memory.hpp>
#include <colls/matching/operation_record.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <thread>

namespace colls::cuda {

/// What is captured into a graph is not done now: nobody may wait for it.
inline void refuse_captured(stream_ref callers) {
  bool is_captured = false;
  check(api::is_captured(is_captured, callers), "cudaStreamIsCapturing");
  if (is_captured) {
    throw error(errc::invalid_argument, "calls cannot be captured into a CUDA graph");
  }
}

/// A point in the work of a device's stream, for other streams to wait for.
class event {
 public:
  explicit event(int device) : device_(device) {
    const on_device guard(device);
    check(api::make_event(event_), "cudaEventCreate");
  }
  event(const event&) = delete;
  ~event() { (void)api::destroy_event(event_); }

  api::event_ref ref() const { return event_; }
  /// From now on this is what `of` has been given so far.
  void record(stream_ref of) {
    const on_device guard(device_);  // whose default stream is meant
    refuse_captured(of);
    check(api::record(event_, of), "cudaEventRecord");
  }

 private:
  int device_;
  api::event_ref event_;
};

/// How far a stream has come: a word of pinned memory that it writes, and the last number that was
/// asked for.
struct milestone {
  std::uint32_t* word = nullptr;
  std::uint32_t last = 0;
  bool is_left = false;  // whoever waited has given up: the stream may not get there for long
  bool by_host = false;  // no stream writes there: a function of the host does

  // Numbers wrap around.
  bool is_at(std::uint32_t number) const {
    return static_cast<std::int32_t>(api::read(word) - number) >= 0;
  }
};

/// A stream of a device, made here; its end waits for its work, but not for what it follows if who
/// waited for that has given up. Work of other streams, the default
/// stream's too, runs beside it. For one thread.
class stream {
 public:
  /// `word`: where it tells how far it has come, for others to see; 0 as yet.
  explicit stream(int device, std::uint32_t* word = nullptr, bool is_pinned = true)
      : device_(device), marks_(device) {
    const on_device guard(device);
    if (word == nullptr) {
      line_ = pinned_buffer<std::uint32_t>(16);
      *line_.data() = 0;
    }
    passed_.word = word != nullptr ? word : line_.data();
    passed_.by_host = word != nullptr && !is_pinned;
    check(api::make_stream(stream_), "cudaStreamCreate");
  }
  stream(const stream&) = delete;
  ~stream() {
    if (passed_.is_left && api::query(stream_) == api::not_ready) {
      line_.leave();  // still to be written
    } else {
      (void)api::synchronize(stream_);
    }
    (void)api::destroy_stream(stream_);
  }

  int device() const { return device_; }
  stream_ref ref() const { return stream_; }

  /// What comes here after this waits for all that `other`, a stream of the same device, has now.
  void follow(stream_ref other) {
    marks_.record(other);
    follow(marks_);
  }
  void follow(const event& point) { check(api::wait(stream_, point.ref()), "cudaStreamWaitEvent"); }

  void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes != 0) check(api::copy(to, from, bytes, stream_), "cudaMemcpyAsync");
  }

  void clear(void* to, std::size_t bytes) {
    check(api::clear(to, bytes, stream_), "cudaMemsetAsync");
  }

  /// An operation that ends when all that was given to the stream before it is done:
  /// `co_await s.reached()`. Throws where the device failed. Dropping it waits for the stream,
  /// since what the stream uses may go with it.
  class landing;
  struct request {
    using operation = landing;
    int device;
    stream_ref on;
    milestone* passed;  // of no other stream
    const communicator_state* until = nullptr;
  };
  request reached() { return {device_, stream_, &passed_}; }
  /// The same of a stream of a pool that has nothing but what it follows, until the communicator
  /// fails, if it does: nobody waits for that stream then, which lasts longer.
  request followed(const communicator_state& with) { return {device_, stream_, &passed_, &with}; }
  /// The number that the next `reached` waits for, and whether the stream has got to one.
  std::uint32_t next() const { return passed_.last + 1; }
  bool has_passed(std::uint32_t number) const { return passed_.is_at(number); }
  /// For another call, once it has got through all that it had.
  void renew() { passed_.is_left = false; }

 private:
  int device_;
  event marks_;
  pinned_buffer<std::uint32_t> line_;  // the number that the stream has got to
  milestone passed_;
  stream_ref stream_;
};

/// One user's copies on a stream that others may use too, and the wait for them. Where an exception
/// comes in between it waits for the stream on its way: what they use may go then.
class copies {
 public:
  explicit copies(stream& on) : on_(on) {}
  copies(const copies&) = delete;
  ~copies() {
    if (std::uncaught_exceptions() == 0 || !any_ || on_.has_passed(last_)) return;
    (void)api::synchronize(on_.ref());
  }

  void copy(void* to, const void* from, std::size_t bytes) {
    on_.copy(to, from, bytes);
    any_ = any_ || bytes != 0;
    last_ = on_.next();
  }
  stream::request reached() { return on_.reached(); }

 private:
  stream& on_;
  std::uint32_t last_ = 0;  // the number that comes after them
  bool any_ = false;
};

/// Streams of a device that are used again, one by each call: what a stream has waits for all that
/// it was given before, and a call may not wait for what another one follows. For one thread.
class stream_pool {
 public:
  /// Makes the first one: where the device cannot be used, that is known at once.
  explicit stream_pool(int device) : device_(device) { const loan first(*this); }
  stream_pool(const stream_pool&) = delete;
  ~stream_pool() {
    // What those follow that were given up mostly comes soon.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    const auto wait_for = [limit](const std::unique_ptr<stream>& kept) {
      while (api::query(kept->ref()) == api::not_ready) {
        if (std::chrono::steady_clock::now() > limit) break;
        std::this_thread::yield();
      }
    };
    free_.each(wait_for);
  }
  int device() const { return device_; }

  /// A stream of a call's own as long as this lives.
  class loan {
   public:
    explicit loan(stream_pool& of) : pool_(of), stream_(of.take()) {}
    loan(const loan&) = delete;
    ~loan() { pool_.free_.give(std::move(stream_)); }
    stream& operator*() const { return *stream_; }
    stream* operator->() const { return stream_.get(); }

   private:
    stream_pool& pool_;
    std::unique_ptr<stream> stream_;
  };

 private:
  std::unique_ptr<stream> take() {
    // A call that gave nothing to its stream did not wait for it.
    const auto is_idle = [](const std::unique_ptr<stream>& kept) {
      return api::query(kept->ref()) == api::success;
    };
    const auto make = [this] { return std::make_unique<stream>(device_); };
    std::unique_ptr<stream> found = free_.take(is_idle, is_idle, make);
    found->renew();
    return found;
  }

  int device_;
  spares<std::unique_ptr<stream>> free_;
};

class stream::landing : watched {
 public:
  explicit landing(const request& wanted)
      : device_(wanted.device), on_(wanted.on), passed_(*wanted.passed), until_(wanted.until) {}

  bool start(completion& done) {
    number_ = ++passed_.last;
    // By hand, not by `on_device`: what is started beside this must not see an exception.
    int before = device_;
    (void)api::current_device(before);
    (void)api::use_device(device_);
    status_ = passed_.by_host ? api::not_supported : api::write(passed_.word, number_, on_);
    if (status_ == api::not_supported) {
      until_ = nullptr;  // what it calls is here
      status_ = api::call(arrive, this, on_);
    }
    if (before != device_) return_to(before);
    if (status_ != api::success || has_landed()) return true;
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    if (is_given_up_) throw error(until_->why());
    check(status_, "the work of a stream");
  }
  /// Started and not ended.
  bool is_awaited() const { return done_ != nullptr; }

  ~landing() {
    if (is_awaited() && until_ == nullptr) (void)api::synchronize(on_);
    passed_.is_left |= until_ != nullptr && (is_awaited() || is_given_up_);
  }

 private:
  static void arrive(void* self) {
    const auto& me = *static_cast<const landing*>(self);
    __atomic_store_n(me.passed_.word, me.number_, __ATOMIC_RELEASE);
  }
  bool has_landed() const { return passed_.is_at(number_); }
  bool look() noexcept override {
    is_given_up_ = until_ != nullptr && until_->failed();
    if (!is_given_up_ && !has_landed()) {
      // A stream that has failed writes nothing more.
      if (++looks_ % 1024 != 0) return false;
      const api::status state = api::query(on_);
      if (state == api::success || state == api::not_ready) return false;
      status_ = state;
    }
    std::exchange(done_, nullptr)->post();
    return true;
  }

  int device_;
  stream_ref on_;
  milestone& passed_;
  const communicator_state* until_;
  bool is_given_up_ = false;
  std::uint32_t number_ = 0;
  unsigned looks_ = 0;
  api::status status_ = api::success;
  completion* done_ = nullptr;  // while it is watched
};

}  // namespace colls::cuda

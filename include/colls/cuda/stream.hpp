// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stream: CUDA streams and events, and an operation that waits until a stream has done its work.
// When the work is done, the GPU writes a number to pinned memory. The event loop of the waiting
// coroutine polls this memory. Therefore the wait needs no additional thread, and most polls make
// no CUDA call.

#include <colls/coroutine/completion.hpp>
#include <colls/cuda/memory.hpp>
#include <colls/matching/operation_record.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <thread>

namespace colls::cuda {

/// Throws if `stream` is being captured into a CUDA graph. CUDA does not execute captured work
/// until the program launches the graph. A call on a communicator waits for the work of its stream,
/// so the call could not complete during the capture.
inline void refuse_captured(stream_ref stream) {
  bool is_captured = false;
  check(api::is_captured(is_captured, stream), "cudaStreamIsCapturing");
  if (is_captured) {
    throw error(errc::invalid_argument, "calls cannot be captured into a CUDA graph");
  }
}

/// A CUDA event on a device. It marks a point in the work of a stream. Other streams can wait for
/// this point.
class event {
 public:
  explicit event(int device) : device_(device) {
    const on_device guard(device);
    check(api::make_event(event_), "cudaEventCreate");
  }
  event(const event&) = delete;
  ~event() { (void)api::destroy_event(event_); }

  api::event_ref ref() const { return event_; }
  /// Records the event on `stream`. The event completes when all work that has been enqueued on
  /// `stream` so far is complete. Any earlier recording of the event is replaced.
  void record(stream_ref stream) {
    const on_device guard(device_);  // the default stream depends on the current device
    refuse_captured(stream);
    check(api::record(event_, stream), "cudaEventRecord");
  }

 private:
  int device_;
  api::event_ref event_;
};

/// A counter of the progress of a stream, similar to a timeline semaphore. The stream writes
/// increasing values to `*word`, a word of host memory.
struct progress_counter {
  std::uint32_t* word = nullptr;
  std::uint32_t issued = 0;      // the last value for which a write was enqueued
  bool is_abandoned = false;     // whether a wait was given up before the stream was done
  bool written_by_host = false;  // whether the CPU writes `word`, because the GPU cannot

  // Returns whether the stream has written `value` or a later value. Values wrap around at 2^32.
  bool has_reached(std::uint32_t value) const {
    return static_cast<std::int32_t>(api::read(word) - value) >= 0;
  }
};

/// A CUDA stream of a device. Its work runs concurrently with the work of other streams, including
/// the default stream. The destructor waits for the stream's work, unless an operation started with
/// `followed` has ended before that work was done. Only one thread may use the stream.
class stream {
 public:
  /// Constructs a stream that writes its progress to `*word`. If this word is in shared memory,
  /// other ranks can read the progress there. The initial value of `*word` must be 0. If
  /// `is_pinned` is false, the GPU cannot write to `*word`, and the CPU writes the progress
  /// instead. If `word` is null, the stream uses a word of its own.
  explicit stream(int device, std::uint32_t* word = nullptr, bool is_pinned = true)
      : device_(device), event_(device) {
    const on_device guard(device);
    if (word == nullptr) {
      word_ = pinned_buffer<std::uint32_t>(16);
      *word_.data() = 0;
    }
    progress_.word = word != nullptr ? word : word_.data();
    progress_.written_by_host = word != nullptr && !is_pinned;
    check(api::make_stream(stream_), "cudaStreamCreate");
  }
  stream(const stream&) = delete;
  ~stream() {
    if (progress_.is_abandoned && api::query(stream_) == api::not_ready) {
      word_.release();  // the stream may still write to this memory
    } else {
      (void)api::synchronize(stream_);
    }
    (void)api::destroy_stream(stream_);
  }

  int device() const { return device_; }
  stream_ref ref() const { return stream_; }

  /// Makes all work that is enqueued on this stream after this call wait for the work that is on
  /// `other` now. `other` must be a stream of the same device.
  void follow(stream_ref other) {
    event_.record(other);
    follow(event_);
  }
  void follow(const event& point) { check(api::wait(stream_, point.ref()), "cudaStreamWaitEvent"); }

  void copy(void* dest, const void* source, std::size_t bytes) {
    if (bytes != 0) check(api::copy(dest, source, bytes, stream_), "cudaMemcpyAsync");
  }

  void clear(void* dest, std::size_t bytes) {
    check(api::clear(dest, bytes, stream_), "cudaMemsetAsync");
  }

  /// The operation that `co_await s.reached()` runs. It completes when the stream `s` has done all
  /// work that was enqueued before the operation started. It throws if the device has failed. If
  /// the operation is destroyed before it completes, its destructor waits for the stream, because
  /// the caller may next destroy buffers that the stream uses.
  class wait_operation;
  struct request {
    using operation = wait_operation;
    int device;
    stream_ref queue;
    progress_counter* progress;  // only this stream uses the counter
    const communicator_state* communicator = nullptr;
  };
  request reached() { return {device_, stream_, &progress_}; }
  /// Returns the request for an operation that differs from that of `reached` in two points. It
  /// also throws when the communicator fails, and its destructor does not wait for the stream. When
  /// the operation is destroyed, the stream may still be waiting for other streams. Therefore the
  /// stream must belong to a pool, and its only work must be to follow (wait for) other streams. On
  /// a device that does not support `api::write`, the operation behaves like that of `reached`.
  request followed(const communicator_state& communicator) {
    return {device_, stream_, &progress_, &communicator};
  }
  /// Returns the progress value for which the next operation of `reached` or `followed` will wait.
  std::uint32_t next_value() const { return progress_.issued + 1; }
  bool has_reached(std::uint32_t value) const { return progress_.has_reached(value); }
  /// Prepares this stream, which must be idle, for use by another call.
  void reset() { progress_.is_abandoned = false; }

 private:
  int device_;
  event event_;
  pinned_buffer<std::uint32_t> word_;  // unused if the constructor got a word
  progress_counter progress_;
  stream_ref stream_;
};

/// A group of copies on a stream that may also have other work. If stack unwinding destroys this
/// object before the copies are done, the destructor waits for the copies, because the unwinding
/// may next destroy their buffers.
class copy_batch {
 public:
  explicit copy_batch(stream& queue) : queue_(queue) {}
  copy_batch(const copy_batch&) = delete;
  ~copy_batch() {
    if (std::uncaught_exceptions() == 0 || !has_copies_ || queue_.has_reached(end_value_)) return;
    (void)api::synchronize(queue_.ref());
  }

  void copy(void* dest, const void* source, std::size_t bytes) {
    queue_.copy(dest, source, bytes);
    has_copies_ = has_copies_ || bytes != 0;
    end_value_ = queue_.next_value();
  }
  stream::request reached() { return queue_.reached(); }

 private:
  stream& queue_;
  std::uint32_t end_value_ = 0;  // the stream's progress value when the copies are done
  bool has_copies_ = false;
};

/// A pool of streams of a device. Each call takes its own streams from the pool. Work on a stream
/// waits for all earlier work on that stream, so calls that shared a stream would wait for each
/// other. Only one thread may use the pool.
class stream_pool {
 public:
  /// Constructs a pool that contains one stream. If the device cannot be used, creating this stream
  /// throws.
  explicit stream_pool(int device) : device_(device) { const lease first(*this); }
  stream_pool(const stream_pool&) = delete;
  ~stream_pool() {
    // After a failed call, streams of the pool may still be waiting for other streams. These waits
    // usually end soon. Therefore the destructor waits until the streams of the pool are idle, but
    // for at most one second.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    const auto await_idle = [limit](const std::unique_ptr<stream>& kept) {
      while (api::query(kept->ref()) == api::not_ready) {
        if (std::chrono::steady_clock::now() > limit) break;
        std::this_thread::yield();
      }
    };
    free_.for_each(await_idle);
  }
  int device() const { return device_; }

  /// A stream that a call has taken from the pool. The destructor returns the stream to the pool.
  class lease {
   public:
    explicit lease(stream_pool& pool) : pool_(pool), stream_(pool.take()) {}
    lease(const lease&) = delete;
    ~lease() { pool_.free_.give(std::move(stream_)); }
    stream& operator*() const { return *stream_; }
    stream* operator->() const { return stream_.get(); }

   private:
    stream_pool& pool_;
    std::unique_ptr<stream> stream_;
  };

 private:
  std::unique_ptr<stream> take() {
    // A failed call may have returned a stream that is still waiting for other streams. Therefore
    // this function takes only idle streams.
    const auto is_idle = [](const std::unique_ptr<stream>& kept) {
      return api::query(kept->ref()) == api::success;
    };
    const auto make = [this] { return std::make_unique<stream>(device_); };
    std::unique_ptr<stream> taken = free_.take(is_idle, is_idle, make);
    taken->reset();
    return taken;
  }

  int device_;
  free_list<std::unique_ptr<stream>> free_;
};

class stream::wait_operation : polled_condition {
 public:
  explicit wait_operation(const request& wanted)
      : device_(wanted.device),
        queue_(wanted.queue),
        progress_(*wanted.progress),
        communicator_(wanted.communicator) {}

  bool start(completion& done) {
    target_ = ++progress_.issued;
    // This function must not throw, because a `when_all` may already have started other operations
    // together with this one. Therefore it does not use `on_device`, whose constructor can throw.
    int before = device_;
    (void)api::current_device(before);
    (void)api::use_device(device_);
    // Model step: write_progress
    status_ = progress_.written_by_host ? api::not_supported
                                        : api::write(progress_.word, target_, queue_);
    if (status_ == api::not_supported) {
      communicator_ = nullptr;  // the wait cannot be abandoned, because `write_target` uses `this`
      status_ = api::call(write_target, this, queue_);
    }
    if (before != device_) restore_device(before);
    if (status_ != api::success || is_done()) return true;
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {
    if (is_abandoned_) throw error(communicator_->reason());
    check(status_, "the work of a stream");
  }
  /// Returns whether the operation was started and has not completed yet.
  bool is_awaited() const { return done_ != nullptr; }

  ~wait_operation() {
    if (is_awaited() && communicator_ == nullptr) (void)api::synchronize(queue_);
    progress_.is_abandoned |= communicator_ != nullptr && (is_awaited() || is_abandoned_);
  }

 private:
  static void write_target(void* argument) {
    const auto& operation = *static_cast<const wait_operation*>(argument);
    __atomic_store_n(operation.progress_.word, operation.target_, __ATOMIC_RELEASE);
  }
  bool is_done() const { return progress_.has_reached(target_); }
  bool poll() noexcept override {
    is_abandoned_ = communicator_ != nullptr && communicator_->failed();
    if (!is_abandoned_ && !is_done()) {
      // A stream that has failed no longer writes its progress. Therefore every 1024th poll also
      // queries the status of the stream.
      if (++polls_ % 1024 != 0) return false;
      const api::status state = api::query(queue_);
      if (state == api::success || state == api::not_ready) return false;
      status_ = state;
    }
    std::exchange(done_, nullptr)->post();
    return true;
  }

  int device_;
  stream_ref queue_;
  progress_counter& progress_;
  const communicator_state* communicator_;
  bool is_abandoned_ = false;
  std::uint32_t target_ = 0;
  unsigned polls_ = 0;
  api::status status_ = api::success;
  completion* done_ = nullptr;  // not null while the operation is polled
};

}  // namespace colls::cuda

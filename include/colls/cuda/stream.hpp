// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stream: CUDA streams and events, and the operation that waits for a stream. When the stream has
// done its work, the GPU writes a number to memory that the event loop of the waiting coroutine
// polls. Therefore the wait needs no other thread, and few polls make a CUDA call.

#include <colls/coroutine/completion.hpp>
#include <colls/cuda/memory.hpp>
#include <colls/matching/operation_record.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <thread>

namespace colls::cuda {

/// Throws if `stream` is being captured into a CUDA graph. A call cannot wait for captured work,
/// because such work is not executed until the graph is launched.
inline void refuse_captured(stream_ref stream) {
  bool is_captured = false;
  check(api::is_captured(is_captured, stream), "cudaStreamIsCapturing");
  if (is_captured) {
    throw error(errc::invalid_argument, "calls cannot be captured into a CUDA graph");
  }
}

/// A CUDA event: a point in the work of a stream of the device. Other streams can wait for this
/// point.
class event {
 public:
  explicit event(int device) : device_(device) {
    const on_device guard(device);
    check(api::make_event(event_), "cudaEventCreate");
  }
  event(const event&) = delete;
  ~event() { (void)api::destroy_event(event_); }

  api::event_ref ref() const { return event_; }
  /// Moves the event to the point after all work that has been given to `stream` so far.
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
/// increasing values to a word of pinned memory.
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
/// the default stream. The destructor waits for the stream's work, unless a wait of `followed` was
/// abandoned and the work is still not done. Only one thread may use the stream.
class stream {
 public:
  /// Constructs a stream that writes its progress to `*word`, where peers can read it. The initial
  /// value of `*word` must be 0. If `is_pinned` is false, the CPU writes the progress, because the
  /// GPU cannot write to `*word`. If `word` is null, the stream uses a word of its own.
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

  /// Makes all work that is given to this stream after this call wait for the current work of
  /// `other`, which must be a stream of the same device.
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

  /// The operation of `co_await s.reached()`, which completes when the stream has done all work
  /// that it was given before the wait began. Throws if the device has failed. If the operation is
  /// destroyed before it completes, its destructor waits for the stream, because the caller may
  /// then destroy buffers that the stream uses.
  class wait_operation;
  struct request {
    using operation = wait_operation;
    int device;
    stream_ref queue;
    progress_counter* progress;  // only this stream uses the counter
    const communicator_state* communicator = nullptr;
  };
  request reached() { return {device_, stream_, &progress_}; }
  /// Like `reached`, but also throws when the communicator fails. The destructor of the operation
  /// then does not wait for the stream, which may still be waiting for other streams. Therefore the
  /// stream must belong to a pool, and its only work must be to follow (wait for) other streams.
  request followed(const communicator_state& communicator) {
    return {device_, stream_, &progress_, &communicator};
  }
  /// Returns the progress value for which the next `reached` will wait.
  std::uint32_t next_value() const { return progress_.issued + 1; }
  bool has_reached(std::uint32_t value) const { return progress_.has_reached(value); }
  /// Prepares an idle stream for another call.
  void reset() { progress_.is_abandoned = false; }

 private:
  int device_;
  event event_;
  pinned_buffer<std::uint32_t> word_;  // unused if the constructor got a word
  progress_counter progress_;
  stream_ref stream_;
};

/// The copies that one user enqueues on a stream that also has other users. If an exception
/// destroys this object before the copies are done, the destructor waits for the copies, because
/// the exception may then destroy their buffers.
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

/// A pool of streams of a device. Each call uses its own streams from the pool, because work on a
/// stream waits for all earlier work on that stream, and a call must not wait for the work of other
/// calls. Only one thread may use the pool.
class stream_pool {
 public:
  /// Creates a first stream, so that an unusable device is reported at once.
  explicit stream_pool(int device) : device_(device) { const lease first(*this); }
  stream_pool(const stream_pool&) = delete;
  ~stream_pool() {
    // Waits up to a second for busy streams. After a failed call, a stream may still be waiting for
    // the work of other streams, which usually completes soon.
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

  /// A stream of the pool that one call uses for the lifetime of this object.
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
    // Only idle streams are taken, because a stream that a failed call has given back may still be
    // waiting for other streams.
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
    // `on_device` is not used because it can throw. This function must not throw, because other
    // operations may be started together with this one.
    int before = device_;
    (void)api::current_device(before);
    (void)api::use_device(device_);
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
      // A stream that has failed writes nothing more, so its status is queried now and then.
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

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// native_call: one collective of MPI in flight, which an operation of colls awaits.

#include <colls/transport/mpi/mpi_transport.hpp>

#include <cstring>

namespace colls::mpi {

/// The part of MPI in one call. It runs on copies of the caller's buffers, unless
/// `options::in_place` is true. If the object is destroyed before MPI has ended the call, the
/// copies live on until then.
class native_call {
 public:
  native_call(transport& net, const operation_record& record)
      : net_(net),
        record_(record),
        request_(std::make_unique<native_request>(net.pool())),
        is_in_place_(net.is_in_place()) {
    environment& mpi = environment::get();
    if (const char* const obstacle = mpi.thread_obstacle()) {
      throw error(errc::invalid_argument, obstacle);
    }
    mpi.sweep();
    mpi.note_call();
  }
  native_call(const native_call&) = delete;
  native_call& operator=(const native_call&) = delete;
  ~native_call() {
    if (has_ended_) return;
    net_.retire();
    if (is_in_place_) request_->wait();
    environment::get().abandon(std::move(request_));
  }

  MPI_Comm comm() const { return net_.comm(); }
  native_reduction reduction() const {
    if (record_.operation == collective::measure) return {MPI_FLOAT, MPI_SUM};
    return native_reduction_of(record_.accumulate_type, record_.op_number);
  }
  native_request& request() { return *request_; }
  MPI_Request* start() { return request_->add(); }

  /// Returns the memory from which MPI reads `data`. `overlaps_output` tells whether MPI writes to
  /// memory of `data` in this call.
  const std::byte* input(const any_buffer& data, bool overlaps_output = false) {
    const auto* const own = static_cast<const std::byte*>(data.data());
    if (is_in_place_ && !overlaps_output) return own;
    std::byte* const copy = request_->memory(bytes(data).size);
    if (data.size() != 0) std::memcpy(copy, own, bytes(data).size);
    return copy;
  }
  /// Returns the memory to which MPI writes what `data` holds afterwards.
  std::byte* output(const any_buffer& data) {
    if (is_in_place_) return static_cast<std::byte*>(data.data());
    std::byte* const copy = request_->memory(bytes(data).size);
    outputs_.push_back({bytes(data), copy});
    return copy;
  }
  /// Returns memory to which MPI may write, and which is not read.
  std::byte* unused(const any_buffer& data) { return request_->memory(bytes(data).size); }
  MPI_Datatype block(std::size_t size) { return request_->keep(block_type(size)); }

  /// What `co_await finished()` starts: it completes when MPI has ended the call, and the output
  /// is where the caller wants it. Throws if MPI or the communicator has failed.
  class wait;
  struct wait_request {
    using operation = wait;
    native_call* call;
  };
  wait_request finished() { return {this}; }

 private:
  struct copied_output {
    mutable_bytes dest;
    const std::byte* source;
  };

  void finish() {
    has_ended_ = true;
    for (const copied_output& each : outputs_) {
      if (each.dest.size != 0) std::memcpy(each.dest.data, each.source, each.dest.size);
    }
  }

  transport& net_;
  const operation_record& record_;
  std::unique_ptr<native_request> request_;
  std::vector<copied_output> outputs_;
  bool is_in_place_;
  bool has_ended_ = false;
};

class native_call::wait : polled_condition {
 public:
  explicit wait(const wait_request& wanted) : call_(*wanted.call) {}

  bool start(completion& done) {
    // A short collective ends sooner than the driver would poll again.
    for (int polls = call_.net_.driver().spins() ? 50 : 1; polls > 0; --polls) {
      if (has_ended()) return true;
    }
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() {
    const communicator_state& comm = *call_.record_.communicator;
    if (comm.failed()) throw error(comm.reason());
    check(call_.request_->error(), "MPI");
    call_.finish();
  }

 private:
  // A call that does not match those of other ranks may end with an error of MPI before colls has
  // found the reason, which says more.
  static constexpr time_point patience = 1 * seconds;

  bool has_ended() {
    if (call_.record_.communicator->failed()) return true;
    if (!call_.request_->has_ended()) return false;
    if (call_.request_->error() == MPI_SUCCESS) return true;
    if (error_time_ == never) error_time_ = call_.net_.now();
    return call_.net_.now() - error_time_ > patience;
  }
  bool poll() noexcept override {
    if (!has_ended()) return false;
    done_->post();
    return true;
  }

  native_call& call_;
  time_point error_time_ = never;
  completion* done_ = nullptr;
};

}  // namespace colls::mpi

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// native_request: a collective of MPI in flight, and all that MPI uses until it has ended.

#include <colls/matching/scratch_pool.hpp>
#include <colls/transport/mpi/check.hpp>

#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace colls::mpi {

/// A collective of MPI in flight, as one or several requests of MPI. Its memory comes from a pool.
class native_request {
 public:
  explicit native_request(std::shared_ptr<scratch_pool> pool) : pool_(std::move(pool)) {}
  native_request(const native_request&) = delete;
  native_request& operator=(const native_request&) = delete;
  ~native_request() {
    for (const scratch_pool::block& each : blocks_) pool_->release(each);
    // A type that cannot be freed stays.
    for (MPI_Datatype& type : types_) (void)MPI_Type_free(&type);
  }

  /// Returns memory of this request.
  std::byte* memory(std::size_t size) {
    blocks_.reserve(blocks_.size() + 1);
    const scratch_pool::block block = pool_->acquire(std::max<std::size_t>(size, 1));
    if (block.memory == nullptr) throw colls::error(errc::not_enough_memory);
    blocks_.push_back(block);
    return static_cast<std::byte*>(block.memory);
  }
  /// Returns a list of `values` that lives as long as this request.
  int* list(std::vector<int> values) { return lists_.emplace_back(std::move(values)).data(); }
  /// Makes this request free `type` at its end.
  MPI_Datatype keep(MPI_Datatype type) {
    types_.push_back(type);
    return type;
  }
  /// Adds a request of MPI, which the caller starts.
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  /// Returns whether all requests have ended.
  bool has_ended() {
    for (; ended_ < requests_.size(); ++ended_) {
      int has_ended = 0;
      int status = MPI_Request_get_status(requests_[ended_], &has_ended, MPI_STATUS_IGNORE);
      if (status == MPI_SUCCESS && has_ended == 0) return false;
      const error_return guard;
      if (status == MPI_SUCCESS) status = MPI_Wait(&requests_[ended_], MPI_STATUS_IGNORE);
      if (error_ == MPI_SUCCESS) error_ = status;
    }
    return true;
  }
  /// Returns the first error of a request that has ended.
  int error() const { return error_; }
  /// Blocks until all requests have ended.
  void wait() {
    while (!has_ended()) std::this_thread::yield();
  }

 private:
  std::shared_ptr<scratch_pool> pool_;
  std::vector<MPI_Request> requests_;
  std::size_t ended_ = 0;  // the number of requests that have ended
  int error_ = MPI_SUCCESS;
  std::vector<scratch_pool::block> blocks_;
  std::deque<std::vector<int>> lists_;
  std::vector<MPI_Datatype> types_;
};

}  // namespace colls::mpi

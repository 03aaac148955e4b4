// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// environment: MPI in this process: its start and its end, the thread that may call it, and the
// calls of MPI that have been given up but have not ended.

#include <colls/base/error.hpp>
#include <colls/base/log.hpp>

// Both switch off C++ bindings that MPI no longer has.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace colls::mpi {

/// Throws if a function of MPI, named `call`, has returned an error.
inline void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING + 1] = "unknown error";
  int length = 0;
  (void)MPI_Error_string(status, text, &length);  // the text says "unknown error" then
  std::replace_if(text, text + sizeof text, [](char c) { return c > 0 && c < ' '; }, ' ');
  failure reason(errc::device_failed);
  throw error(reason.set_detail("%s: %.200s", call, text));
}

/// Makes MPI return errors while this object exists. Open MPI reports an error of a collective to
/// the handler of MPI_COMM_WORLD, whatever its communicator. By default that handler aborts.
class error_return {
 public:
  error_return() {
    is_changed_ = MPI_Comm_get_errhandler(MPI_COMM_WORLD, &previous_) == MPI_SUCCESS &&
                  previous_ == MPI_ERRORS_ARE_FATAL &&
                  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN) == MPI_SUCCESS;
  }
  error_return(const error_return&) = delete;
  error_return& operator=(const error_return&) = delete;
  ~error_return() {
    // The handlers of a valid communicator can be set.
    if (is_changed_) (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, previous_);
    if (previous_ != MPI_ERRHANDLER_NULL) (void)MPI_Errhandler_free(&previous_);
  }

 private:
  MPI_Errhandler previous_ = MPI_ERRHANDLER_NULL;
  bool is_changed_ = false;
};

/// Blocks of memory on which MPI works while a call is in flight. Their sizes are powers of two.
class memory_pool {
 public:
  using block = std::unique_ptr<std::byte[]>;

  block take(std::size_t size) {
    std::vector<block>& blocks = free_[index_of(size)];
    if (blocks.empty()) return block(new std::byte[std::size_t{1} << index_of(size)]);
    block result = std::move(blocks.back());
    blocks.pop_back();
    return result;
  }
  void give(block used, std::size_t size) noexcept {
    std::vector<block>& blocks = free_[index_of(size)];
    try {
      if (blocks.size() < max_kept) blocks.push_back(std::move(used));
    } catch (const std::bad_alloc&) {
      // The block is freed.
    }
  }

 private:
  static constexpr std::size_t max_kept = 4;  // blocks of one size

  static std::size_t index_of(std::size_t size) {
    return static_cast<std::size_t>(std::bit_width(size < 64 ? std::size_t{63} : size - 1));
  }

  std::vector<block> free_[65];
};

/// A collective of MPI in flight, as one or several requests, and all that MPI uses until it has
/// ended.
class native_request {
 public:
  explicit native_request(std::shared_ptr<memory_pool> pool) : pool_(std::move(pool)) {}
  native_request(const native_request&) = delete;
  native_request& operator=(const native_request&) = delete;
  ~native_request() {
    for (staged& each : staged_) pool_->give(std::move(each.memory), each.size);
    for (MPI_Datatype& type : types_) (void)MPI_Type_free(&type);  // nobody can be told
  }

  /// Returns memory of this request.
  std::byte* memory(std::size_t size) {
    staged_.push_back({pool_->take(size), size});
    return staged_.back().memory.get();
  }
  /// Returns a list of `values` that lives as long as this request.
  int* list(std::vector<int> values) {
    lists_.push_back(std::make_unique<std::vector<int>>(std::move(values)));
    return lists_.back()->data();
  }
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
  struct staged {
    memory_pool::block memory;
    std::size_t size;
  };

  std::shared_ptr<memory_pool> pool_;
  std::vector<MPI_Request> requests_;
  std::size_t ended_ = 0;  // the number of requests that have ended
  int error_ = MPI_SUCCESS;
  std::vector<staged> staged_;
  std::vector<std::unique_ptr<std::vector<int>>> lists_;
  std::vector<MPI_Datatype> types_;
};

/// MPI in this process.
class environment {
 public:
  static environment& get() {
    // It is never destroyed, because communicators of static storage may need it.
    static environment& instance = *new environment;
    return instance;
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  static bool is_initialised() {
    int result = 0;
    (void)MPI_Initialized(&result);  // fails on no implementation
    return result != 0;
  }
  static bool is_finalised() {
    int result = 0;
    (void)MPI_Finalized(&result);
    return result != 0;
  }
  /// Initialises MPI if the program has not. MPI is then finalised when the process exits, unless a
  /// call of MPI has failed or been abandoned, or a world has not ended in an orderly way: MPI
  /// would wait for ranks that are lost.
  void initialise() {
    if (is_initialised()) return;
    int level = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    is_ours_ = true;
    if (std::atexit([] { get().finalise(); }) != 0) {
      log_warn("MPI is not finalised at the exit: no function can be registered");
    }
  }
  /// Returns why this thread must not call MPI, or null. All communicators with MPI are used by the
  /// thread that has attached the first one.
  const char* thread_obstacle() {
    if (is_finalised()) return "MPI has been finalised";
    if (user_ == std::thread::id()) user_ = std::this_thread::get_id();
    if (user_ != std::this_thread::get_id()) {
      return "another thread of this process uses MPI by colls, which only one thread can do";
    }
    int level = 0;
    int is_main = 0;
    (void)MPI_Query_thread(&level);  // neither fails once MPI is initialised
    (void)MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main != 0) return nullptr;
    return "MPI was initialised for one thread, and another one calls it: call MPI_Init_thread "
           "with "
           "MPI_THREAD_SERIALIZED, or use the thread that has initialised MPI";
  }

  /// Makes the end of MPI depend on whether the ranks of a world leave it in an orderly way.
  /// Returns false if it does so already.
  bool add_world(std::shared_ptr<const bool> has_left_orderly) {
    const bool is_known =
        std::find(worlds_.begin(), worlds_.end(), has_left_orderly) != worlds_.end();
    if (!is_known) worlds_.push_back(std::move(has_left_orderly));
    return !is_known;
  }
  /// Lets MPI move what it has to move, unless this thread must not call it.
  void make_progress() {
    if (is_recently_used()) ++progress_since_call_;
    if (probed_ == MPI_COMM_NULL || thread_obstacle() != nullptr) return;
    int has_message = 0;
    // No message is sent in this communicator, and a probe makes progress. (One of MPI_COMM_SELF
    // makes none with MPICH.) An error would come again.
    (void)MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, probed_, &has_message, MPI_STATUS_IGNORE);
  }
  /// Frees a duplicate that `attach` has made, unless `make_progress` needs it.
  void free(MPI_Comm duplicate) {
    if (duplicate != probed_) (void)MPI_Comm_free(&duplicate);  // nobody can be told
  }
  /// Tells this object of a duplicate that `attach` has made.
  void add(MPI_Comm duplicate) {
    if (probed_ == MPI_COMM_NULL) probed_ = duplicate;
  }
  void note_failure() { has_failed_ = true; }
  void note_call() { progress_since_call_ = 0; }
  /// Returns whether MPI has made progress only a few times since the last native call began. Other
  /// ranks may then be in this call.
  bool is_recently_used() const { return progress_since_call_ < 500; }

  /// Keeps what MPI may still use until the call of MPI has ended.
  void abandon(std::unique_ptr<native_request> used) noexcept {
    has_failed_ = true;
    try {
      abandoned_.push_back(std::move(used));
    } catch (const std::bad_alloc&) {
      (void)used.release();  // MPI may write to its memory
    }
  }
  /// Frees the memory of abandoned calls that have ended. That of calls that have ended with an
  /// error is kept for good, because parts of them may go on.
  void sweep() noexcept {
    if (thread_obstacle() != nullptr) return;
    std::erase_if(abandoned_, [](const std::unique_ptr<native_request>& each) {
      return each->has_ended() && each->error() == MPI_SUCCESS;
    });
  }

 private:
  environment() = default;

  void finalise() noexcept {
    const bool is_orderly =
        std::all_of(worlds_.begin(), worlds_.end(), [](const auto& has_left) { return *has_left; });
    // At the exit nobody can be told.
    if (is_ours_ && is_orderly && !has_failed_ && !is_finalised()) (void)MPI_Finalize();
  }

  bool is_ours_ = false;
  bool has_failed_ = false;
  int progress_since_call_ = 0;
  MPI_Comm probed_ = MPI_COMM_NULL;  // the first duplicate that `attach` has made
  std::thread::id user_;             // the thread that calls MPI
  std::vector<std::shared_ptr<const bool>> worlds_;
  std::vector<std::unique_ptr<native_request>> abandoned_;
};

}  // namespace colls::mpi

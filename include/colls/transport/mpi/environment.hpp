// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// environment: MPI in this process: its start and its end, the thread that may call it, its
// progress, and the calls that have been given up but have not ended.

#include <colls/base/log.hpp>
#include <colls/transport/mpi/native_request.hpp>

#include <cstdlib>

namespace colls::mpi {

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
  /// Binds MPI to the calling thread, and initialises it if the program has not. MPI is then
  /// finalised when the process exits, unless a call of MPI has failed or been abandoned, or a
  /// world has not ended in an orderly way: MPI would wait for ranks that are lost.
  void initialise() {
    user_ = std::this_thread::get_id();
    if (is_initialised()) return;
    int level = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    is_ours_ = true;
    if (std::atexit([] { get().finalise(); }) != 0) {
      log_warn("MPI is not finalised at the exit: no function can be registered");
    }
  }
  /// Returns why this thread must not call MPI, which has been initialised, or null. All
  /// communicators with MPI are used by the thread that has attached the first one.
  const char* thread_obstacle() const {
    if (is_finalised()) return "MPI has been finalised";
    if (user_ != std::thread::id() && user_ != std::this_thread::get_id()) {
      return "another thread of this process uses MPI by colls, which only one thread can do";
    }
    int level = 0;
    int is_main = 0;
    (void)MPI_Query_thread(&level);  // neither fails once MPI is initialised
    (void)MPI_Is_thread_main(&is_main);
    if (level >= MPI_THREAD_SERIALIZED || is_main != 0) return nullptr;
    return "MPI was initialised for one thread, and another one calls it: use the thread that has "
           "initialised MPI, or call MPI_Init_thread with MPI_THREAD_SERIALIZED";
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
  /// Adds a duplicate that `attach` has made.
  void add_duplicate(MPI_Comm duplicate) {
    if (probed_ == MPI_COMM_NULL) probed_ = duplicate;
  }
  /// Frees a duplicate, unless `make_progress` needs it. One that cannot be freed stays.
  void free_duplicate(MPI_Comm duplicate) {
    if (duplicate != probed_) (void)MPI_Comm_free(&duplicate);
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
    // At the exit no error can be reported.
    if (is_ours_ && is_orderly && !has_failed_ && !is_finalised()) (void)MPI_Finalize();
  }

  bool is_ours_ = false;  // colls has initialised MPI
  bool has_failed_ = false;
  int progress_since_call_ = 0;
  MPI_Comm probed_ = MPI_COMM_NULL;  // the first duplicate that `attach` has made
  std::thread::id user_;             // the thread that calls MPI
  std::vector<std::shared_ptr<const bool>> worlds_;
  std::vector<std::unique_ptr<native_request>> abandoned_;
};

}  // namespace colls::mpi

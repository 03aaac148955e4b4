// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A key-value store in a shared file, through which ranks find each other without a network
// address.

#include <colls/bootstrap/file_store_header.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>

#include <sys/file.h>

namespace colls {

/// A store in a file. Each change appends a record, which is a key and its value, to the file under
/// a file lock. Rank 0 creates the file, and the destructor on rank 0 removes it. The other ranks
/// wait for the file. The file also contains a secret, so that only processes that may read the
/// file can join.
class file_store final : public store {
 public:
  struct options {
    int world = 0;
    std::uint64_t job = 0;
    /// Whether rank 0 replaces an existing file if the process that created it has ended. If false,
    /// `create` and `open` throw `stale_store` for such a file.
    bool replace_abandoned = false;
  };

  /// Creates the file at `path` and returns the store. Called on rank 0. Throws `join_failed` if
  /// the directory is not usable or if `path` names something other than a regular file of this
  /// user. Throws `stale_store` if there already is a file that may not be replaced. Throws
  /// `rank_taken` if the process that created the existing file is still running or another process
  /// is replacing the file.
  static std::shared_ptr<file_store> create(engine& driver, const std::string& path,
                                            const options& opts);

  /// Waits until the file at `path` exists and returns the store. Called on all ranks except rank
  /// 0. Throws `join_failed` if the directory is not usable, or if the file has wrong permissions,
  /// is not a regular file of this user or belongs to a world of another size. Throws `stale_store`
  /// if the file is not a store, if it belongs to another job, or if the process that created it
  /// has ended and `opts.replace_abandoned` is false. Throws `join_timeout` if there is no usable
  /// file at the deadline.
  static task<std::shared_ptr<file_store>> open(engine& driver, const std::string& path,
                                                const options& opts, time_point deadline);

  COLLS_ONCE ~file_store() override;

  /// Returns the secret that the file contains.
  secret shared_secret(bool insecure) const { return secret(header_.secret, insecure); }
  /// Makes the destructor also remove the directory of the file, unless the directory contains
  /// other files.
  void remove_directory_too() { removes_directory_ = true; }

 private:
  file_store(engine& driver, std::string path, detail::descriptor file,
             const detail::file_store_header& header)
      : engine_(driver), path_(std::move(path)), file_(std::move(file)), header_(header) {}

  static void check_directory(const std::string& path);

  // Returns whether the file is a regular file that only this user can read and write.
  static bool is_of_this_user_alone(int file);

  // Returns the header of the file, or nullopt if the header is incomplete or invalid.
  static std::optional<detail::file_store_header> read_header(int file);

  struct existing {
    detail::descriptor file;  // not open if there is no file
    struct stat facts{};
  };
  // Opens the file at `path`. If no such file exists, returns a result without an open descriptor.
  // Throws if `path` names something other than a regular file of this user, or if the file cannot
  // be opened.
  static existing open_existing(const std::string& path);

  // Moves the new file from the name `fresh` to its final name `path`. Throws if `path` already
  // names a file that may not be replaced.
  static void give_name(const std::string& fresh, const std::string& path, const options& opts);

  static bool may_replace(const existing& old, const options& opts);

  [[noreturn]] static void explain_existing(const existing& old, const std::string& path);

  static task<std::shared_ptr<file_store>> wait_for_file(engine& driver, std::string path,
                                                         options opts, time_point deadline);

  // Reads the records that other processes have appended since the last call. Leaves an incomplete
  // record to the next call, because another process may still be writing the record. If that
  // process has died, the next process that appends a record overwrites the incomplete one.
  void refresh();

  // Appends a record. The caller must hold the lock, and must have called `refresh` since it
  // acquired the lock.
  void append(const std::string& key, const std::string& value);

  class locked {
   public:
    explicit locked(int file) : file_(file) {}
    locked(const locked&) = delete;
    // The result of flock is ignored, because unlocking fails only for an invalid descriptor.
    ~locked() {
      (void)detail::uninterrupted([this] { return ::flock(file_, LOCK_UN); });
    }

   private:
    int file_;
  };

  // Acquires the lock on the file without blocking the thread. Throws `timeout` if another process
  // still holds the lock at the deadline.
  task<> lock(time_point deadline);

  COLLS_ONCE task<> do_set(std::string key, std::string value, time_point deadline) override;
  COLLS_ONCE task<std::string> do_get(std::string key, time_point deadline) override;
  COLLS_ONCE task<std::int64_t> do_add(std::string key, std::int64_t amount,
                                       time_point deadline) override;
  COLLS_ONCE task<> do_wait(std::vector<std::string> keys, time_point deadline) override;
  COLLS_ONCE task<std::string> do_compare_set(std::string key, std::string expected,
                                              std::string desired, time_point deadline) override;
  COLLS_ONCE task<std::string> do_check(std::vector<std::string> keys, time_point) override;

  engine& engine_;
  std::string path_;
  detail::descriptor file_;
  detail::file_store_header header_;
  std::map<std::string, std::string> values_;
  // The offset in the file after the last record that was read.
  std::size_t end_ = sizeof(detail::file_store_header);
  // Whether an incomplete record begins at the offset `end_`.
  bool has_partial_record_ = false;
  // The id of the process that created the file through this object, or 0 if this object has opened
  // an existing file. A forked child has another process id and therefore does not remove the file.
  pid_t creator_ = 0;
  bool removes_directory_ = false;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/file_store.ipp>
#endif

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

/// A store that appends its keys and values to a file, under a file lock. Rank 0 creates the file,
/// and removes it when it destroys the store. The other ranks wait for the file. The file also
/// contains a secret, so that only processes that may read the file can join.
class file_store final : public store {
 public:
  struct options {
    int world = 0;
    std::uint64_t job = 0;
    bool replace_abandoned = false;  // otherwise an abandoned file is a `stale_store` error
  };

  /// Creates the file. Called on rank 0. Throws `join_failed` if the directory is not usable or if
  /// the path names something other than a regular file of this user. Throws `stale_store` if an
  /// earlier job has left a file behind. Throws `rank_taken` if the process that created the file
  /// is still running or another process is creating the file.
  static std::shared_ptr<file_store> create(engine& driver, const std::string& path,
                                            const options& opts);

  /// Waits for the file until the deadline. Called on all ranks except rank 0. Throws `join_failed`
  /// if the directory is not usable, or if the file has wrong permissions, is not a regular file of
  /// this user or belongs to a world of another size. Throws `stale_store` if the file belongs to
  /// another job or if the process that created the file has ended. Throws `join_timeout` after the
  /// deadline.
  static task<std::shared_ptr<file_store>> open(engine& driver, const std::string& path,
                                                const options& opts, time_point deadline);

  ~file_store() override;

  /// Returns the secret that the file contains.
  secret shared_secret(bool insecure) const { return secret(header_.secret, insecure); }
  /// Makes the destructor also remove the directory of the file, if the directory is then empty.
  void remove_directory_too() { removes_directory_ = true; }

 private:
  file_store(engine& driver, std::string path, detail::descriptor file,
             const detail::file_store_header& header)
      : engine_(driver), path_(std::move(path)), file_(std::move(file)), header_(header) {}

  static void check_directory(const std::string& path);

  // Returns whether the file is a regular file that only this user can read and write.
  static bool is_of_this_user_alone(int file);

  // Returns the header of the file, or nullopt if it is incomplete or invalid.
  static std::optional<detail::file_store_header> read_header(int file);

  struct existing {
    detail::descriptor file;  // not open if there is no file
    struct stat facts{};
  };
  // Opens the file at `path`, if there is one. Throws if it is not a regular file of this user.
  static existing open_existing(const std::string& path);

  // Gives the new file `fresh` its final name `path`. Throws if this name belongs to a store of
  // another process.
  static void give_name(const std::string& fresh, const std::string& path, const options& opts);

  static bool may_replace(const existing& old, const options& opts);

  [[noreturn]] static void explain_existing(const existing& old, const std::string& path);

  static task<std::shared_ptr<file_store>> wait_for_file(engine& driver, std::string path,
                                                         options opts, time_point deadline);

  // Reads the records that other processes have appended. Leaves an incomplete record to the next
  // call, because its writer may still be writing. If the writer has died, another process
  // overwrites the incomplete record.
  void refresh();

  // Appends a record. The caller must hold the lock and must have called `refresh`.
  void append(const std::string& key, const std::string& value);

  class locked {
   public:
    explicit locked(int file) : file_(file) {}
    locked(const locked&) = delete;
    // The result is ignored, because unlocking fails only for an invalid descriptor.
    ~locked() {
      (void)detail::uninterrupted([this] { return ::flock(file_, LOCK_UN); });
    }

   private:
    int file_;
  };

  // Waits for the lock without blocking the thread.
  task<> lock(time_point deadline);

  task<> do_set(std::string key, std::string value, time_point deadline) override;
  task<std::string> do_get(std::string key, time_point deadline) override;
  task<std::int64_t> do_add(std::string key, std::int64_t amount, time_point deadline) override;
  task<> do_wait(std::vector<std::string> keys, time_point deadline) override;
  task<std::string> do_compare_set(std::string key, std::string expected, std::string desired,
                                   time_point deadline) override;
  task<std::string> do_check(std::vector<std::string> keys, time_point) override;

  engine& engine_;
  std::string path_;
  detail::descriptor file_;
  detail::file_store_header header_;
  std::map<std::string, std::string> values_;
  std::size_t end_ = sizeof(detail::file_store_header);  // the end of the records read so far
  bool has_partial_record_ = false;                      // an incomplete record follows `end_`
  pid_t creator_ = 0;                                    // the process id, if it created the file
  bool removes_directory_ = false;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/file_store.ipp>
#endif

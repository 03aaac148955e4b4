// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A store in a file that all processes see: by it ranks meet where no address is known.

#include <colls/bootstrap/file_store_header.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/bootstrap/store.hpp>

#include <sys/file.h>

namespace colls {

/// A store whose keys are appended to one file, under its lock. Rank 0 makes the file (and takes it
/// away with the store); the others wait for it. It also carries a secret, so that only those who
/// may read it can join.
class file_store final : public store {
 public:
  struct options {
    int world = 0;
    std::uint64_t job = 0;
    bool replace_abandoned = false;  // else an abandoned file is `errc::stale_store`
  };

  /// Rank 0. Throws `join_failed` (the directory, no regular file of this user), `stale_store`,
  /// `rank_taken` (its maker lives, or another process makes it at this moment).
  static std::shared_ptr<file_store> create(engine& on, const std::string& path,
                                            const options& how);

  /// The others: waits for the file until the deadline. Throws `join_failed` (directory, rights, no
  /// regular file of this user, another world), `stale_store`, `join_timeout`.
  static task<std::shared_ptr<file_store>> open(engine& on, const std::string& path,
                                                const options& how, time_point deadline);

  ~file_store() override;

  secret shared_secret(bool insecure) const { return secret(head_.secret, insecure); }
  /// When the store goes, its (then empty) directory goes too.
  void remove_directory_too() { directory_too_ = true; }

 private:
  file_store(engine& on, std::string path, detail::descriptor file,
             const detail::store_file_head& head)
      : engine_(on), path_(std::move(path)), file_(std::move(file)), head_(head) {}

  static void check_directory(const std::string& path);

  // What is written there no other user can read.
  static bool is_of_this_user_alone(int file);

  /// The head of the file, if there is one whole.
  static std::optional<detail::store_file_head> head_of(int file);

  struct existing {
    detail::descriptor file;  // none: nothing lies there
    struct stat facts{};
  };
  // What lies there. Throws if it is no regular file of this user.
  static existing look_at(const std::string& path);

  // The new file gets its name, unless another process's store has it.
  static void give_name(const std::string& fresh, const std::string& path, const options& how);

  static bool may_replace(const existing& old, const options& how);

  [[noreturn]] static void explain_existing(const existing& old, const std::string& path);

  static task<std::shared_ptr<file_store>> wait_for_file(engine& on, std::string path, options how,
                                                         time_point deadline);

  // Takes in what others have appended. A record that is not whole is read again the next time, for
  // its writer may have died and another may write there.
  void refresh();

  // Under the lock, after a refresh.
  void append(const std::string& key, const std::string& value);

  class locked {
   public:
    explicit locked(int file) : file_(file) {}
    locked(const locked&) = delete;
    // Fails only for a wrong descriptor.
    ~locked() {
      (void)detail::uninterrupted([this] { return ::flock(file_, LOCK_UN); });
    }

   private:
    int file_;
  };

  // The lock itself never blocks the thread.
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
  detail::store_file_head head_;
  std::map<std::string, std::string> values_;
  std::size_t end_ = sizeof(detail::store_file_head);  // of the records taken in
  bool half_done_ = false;                             // something follows that is no whole record
  pid_t maker_ = 0;                                    // of the file, if it is this process
  bool directory_too_ = false;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/file_store.ipp>
#endif

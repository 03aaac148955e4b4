// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of file_store.hpp: creating, reading and writing the file.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/file_store.hpp>

#include <fcntl.h>
#include <sys/stat.h>

namespace colls::detail {

inline int open_file(const std::string& path, int flags, mode_t mode = 0) {
  // These flags ensure that a file that another user has placed at `path`, such as a FIFO, cannot
  // block this process.
  constexpr int always = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  return uninterrupted([&] { return ::open(path.c_str(), flags | always, mode); });
}

inline int try_lock(int file) {
  return uninterrupted([=] { return ::flock(file, LOCK_EX | LOCK_NB); });
}

/// Returns whether `path` names the open file `file`.
inline bool is_at(const std::string& path, int file) {
  struct stat named{}, opened{};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(file, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

inline const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "file";
    case S_IFDIR:
      return "directory";
    case S_IFLNK:
      return "symbolic link";
    case S_IFIFO:
      return "FIFO";
    case S_IFSOCK:
      return "socket";
    default:
      return "device";
  }
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE std::shared_ptr<file_store> file_store::create(engine& driver, const std::string& path,
                                                          const options& opts) {
  check_directory(path);
  auto header = detail::file_store_header::of_this_process();
  header.world = opts.world;
  header.job = opts.job;
  detail::fill_random(&header.nonce, sizeof header.nonce);
  std::snprintf(header.secret, sizeof header.secret, "%s", detail::draw_secret().c_str());
  // The header is first written to a file with a random temporary name, so that no rank sees an
  // incomplete header. O_EXCL ensures that this process creates that file. If the file already
  // existed, another user could have opened it and could read the secret in the header.
  std::uint64_t name = 0;
  detail::fill_random(&name, sizeof name);
  char ending[32];
  std::snprintf(ending, sizeof ending, ".%016llx.new", static_cast<unsigned long long>(name));
  const std::string fresh = path + ending;
  detail::descriptor file(detail::open_file(fresh, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (!file) {
    detail::raise(errc::join_failed, "cannot make %s: %s", fresh.c_str(), std::strerror(errno));
  }
  const bool is_own = is_of_this_user_alone(file.get());
  const auto write = [&] { return ::write(file.get(), &header, sizeof header); };
  if (!is_own || detail::uninterrupted(write) != sizeof header) {
    const std::string reason = is_own ? std::strerror(errno) : "other users have access to it";
    (void)::unlink(fresh.c_str());  // a failure is ignored in favour of the error below
    detail::raise(errc::join_failed, "cannot write %s: %s", fresh.c_str(), reason.c_str());
  }
  try {
    give_name(fresh, path, opts);
  } catch (...) {
    (void)::unlink(fresh.c_str());  // a failure is ignored in favour of the original error
    throw;
  }
  auto store = std::shared_ptr<file_store>(new file_store(driver, path, std::move(file), header));
  store->creator_ = ::getpid();
  return store;
}

COLLS_ONCE task<std::shared_ptr<file_store>> file_store::open(engine& driver,
                                                              const std::string& path,
                                                              const options& opts,
                                                              time_point deadline) {
  return wait_for_file(driver, path, opts, deadline);
}

COLLS_ONCE file_store::~file_store() {
  if (creator_ != ::getpid()) return;
  // The file is removed only if `path_` still names it, because `path_` may meanwhile name a file
  // of another job.
  if (detail::is_at(path_, file_.get())) (void)::unlink(path_.c_str());
  // If the directory is not empty, rmdir fails and the directory remains.
  if (removes_directory_) (void)::rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

COLLS_ONCE void file_store::check_directory(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  struct stat facts{};
  if (::stat(directory.c_str(), &facts) != 0 || !S_ISDIR(facts.st_mode)) {
    detail::raise(errc::join_failed, "the directory of file://%s does not exist", path.c_str());
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    detail::raise(errc::join_failed, "the directory of file://%s: %s", path.c_str(),
                  std::strerror(errno));
  }
}

COLLS_ONCE bool file_store::is_of_this_user_alone(int file) {
  struct stat facts{};
  return ::fstat(file, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_uid == ::geteuid() &&
         (facts.st_mode & 077) == 0;
}

COLLS_ONCE std::optional<detail::file_store_header> file_store::read_header(int file) {
  detail::file_store_header header;
  const ssize_t got =
      detail::uninterrupted([&] { return ::pread(file, &header, sizeof header, 0); });
  if (got != sizeof header || !header.is_sound()) return std::nullopt;
  return header;
}

COLLS_ONCE file_store::existing file_store::open_existing(const std::string& path) {
  existing it{detail::descriptor(detail::open_file(path, O_RDWR))};
  const int failed = it.file ? 0 : errno;
  if (failed == ENOENT) return it;
  if ((it.file ? ::fstat(it.file.get(), &it.facts) : ::lstat(path.c_str(), &it.facts)) != 0) {
    if (errno == ENOENT) return it;  // another process has removed the file meanwhile
    detail::raise(errc::join_failed, "cannot examine file://%s: %s", path.c_str(),
                  std::strerror(errno));
  }
  if (!S_ISREG(it.facts.st_mode) || it.facts.st_uid != ::geteuid()) {
    detail::raise(errc::join_failed,
                  "file://%s is a %s of user %lld: it must be a regular file of this process's "
                  "user %lld",
                  path.c_str(), detail::kind_of(it.facts.st_mode),
                  static_cast<long long>(it.facts.st_uid), static_cast<long long>(::geteuid()));
  }
  if (!it.file) {
    detail::raise(errc::join_failed, "cannot open file://%s: %s", path.c_str(),
                  std::strerror(failed));
  }
  return it;
}

COLLS_ONCE void file_store::give_name(const std::string& fresh, const std::string& path,
                                      const options& opts) {
  while (::link(fresh.c_str(), path.c_str()) != 0) {
    if (errno != EEXIST) {
      detail::raise(errc::join_failed, "cannot make file://%s: %s", path.c_str(),
                    std::strerror(errno));
    }
    const existing old = open_existing(path);
    if (!old.file) continue;  // another process has removed the file meanwhile
    if (!may_replace(old, opts)) explain_existing(old, path);
    // Only the process that holds the lock on the old file may replace it, and only while `path`
    // still names the old file.
    if (detail::try_lock(old.file.get()) != 0) {
      if (errno == EWOULDBLOCK) {
        detail::raise(errc::rank_taken, "another process is about to be rank 0 of file://%s",
                      path.c_str());
      }
      detail::raise(errc::join_failed, "cannot lock file://%s: %s", path.c_str(),
                    std::strerror(errno));
    }
    if (!detail::is_at(path, old.file.get())) continue;
    if (::rename(fresh.c_str(), path.c_str()) == 0) return;
    detail::raise(errc::join_failed, "cannot replace file://%s: %s", path.c_str(),
                  std::strerror(errno));
  }
  (void)::unlink(fresh.c_str());  // if this second name of the file remains, it does no harm
}

COLLS_ONCE bool file_store::may_replace(const existing& old, const options& opts) {
  // An empty file contains no store. For example, mktemp creates an empty file to reserve a name.
  if (old.facts.st_size == 0) return true;
  const auto header = read_header(old.file.get());
  if (!opts.replace_abandoned || !header) return false;
  // `replace_abandoned` is set only for files in a local directory of this machine. If such a file
  // contains a boot id other than the current one, the process that created it ended before the
  // last boot.
  return header->is_abandoned() || detail::boot_id() != header->boot;
}

COLLS_ONCE void file_store::explain_existing(const existing& old, const std::string& path) {
  const auto header = read_header(old.file.get());
  if (header && detail::boot_id() == header->boot && !header->is_abandoned()) {
    detail::raise(errc::rank_taken, "process %lld of this host is rank 0 of %s",
                  static_cast<long long>(header->pid), path.c_str());
  }
  detail::raise(errc::stale_store,
                header ? "file://%s was left behind by an earlier job"
                       : "file://%s exists and is not a store of colls",
                path.c_str());
}

COLLS_ONCE task<std::shared_ptr<file_store>> file_store::wait_for_file(engine& driver,
                                                                       std::string path,
                                                                       options opts,
                                                                       time_point deadline) {
  check_directory(path);
  for (;;) {
    existing it = open_existing(path);
    detail::descriptor& file = it.file;
    if (file) {
      const auto header = read_header(file.get());
      const bool abandoned = header && header->is_abandoned();
      const bool foreign = (!header && it.facts.st_size > 0) || (header && header->job != opts.job);
      if (foreign || (abandoned && !opts.replace_abandoned)) {
        detail::raise(errc::stale_store, "file://%s %s", path.c_str(),
                      abandoned ? "belongs to a job whose rank 0 is gone"
                      : header  ? "belongs to another job"
                                : "exists and is not a store of colls");
      }
      if (header && !abandoned) {
        if (!is_of_this_user_alone(file.get())) {
          detail::raise(errc::join_failed,
                        "file://%s must belong to this user alone (mode 0600), for it carries "
                        "the job's secret",
                        path.c_str());
        }
        if (header->world != opts.world) {
          detail::raise(errc::join_failed, "file://%s is of a world of %d ranks, this one has %d",
                        path.c_str(), header->world, opts.world);
        }
        co_return std::shared_ptr<file_store>(
            new file_store(driver, path, std::move(file), *header));
      }
    }
    if (driver.now() >= deadline) {
      detail::raise(errc::join_timeout, "rank 0 did not make file://%s in time", path.c_str());
    }
    co_await driver.sleep_until(driver.now() + 10 * milliseconds);
  }
}

COLLS_ONCE void file_store::refresh() {
  std::string unread;
  std::vector<char> piece(std::size_t{64} << 10);
  for (;;) {
    const auto position = static_cast<off_t>(end_ + unread.size());
    const ssize_t got = detail::uninterrupted(
        [&] { return ::pread(file_.get(), piece.data(), piece.size(), position); });
    if (got < 0) {
      detail::raise(errc::join_failed, "file://%s cannot be read: %s", path_.c_str(),
                    std::strerror(errno));
    }
    if (got == 0) break;
    unread.append(piece.data(), static_cast<std::size_t>(got));
  }
  std::size_t offset = 0;
  while (unread.size() - offset >= 8) {
    const auto* const sizes = reinterpret_cast<const std::byte*>(unread.data() + offset);
    const auto key_size = detail::get_number<std::uint32_t>(sizes);
    const auto value_size = detail::get_number<std::uint32_t>(sizes + 4);
    if (key_size > max_key_size || value_size > max_value_size) {
      detail::raise(errc::stale_store, "file://%s is broken", path_.c_str());
    }
    if (unread.size() - offset - 8 < std::size_t{key_size} + value_size) break;
    values_[unread.substr(offset + 8, key_size)] = unread.substr(offset + 8 + key_size, value_size);
    offset += 8 + std::size_t{key_size} + value_size;
  }
  end_ += offset;
  has_partial_record_ = offset < unread.size();
}

COLLS_ONCE void file_store::append(const std::string& key, const std::string& value) {
  if (key.size() > max_key_size || value.size() > max_value_size) {
    detail::raise(errc::invalid_argument, "a key of %zu bytes with a value of %zu: too long",
                  key.size(), value.size());
  }
  const auto offset = static_cast<off_t>(end_);
  const bool cut = !has_partial_record_ ||
                   detail::uninterrupted([&] { return ::ftruncate(file_.get(), offset); }) == 0;
  std::array<std::byte, 8> sizes{};
  detail::put_number(&sizes[0], static_cast<std::uint32_t>(key.size()));
  detail::put_number(&sizes[4], static_cast<std::uint32_t>(value.size()));
  const std::string record =
      std::string(reinterpret_cast<const char*>(sizes.data()), sizes.size()) + key + value;
  const ssize_t wrote = !cut ? -1 : detail::uninterrupted([&] {
    return ::pwrite(file_.get(), record.data(), record.size(), offset);
  });
  if (wrote != static_cast<ssize_t>(record.size())) {
    detail::raise(errc::join_failed, "cannot write to file://%s: %s", path_.c_str(),
                  std::strerror(errno));
  }
  values_[key] = value;
  end_ += record.size();
}

COLLS_ONCE task<> file_store::lock(time_point deadline) {
  while (detail::try_lock(file_.get()) != 0) {
    if (errno != EWOULDBLOCK) {
      detail::raise(errc::join_failed, "cannot lock file://%s: %s", path_.c_str(),
                    std::strerror(errno));
    }
    if (engine_.now() >= deadline) {
      detail::raise(errc::timeout, "file://%s stays locked", path_.c_str());
    }
    co_await engine_.sleep_until(engine_.now() + milliseconds);
  }
}

COLLS_ONCE task<> file_store::do_set(std::string key, std::string value, time_point deadline) {
  co_await lock(deadline);
  const locked lock_guard(file_.get());
  refresh();
  append(key, value);
}

COLLS_ONCE task<std::string> file_store::do_get(std::string key, time_point deadline) {
  const std::vector<std::string> keys{key};
  co_await do_wait(keys, deadline);
  co_return values_[key];
}

COLLS_ONCE task<std::int64_t> file_store::do_add(std::string key, std::int64_t amount,
                                                 time_point deadline) {
  co_await lock(deadline);
  const locked lock_guard(file_.get());
  refresh();
  const auto old = values_.find(key);
  const std::int64_t before =
      old == values_.end() ? 0 : std::strtoll(old->second.c_str(), nullptr, 10);
  const std::int64_t sum = detail::wrapping_add(before, amount);
  append(key, std::to_string(sum));
  co_return sum;
}

COLLS_ONCE task<> file_store::do_wait(std::vector<std::string> keys, time_point deadline) {
  for (;;) {
    refresh();
    const std::string* missing = nullptr;
    for (const std::string& key : keys) {
      if (!values_.contains(key)) missing = &key;
    }
    if (missing == nullptr) co_return;
    if (engine_.now() >= deadline) {
      detail::raise(errc::timeout, "no process has set '%.100s' in file://%.150s", missing->c_str(),
                    path_.c_str());
    }
    co_await engine_.sleep_until(engine_.now() + 10 * milliseconds);
  }
}

COLLS_ONCE task<std::string> file_store::do_compare_set(std::string key, std::string expected,
                                                        std::string desired, time_point deadline) {
  co_await lock(deadline);
  const locked lock_guard(file_.get());
  refresh();
  const auto old = values_.find(key);
  const bool same = old == values_.end() ? expected.empty() : old->second == expected;
  if (same) append(key, desired);
  co_return same ? desired : old == values_.end() ? std::string() : old->second;
}

COLLS_ONCE task<std::string> file_store::do_check(std::vector<std::string> keys, time_point) {
  refresh();
  std::string present;
  for (const std::string& key : keys) present += values_.contains(key) ? '1' : '0';
  co_return present;
}

}  // namespace colls

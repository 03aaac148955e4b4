// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How the file is read and written: the second half of file_store.hpp.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/file_store.hpp>

#include <fcntl.h>
#include <sys/stat.h>

namespace colls::detail {

inline int open_file(const std::string& path, int how, mode_t mode = 0) {
  // What another user has put there, a FIFO for one, must not block this process.
  constexpr int always = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  return uninterrupted([&] { return ::open(path.c_str(), how | always, mode); });
}

inline int try_lock(int file) {
  return uninterrupted([=] { return ::flock(file, LOCK_EX | LOCK_NB); });
}

/// Whether `path` is the name of that open file.
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

COLLS_ONCE std::shared_ptr<file_store> file_store::create(engine& on, const std::string& path,
                                                          const options& how) {
  check_directory(path);
  auto head = detail::store_file_head::of_this_process();
  head.world = how.world;
  head.job = how.job;
  detail::fill_random(&head.nonce, sizeof head.nonce);
  std::snprintf(head.secret, sizeof head.secret, "%s", detail::draw_secret().c_str());
  // Written whole under another name first, so that no rank sees half a head. The name cannot be
  // foreseen, and a file that is there already is not this process's: another user may have it open.
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
  const auto write = [&] { return ::write(file.get(), &head, sizeof head); };
  if (!is_own || detail::uninterrupted(write) != sizeof head) {
    const std::string why = is_own ? std::strerror(errno) : "it is not this user's alone";
    (void)::unlink(fresh.c_str());  // it is reported as what could not be written
    detail::raise(errc::join_failed, "cannot write %s: %s", fresh.c_str(), why.c_str());
  }
  try {
    give_name(fresh, path, how);
  } catch (...) {
    (void)::unlink(fresh.c_str());  // what could not get its name is reported
    throw;
  }
  auto store = std::shared_ptr<file_store>(new file_store(on, path, std::move(file), head));
  store->maker_ = ::getpid();
  return store;
}

COLLS_ONCE task<std::shared_ptr<file_store>> file_store::open(engine& on, const std::string& path,
                                                              const options& how,
                                                              time_point deadline) {
  return wait_for_file(on, path, how, deadline);
}

COLLS_ONCE file_store::~file_store() {
  if (maker_ != ::getpid()) return;
  // The file of another job may have this name by now, if this one was taken away.
  if (detail::is_at(path_, file_.get())) (void)::unlink(path_.c_str());
  // A directory that is not empty stays.
  if (directory_too_) (void)::rmdir(path_.substr(0, path_.rfind('/')).c_str());
}

COLLS_ONCE void file_store::check_directory(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  struct stat found{};
  if (::stat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    detail::raise(errc::join_failed, "the directory of file://%s does not exist", path.c_str());
  }
  if (::access(directory.c_str(), W_OK | X_OK) != 0) {
    detail::raise(errc::join_failed, "the directory of file://%s: %s", path.c_str(),
                  std::strerror(errno));
  }
}

COLLS_ONCE bool file_store::is_of_this_user_alone(int file) {
  struct stat found{};
  return ::fstat(file, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == ::geteuid() &&
         (found.st_mode & 077) == 0;
}

COLLS_ONCE std::optional<detail::store_file_head> file_store::head_of(int file) {
  detail::store_file_head head;
  const ssize_t got = detail::uninterrupted([&] { return ::pread(file, &head, sizeof head, 0); });
  if (got != sizeof head || !head.is_sound()) return std::nullopt;
  return head;
}

COLLS_ONCE file_store::existing file_store::look_at(const std::string& path) {
  existing it{detail::descriptor(detail::open_file(path, O_RDWR))};
  const int failed = it.file ? 0 : errno;
  if (failed == ENOENT) return it;
  if ((it.file ? ::fstat(it.file.get(), &it.facts) : ::lstat(path.c_str(), &it.facts)) != 0) {
    if (errno == ENOENT) return it;  // it has gone meanwhile
    detail::raise(errc::join_failed, "cannot look at file://%s: %s", path.c_str(),
                  std::strerror(errno));
  }
  if (!S_ISREG(it.facts.st_mode) || it.facts.st_uid != ::geteuid()) {
    detail::raise(errc::join_failed,
                  "file://%s is a %s of user %lld: it has to be a regular file of this process's "
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
                                      const options& how) {
  while (::link(fresh.c_str(), path.c_str()) != 0) {
    if (errno != EEXIST) {
      detail::raise(errc::join_failed, "cannot make file://%s: %s", path.c_str(),
                    std::strerror(errno));
    }
    const existing old = look_at(path);
    if (!old.file) continue;  // it has gone meanwhile
    if (!may_replace(old, how)) explain_existing(old, path);
    // Only the process that has the old file's lock replaces it, and only while it has that name.
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
  (void)::unlink(fresh.c_str());  // a second name, which harms nothing where it stays
}

COLLS_ONCE bool file_store::may_replace(const existing& old, const options& how) {
  if (old.facts.st_size == 0) return true;  // a name that mktemp reserved
  const auto head = head_of(old.file.get());
  if (!how.replace_abandoned || !head) return false;
  // A file of our own in a local directory: one from before a reboot is abandoned too.
  return head->is_abandoned() || detail::boot_id() != head->boot;
}

COLLS_ONCE void file_store::explain_existing(const existing& old, const std::string& path) {
  const auto head = head_of(old.file.get());
  if (head && detail::boot_id() == head->boot && !head->is_abandoned()) {
    detail::raise(errc::rank_taken, "process %lld of this host is rank 0 of %s",
                  static_cast<long long>(head->pid), path.c_str());
  }
  detail::raise(errc::stale_store,
                head ? "file://%s was left behind by an earlier job"
                     : "file://%s exists and is no store of colls",
                path.c_str());
}

COLLS_ONCE task<std::shared_ptr<file_store>> file_store::wait_for_file(engine& on, std::string path,
                                                                       options how,
                                                                       time_point deadline) {
  check_directory(path);
  for (;;) {
    existing it = look_at(path);
    detail::descriptor& file = it.file;
    if (file) {
      const auto head = head_of(file.get());
      const bool abandoned = head && head->is_abandoned();
      const bool foreign = (!head && it.facts.st_size > 0) || (head && head->job != how.job);
      if (foreign || (abandoned && !how.replace_abandoned)) {
        detail::raise(errc::stale_store, "file://%s %s", path.c_str(),
                      abandoned ? "belongs to a job whose rank 0 is gone"
                      : head    ? "belongs to another job"
                                : "exists and is no store of colls");
      }
      if (head && !abandoned) {
        if (!is_of_this_user_alone(file.get())) {
          detail::raise(errc::join_failed,
                        "file://%s must belong to this user alone (mode 0600), for it carries "
                        "the job's secret",
                        path.c_str());
        }
        if (head->world != how.world) {
          detail::raise(errc::join_failed, "file://%s is of a world of %d ranks, this one has %d",
                        path.c_str(), head->world, how.world);
        }
        co_return std::shared_ptr<file_store>(new file_store(on, path, std::move(file), *head));
      }
    }
    if (on.now() >= deadline) {
      detail::raise(errc::join_timeout, "rank 0 did not make file://%s in time", path.c_str());
    }
    co_await on.sleep_until(on.now() + 10 * milliseconds);
  }
}

COLLS_ONCE void file_store::refresh() {
  std::string news;
  std::vector<char> piece(std::size_t{64} << 10);
  for (;;) {
    const auto from = static_cast<off_t>(end_ + news.size());
    const ssize_t got = detail::uninterrupted(
        [&] { return ::pread(file_.get(), piece.data(), piece.size(), from); });
    if (got < 0) {
      detail::raise(errc::join_failed, "file://%s cannot be read: %s", path_.c_str(),
                    std::strerror(errno));
    }
    if (got == 0) break;
    news.append(piece.data(), static_cast<std::size_t>(got));
  }
  std::size_t at = 0;
  while (news.size() - at >= 8) {
    const auto* const sizes = reinterpret_cast<const std::byte*>(news.data() + at);
    const auto key_size = detail::get_number<std::uint32_t>(sizes);
    const auto value_size = detail::get_number<std::uint32_t>(sizes + 4);
    if (key_size > longest_key || value_size > longest_value) {
      detail::raise(errc::stale_store, "file://%s is broken", path_.c_str());
    }
    if (news.size() - at - 8 < std::size_t{key_size} + value_size) break;
    values_[news.substr(at + 8, key_size)] = news.substr(at + 8 + key_size, value_size);
    at += 8 + std::size_t{key_size} + value_size;
  }
  end_ += at;
  half_done_ = at < news.size();
}

COLLS_ONCE void file_store::append(const std::string& key, const std::string& value) {
  if (key.size() > longest_key || value.size() > longest_value) {
    detail::raise(errc::invalid_argument, "a key of %zu bytes with a value of %zu: too long",
                  key.size(), value.size());
  }
  const auto at = static_cast<off_t>(end_);
  const bool cut =
      !half_done_ || detail::uninterrupted([&] { return ::ftruncate(file_.get(), at); }) == 0;
  std::array<std::byte, 8> sizes{};
  detail::put_number(&sizes[0], static_cast<std::uint32_t>(key.size()));
  detail::put_number(&sizes[4], static_cast<std::uint32_t>(value.size()));
  const std::string record =
      std::string(reinterpret_cast<const char*>(sizes.data()), sizes.size()) + key + value;
  const ssize_t wrote = !cut ? -1 : detail::uninterrupted([&] {
    return ::pwrite(file_.get(), record.data(), record.size(), at);
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
  const locked until_the_end(file_.get());
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
  const locked until_the_end(file_.get());
  refresh();
  const auto old = values_.find(key);
  const std::int64_t before =
      old == values_.end() ? 0 : std::strtoll(old->second.c_str(), nullptr, 10);
  const std::int64_t sum = detail::sum_of(before, amount);
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
      detail::raise(errc::timeout, "nobody has set '%.100s' in file://%.150s", missing->c_str(),
                    path_.c_str());
    }
    co_await engine_.sleep_until(engine_.now() + 10 * milliseconds);
  }
}

COLLS_ONCE task<std::string> file_store::do_compare_set(std::string key, std::string expected,
                                                        std::string desired, time_point deadline) {
  co_await lock(deadline);
  const locked until_the_end(file_.get());
  refresh();
  const auto old = values_.find(key);
  const bool same = old == values_.end() ? expected.empty() : old->second == expected;
  if (same) append(key, desired);
  co_return same ? desired : old == values_.end() ? std::string() : old->second;
}

COLLS_ONCE task<std::string> file_store::do_check(std::vector<std::string> keys, time_point) {
  refresh();
  std::string there;
  for (const std::string& key : keys) there += values_.contains(key) ? '1' : '0';
  co_return there;
}

}  // namespace colls

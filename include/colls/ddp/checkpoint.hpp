// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Files that rank 0 writes as a whole or not at all, and that all ranks read.

#include <colls/call/communicator.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace colls::ddp {

/// A file that takes its name only when it is complete and on disk: whenever this process is
/// killed, and whatever fails, `path` holds all of what was there before or all of what is new.
/// Until then it is `path` + ".partial", which a killed process leaves behind and the next one
/// removes. Its functions throw `errc::file_failed`, which names the file.
class atomic_file {
 public:
  explicit atomic_file(std::string path);
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  /// Without a commit nothing was written.
  ~atomic_file() {
    if (descriptor_ < 0) return;
    (void)::unlink(partial_.c_str());  // what stays is written anew by the next process
    ::close(descriptor_);
  }

  void write(const void* data, std::size_t size);
  void commit();

 private:
  // What has the name already may be a link or a pipe.
  static constexpr int leftover = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

  [[noreturn]] void fail(const char* what) const {
    failure why(errc::file_failed);
    throw error(why.say("cannot %s %s: %s", what, path_.c_str(), std::strerror(errno)));
  }
  void sync_folder() const;

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

inline atomic_file::atomic_file(std::string path)
    : path_(std::move(path)), partial_(path_ + ".partial") {
  const auto close_and_fail = [this](const char* what) {
    const int kept = errno;
    ::close(std::exchange(descriptor_, -1));
    errno = kept;
    fail(what);
  };
  for (;;) {
    constexpr int fresh = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    descriptor_ =
        colls::detail::uninterrupted([&] { return ::open(partial_.c_str(), fresh, 0666); });
    const bool is_new = descriptor_ >= 0;
    if (!is_new && errno != EEXIST) fail("write");
    if (!is_new) {
      descriptor_ =
          colls::detail::uninterrupted([&] { return ::open(partial_.c_str(), leftover); });
    }
    if (descriptor_ < 0 && errno == ENOENT) continue;
    if (descriptor_ < 0) fail("write");
    const auto lock = [&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); };
    if (colls::detail::uninterrupted(lock) != 0) {
      close_and_fail(errno == EWOULDBLOCK ? "write (another process does)" : "lock");
    }
    // The previous holder of the lock may have given the file its name, or removed it.
    struct stat mine{}, named{};
    if (::fstat(descriptor_, &mine) != 0) close_and_fail("write");
    const bool has_name = ::lstat(partial_.c_str(), &named) == 0 && mine.st_ino == named.st_ino &&
                          mine.st_dev == named.st_dev;
    if (is_new && has_name) return;
    // A killed process has left it, or another user has made it and may have it open: not one byte
    // is written into it.
    if (has_name && ::unlink(partial_.c_str()) != 0) close_and_fail("replace what was left of");
    ::close(std::exchange(descriptor_, -1));
  }
}

inline void atomic_file::write(const void* data, std::size_t size) {
  const char* from = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t wrote =
        colls::detail::uninterrupted([&] { return ::write(descriptor_, from, size); });
    if (wrote < 0) fail("write");
    from += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
}

inline void atomic_file::commit() {
  if (colls::detail::uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail("write");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("rename the finished file to");
  ::close(std::exchange(descriptor_, -1));
  sync_folder();
}

/// The new name is on disk too.
inline void atomic_file::sync_folder() const {
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == path_.npos ? "." : path_.substr(0, slash + 1);
  const int opened = colls::detail::uninterrupted(
      [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  // A folder that may not be read, or a file system that cannot do this, is no failure.
  if (opened < 0) return;
  const bool good = colls::detail::uninterrupted([&] { return ::fsync(opened); }) == 0 ||
                    errno == EINVAL || errno == ENOTSUP;
  const int kept = errno;
  ::close(opened);
  errno = kept;
  if (!good) fail("make the name durable of");
}

/// All that the file has in it. Throws `errc::file_failed`, which names the file.
inline std::vector<char> read_whole_file(const std::string& path) {
  const auto fail = [&] {
    failure why(errc::file_failed);
    throw error(why.say("cannot read %s: %s", path.c_str(), std::strerror(errno)));
  };
  const int opened =
      colls::detail::uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (opened < 0) fail();
  std::vector<char> bytes;
  std::size_t size = 0;
  ssize_t got = 0;
  do {
    size += static_cast<std::size_t>(got);
    if (bytes.size() - size < 64 * 1024) bytes.resize(2 * size + 1024 * 1024);
    got = colls::detail::uninterrupted(
        [&] { return ::read(opened, bytes.data() + size, bytes.size() - size); });
  } while (got > 0);
  const int kept = errno;
  ::close(opened);
  errno = kept;
  if (got < 0) fail();
  bytes.resize(size);
  return bytes;
}

namespace detail {

/// How it went on rank 0.
struct file_outcome {
  bool failed = false;
  std::uint64_t size = 0;
  failure why;

  void raise() const {
    if (failed) throw error(why);
  }
};

/// Does rank 0's work and keeps its error for the others.
template <class Work>
file_outcome attempt(int world_rank, const std::string& path, Work work) {
  file_outcome met;
  try {
    met.size = work();
    return met;
  } catch (const error& thrown) {
    met.why = thrown.record();
  } catch (const std::exception& thrown) {
    met.why = failure(errc::file_failed);
    met.why.say("%s: %s", path.c_str(), thrown.what());
  }
  met.failed = true;
  met.why.observer = world_rank;
  return met;
}

}  // namespace detail

/// Rank 0 calls `write(atomic_file&)`. Afterwards the new file is on disk, and every rank knows; or
/// the old one is as it was, and every rank throws rank 0's error. Either way the communicator
/// stays good. Every rank calls it with the same path, which stays alive until it has ended.
template <class Transport, class Write>
task<> write_file(communicator<Transport>& comm, std::string_view path, Write write) {
  static_assert(std::is_trivially_destructible_v<Write>,
                "colls: `write` may be a temporary of a co_await: let it capture by reference");
  detail::file_outcome met[1];
  if (comm.rank() == 0) {
    const std::string name(path);
    met[0] = detail::attempt(comm.world_rank(0), name, [&] {
      atomic_file file(name);
      write(file);
      file.commit();
      return 0u;
    });
  }
  co_await comm.broadcast(met, 0);
  met[0].raise();
}

/// Every rank gets what the file holds on rank 0, which alone has to have it; or throws rank 0's
/// error, and the communicator stays good. `path` stays alive until it has ended.
template <class Transport>
task<std::vector<char>> read_file(communicator<Transport>& comm, std::string_view path) {
  detail::file_outcome met[1];
  std::vector<char> bytes;
  if (comm.rank() == 0) {
    const std::string name(path);
    met[0] = detail::attempt(comm.world_rank(0), name, [&] {
      bytes = read_whole_file(name);
      return bytes.size();
    });
  }
  co_await comm.broadcast(met, 0);
  met[0].raise();
  bytes.resize(met[0].size);
  co_await comm.broadcast(bytes, 0);
  co_return bytes;
}

}  // namespace colls::ddp

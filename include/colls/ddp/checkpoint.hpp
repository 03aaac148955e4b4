// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// checkpoint: functions for the checkpoints of training programs. `write_file` writes a file
// atomically on rank 0. `read_file` reads a file on rank 0 and sends its contents to all ranks.

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

/// A file that is replaced atomically. `write` appends to a partial file, `path` + ".partial".
/// `commit` writes the partial file to disk and renames it to `path`. If the process is killed or
/// an operation fails before the file is renamed, `path` keeps its old contents. A killed process
/// leaves the partial file behind. The next process that writes `path` removes it. On failure, the
/// member functions throw `errc::file_failed` with the name of the file.
class atomic_file {
 public:
  explicit atomic_file(std::string path);
  atomic_file(const atomic_file&) = delete;
  atomic_file& operator=(const atomic_file&) = delete;
  /// Removes the partial file unless `commit` has renamed it.
  ~atomic_file() {
    if (descriptor_ < 0) return;
    (void)::unlink(partial_.c_str());  // if this fails, the next process removes the file
    ::close(descriptor_);
  }

  void write(const void* data, std::size_t size);
  void commit();

 private:
  // The flags for opening a partial file that already exists. Another user may have created a link
  // or a pipe with the name of the file. Therefore `open` must not follow links and must not block.
  static constexpr int leftover_flags = O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

  [[noreturn]] void fail(const char* action) const {
    failure reason(errc::file_failed);
    throw error(reason.set_detail("cannot %s %s: %s", action, path_.c_str(), std::strerror(errno)));
  }
  void sync_folder() const;

  std::string path_;
  std::string partial_;
  int descriptor_ = -1;
};

inline atomic_file::atomic_file(std::string path)
    : path_(std::move(path)), partial_(path_ + ".partial") {
  const auto close_and_fail = [this](const char* action) {
    const int saved_errno = errno;
    ::close(std::exchange(descriptor_, -1));
    errno = saved_errno;
    fail(action);
  };
  for (;;) {
    constexpr int new_file_flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
    descriptor_ = colls::detail::uninterrupted(
        [&] { return ::open(partial_.c_str(), new_file_flags, 0666); });
    const bool is_new = descriptor_ >= 0;
    if (!is_new && errno != EEXIST) fail("write");
    if (!is_new) {
      descriptor_ =
          colls::detail::uninterrupted([&] { return ::open(partial_.c_str(), leftover_flags); });
    }
    if (descriptor_ < 0 && errno == ENOENT) continue;
    if (descriptor_ < 0) fail("write");
    const auto lock = [&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); };
    if (colls::detail::uninterrupted(lock) != 0) {
      close_and_fail(errno == EWOULDBLOCK ? "write (another process does)" : "lock");
    }
    // Another process may have held the lock before, and may have renamed or removed the file that
    // this process has opened. In this case this process must open the partial file again.
    struct stat own{}, named{};
    if (::fstat(descriptor_, &own) != 0) close_and_fail("write");
    const bool has_name = ::lstat(partial_.c_str(), &named) == 0 && own.st_ino == named.st_ino &&
                          own.st_dev == named.st_dev;
    if (is_new && has_name) return;
    // The partial file existed before. Either a killed process has left it behind, or another user
    // has created it and may still have it open. Overwriting it would be unsafe, so this process
    // removes it and creates a new one.
    if (has_name && ::unlink(partial_.c_str()) != 0) close_and_fail("replace what was left of");
    ::close(std::exchange(descriptor_, -1));
  }
}

inline void atomic_file::write(const void* data, std::size_t size) {
  const char* position = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written =
        colls::detail::uninterrupted([&] { return ::write(descriptor_, position, size); });
    if (written < 0) fail("write");
    position += written;
    size -= static_cast<std::size_t>(written);
  }
}

inline void atomic_file::commit() {
  if (colls::detail::uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail("write");
  if (::rename(partial_.c_str(), path_.c_str()) != 0) fail("rename the finished file to");
  ::close(std::exchange(descriptor_, -1));
  sync_folder();
}

/// Calls `fsync` on the folder that contains the file, so that the new name is on disk too.
inline void atomic_file::sync_folder() const {
  const std::size_t slash = path_.rfind('/');
  const std::string folder = slash == path_.npos ? "." : path_.substr(0, slash + 1);
  const int fd = colls::detail::uninterrupted(
      [&] { return ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
  // It is not an error if the folder cannot be opened or if the file system cannot sync a folder.
  if (fd < 0) return;
  const bool is_synced = colls::detail::uninterrupted([&] { return ::fsync(fd); }) == 0 ||
                         errno == EINVAL || errno == ENOTSUP;
  const int saved_errno = errno;
  ::close(fd);
  errno = saved_errno;
  if (!is_synced) fail("make the name durable of");
}

/// Returns the contents of a file. If the file cannot be read, throws `errc::file_failed` with the
/// name of the file.
inline std::vector<char> read_whole_file(const std::string& path) {
  const auto fail = [&] {
    failure reason(errc::file_failed);
    throw error(reason.set_detail("cannot read %s: %s", path.c_str(), std::strerror(errno)));
  };
  const int fd =
      colls::detail::uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) fail();
  std::vector<char> bytes;
  std::size_t size = 0;
  ssize_t received = 0;
  do {
    size += static_cast<std::size_t>(received);
    if (bytes.size() - size < 64 * 1024) bytes.resize(2 * size + 1024 * 1024);
    received = colls::detail::uninterrupted(
        [&] { return ::read(fd, bytes.data() + size, bytes.size() - size); });
  } while (received > 0);
  const int saved_errno = errno;
  ::close(fd);
  errno = saved_errno;
  if (received < 0) fail();
  bytes.resize(size);
  return bytes;
}

namespace detail {

/// The outcome of rank 0's work on a file, which rank 0 broadcasts to all ranks.
struct file_outcome {
  bool failed = false;
  std::uint64_t size = 0;
  failure reason;

  void raise() const {
    if (failed) throw error(reason);
  }
};

/// Calls `work()` and returns its outcome, which contains the size that `work` has returned or the
/// error that `work` has thrown. Only rank 0 calls this function.
template <class Work>
file_outcome attempt(int world_rank, const std::string& path, Work work) {
  file_outcome outcome;
  try {
    outcome.size = work();
    return outcome;
  } catch (const error& thrown) {
    outcome.reason = thrown.record();
  } catch (const std::exception& thrown) {
    outcome.reason = failure(errc::file_failed);
    outcome.reason.set_detail("%s: %s", path.c_str(), thrown.what());
  }
  outcome.failed = true;
  outcome.reason.observer = world_rank;
  return outcome;
}

}  // namespace detail

/// Writes the file `path` on rank 0. Every rank must call this function with the same path. Rank 0
/// calls `write(file)`, where `file` is an `atomic_file&`. When the task has completed, the new
/// file is on disk. If rank 0 fails, every rank throws the error of rank 0, and the communicator
/// stays usable. If rank 0 fails before the new file is complete, the old file is unchanged. The
/// string that `path` refers to must exist until the task has completed.
template <class Transport, class Write>
task<> write_file(communicator<Transport>& comm, std::string_view path, Write write) {
  static_assert(std::is_trivially_destructible_v<Write>,
                "colls: `write` may be a temporary of a co_await: let it capture by reference");
  detail::file_outcome outcome[1];
  if (comm.rank() == 0) {
    const std::string name(path);
    outcome[0] = detail::attempt(comm.world_rank(0), name, [&] {
      atomic_file file(name);
      write(file);
      file.commit();
      return 0u;
    });
  }
  co_await comm.broadcast(outcome, 0);
  outcome[0].raise();
}

/// Reads a file on rank 0 and returns its contents on every rank. Only rank 0 needs access to the
/// file. If rank 0 cannot read the file, every rank throws the error of rank 0, and the
/// communicator stays usable. The string that `path` refers to must exist until the task has
/// completed.
template <class Transport>
task<std::vector<char>> read_file(communicator<Transport>& comm, std::string_view path) {
  detail::file_outcome outcome[1];
  std::vector<char> bytes;
  if (comm.rank() == 0) {
    const std::string name(path);
    outcome[0] = detail::attempt(comm.world_rank(0), name, [&] {
      bytes = read_whole_file(name);
      return bytes.size();
    });
  }
  co_await comm.broadcast(outcome, 0);
  outcome[0].raise();
  bytes.resize(outcome[0].size);
  co_await comm.broadcast(bytes, 0);
  co_return bytes;
}

}  // namespace colls::ddp

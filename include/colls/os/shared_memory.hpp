// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_memory: anonymous shared-memory segments (memfd) that processes of one machine share. A
// segment has no name, so a process that crashes leaves nothing behind in the file system.

#include <colls/base/error.hpp>
#include <colls/os/descriptor.hpp>
#include <colls/os/system_call.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

namespace colls::shm {

/// The largest page size of any supported kernel; some arm64 kernels use this size. The offset of
/// every mapping within its segment is a multiple of this size.
inline constexpr std::size_t max_page_size = 64 * 1024;
constexpr std::size_t round_up_to_pages(std::size_t size) {
  return (size + max_page_size - 1) / max_page_size * max_page_size;
}

/// A memfd of fixed size. The size is sealed, so that a peer cannot shrink the memfd while this
/// process has mapped it.
class segment {
 public:
  segment() = default;

  /// Creates a segment of `size` zero bytes and allocates all of its pages. Returns an error if
  /// there is not enough memory, so that no later access to the segment can fail for this reason.
  std::error_code make(std::size_t size) {
    if (const std::error_code ec = make_unbacked(size)) return ec;
    const std::error_code ec = fill(0, size);
    if (ec) fd_ = {};
    return ec;
  }

  /// Creates a segment of `size` bytes without allocating its pages.
  std::error_code make_unbacked(std::size_t size) {
    // If `size` exceeded the limit RLIMIT_FSIZE, ftruncate would raise the signal SIGXFSZ.
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
      return std::make_error_code(std::errc::file_too_large);
    }
    fd_ = detail::descriptor(::memfd_create("colls", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0 ||
        ::fcntl(fd_.get(), F_ADD_SEALS, size_seals) != 0) {
      return close_after_error();
    }
    size_ = size;
    return {};
  }

  /// Allocates the pages that hold the `size` bytes at `offset`.
  std::error_code fill(std::size_t offset, std::size_t size) const {
    while (::fallocate(fd_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return detail::last_error();
    }
    return {};
  }

  /// Copies `max_page_size` bytes from `data` to `offset` in the segment. Returns false if the
  /// system cannot write all of these bytes, for example because there is no free memory.
  bool write(std::size_t offset, const std::byte* data) const {
    for (std::size_t done = 0; done < max_page_size;) {
      const ssize_t count =
          ::pwrite(fd_.get(), data + done, max_page_size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      done += static_cast<std::size_t>(count);
    }
    return true;
  }

  /// Gives the pages that hold the `size` bytes at `offset` back to the system. These bytes then
  /// read as zero.
  std::error_code release(std::size_t offset, std::size_t size) const {
    while (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return detail::last_error();
    }
    return {};
  }

  /// Makes this object the owner of `fd`, a segment that another process created. Returns
  /// `protocol_error` if the segment is empty or its size is not sealed.
  std::error_code adopt(detail::descriptor fd) {
    fd_ = std::move(fd);
    struct stat info{};
    const int seals = ::fcntl(fd_.get(), F_GET_SEALS);
    if (::fstat(fd_.get(), &info) != 0 || seals < 0) return close_after_error();
    if (info.st_size <= 0 || (seals & size_seals) != size_seals) {
      fd_ = {};
      return make_error_code(errc::protocol_error);
    }
    size_ = static_cast<std::size_t>(info.st_size);
    return {};
  }

  int descriptor() const { return fd_.get(); }
  std::size_t size() const { return size_; }

 private:
  static constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW;

  std::error_code close_after_error() {
    const std::error_code ec = detail::last_error();
    fd_ = {};
    return ec;
  }

  detail::descriptor fd_;
  std::size_t size_ = 0;
};

/// Pages of a segment that are mapped into this process. The destructor unmaps them.
class mapping {
 public:
  mapping() = default;
  mapping(mapping&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  mapping& operator=(mapping&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~mapping() {
    if (base_ != nullptr) ::munmap(base_, size_);
  }

  /// Maps the `size` bytes that begin at `offset` in the segment `source`. `times` is the number of
  /// mappings of these bytes, which have adjacent addresses. For example, a ring buffer is mapped
  /// twice, so that data that wraps around the end of the buffer has contiguous addresses.
  std::error_code map(const segment& source, std::size_t offset, std::size_t size, int times = 1) {
    const std::size_t total = size * static_cast<std::size_t>(times);
    void* const reserved =
        ::mmap(nullptr, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return detail::last_error();
    base_ = static_cast<std::byte*>(reserved);
    size_ = total;
    for (std::byte* copy = base_; copy != base_ + total; copy += size) {
      if (::mmap(copy, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                 source.descriptor(), static_cast<off_t>(offset)) == MAP_FAILED) {
        return detail::last_error();
      }
    }
    return {};
  }

  /// Maps the first `size` bytes of `source` without touching their pages. Excludes these pages
  /// from core dumps, because a core dump would touch them all.
  std::error_code map_lazily(const segment& source, std::size_t size) {
    void* const address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                                 source.descriptor(), 0);
    if (address == MAP_FAILED) return detail::last_error();
    (void)::madvise(address, size, MADV_DONTDUMP);  // a failure only makes core dumps slower
    base_ = static_cast<std::byte*>(address);
    size_ = size;
    return {};
  }

  /// Moves the mapped bytes from the offset `source` to the offset `dest` of the segment `owner`.
  /// The addresses of the bytes in this process stay the same. Moves one page at a time, so that
  /// the system needs memory for only one additional page. If the system does not have this memory,
  /// saves the contents of the old page on the stack and releases the old page before it writes the
  /// new page. Returns false if nothing was moved.
  bool move(const segment& owner, std::size_t source, std::size_t dest) {
    // A write at an offset beyond the limit RLIMIT_FSIZE would raise the signal SIGXFSZ.
    rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < dest + size_) return false;
    for (std::size_t done = 0; done < size_; done += max_page_size) {
      std::byte* const piece = base_ + done;
      bool may_stop = done == 0;
      if (!owner.write(dest + done, piece)) {
        std::byte copy[max_page_size];
        std::memcpy(copy, piece, sizeof copy);
        if (owner.release(source + done, sizeof copy) && may_stop) return false;
        may_stop = false;
        while (!owner.write(dest + done, copy)) ::usleep(1000);
      }
      while (::mmap(piece, max_page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    owner.descriptor(), static_cast<off_t>(dest + done)) == MAP_FAILED) {
        if (may_stop) return false;
        ::usleep(1000);
      }
      // An error is ignored, because it has only one effect: the old page stays allocated.
      (void)owner.release(source + done, max_page_size);
    }
    return true;
  }

  std::byte* data() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace colls::shm

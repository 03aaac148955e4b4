// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// segment: memory that two processes of one host share. It has no name, so nothing stays behind.

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

/// No kernel has longer pages (arm64 may have these): what is mapped by itself begins at a multiple
/// of it.
inline constexpr std::size_t longest_page = 64 * 1024;
constexpr std::size_t whole_pages(std::size_t size) {
  return (size + longest_page - 1) / longest_page * longest_page;
}

/// A memfd of a fixed size: whoever maps it cannot be cut off from its pages by the other side.
class segment {
 public:
  segment() = default;

  /// `size` bytes of zeros, all of them there: what the system cannot give is missing now, not at
  /// the first touch.
  std::error_code make(std::size_t size) {
    if (const std::error_code ec = make_empty(size)) return ec;
    const std::error_code ec = fill(0, size);
    if (ec) fd_ = {};
    return ec;
  }

  /// `size` bytes of which none is there yet.
  std::error_code make_empty(std::size_t size) {
    // A file that outgrows this limit ends the process.
    rlimit longest{};
    if (::getrlimit(RLIMIT_FSIZE, &longest) == 0 && longest.rlim_cur < size) {
      return std::make_error_code(std::errc::file_too_large);
    }
    fd_ = detail::descriptor(::memfd_create("colls", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!fd_ || ::ftruncate(fd_.get(), static_cast<off_t>(size)) != 0 ||
        ::fcntl(fd_.get(), F_ADD_SEALS, fixed) != 0) {
      return failed();
    }
    size_ = size;
    return {};
  }

  /// Pages for that part of it, if the system has them. Any signal may interrupt the search.
  std::error_code fill(std::size_t at, std::size_t size) const {
    while (::fallocate(fd_.get(), 0, static_cast<off_t>(at), static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return detail::last_error();
    }
    return {};
  }

  /// Writes `longest_page` bytes there. False: there is no memory for them.
  bool write(std::size_t at, const std::byte* data) const {
    for (std::size_t done = 0; done < longest_page;) {
      const ssize_t now =
          ::pwrite(fd_.get(), data + done, longest_page - done, static_cast<off_t>(at + done));
      if (now < 0 && errno == EINTR) continue;
      if (now <= 0) return false;
      done += static_cast<std::size_t>(now);
    }
    return true;
  }

  /// Gives the system the pages of that part back; it reads as zeros then.
  std::error_code release(std::size_t at, std::size_t size) const {
    while (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                       static_cast<off_t>(at), static_cast<off_t>(size)) != 0) {
      if (errno != EINTR) return detail::last_error();
    }
    return {};
  }

  /// Another process's, if its pages stay.
  std::error_code adopt(detail::descriptor from) {
    fd_ = std::move(from);
    struct stat found{};
    const int seals = ::fcntl(fd_.get(), F_GET_SEALS);
    if (::fstat(fd_.get(), &found) != 0 || seals < 0) return failed();
    if (found.st_size <= 0 || (seals & fixed) != fixed) {
      fd_ = {};
      return make_error_code(errc::protocol_error);
    }
    size_ = static_cast<std::size_t>(found.st_size);
    return {};
  }

  int descriptor() const { return fd_.get(); }
  std::size_t size() const { return size_; }

 private:
  static constexpr int fixed = F_SEAL_SHRINK | F_SEAL_GROW;

  std::error_code failed() {
    const std::error_code ec = detail::last_error();
    fd_ = {};
    return ec;
  }

  detail::descriptor fd_;
  std::size_t size_ = 0;
};

/// Some pages of a segment in this process's memory. A ring is mapped twice in a row, so that
/// whatever lies across its end is one piece.
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

  std::error_code map(const segment& from, std::size_t offset, std::size_t size, int times = 1) {
    const std::size_t whole = size * static_cast<std::size_t>(times);
    void* const place =
        ::mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) return detail::last_error();
    base_ = static_cast<std::byte*>(place);
    size_ = whole;
    for (std::byte* at = base_; at != base_ + whole; at += size) {
      if (::mmap(at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                 from.descriptor(), static_cast<off_t>(offset)) == MAP_FAILED) {
        return detail::last_error();
      }
    }
    return {};
  }

  /// `size` bytes from the beginning, of which pages come as they are touched. No core dump touches
  /// them all.
  std::error_code map_later(const segment& from, std::size_t size) {
    void* const place = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                               from.descriptor(), 0);
    if (place == MAP_FAILED) return detail::last_error();
    (void)::madvise(place, size, MADV_DONTDUMP);  // else a core dump takes longer
    base_ = static_cast<std::byte*>(place);
    size_ = size;
    return {};
  }

  /// Moves its contents from one offset of its segment to another, at the same addresses, a piece at
  /// a time: it needs memory for one piece, or none but what the old pages give back. False: nothing
  /// has moved.
  bool move(const segment& within, std::size_t from, std::size_t to) {
    // A write beyond this limit would end the process.
    rlimit longest{};
    if (::getrlimit(RLIMIT_FSIZE, &longest) != 0 || longest.rlim_cur < to + size_) return false;
    for (std::size_t done = 0; done < size_; done += longest_page) {
      std::byte* const piece = base_ + done;
      bool may_stop = done == 0;
      if (!within.write(to + done, piece)) {
        std::byte copy[longest_page];
        std::memcpy(copy, piece, sizeof copy);
        if (within.release(from + done, sizeof copy) && may_stop) return false;
        may_stop = false;
        while (!within.write(to + done, copy)) ::usleep(1000);
      }
      while (::mmap(piece, longest_page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                    within.descriptor(), static_cast<off_t>(to + done)) == MAP_FAILED) {
        if (may_stop) return false;
        ::usleep(1000);
      }
      // Pages that stay there are missed by later pieces at most.
      (void)within.release(from + done, longest_page);
    }
    return true;
  }

  std::byte* data() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace colls::shm

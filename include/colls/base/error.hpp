// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// error: the error codes, the failure record that explains an error, and the exception that
// operations throw.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/compiler.hpp>

#include <cstdarg>
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>
#include <type_traits>

namespace colls {

/// The error codes of colls. Their values never change. A std::error_code that is made from one of
/// these codes can be compared with std::errc, as in `code == std::errc::timed_out`.
enum class errc {
  peer_failed = 1,
  revoked,
  mismatch,
  protocol_error,
  timeout,
  cancelled,
  closed,
  invalid_argument,
  not_applicable,
  truncated,
  not_enough_memory,
  user_op_failed,
  unreachable,
  join_failed,
  join_timeout,
  auth_failed,
  insecure_bind,
  version_mismatch,
  rank_taken,
  world_complete,
  address_in_use,
  resolve_failed,
  stale_store,
  too_many_files,
  file_failed,
  no_device,
  device_failed,
  crypto_failed,
  no_quorum,
  excluded,
  no_replacement,
  stale_generation,
};

namespace detail {

/// The error code with the greatest value.
inline constexpr errc last_errc = errc::stale_generation;

struct errc_text {
  const char* name;
  const char* hint;
};

constexpr errc_text text_of(errc code) {
  switch (code) {
    case errc::peer_failed:
      return {"peer_failed", "that rank died or was cut off: see its own output"};
    case errc::revoked:
      return {"revoked", "a rank revoked this communicator: see its reason"};
    case errc::mismatch:
      return {"mismatch",
              "every rank must make the same calls in the same order on a communicator, with the "
              "same count, type, op, root and algorithm"};
    case errc::protocol_error:
      return {"protocol_error",
              "invalid bytes arrived on a connection: does every rank run the same colls, and is "
              "the network sound?"};
    case errc::timeout:
      return {"timeout",
              "no progress before the deadline: a rank is late or did not call; options.timeout "
              "and COLLS_TIMEOUT set the deadline"};
    case errc::cancelled:
      return {"cancelled", "the operation was dropped or cancelled before it had finished"};
    case errc::closed:
      return {"closed", "the communicator of this operation was closed"};
    case errc::invalid_argument:
      return {"invalid_argument", "nothing was sent and the communicator is still good"};
    case errc::not_applicable:
      return {"not_applicable",
              "the pinned algorithm cannot do this: leave options.algorithm automatic, or pin "
              "another"};
    case errc::truncated:
      return {"truncated", "the message is longer than the buffer posted for it"};
    case errc::not_enough_memory:
      return {"not_enough_memory", "memory could not be allocated"};
    case errc::user_op_failed:
      return {"user_op_failed", "a reduction or an algorithm of the user's own threw an exception"};
    case errc::unreachable:
      return {"unreachable", "check the address, the port and that the peer is running"};
    case errc::join_failed:
      return {"join_failed", "check the launcher's variables, or pass a colls::config"};
    case errc::join_timeout:
      return {"join_timeout", "not all ranks joined in time: were all of them started?"};
    case errc::auth_failed:
      return {"auth_failed",
              "the secrets differ: give every node the same COLLS_SECRET or COLLS_SECRET_FILE"};
    case errc::insecure_bind:
      return {"insecure_bind",
              "set COLLS_SECRET or COLLS_SECRET_FILE, or COLLS_INSECURE=1 on a trusted network"};
    case errc::version_mismatch:
      return {"version_mismatch", "build every rank with the same wire version of colls"};
    case errc::rank_taken:
      return {"rank_taken", "two processes claim the same rank: check the launcher's variables"};
    case errc::world_complete:
      return {"world_complete", "the world has all its ranks: use another port or job id"};
    case errc::address_in_use:
      return {"address_in_use", "another program has the port: choose another MASTER_PORT"};
    case errc::resolve_failed:
      return {"resolve_failed", "the host name is unknown here: pass a numeric address"};
    case errc::stale_store:
      return {"stale_store", "the file belongs to an earlier job: remove it or use a new path"};
    case errc::too_many_files:
      return {"too_many_files", "raise the limit on open files (ulimit -n)"};
    case errc::file_failed:
      return {"file_failed",
              "check the path, its permissions, the space on its disk, and what is in the file; "
              "nothing was changed"};
    case errc::no_device:
      return {"no_device", "check the driver (nvidia-smi) and CUDA_VISIBLE_DEVICES"};
    case errc::device_failed:
      return {
          "device_failed",
          "a call of CUDA, NCCL or MPI failed; after a kernel error the process cannot use that "
          "device any more"};
    case errc::crypto_failed:
      return {"crypto_failed",
              "joining needs OpenSSL's SHA-256 and HMAC, and random numbers: look at OPENSSL_CONF "
              "and OPENSSL_MODULES"};
    case errc::no_quorum:
      return {"no_quorum",
              "too few ranks can be reached to go on without the others: call it again, or pass "
              "quorum::any if no other part of the job can go on"};
    case errc::excluded:
      return {"excluded", "the other ranks could not reach this one and go on without it"};
    case errc::no_replacement:
      return {
          "no_replacement",
          "call shrink() to go on with the ranks that are left, or start the job with colls-run "
          "--on-failure replace"};
    case errc::stale_generation:
      return {"stale_generation",
              "the other ranks have replaced lost ranks and go on without this process"};
  }
  return {"unknown error", ""};
}

class category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "colls"; }
  std::string message(int value) const override { return text_of(static_cast<errc>(value)).name; }
  COLLS_ONCE std::error_condition default_error_condition(int value) const noexcept override;
};

}  // namespace detail

/// Returns the category of all std::error_code objects that are made from an `errc`.
const std::error_category& error_category() noexcept;

inline std::error_code make_error_code(errc code) noexcept {
  return {static_cast<int>(code), error_category()};
}

/// The record of one failure. Ranks send records to each other as bytes, so this type has to be
/// trivially copyable. All ranks in a record are world ranks. The world rank of a process is its
/// rank in the world, which may differ from its rank in another communicator.
struct failure {
  errc code{};
  std::int32_t culprit = -1;     // the world rank that caused the failure, or -1 if none is known
  std::int32_t observer = -1;    // the world rank that detected the failure first
  std::int32_t waited_for = -1;  // the world rank for which the observer was waiting, or -1
  std::uint32_t communicator = 0;
  collective operation = collective::none;
  bool refused = false;  // the call was invalid and sent nothing; the communicator stays usable
  bool proved = false;   // the culprit is known to have ended, rather than suspected
  bool agreed = false;   // all ranks end an attach for this reason; the communicator stays usable
  std::uint64_t sequence = 0;
  std::uint64_t bytes_done = 0;      // the bytes that were sent and received before the failure
  std::uint64_t bytes_expected = 0;  // the length of the message; 0 if unknown, as for collectives
  std::int64_t elapsed_ns = 0;
  char address[64] = {};  // the address of the culprit, as host:port
  char detail[320] = {};  // one sentence that explains the failure

  /// Returns whether a rank only suspects that the culprit has ended.
  bool is_suspicion_of_a_rank() const {
    return code == errc::peer_failed && observer >= 0 && !proved;
  }

  failure() = default;
  explicit failure(errc reason, const char* sentence = "") : code(reason) {
    set_detail("%s", sentence);
  }

  /// Formats a text as printf does, and stores it in `detail`. Truncates a text that is too long.
  [[gnu::format(printf, 2, 3)]] failure& set_detail(const char* pattern, ...) {
    std::va_list args;
    va_start(args, pattern);
    std::vsnprintf(detail, sizeof detail, pattern, args);
    va_end(args);
    return *this;
  }
};
static_assert(std::is_trivially_copyable_v<failure>);

namespace detail {

/// A line of text in a buffer of fixed size. Text that does not fit is cut off.
class line {
 public:
  [[gnu::format(printf, 2, 3)]] line& add(const char* pattern, ...) {
    std::va_list args;
    va_start(args, pattern);
    const int length = std::vsnprintf(text_ + size_, sizeof text_ - size_, pattern, args);
    va_end(args);
    const std::size_t room = sizeof text_ - 1 - size_;
    if (length > 0) {
      const auto wanted = static_cast<std::size_t>(length);
      size_ += wanted < room ? wanted : room;
    }
    return *this;
  }
  const char* text() const { return text_; }

 private:
  char text_[1024] = {};
  std::size_t size_ = 0;
};

/// Returns a hint for the user that helps to understand or avoid a failure. The hint for
/// `invalid_argument` says that nothing was sent. This is true only of a call that was refused. If
/// the code is `invalid_argument` and `reason.refused` is false, returns an empty string.
constexpr const char* hint(const failure& reason) {
  return reason.code == errc::invalid_argument && !reason.refused ? "" : text_of(reason.code).hint;
}

}  // namespace detail

/// Returns the text of `error::what()` for a failure. The text is one line with the rank, the
/// operation, the reason and a hint.
std::string to_text(const failure& reason);

/// The exception that every failed operation throws. It contains the error code and the record of
/// the failure.
class error : public std::system_error {
 public:
  explicit error(const failure& reason);
  explicit error(errc code, const char* sentence = "");

  const failure& record() const noexcept { return record_; }
  const char* what() const noexcept override;

 private:
  failure record_;
  std::string text_;
};

/// Returns a failure record for an exception that an operation threw. For an `error`, this is the
/// record that the `error` contains. For a std::bad_alloc, it is a record with the code
/// `not_enough_memory`. For any other exception, it is a record with the code `user_op_failed`.
failure failure_of(const std::exception_ptr& cause) noexcept;

}  // namespace colls

template <>
struct std::is_error_code_enum<colls::errc> : std::true_type {};

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/base/error.ipp>
#endif

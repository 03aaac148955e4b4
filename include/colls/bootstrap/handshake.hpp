// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The handshake at the beginning of every connection, in which both sides prove that they know the
// secret of the job. All messages have a fixed size.
//
//   connecting             accepting
//   HELLO (64 bytes)  -->
//                     <--  HELLO (64 bytes)    no answer if the bytes are not a HELLO,
//                                              a refusal if the job is a different one
//   proof (32 bytes)  -->
//                     <--  proof (32 bytes)    only zero bytes if the peer's proof is wrong
//                     <--  verdict (16 bytes)  whether the peer is accepted
//
// A refused peer therefore always learns the reason. If the connection is closed without an answer,
// the listener has evicted it in favour of another connection, and the peer connects again.
//
// A proof is HMAC-SHA256(secret, role, both HELLOs). The role (connecting or accepting) prevents
// reflection, the nonces prevent replay, and the HMAC protects rank, world, job and version against
// changes.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/driver/socket.hpp>

#include <openssl/crypto.h>

#include <optional>
#include <string_view>

namespace colls {

/// The secret that all processes of a job share. The destructor overwrites the text in memory.
class secret {
 public:
  static constexpr std::size_t drawn_size = 64;

  secret() = default;
  /// Creates a secret. An empty text is valid only with `insecure`.
  explicit secret(std::string_view text, bool insecure = false)
      : text_(text), insecure_(insecure) {}
  /// Returns a secret that rank 0 has generated. It is valid only for this job on this machine.
  static secret drawn(std::string_view text) {
    secret result(text);
    result.drawn_ = true;
    return result;
  }
  secret(const secret&) = default;
  secret& operator=(const secret&) = default;
  ~secret() { OPENSSL_cleanse(text_.data(), text_.size()); }

  bool empty() const { return text_.empty(); }
  bool insecure() const { return insecure_; }
  bool is_drawn() const { return drawn_; }
  /// Returns whether connections may use this secret.
  bool is_good() const { return !text_.empty() || insecure_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool insecure_ = false;
  bool drawn_ = false;
};

namespace detail {

/// Throws `crypto_failed` with the reason that OpenSSL gives for the failure of `call`.
[[noreturn]] void raise_for_openssl(const char* call);

/// Fills `target` with random bytes from the system. Throws `crypto_failed` if the system provides
/// none.
void fill_random(void* target, std::size_t size);

/// Returns the text of a new random secret of `secret::drawn_size` bytes.
std::string draw_secret();

/// The result of an operation that does not throw. `co_await attempt(operation)` returns an
/// `outcome` with the error code of the operation.
struct outcome {
  std::error_code ec;
  explicit operator bool() const { return !ec; }
};
template <class Operation>
class attempt {
 public:
  explicit attempt(Operation&& operation) : operation_(std::move(operation)) {}
  attempt(attempt&& other) noexcept : operation_(std::move(other.operation_)) {}
  bool start(completion& done) { return operation_.start(done); }
  outcome result() { return {operation_.result()}; }

 private:
  Operation operation_;
};

/// Returns 64 bits of the SHA-256 hash of `text`. The result is the same on every machine. Throws
/// `crypto_failed`.
std::uint64_t hash_of(std::string_view text);

/// Returns the bytes of an array as a buffer.
inline mutable_bytes as_mutable_bytes(auto& array) { return {array.data(), array.size()}; }

/// Returns `host:port`, or "a local socket" if there is no port.
std::string text_of(const endpoint& address);

}  // namespace detail

namespace detail {

enum class role : char { connects = 'C', accepts = 'A' };

/// Returns the proof of the side `prover`. Throws `crypto_failed` if HMAC is not available.
proof_bytes make_proof(const secret& key, role prover, const hello_bytes& connecting,
                       const hello_bytes& accepting);

/// Compares two proofs in constant time.
bool proofs_equal(const proof_bytes& a, const proof_bytes& b);

/// Returns whether the address can be reached only from this machine.
bool is_loopback(const boost::asio::ip::address& address);

/// Returns this process's HELLO for one connection, with a new nonce and the flags for `key`.
hello_bytes prepare_hello(hello local, const secret& key);

/// Returns the answer of the accepting side, which is its own HELLO. If the job or the version of
/// the peer differs, returns a refusal, which does not disclose the job.
hello hello_answer(const hello& peer, const hello& local);

/// Throws if the peer's HELLO is not compatible with the local one.
void check_compatible(const hello& local, const hello& peer, const secret& key,
                      const std::string& address);

}  // namespace detail

/// Performs the connecting side of the handshake and returns the peer's HELLO. Afterwards both
/// sides have proved that they know the secret, and the caller must call `await_verdict`. Throws
/// `unreachable` if the peer hung up or belongs to another job, and `too_many_files` if the peer
/// has reached its limit on open files. The caller should dial again after these two errors. Throws
/// `protocol_error` if the peer is not a process of colls. Also throws `timeout`,
/// `version_mismatch`, `auth_failed`, `insecure_bind` and `crypto_failed`. The arguments must
/// outlive the task. The deadline of the stream applies.
task<hello> prove(stream& connection, const hello& local, const secret& key);

/// Performs the accepting side of the handshake and returns the peer's HELLO. Afterwards both sides
/// have proved that they know the secret, and the caller must call `give_verdict`. Throws if the
/// peer does not complete the handshake. The error is `closed` if the peer sent nothing or no
/// proof, because such a peer may be a rank that exited or computed for too long. The arguments
/// must outlive the task.
task<hello> challenge(stream& connection, const hello& local, const secret& key);

/// Sends the verdict of the accepting side. With the verdict `other_world`, `number` must be the
/// size of the local world.
task<> give_verdict(stream& connection, verdict result, std::int32_t number = 0);

/// Waits for the verdict of the accepting side. Returns `accepted` or `duplicate`. For the other
/// verdicts throws `rank_taken`, `world_complete`, `join_failed`, `unreachable` or `peer_failed`.
task<verdict> await_verdict(stream& connection, const hello& local);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/handshake.ipp>
#endif

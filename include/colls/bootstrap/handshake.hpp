// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The handshake at the beginning of every connection, in which both sides prove that they know the
// secret of the job. All messages have a fixed size.
//
//   connecting             accepting
//   HELLO (64 bytes)  -->
//                     <--  HELLO (64 bytes)    no answer if the bytes are not a HELLO,
//                                              a refusal if the jobs, generations or
//                                              versions differ
//   proof (32 bytes)  -->
//                     <--  proof (32 bytes)    all bytes 0 if the peer's proof is wrong
//                     <--  verdict (16 bytes)  whether the peer is accepted
//
// If the listener refuses a rank, it always sends the reason. The listener may close a connection
// without an answer in order to accept another one. The rank then connects again.
//
// A proof is HMAC-SHA256(secret, role, both HELLOs). The role (connecting or accepting) prevents
// reflection attacks. The nonces in the HELLOs prevent replay attacks. The HMAC also shows whether
// an attacker has changed the rank, world, job or version in a HELLO.

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
  /// Creates a secret. An empty `text` is valid only if `insecure` is true.
  explicit secret(std::string_view text, bool insecure = false)
      : text_(text), insecure_(insecure) {}
  /// Returns a secret whose text rank 0 has generated. Only the ranks of this job use such a
  /// secret.
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
  /// Returns whether connections may use this secret. If the text is empty, they may use it only if
  /// the job is `insecure`.
  bool is_good() const { return !text_.empty() || insecure_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool insecure_ = false;
  bool drawn_ = false;
};

namespace detail {

/// Throws `crypto_failed`. The error message names the OpenSSL operation `call`, which has failed,
/// and contains the reason that OpenSSL gives.
[[noreturn]] void raise_for_openssl(const char* call);

/// Fills `size` bytes at `target` with random bytes from the system. Throws `crypto_failed` if the
/// system provides none.
void fill_random(void* target, std::size_t size);

/// Generates a random secret and returns its text, which has `secret::drawn_size` characters.
std::string draw_secret();

/// The result of `co_await attempt(operation)`. If the operation fails, the result contains the
/// error code. In contrast, `co_await operation` throws an error if the operation fails.
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

/// Returns the first 64 bits of the SHA-256 hash of `text`, which are the same on every machine.
/// Throws `crypto_failed` if OpenSSL cannot compute the hash.
std::uint64_t hash_of(std::string_view text);

/// Returns a buffer that refers to the byte array `array`.
inline mutable_bytes as_mutable_bytes(auto& array) { return {array.data(), array.size()}; }

/// Returns `address` as `host:port`, or "a local socket" if the port is 0.
std::string text_of(const endpoint& address);

}  // namespace detail

namespace detail {

enum class role : char { connects = 'C', accepts = 'A' };

/// Returns the proof that the side `prover` sends in order to show that it knows the secret `key`.
/// `connecting` and `accepting` are the HELLOs of the two sides. Throws `crypto_failed` if OpenSSL
/// cannot compute the HMAC.
proof_bytes make_proof(const secret& key, role prover, const hello_bytes& connecting,
                       const hello_bytes& accepting);

/// Returns whether two proofs are equal. The comparison takes constant time.
bool proofs_equal(const proof_bytes& a, const proof_bytes& b);

/// Returns whether `address` is a loopback address, which only processes of this machine can reach.
bool is_loopback(const boost::asio::ip::address& address);

/// Returns the bytes of the HELLO that this process sends on one connection. The HELLO is a copy of
/// `local` with a new nonce. The flag `has_secret` is true if `key` is not empty and was not made
/// by `secret::drawn`. It is therefore also true for a secret that comes from a file store.
hello_bytes prepare_hello(hello local, const secret& key);

/// Returns the HELLO with which the accepting side answers the HELLO `peer` of the connecting side.
/// If `peer` and `local` have the same job, generation and wire version, the answer is `local` with
/// the purpose of `peer`. Otherwise the answer is a refusal, which does not disclose the job.
hello hello_answer(const hello& peer, const hello& local);

/// Throws if `peer`, the HELLO of the peer, is not compatible with `local`, the HELLO of this
/// process. Also throws if only one of the two processes has a secret that was not made by
/// `secret::drawn`. The error
/// message contains `address`, the address of the peer.
void check_compatible(const hello& local, const hello& peer, const secret& key,
                      const std::string& address);

}  // namespace detail

/// Performs the connecting side of the handshake and returns the peer's HELLO. Afterwards both
/// sides have proved that they know the secret, and the caller must call `await_verdict`. Throws
/// `unreachable` if the peer hung up or belongs to another job, and `too_many_files` if the peer
/// has reached its limit on open files. After these two errors the caller should connect again.
/// Throws `stale_generation` if the peer belongs to a later generation of the job. Throws
/// `protocol_error` if the peer is not a process of colls. Also throws `timeout`,
/// `version_mismatch`, `auth_failed`, `insecure_bind` and `crypto_failed`. The arguments must
/// outlive the task. The deadline of the stream applies.
task<hello> prove(stream& connection, const hello& local, const secret& key);

/// Performs the accepting side of the handshake and returns the peer's HELLO. Afterwards both sides
/// have proved that they know the secret, and the caller must call `give_verdict`. Throws if the
/// handshake fails. The error is `closed` if the peer closes the connection before it sends
/// anything, or if either side closes the connection after the peer has sent its HELLO. A rank of
/// this job can also cause the error `closed`. For example, it may have exited, or it may have
/// computed for so long that it missed the deadline of the handshake. The arguments must outlive
/// the task.
task<hello> challenge(stream& connection, const hello& local, const secret& key);

/// Sends the verdict `result` to the connecting side. If `result` is `other_world`, `number` must
/// be the size of the world of this process.
task<> give_verdict(stream& connection, verdict result, std::int32_t number = 0);

/// Waits for the verdict of the accepting side. Returns `accepted` or `duplicate`. For the other
/// verdicts, throws `rank_taken`, `world_complete`, `join_failed`, `unreachable`, `peer_failed` or
/// `excluded`.
/// Also throws `timeout`, `unreachable` or `protocol_error` if no valid verdict arrives.
task<verdict> await_verdict(stream& connection, const hello& local);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/handshake.ipp>
#endif

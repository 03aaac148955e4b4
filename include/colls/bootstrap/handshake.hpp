// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The handshake that begins every connection: both sides prove that they know the job's secret.
// All messages have a fixed size.
//
//   connecting            accepting
//   HELLO (64 bytes) -->
//                    <--  HELLO (64)      no answer to other bytes, a refusal to another job
//   proof (32)       -->
//                    <--  proof (32)      zeros if the proof was wrong
//                    <--  verdict (16)
//
// A refused peer therefore always learns the reason. If the connection just ends, the listener has
// evicted it in favour of another one, and the peer dials again.
//
// A proof is HMAC-SHA256(secret, role, both HELLOs). The role prevents reflection, the nonces
// prevent replay, and the HMAC protects rank, world, job and version against changes.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/driver/socket.hpp>

#include <openssl/crypto.h>

#include <optional>
#include <string_view>

namespace colls {

/// The secret that all processes of a job share. The destructor overwrites its memory.
class secret {
 public:
  static constexpr std::size_t drawn_size = 64;

  secret() = default;
  /// An empty secret is valid only with `insecure`.
  explicit secret(std::string_view text, bool insecure = false)
      : text_(text), insecure_(insecure) {}
  /// Returns a secret that rank 0 generated, for this job on this host only.
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
  /// Returns whether connections may use it.
  bool is_good() const { return !text_.empty() || insecure_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool insecure_ = false;
  bool drawn_ = false;
};

namespace detail {

/// Throws `crypto_failed` with OpenSSL's reason why `call` failed.
[[noreturn]] void raise_for_openssl(const char* call);

/// Fills `target` with random bytes of the system. Throws `crypto_failed` if the system has none.
void fill_random(void* target, std::size_t size);

/// Returns the text of a new random secret of `secret::drawn_size` bytes.
std::string draw_secret();

/// Result of an operation that does not throw: `co_await attempt(operation)` returns the
/// error_code.
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

/// Returns 64 bits of the SHA-256 of `text`, equal on every machine. Throws `crypto_failed`.
std::uint64_t hash_of(std::string_view text);

/// Returns the bytes of an array as a buffer.
inline mutable_bytes as_mutable_bytes(auto& array) { return {array.data(), array.size()}; }

/// Returns host:port.
std::string text_of(const endpoint& address);

}  // namespace detail

namespace detail {

enum class role : char { connects = 'C', accepts = 'A' };

/// Returns the proof of the side `prover`. Throws `crypto_failed` if HMAC is not available.
proof_bytes make_proof(const secret& key, role prover, const hello_bytes& connecting,
                       const hello_bytes& accepting);

/// Compares in constant time.
bool proofs_equal(const proof_bytes& a, const proof_bytes& b);

/// Returns whether the address is reachable on this host only.
bool is_loopback(const boost::asio::ip::address& address);

/// Returns this process's HELLO for one connection, with a new nonce and the flags for `key`.
hello_bytes prepare_hello(hello local, const secret& key);

/// Returns the accepting side's answer: its own HELLO, or a refusal if the peer has another job or
/// version, so that the job is not disclosed.
hello hello_answer(const hello& peer, const hello& local);

/// Throws if the peer's HELLO is not compatible with the local one.
void check_compatible(const hello& local, const hello& peer, const secret& key,
                      const std::string& address);

}  // namespace detail

/// The connecting side of the handshake. Afterwards both sides have proved the secret, and the
/// caller continues with `await_verdict`. Returns the peer's HELLO. Throws `unreachable` (the peer
/// hung up or belongs to another job: dial again), `too_many_files` (the peer's limit: dial again),
/// `protocol_error` (the peer is not colls), `timeout`, `version_mismatch`, `auth_failed`,
/// `insecure_bind`, `crypto_failed`. The arguments must outlive the task. The deadline of the
/// stream applies.
task<hello> prove(stream& connection, const hello& local, const secret& key);

/// The accepting side of the handshake. Afterwards both sides have proved the secret, and the
/// caller continues with `give_verdict`. Returns the peer's HELLO. Throws for every other peer;
/// `closed` if the peer sent nothing, or no proof, which a rank that ends or computes may also do.
/// The arguments must outlive the task.
task<hello> challenge(stream& connection, const hello& local, const secret& key);

/// Sends the verdict of the accepting side. `number` explains it: for `other_world`, the size of
/// the local world.
task<> give_verdict(stream& connection, verdict result, std::int32_t number = 0);

/// Waits for the verdict. Returns `accepted` or `duplicate`; throws `rank_taken`, `world_complete`,
/// `join_failed`, `unreachable` or `peer_failed` for the others.
task<verdict> await_verdict(stream& connection, const hello& local);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/handshake.ipp>
#endif

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How two processes of a job know each other: fixed-size messages, each side proves the secret.
//
//   connecting            accepting
//   HELLO (64 bytes) -->
//                    <--  HELLO (64)      nothing if it was no HELLO, a refusal if of another job
//   proof (32)       -->
//                    <--  proof (32)      zeros if the proof was wrong
//                    <--  verdict (16)
//
// So a peer that is turned away knows it, and takes a connection that ends for what it is: one that
// gave its place to another. It dials again.
//
// A proof is HMAC-SHA256(secret, role, both HELLOs): the role stops reflection, the nonces stop
// replay, and rank, world, job and version cannot be changed on the way.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/driver/socket.hpp>

#include <openssl/crypto.h>

#include <optional>
#include <string_view>

namespace colls {

/// What all processes of a job know and nobody else. Wiped when it goes.
class secret {
 public:
  static constexpr std::size_t drawn_size = 64;

  secret() = default;
  /// An empty secret is good only with `insecure`.
  explicit secret(std::string_view text, bool insecure = false)
      : text_(text), insecure_(insecure) {}
  /// One that no user gave: of this job and this host alone.
  static secret drawn(std::string_view text) {
    secret made(text);
    made.drawn_ = true;
    return made;
  }
  secret(const secret&) = default;
  secret& operator=(const secret&) = default;
  ~secret() { OPENSSL_cleanse(text_.data(), text_.size()); }

  bool empty() const { return text_.empty(); }
  bool insecure() const { return insecure_; }
  bool is_drawn() const { return drawn_; }
  /// Whether connections may be made with it.
  bool is_good() const { return !text_.empty() || insecure_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool insecure_ = false;
  bool drawn_ = false;
};

namespace detail {

/// Throws `crypto_failed` with what OpenSSL says of its last call.
[[noreturn]] void raise_for_openssl(const char* call);

/// Random bytes of the system; throws `crypto_failed` where it has none.
void fill_random(void* into, std::size_t size);

/// The text of a fresh secret, `secret::drawn_size` bytes.
std::string draw_secret();

/// A result that does not throw: `co_await attempt(operation)` gives the error_code.
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

/// 64 bits of SHA-256: equal for equal texts on every machine. Throws `crypto_failed`.
std::uint64_t hash_of(std::string_view text);

inline mutable_bytes whole(auto& array) { return {array.data(), array.size()}; }

std::string text_of(const endpoint& where);

}  // namespace detail

namespace detail {

enum class role : char { connects = 'C', accepts = 'A' };

/// Throws `crypto_failed`: without HMAC nothing is proved.
proof_bytes make_proof(const secret& shared, role who, const hello_bytes& connecting,
                       const hello_bytes& accepting);

bool same_proof(const proof_bytes& a, const proof_bytes& b);

/// An address that no other host reaches.
bool is_loopback(const boost::asio::ip::address& end);

/// This process's HELLO for one connection: fresh nonce, honest flags.
hello_bytes introduce(hello mine, const secret& shared);

/// What the accepting side answers to that HELLO: its own, which names the job, to its own job only.
hello answer_to(const hello& peer, const hello& mine);

/// What is wrong with the peer's HELLO; throws it.
void compare(const hello& mine, const hello& peer, const secret& shared, const std::string& where);

}  // namespace detail

/// The connecting side. Returns the peer's HELLO once it has proved the secret; `await_verdict`
/// comes next. Throws `unreachable` (it hung up or belongs to another job: dial again),
/// `too_many_files` (the peer's: dial again), `protocol_error` (no colls there), `timeout`,
/// `version_mismatch`, `auth_failed`, `insecure_bind`, `crypto_failed`. Everything given must stay
/// alive until the task has ended; the stream's
/// deadline counts.
task<hello> prove(stream& to, const hello& mine, const secret& shared);

/// The accepting side: returns the peer's HELLO once it has proved the secret; `give_verdict` comes
/// next. Throws for every other peer (`closed`: it left without a word, or fell silent before its
/// proof, as a rank may that ends or computes).
task<hello> challenge(stream& from, const hello& mine, const secret& shared);

/// The accepting side's last word; `number` explains it (other_world: the size of ours).
task<> give_verdict(stream& to, verdict what, std::int32_t number = 0);

/// Waits for the verdict and returns `accepted` or `duplicate`; the others are thrown, as
/// `rank_taken`, `world_complete`, `join_failed`, `unreachable` or `peer_failed`.
task<verdict> await_verdict(stream& from, const hello& mine);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/handshake.ipp>
#endif

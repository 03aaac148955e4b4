// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of handshake.hpp: sending and checking the messages of the handshake.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/os/crc32c.hpp>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <cerrno>

namespace colls::detail {

COLLS_ONCE void raise_for_openssl(const char* call) {
  char reason[200];
  ::ERR_error_string_n(::ERR_get_error(), reason, sizeof reason);
  ::ERR_clear_error();
  raise(errc::crypto_failed, "OpenSSL's %s failed (%s)", call, reason);
}

COLLS_ONCE void fill_random(void* target, std::size_t size) {
  for (auto* position = static_cast<std::byte*>(target); size > 0;) {
    const ssize_t count = ::getrandom(position, size, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      raise(errc::crypto_failed, "the system draws no random numbers: getrandom: %s",
            std::strerror(errno));
    }
    position += count;
    size -= static_cast<std::size_t>(count);
  }
}

COLLS_ONCE std::string draw_secret() {
  std::array<unsigned char, secret::drawn_size / 2> drawn{};
  fill_random(drawn.data(), drawn.size());
  std::string text;
  for (const unsigned char byte : drawn) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

COLLS_ONCE std::uint64_t hash_of(std::string_view text) {
  std::array<std::byte, 32> digest{};
  unsigned int size = 0;
  const int done =
      ::EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(digest.data()), &size,
                   ::EVP_sha256(), nullptr);
  if (done != 1 || size != digest.size()) raise_for_openssl("SHA-256");
  return get_number<std::uint64_t>(digest.data());
}

COLLS_ONCE std::string text_of(const endpoint& address) {
  if (address.port() == 0) return "a local socket";
  return host_and_port(address.address().to_string(), address.port());
}

COLLS_ONCE proof_bytes make_proof(const secret& key, role prover, const hello_bytes& connecting,
                                  const hello_bytes& accepting) {
  std::array<unsigned char, 16 + 2 * 64> transcript{};
  std::memcpy(transcript.data(), "colls proof ", 12);
  transcript[12] = static_cast<unsigned char>(prover);
  std::memcpy(&transcript[16], connecting.data(), connecting.size());
  std::memcpy(&transcript[16 + 64], accepting.data(), accepting.size());
  proof_bytes proof{};
  unsigned int size = 0;
  const unsigned char* const result = ::HMAC(
      ::EVP_sha256(), key.text().data(), static_cast<int>(key.text().size()), transcript.data(),
      transcript.size(), reinterpret_cast<unsigned char*>(proof.data()), &size);
  if (result == nullptr || size != proof.size()) raise_for_openssl("HMAC-SHA256");
  return proof;
}

COLLS_ONCE bool proofs_equal(const proof_bytes& a, const proof_bytes& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

COLLS_ONCE bool is_loopback(const boost::asio::ip::address& address) {
  const bool mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  return address.is_loopback() || (mapped && address.to_v6().to_bytes()[12] == 127);
}

COLLS_ONCE hello_bytes prepare_hello(hello local, const secret& key) {
  local.has_secret = !key.empty() && !key.is_drawn();
  fill_random(local.nonce.data(), local.nonce.size());
  return write_hello(local);
}

COLLS_ONCE hello hello_answer(const hello& peer, const hello& local) {
  if (peer.version != local.version || peer.job != local.job)
    return refusal(connection_purpose::wrong_job);
  if (peer.generation != local.generation) {
    hello answer = refusal(connection_purpose::other_generation);
    answer.job = local.job;  // which the peer knows
    answer.generation = local.generation;
    return answer;
  }
  hello answer = local;
  answer.purpose = peer.purpose;
  return answer;
}

COLLS_ONCE void check_compatible(const hello& local, const hello& peer, const secret& key,
                                 const std::string& address) {
  if (peer.version == 0) {
    raise(errc::version_mismatch,
          "%s runs on a machine with another number format (byte order, floating point)",
          address.c_str());
  }
  if (peer.version != local.version) {
    raise(errc::version_mismatch, "%s speaks wire version %d, this process %d", address.c_str(),
          peer.version, local.version);
  }
  if (peer.purpose == connection_purpose::no_descriptor) {
    raise(errc::too_many_files, "%s has too many open files and cannot take a connection at %s",
          peer.rank < 0 ? "the launcher" : ("rank " + std::to_string(peer.rank)).c_str(),
          address.c_str());
  }
  if (peer.job != local.job || peer.purpose == connection_purpose::wrong_job) {
    raise(errc::unreachable, "%s belongs to another job: is its port in use twice?",
          address.c_str());
  }
  if (peer.generation != local.generation) {
    const bool is_later = peer.generation > local.generation;
    raise(is_later ? errc::stale_generation : errc::unreachable,
          "%s belongs to generation %u of this job, and this process to generation %u",
          address.c_str(), peer.generation, local.generation);
  }
  if (peer.purpose != local.purpose) {
    raise(errc::protocol_error, "%s accepts connections for another purpose only", address.c_str());
  }
  if (peer.has_secret != (!key.empty() && !key.is_drawn())) {
    raise(errc::auth_failed,
          peer.has_secret ? "%s has a secret and this process has none"
                          : "%s has no secret and this process has one",
          address.c_str());
  }
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE task<hello> prove(stream& connection, const hello& local, const secret& key) {
  const std::string address = detail::text_of(connection.remote());
  if (!key.is_good()) {
    detail::raise(errc::insecure_bind, "no secret for a connection to %s", address.c_str());
  }
  const hello_bytes sent = detail::prepare_hello(local, key);
  hello_bytes received{};
  detail::outcome done = co_await detail::attempt(connection.write({sent.data(), sent.size()}));
  if (done) done = co_await detail::attempt(connection.read(detail::as_mutable_bytes(received)));
  if (done.ec == errc::timeout) {
    detail::raise(errc::timeout, "%s accepted the connection and sent nothing", address.c_str());
  }
  if (!done) {
    detail::raise(errc::unreachable, "%s hung up before it sent its HELLO (%s)", address.c_str(),
                  done.ec.message().c_str());
  }
  const std::optional<hello> peer = parse_hello(received);
  if (!peer) {
    detail::raise(errc::protocol_error, "%s is not a process of colls", address.c_str());
  }
  detail::check_compatible(local, *peer, key, address);
  const proof_bytes proof = detail::make_proof(key, detail::role::connects, sent, received);
  proof_bytes peer_proof{};
  done = co_await detail::attempt(connection.write({proof.data(), proof.size()}));
  if (done) done = co_await detail::attempt(connection.read(detail::as_mutable_bytes(peer_proof)));
  if (done.ec == errc::timeout) {
    detail::raise(errc::timeout, "%s did not answer to the proof of the secret", address.c_str());
  }
  if (!done) {
    detail::raise(errc::unreachable,
                  "%s hung up before it answered to the proof of the secret (%s)", address.c_str(),
                  done.ec.message().c_str());
  }
  if (detail::proofs_equal(peer_proof, {})) {
    detail::raise(errc::auth_failed, "%s does not accept this process's secret", address.c_str());
  }
  if (!detail::proofs_equal(peer_proof,
                            detail::make_proof(key, detail::role::accepts, sent, received))) {
    detail::raise(errc::auth_failed, "%s does not know the secret", address.c_str());
  }
  co_return *peer;
}

COLLS_ONCE task<hello> challenge(stream& connection, const hello& local, const secret& key) {
  const std::string address = detail::text_of(connection.remote());
  if (!key.is_good()) {
    detail::raise(errc::insecure_bind, "no secret for a connection from %s", address.c_str());
  }
  hello_bytes received{};
  const detail::outcome first =
      co_await detail::attempt(connection.read(detail::as_mutable_bytes(received)));
  if (first.ec == errc::closed && received[0] == std::byte{}) {
    detail::raise(errc::closed, "%s closed the connection and sent nothing", address.c_str());
  }
  const std::optional<hello> peer = parse_hello(received);
  if (!first || !peer || is_refusal(peer->purpose)) {
    detail::raise(errc::protocol_error, "%s %s", address.c_str(),
                  !first ? "sent an incomplete HELLO" : "sent something that is not a HELLO");
  }
  const hello answer = detail::hello_answer(*peer, local);
  const hello_bytes sent =
      is_refusal(answer.purpose) ? write_hello(answer) : detail::prepare_hello(answer, key);
  const detail::outcome answered =
      co_await detail::attempt(connection.write({sent.data(), sent.size()}));
  if (!answered)
    detail::raise(errc::closed, "%s left before it received an answer", address.c_str());
  hello expected = local;
  expected.purpose = peer->purpose;
  detail::check_compatible(expected, *peer, key, address);
  proof_bytes proof{};
  const detail::outcome second =
      co_await detail::attempt(connection.read(detail::as_mutable_bytes(proof)));
  if (!second) detail::raise(errc::closed, "%s left before it proved the secret", address.c_str());
  if (!detail::proofs_equal(proof,
                            detail::make_proof(key, detail::role::connects, received, sent))) {
    proof.fill(std::byte{});
    (void)co_await detail::attempt(connection.write({proof.data(), proof.size()}));
    detail::raise(errc::auth_failed, "%s does not know the secret", address.c_str());
  }
  const proof_bytes own_proof = detail::make_proof(key, detail::role::accepts, received, sent);
  const detail::outcome proof_sent =
      co_await detail::attempt(connection.write({own_proof.data(), own_proof.size()}));
  if (!proof_sent) detail::raise(errc::closed, "%s left before it was accepted", address.c_str());
  co_return *peer;
}

COLLS_ONCE task<> give_verdict(stream& connection, verdict result, std::int32_t number) {
  verdict_bytes message{};
  detail::put_number(&message[0], static_cast<std::uint8_t>(result));
  detail::put_number(&message[4], number);
  detail::put_number(&message[12], detail::crc32c(0, message.data(), 12));
  co_await connection.write({message.data(), message.size()});
}

COLLS_ONCE task<verdict> await_verdict(stream& connection, const hello& local) {
  const std::string address = detail::text_of(connection.remote());
  verdict_bytes message{};
  const detail::outcome done =
      co_await detail::attempt(connection.read(detail::as_mutable_bytes(message)));
  if (!done) {
    detail::raise(done.ec == errc::timeout ? errc::timeout : errc::unreachable,
                  "%s did not say whether it accepts rank %d", address.c_str(), local.rank);
  }
  if (detail::get_number<std::uint32_t>(&message[12]) != detail::crc32c(0, message.data(), 12)) {
    detail::raise(errc::protocol_error, "the verdict of %s has a wrong checksum", address.c_str());
  }
  const auto number = detail::get_number<std::int32_t>(&message[4]);
  switch (const auto result = static_cast<verdict>(message[0])) {
    case verdict::accepted:
    case verdict::duplicate:
      co_return result;
    case verdict::rank_taken:
      detail::raise(errc::rank_taken, "another living process is rank %d at %s", local.rank,
                    address.c_str());
    case verdict::world_complete:
      detail::raise(errc::world_complete,
                    "rank %d of the world at %s has already left: it is too late to join",
                    local.rank, address.c_str());
    case verdict::other_world:
      detail::raise(errc::join_failed,
                    "the world at %s has %d ranks and this process (rank %d) was told %d",
                    address.c_str(), number, local.rank, local.world);
    case verdict::unavailable:
      detail::raise(errc::unreachable, "%s is leaving", address.c_str());
    case verdict::connection_failed:
      detail::raise(errc::peer_failed, "%s has closed the failed connection to rank %d",
                    address.c_str(), local.rank);
    case verdict::excluded:
      detail::raise(errc::excluded, "the process at %s goes on without rank %d", address.c_str(),
                    local.rank);
  }
  detail::raise(errc::protocol_error, "%s sent an unknown verdict", address.c_str());
  co_return verdict::unavailable;  // never reached, but nvcc requires the statement
}

}  // namespace colls

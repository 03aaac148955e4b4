// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How a handshake goes: the second half of handshake.hpp.

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

COLLS_ONCE void fill_random(void* into, std::size_t size) {
  for (auto* at = static_cast<std::byte*>(into); size > 0;) {
    const ssize_t got = ::getrandom(at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      raise(errc::crypto_failed, "the system draws no random numbers: getrandom: %s",
            std::strerror(errno));
    }
    at += got;
    size -= static_cast<std::size_t>(got);
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

COLLS_ONCE std::string text_of(const endpoint& where) {
  if (where.port() == 0) return "a local socket";
  return host_and_port(where.address().to_string(), where.port());
}

COLLS_ONCE proof_bytes make_proof(const secret& shared, role who, const hello_bytes& connecting,
                                  const hello_bytes& accepting) {
  std::array<unsigned char, 16 + 2 * 64> transcript{};
  std::memcpy(transcript.data(), "colls proof ", 12);
  transcript[12] = static_cast<unsigned char>(who);
  std::memcpy(&transcript[16], connecting.data(), connecting.size());
  std::memcpy(&transcript[16 + 64], accepting.data(), accepting.size());
  proof_bytes proof{};
  unsigned int size = 0;
  const unsigned char* const done = ::HMAC(
      ::EVP_sha256(), shared.text().data(), static_cast<int>(shared.text().size()),
      transcript.data(), transcript.size(), reinterpret_cast<unsigned char*>(proof.data()), &size);
  if (done == nullptr || size != proof.size()) raise_for_openssl("HMAC-SHA256");
  return proof;
}

COLLS_ONCE bool same_proof(const proof_bytes& a, const proof_bytes& b) {
  return ::CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

COLLS_ONCE bool is_loopback(const boost::asio::ip::address& end) {
  const bool mapped = end.is_v6() && end.to_v6().is_v4_mapped();
  return end.is_loopback() || (mapped && end.to_v6().to_bytes()[12] == 127);
}

COLLS_ONCE hello_bytes introduce(hello mine, const secret& shared) {
  mine.has_secret = !shared.empty() && !shared.is_drawn();
  fill_random(mine.nonce.data(), mine.nonce.size());
  return write_hello(mine);
}

COLLS_ONCE hello answer_to(const hello& peer, const hello& mine) {
  if (peer.version != mine.version || peer.job != mine.job) return refusal(purpose::wrong_job);
  hello answer = mine;
  answer.what = peer.what;
  return answer;
}

COLLS_ONCE void compare(const hello& mine, const hello& peer, const secret& shared,
                        const std::string& where) {
  if (peer.version == 0) {
    raise(errc::version_mismatch,
          "%s runs on a machine with another number format (byte order, floats)", where.c_str());
  }
  if (peer.version != mine.version) {
    raise(errc::version_mismatch, "%s speaks wire version %d, this process %d", where.c_str(),
          peer.version, mine.version);
  }
  if (peer.what == purpose::no_descriptor) {
    raise(errc::too_many_files, "%s has too many open files and cannot take a connection at %s",
          peer.rank < 0 ? "the launcher" : ("rank " + std::to_string(peer.rank)).c_str(),
          where.c_str());
  }
  if (peer.job != mine.job || peer.what == purpose::wrong_job) {
    raise(errc::unreachable, "%s belongs to another job: is its port in use twice?", where.c_str());
  }
  if (peer.what != mine.what) {
    raise(errc::protocol_error, "%s takes connections for another purpose", where.c_str());
  }
  if (peer.has_secret != (!shared.empty() && !shared.is_drawn())) {
    raise(errc::auth_failed,
          peer.has_secret ? "%s has a secret and this process has none"
                          : "%s has no secret and this process has one",
          where.c_str());
  }
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE task<hello> prove(stream& to, const hello& mine, const secret& shared) {
  const std::string where = detail::text_of(to.remote());
  if (!shared.is_good()) {
    detail::raise(errc::insecure_bind, "no secret for a connection to %s", where.c_str());
  }
  const hello_bytes sent = detail::introduce(mine, shared);
  hello_bytes got{};
  detail::outcome done = co_await detail::attempt(to.write({sent.data(), sent.size()}));
  if (done) done = co_await detail::attempt(to.read(detail::whole(got)));
  if (done.ec == errc::timeout) {
    detail::raise(errc::timeout, "%s took the connection and said nothing", where.c_str());
  }
  if (!done) {
    detail::raise(errc::unreachable, "%s hung up before it said who it is (%s)", where.c_str(),
                  done.ec.message().c_str());
  }
  const std::optional<hello> peer = parse_hello(got);
  if (!peer) {
    detail::raise(errc::protocol_error, "what listens at %s is no colls", where.c_str());
  }
  detail::compare(mine, *peer, shared, where);
  const proof_bytes proof = detail::make_proof(shared, detail::role::connects, sent, got);
  proof_bytes theirs{};
  done = co_await detail::attempt(to.write({proof.data(), proof.size()}));
  if (done) done = co_await detail::attempt(to.read(detail::whole(theirs)));
  if (done.ec == errc::timeout) {
    detail::raise(errc::timeout, "%s did not answer to the proof of the secret", where.c_str());
  }
  if (!done) {
    detail::raise(errc::unreachable,
                  "%s hung up before it answered to the proof of the secret (%s)", where.c_str(),
                  done.ec.message().c_str());
  }
  if (detail::same_proof(theirs, {})) {
    detail::raise(errc::auth_failed, "%s does not accept this process's secret", where.c_str());
  }
  if (!detail::same_proof(theirs, detail::make_proof(shared, detail::role::accepts, sent, got))) {
    detail::raise(errc::auth_failed, "%s does not know the secret", where.c_str());
  }
  co_return *peer;
}

COLLS_ONCE task<hello> challenge(stream& from, const hello& mine, const secret& shared) {
  const std::string where = detail::text_of(from.remote());
  if (!shared.is_good()) {
    detail::raise(errc::insecure_bind, "no secret for a connection from %s", where.c_str());
  }
  hello_bytes got{};
  const detail::outcome first = co_await detail::attempt(from.read(detail::whole(got)));
  if (first.ec == errc::closed && got[0] == std::byte{}) {
    detail::raise(errc::closed, "%s came and left without a word", where.c_str());
  }
  const std::optional<hello> peer = parse_hello(got);
  if (!first || !peer || is_refusal(peer->what)) {
    detail::raise(errc::protocol_error, "%s %s", where.c_str(),
                  !first ? "said too little" : "sent something else than colls");
  }
  const hello answer = detail::answer_to(*peer, mine);
  const hello_bytes sent =
      is_refusal(answer.what) ? write_hello(answer) : detail::introduce(answer, shared);
  const detail::outcome answered = co_await detail::attempt(from.write({sent.data(), sent.size()}));
  if (!answered) detail::raise(errc::closed, "%s left before it was answered", where.c_str());
  hello expected = mine;
  expected.what = peer->what;
  detail::compare(expected, *peer, shared, where);
  proof_bytes proof{};
  const detail::outcome second = co_await detail::attempt(from.read(detail::whole(proof)));
  if (!second) detail::raise(errc::closed, "%s left before it proved the secret", where.c_str());
  if (!detail::same_proof(proof, detail::make_proof(shared, detail::role::connects, got, sent))) {
    proof.fill(std::byte{});
    (void)co_await detail::attempt(from.write({proof.data(), proof.size()}));
    detail::raise(errc::auth_failed, "%s does not know the secret", where.c_str());
  }
  const proof_bytes ours = detail::make_proof(shared, detail::role::accepts, got, sent);
  const detail::outcome told = co_await detail::attempt(from.write({ours.data(), ours.size()}));
  if (!told) detail::raise(errc::closed, "%s left before it was let in", where.c_str());
  co_return *peer;
}

COLLS_ONCE task<> give_verdict(stream& to, verdict what, std::int32_t number) {
  verdict_bytes message{};
  detail::put_number(&message[0], static_cast<std::uint8_t>(what));
  detail::put_number(&message[4], number);
  detail::put_number(&message[12], detail::crc32c(0, message.data(), 12));
  co_await to.write({message.data(), message.size()});
}

COLLS_ONCE task<verdict> await_verdict(stream& from, const hello& mine) {
  const std::string where = detail::text_of(from.remote());
  verdict_bytes message{};
  const detail::outcome done = co_await detail::attempt(from.read(detail::whole(message)));
  if (!done) {
    detail::raise(done.ec == errc::timeout ? errc::timeout : errc::unreachable,
                  "%s did not say whether rank %d may come in", where.c_str(), mine.rank);
  }
  if (detail::get_number<std::uint32_t>(&message[12]) != detail::crc32c(0, message.data(), 12)) {
    detail::raise(errc::protocol_error, "the verdict of %s came with a wrong checksum",
                  where.c_str());
  }
  const auto number = detail::get_number<std::int32_t>(&message[4]);
  switch (const auto what = static_cast<verdict>(message[0])) {
    case verdict::accepted:
    case verdict::duplicate:
      co_return what;
    case verdict::rank_taken:
      detail::raise(errc::rank_taken, "another living process is rank %d at %s", mine.rank,
                    where.c_str());
    case verdict::world_complete:
      detail::raise(errc::world_complete,
                    "the world at %s has had its rank %d, which is gone: too late to join",
                    where.c_str(), mine.rank);
    case verdict::other_world:
      detail::raise(errc::join_failed,
                    "the world at %s has %d ranks and this process (rank %d) was told %d",
                    where.c_str(), number, mine.rank, mine.world);
    case verdict::not_now:
      detail::raise(errc::unreachable, "%s is leaving", where.c_str());
    case verdict::given_up:
      detail::raise(errc::peer_failed, "%s has lost the link to rank %d and given it up",
                    where.c_str(), mine.rank);
  }
  detail::raise(errc::protocol_error, "%s gave a verdict that has no meaning", where.c_str());
  co_return verdict::not_now;  // never reached: nvcc asks for it
}

}  // namespace colls

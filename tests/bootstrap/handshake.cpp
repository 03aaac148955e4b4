// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/handshake.hpp>

#include "../support/joining.hpp"

#include <dlfcn.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <random>

// Replacements for the functions of OpenSSL and of the system that the library calls: each can be
// made to fail.
namespace {
bool hmac_fails = false;
bool digest_fails = false;
int getrandom_errors = 0;  // the number of next calls that fail
int getrandom_error = 0;
template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}
}  // namespace
extern "C" unsigned char* HMAC(const EVP_MD* type, const void* key, int key_size,
                               const unsigned char* data, std::size_t size, unsigned char* into,
                               unsigned int* into_size) {
  if (hmac_fails) return nullptr;
  return next_of<decltype(HMAC)>("HMAC")(type, key, key_size, data, size, into, into_size);
}
extern "C" int EVP_Digest(const void* data, std::size_t size, unsigned char* into,
                          unsigned int* into_size, const EVP_MD* type, ENGINE* engine) {
  if (digest_fails) return 0;
  return next_of<decltype(EVP_Digest)>("EVP_Digest")(data, size, into, into_size, type, engine);
}
extern "C" ssize_t getrandom(void* into, std::size_t size, unsigned int flags) {
  if (getrandom_errors > 0) {
    --getrandom_errors;
    errno = getrandom_error;
    return -1;
  }
  return next_of<decltype(getrandom)>("getrandom")(into, size, flags);
}

using namespace joining;
using colls::connection_purpose;
using colls::hello;
using colls::hello_bytes;
using colls::parse_hello;
using colls::secret;
using colls::stream;

namespace {

hello of_rank(int rank, int world = 4, std::uint64_t job = 7) {
  hello mine;
  mine.job = job;
  mine.rank = rank;
  mine.world = world;
  return mine;
}

/// Both ends of one loopback connection.
struct pair_of_streams {
  explicit pair_of_streams(bench& at) : dialled(at.on) {
    colls::listener acceptor;
    REQUIRE(!acceptor.listen(loopback()));
    colls::sync_wait(at.on, dialled.connect(acceptor.local()));
    colls::detail::descriptor socket;
    while (!socket) socket = acceptor.accept();
    accepted.emplace(at.on, std::move(socket));
    dialled.set_deadline(at.in(5 * seconds));
    accepted->set_deadline(at.in(5 * seconds));
  }
  stream& answering() { return *accepted; }

  stream dialled;
  std::optional<stream> accepted;
};

struct ends {
  std::optional<hello> connecting, accepting;
  std::optional<colls::failure> connecting_error, accepting_error;
};

task<> closing_on_error(task<hello> work, stream* mine, std::optional<hello>* into,
                        std::optional<colls::failure>* failed) {
  co_await keep(std::move(work), into, failed);
  if (*failed) mine->close();
}

/// A handshake between the two ends, each with its own idea of the job.
ends run_handshake(bench& at, const hello& a, const secret& a_secret, const hello& b,
                   const secret& b_secret) {
  pair_of_streams both(at);
  ends got;
  std::vector<task<>> work;
  work.push_back(closing_on_error(colls::prove(both.dialled, a, a_secret), &both.dialled,
                                  &got.connecting, &got.connecting_error));
  work.push_back(closing_on_error(colls::challenge(both.answering(), b, b_secret),
                                  &both.answering(), &got.accepting, &got.accepting_error));
  at.run_all(std::move(work));
  return got;
}

/// Plays the accepting side against a peer that sends `words`, each after it has received 64 more
/// bytes. Returns all bytes that the peer received.
std::string replies_to_stranger(bench& at, const std::vector<std::string>& words,
                                std::optional<colls::failure>* failed) {
  pair_of_streams both(at);
  const hello mine = of_rank(0);
  const secret shared("right");
  std::string heard;
  std::optional<hello> no_peer;
  const auto stranger = [](stream& link, std::vector<std::string> all,
                           std::string* into) -> task<> {
    for (std::size_t i = 0; i < all.size(); ++i) {
      co_await say(link, all[i]);
      if (i + 1 == all.size()) break;
      hello_bytes answer{};
      const auto done =
          co_await colls::detail::attempt(link.read(colls::detail::as_mutable_bytes(answer)));
      if (!done) break;
      *into += text(answer);
    }
    *into += co_await joining::listen(link, link.driver().now() + 2 * seconds);
  };
  std::vector<task<>> work;
  work.push_back(closing_on_error(colls::challenge(both.answering(), mine, shared),
                                  &both.answering(), &no_peer, failed));
  work.push_back(stranger(both.dialled, words, &heard));
  at.run_all(std::move(work));
  CHECK(!no_peer);
  return heard;
}

/// The messages of a legitimate peer, recorded by a relay on the wire.
std::vector<std::string> record_handshake(bench& at) {
  pair_of_streams left(at);   // prove -> recorder
  pair_of_streams right(at);  // recorder -> challenge
  std::vector<std::string> recorded;
  const auto relay = [](stream& a, stream& b, std::vector<std::string>* into) -> task<> {
    for (const std::size_t size : {std::size_t{64}, std::size_t{32}}) {
      std::string piece(size, '\0');
      co_await a.read({reinterpret_cast<std::byte*>(piece.data()), size});
      into->push_back(piece);
      co_await b.write({reinterpret_cast<const std::byte*>(piece.data()), size});
      std::string answer(size, '\0');
      co_await b.read({reinterpret_cast<std::byte*>(answer.data()), size});
      co_await a.write({reinterpret_cast<const std::byte*>(answer.data()), size});
    }
  };
  const hello a = of_rank(1);
  const hello b = of_rank(0);
  const secret shared("right");
  std::optional<hello> one, other;
  std::optional<colls::failure> none;
  std::vector<task<>> work;
  work.push_back(keep(colls::prove(left.dialled, a, shared), &one, &none));
  work.push_back(relay(left.answering(), right.dialled, &recorded));
  work.push_back(keep(colls::challenge(right.answering(), b, shared), &other, &none));
  at.run_all(std::move(work));
  REQUIRE(!none);
  REQUIRE(other);
  CHECK(other->rank == 1);
  return recorded;
}

}  // namespace

TEST_CASE("a HELLO comes back as it was written") {
  hello mine = of_rank(3, 5, 0x1122334455667788);
  mine.purpose = connection_purpose::store;
  mine.has_secret = true;
  mine.generation = 9;
  mine.nonce[31] = std::byte{42};
  const auto parsed = parse_hello(colls::write_hello(mine));
  REQUIRE(parsed);
  CHECK(parsed->purpose == connection_purpose::store);
  CHECK(parsed->has_secret);
  CHECK(parsed->version == colls::wire_version);
  CHECK(parsed->generation == 9);
  CHECK(parsed->job == 0x1122334455667788);
  CHECK(parsed->rank == 3);
  CHECK(parsed->world == 5);
  CHECK(parsed->nonce == mine.nonce);
}

TEST_CASE("what is no HELLO is not taken for one") {
  const hello_bytes good = colls::write_hello(of_rank(1));
  REQUIRE(parse_hello(good));
  const std::span<const std::byte> all(good);
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(!parse_hello(all.first(size)));
  std::vector<std::byte> longer(good.begin(), good.end());
  longer.push_back({});
  CHECK(!parse_hello(longer));
  for (std::size_t i = 0; i < 8; ++i) {
    hello_bytes bad = good;
    bad[i] ^= std::byte{1};
    CHECK(!parse_hello(bad));
  }
  for (const int rank : {-2, 4, 5, INT32_MAX, INT32_MIN}) {
    CHECK(!parse_hello(colls::write_hello(of_rank(rank))));
  }
  CHECK(!parse_hello(colls::write_hello(of_rank(-1))));  // a launcher has no links
  CHECK(!parse_hello(colls::write_hello(of_rank(0, 0))));
  CHECK(!parse_hello(colls::write_hello(of_rank(0, -4))));
  hello_bytes purposeless = good;
  purposeless[10] = std::byte{6};
  CHECK(!parse_hello(purposeless));
}

TEST_CASE("of another version's HELLO only the version is believed") {
  hello_bytes other = colls::write_hello(of_rank(1));
  other[8] = std::byte{99};
  REQUIRE(parse_hello(other));
  CHECK(parse_hello(other)->version == 99);
  CHECK(parse_hello(other)->world == 0);
  hello_bytes format = colls::write_hello(of_rank(1));
  format[11] ^= std::byte{1};  // the other byte order
  REQUIRE(parse_hello(format));
  CHECK(parse_hello(format)->version == 0);
}

TEST_CASE("random bytes never parse to a HELLO with an invalid rank or world") {
  std::mt19937_64 random(5);
  const hello_bytes good = colls::write_hello(of_rank(1));
  int parsed = 0;
  for (int round = 0; round < 100'000; ++round) {
    hello_bytes bytes = good;
    for (int flips = static_cast<int>(random() % 6) + 1; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    const auto got = parse_hello(bytes);
    if (!got || got->version != colls::wire_version) continue;
    ++parsed;
    REQUIRE(got->world >= 1);
    REQUIRE(got->rank >= 0);
    REQUIRE(got->rank < got->world);
  }
  CHECK(parsed > 1000);
}

TEST_CASE("a proof depends on the secret, the role and every byte of both HELLOs") {
  using colls::detail::make_proof;
  using colls::detail::role;
  const secret shared("s");
  const hello_bytes a = colls::write_hello(of_rank(1));
  const hello_bytes b = colls::write_hello(of_rank(0));
  const auto proof = make_proof(shared, role::connects, a, b);
  CHECK(proof == make_proof(shared, role::connects, a, b));
  CHECK(proof != make_proof(shared, role::accepts, a, b));
  CHECK(proof != make_proof(shared, role::connects, b, a));
  CHECK(proof != make_proof(secret("t"), role::connects, a, b));
  CHECK(proof != make_proof(secret(), role::connects, a, b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    hello_bytes changed = a;
    changed[i] ^= std::byte{1};
    CHECK(proof != make_proof(shared, role::connects, changed, b));
    changed = b;
    changed[i] ^= std::byte{1};
    CHECK(proof != make_proof(shared, role::connects, a, changed));
  }
}

TEST_CASE("peers with the same secret are accepted, and each learns the other's rank") {
  bench at;
  for (const char* text : {"a secret", ""}) {
    const ends got =
        run_handshake(at, of_rank(2), secret(text, true), of_rank(0), secret(text, true));
    REQUIRE(got.connecting);
    REQUIRE(got.accepting);
    CHECK(got.connecting->rank == 0);
    CHECK(got.accepting->rank == 2);
    CHECK(got.accepting->nonce != got.connecting->nonce);
  }
}

TEST_CASE("a wrong secret is auth_failed on both sides and names the address") {
  bench at;
  const ends got = run_handshake(at, of_rank(2), secret("wrong"), of_rank(0), secret("right"));
  REQUIRE(got.connecting_error);
  REQUIRE(got.accepting_error);
  CHECK(got.connecting_error->code == errc::auth_failed);
  CHECK(got.accepting_error->code == errc::auth_failed);
  CHECK(contains(got.connecting_error->detail, "127.0.0.1:"));
}

TEST_CASE("a secret on one side only is auth_failed and says so") {
  bench at;
  const ends without = run_handshake(at, of_rank(2), secret("", true), of_rank(0), secret("right"));
  REQUIRE(without.connecting_error);
  CHECK(without.connecting_error->code == errc::auth_failed);
  CHECK(contains(without.connecting_error->detail, "this process has none"));
  CHECK(without.accepting_error->code == errc::auth_failed);
  const ends with = run_handshake(at, of_rank(2), secret("right"), of_rank(0), secret("", true));
  REQUIRE(with.connecting_error);
  CHECK(with.connecting_error->code == errc::auth_failed);
  CHECK(contains(with.connecting_error->detail, "this process has one"));
}

TEST_CASE("another job, another version") {
  bench at;
  const ends job = run_handshake(at, of_rank(2, 4, 8), secret("s"), of_rank(0), secret("s"));
  REQUIRE(job.connecting_error);
  CHECK(job.connecting_error->code == errc::unreachable);
  CHECK(contains(job.connecting_error->detail, "another job"));
  hello old = of_rank(2);
  old.version = 77;
  const ends version = run_handshake(at, old, secret("s"), of_rank(0), secret("s"));
  REQUIRE(version.connecting_error);
  CHECK(version.connecting_error->code == errc::version_mismatch);
  const std::string ours = std::to_string(colls::wire_version);
  CHECK(contains(version.connecting_error->detail, "wire version " + ours + ", this process 77"));
  REQUIRE(version.accepting_error);
  CHECK(version.accepting_error->code == errc::version_mismatch);
  CHECK(contains(version.accepting_error->detail, "wire version 77, this process " + ours));
}

TEST_CASE("an earlier generation is stale, a later one may answer soon, and both are named") {
  bench at;
  hello early = of_rank(2);
  hello late = of_rank(0);
  early.generation = 1;
  late.generation = 3;
  const ends stale = run_handshake(at, early, secret("s"), late, secret("s"));
  REQUIRE(stale.connecting_error);
  CHECK(stale.connecting_error->code == errc::stale_generation);
  CHECK(contains(stale.connecting_error->detail,
                 "generation 3 of this job, and this process to generation 1"));
  REQUIRE(stale.accepting_error);
  CHECK(contains(stale.accepting_error->detail,
                 "generation 1 of this job, and this process to generation 3"));
  std::swap(early.rank, late.rank);
  const ends ahead = run_handshake(at, late, secret("s"), early, secret("s"));
  REQUIRE(ahead.connecting_error);
  CHECK(ahead.connecting_error->code == errc::unreachable);
}

TEST_CASE("a HELLO of another job or version is not answered with this one's") {
  bench at;
  for (const bool of_version : {false, true}) {
    hello asks = of_rank(1);
    asks.has_secret = true;
    if (of_version) {
      asks.version = 77;
    } else {
      asks.job = 8;
    }
    std::optional<colls::failure> failed;
    const std::string heard = replies_to_stranger(at, {text(colls::write_hello(asks))}, &failed);
    REQUIRE(failed);
    CHECK(failed->code == (of_version ? errc::version_mismatch : errc::unreachable));
    CHECK(heard.size() == 64);
    CHECK(heard == text(colls::write_hello(colls::refusal(connection_purpose::wrong_job))));
  }
}

TEST_CASE("a refusal says nothing of the job, and does not begin a handshake") {
  for (const connection_purpose why :
       {connection_purpose::wrong_job, connection_purpose::no_descriptor,
        connection_purpose::other_generation}) {
    const hello_bytes answer = colls::write_hello(colls::refusal(why, 3));
    const auto read = parse_hello(answer);
    REQUIRE(read);
    CHECK(read->purpose == why);
    CHECK(read->rank == 3);
    CHECK(read->job == 0);
    CHECK(read->nonce == hello{}.nonce);
    bench at;
    std::optional<colls::failure> failed;
    CHECK(replies_to_stranger(at, {text(answer)}, &failed).empty());
    REQUIRE(failed);
    CHECK(failed->code == errc::protocol_error);
  }
}

TEST_CASE(
    "a peer that drops the connection, and one that has no descriptor, may be dialled again") {
  const auto dial = [](bool hears, const std::string& says) {
    bench at;
    pair_of_streams both(at);
    const hello mine = of_rank(1);
    const secret shared("right");
    std::optional<hello> peer;
    std::optional<colls::failure> failed;
    const auto drop = [](stream& link, bool first, std::string words) -> task<> {
      hello_bytes heard{};
      co_await colls::detail::attempt(link.read(colls::detail::as_mutable_bytes(heard)));
      co_await say(link, std::move(words));
      colls::proof_bytes proof{};
      if (first) co_await colls::detail::attempt(link.read(colls::detail::as_mutable_bytes(proof)));
      link.close();
    };
    std::vector<task<>> work;
    work.push_back(
        closing_on_error(colls::prove(both.dialled, mine, shared), &both.dialled, &peer, &failed));
    work.push_back(drop(both.answering(), hears, says));
    at.run_all(std::move(work));
    REQUIRE(failed);
    return *failed;
  };
  hello good = of_rank(0);
  good.has_secret = true;
  const colls::failure dropped = dial(true, text(colls::write_hello(good)));
  CHECK(dropped.code == errc::unreachable);
  CHECK(contains(dropped.detail, "hung up before it answered to the proof"));
  const auto full = text(colls::write_hello(colls::refusal(connection_purpose::no_descriptor, 3)));
  const colls::failure refused = dial(false, full);
  CHECK(refused.code == errc::too_many_files);
  CHECK(contains(refused.detail, "rank 3 has too many open files"));
}

TEST_CASE("garbage gets no answer at all") {
  bench at;
  std::optional<colls::failure> failed;
  const std::string http =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: a browser\r\n\r\n" + std::string(64, 'x');
  CHECK(replies_to_stranger(at, {http}, &failed).empty());
  REQUIRE(failed);
  CHECK(failed->code == errc::protocol_error);
}

TEST_CASE("a wrong proof gets zeros for an answer") {
  bench at;
  std::optional<colls::failure> failed;
  const std::string heard = replies_to_stranger(at,
                                                {text(colls::write_hello([] {
                                                   hello mine = of_rank(1);
                                                   mine.has_secret = true;
                                                   return mine;
                                                 }())),
                                                 std::string(32, 'p')},
                                                &failed);
  CHECK(heard.size() == 64 + 32);
  CHECK(heard.substr(64) == std::string(32, '\0'));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
}

TEST_CASE("where HMAC fails nothing is proved, and the error says what failed") {
  bench at;
  hello greeting = of_rank(1);
  greeting.has_secret = true;
  std::optional<colls::failure> accepting;
  hmac_fails = true;
  // The peer sends zeros: the bytes of a proof that was never computed.
  const std::string heard = replies_to_stranger(
      at, {text(colls::write_hello(greeting)), std::string(32, '\0')}, &accepting);
  const ends both = run_handshake(at, of_rank(2), secret("s"), of_rank(0), secret("s"));
  hmac_fails = false;
  CHECK(heard.size() == 64);
  CHECK(!both.connecting);
  CHECK(!both.accepting);
  REQUIRE(both.connecting_error);
  REQUIRE(accepting);
  for (const colls::failure& why : {*accepting, *both.connecting_error}) {
    CHECK(why.code == errc::crypto_failed);
    CHECK(contains(why.detail, "OpenSSL's HMAC-SHA256 failed"));
    CHECK(contains(colls::error(why).what(), "OPENSSL_CONF"));
  }
}

TEST_CASE("a job has no hash where SHA-256 fails") {
  digest_fails = true;
  std::optional<colls::failure> why;
  try {
    (void)colls::detail::hash_of("job");
  } catch (const colls::error& thrown) {
    why = thrown.record();
  }
  digest_fails = false;
  REQUIRE(why);
  CHECK(why->code == errc::crypto_failed);
  CHECK(contains(why->detail, "OpenSSL's SHA-256 failed"));
  CHECK(colls::detail::hash_of("job") != 0);
}

TEST_CASE("an interrupted getrandom is repeated, a failed one is an error") {
  std::array<std::byte, 32> drawn{};
  getrandom_errors = 3;
  getrandom_error = EINTR;
  colls::detail::fill_random(drawn.data(), drawn.size());
  CHECK(drawn != std::array<std::byte, 32>{});
  getrandom_errors = 1;
  getrandom_error = ENOSYS;
  std::optional<colls::failure> why;
  try {
    colls::detail::fill_random(drawn.data(), drawn.size());
  } catch (const colls::error& thrown) {
    why = thrown.record();
  }
  getrandom_errors = 0;
  REQUIRE(why);
  CHECK(why->code == errc::crypto_failed);
  CHECK(contains(why->detail, "getrandom"));
}

TEST_CASE("a replayed handshake is turned away") {
  bench at;
  const auto recorded = record_handshake(at);
  REQUIRE(recorded.size() == 2);
  std::optional<colls::failure> failed;
  const std::string heard = replies_to_stranger(at, recorded, &failed);
  CHECK(heard.size() == 64 + 32);
  CHECK(heard.substr(64) == std::string(32, '\0'));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
}

TEST_CASE("a mirror that sends everything back is turned away") {
  bench at;
  pair_of_streams both(at);
  const auto mirror = [](stream& link) -> task<> {
    for (;;) {
      std::byte piece[256];
      std::size_t count = 0;
      const auto got =
          co_await colls::detail::attempt(link.read_some({piece, sizeof piece}, &count));
      if (!got) co_return;
      const auto sent = co_await colls::detail::attempt(link.write({piece, count}));
      if (!sent) co_return;
    }
  };
  const hello mine = of_rank(1);
  const secret shared("right");
  std::optional<hello> no_peer;
  std::optional<colls::failure> failed;
  std::vector<task<>> work;
  work.push_back(
      closing_on_error(colls::prove(both.dialled, mine, shared), &both.dialled, &no_peer, &failed));
  work.push_back(mirror(both.answering()));
  at.run_all(std::move(work));
  CHECK(!no_peer);
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
}

TEST_CASE("without a secret there is no connection, not even on loopback, unless insecure is set") {
  CHECK(!secret().is_good());
  CHECK(secret("s").is_good());
  CHECK(secret("", true).is_good());
  CHECK(secret::drawn(colls::detail::draw_secret()).is_good());
  bench at;
  const ends got = run_handshake(at, of_rank(2), secret(), of_rank(0), secret());
  REQUIRE(got.connecting_error);
  CHECK(got.connecting_error->code == errc::insecure_bind);
  REQUIRE(got.accepting_error);
  CHECK(got.accepting_error->code == errc::insecure_bind);
  const ends open = run_handshake(at, of_rank(2), secret("", true), of_rank(0), secret("", true));
  CHECK(open.connecting);
  CHECK(open.accepting);
}

TEST_CASE("which addresses are loopback") {
  using colls::detail::is_loopback;
  const auto number = [](const char* text) { return boost::asio::ip::make_address(text); };
  for (const char* text : {"127.0.0.1", "127.0.1.1", "::1", "::ffff:127.0.0.1"}) {
    CHECK(is_loopback(number(text)));
  }
  for (const char* text : {"10.0.0.1", "0.0.0.0", "fd00::1", "::", "::ffff:10.0.0.1"}) {
    CHECK(!is_loopback(number(text)));
  }
}

TEST_CASE("each verdict has its result or error on the dialling side") {
  bench at;
  const auto give = [&](colls::verdict what, int number) {
    pair_of_streams both(at);
    std::optional<colls::verdict> got;
    std::optional<colls::failure> failed, none;
    const hello mine = of_rank(2);
    std::vector<task<>> work;
    work.push_back(keep_error(colls::give_verdict(both.answering(), what, number), &none));
    work.push_back(keep(colls::await_verdict(both.dialled, mine), &got, &failed));
    at.run_all(std::move(work));
    CHECK(got.has_value() == !failed.has_value());
    return failed ? failed->code : errc{};
  };
  CHECK(give(colls::verdict::accepted, 0) == errc{});
  CHECK(give(colls::verdict::duplicate, 0) == errc{});
  CHECK(give(colls::verdict::rank_taken, 0) == errc::rank_taken);
  CHECK(give(colls::verdict::world_complete, 0) == errc::world_complete);
  CHECK(give(colls::verdict::other_world, 9) == errc::join_failed);
  CHECK(give(colls::verdict::unavailable, 0) == errc::unreachable);
  CHECK(give(colls::verdict::connection_failed, 0) == errc::peer_failed);
  CHECK(give(static_cast<colls::verdict>(200), 0) == errc::protocol_error);
}

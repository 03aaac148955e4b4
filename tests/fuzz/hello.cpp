// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// HELLO and proof: hostile peers at an authenticating listener, and a hostile peer that this
// process dials.
//
// covers: bootstrap/handshake_messages.hpp
// covers: bootstrap/handshake.ipp: make_proof proofs_equal prepare_hello check_compatible prove challenge give_verdict await_verdict
// covers: bootstrap/authenticating_listener.ipp: authenticate

#include "peer.hpp"

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/os/crc32c.hpp>

#include <optional>

namespace {

using namespace colls;

constexpr int world = 4;
constexpr std::uint64_t job = 0x1234;

hello greeting(connection_purpose purpose, int rank) {
  hello made;
  made.purpose = purpose;
  made.job = job;
  made.rank = rank;
  made.world = world;
  return made;
}

/// A HELLO and a proof as a peer would make them, with the changes of this run.
class stranger {
 public:
  stranger(fuzz::input& from, const secret& ours, int rank)
      : key_(from.below(8) == 0 ? secret("another") : ours) {
    hello said =
        greeting(from.below(8) == 0 ? connection_purpose::store : connection_purpose::peer, rank);
    const int change = from.byte();
    if (change & 1) said.version = from.number<std::uint16_t>();
    if (change & 2) said.job = from.number<std::uint64_t>();
    if (change & 4) said.rank = from.number<std::int8_t>();
    if (change & 8) said.world = from.number<std::int8_t>();
    if (change & 16) said.purpose = static_cast<connection_purpose>(from.byte());
    if (change & 32) said.generation = from.byte();
    mine_ = detail::prepare_hello(said, key_);
    if (change & 64) mine_[from.byte() % mine_.size()] ^= static_cast<std::byte>(from.byte());
    cut_ = change & 128 ? from.byte() % mine_.size() : mine_.size();
    proof_change_ = from.below(8);
    if (proof_change_ != 0) proof_at_ = from.byte();
  }

  std::string_view hello_text() const {
    return {reinterpret_cast<const char*>(mine_.data()), cut_};
  }
  const hello_bytes& mine() const { return mine_; }
  const secret& key() const { return key_; }

  /// A proof that is correct, or wrong in one of a few ways.
  std::string proof(detail::role side, const hello_bytes& connecting,
                    const hello_bytes& accepting) {
    using detail::role;
    if (proof_change_ == 1) side = side == role::connects ? role::accepts : role::connects;
    const bool swapped = proof_change_ == 2;
    proof_bytes made = detail::make_proof(key_, side, swapped ? accepting : connecting,
                                          swapped ? connecting : accepting);
    if (proof_change_ == 3) made[proof_at_ % made.size()] ^= static_cast<std::byte>(1 + proof_at_);
    if (proof_change_ == 4) made.fill(static_cast<std::byte>(proof_at_));
    const std::size_t size = proof_change_ == 5 ? proof_at_ % made.size() : made.size();
    return {reinterpret_cast<const char*>(made.data()), size};
  }
  /// Whether this peer has the secret `ours` and sends a correct proof of it.
  bool is_right(const secret& ours) const {
    const bool flipped_to_same =
        proof_change_ == 3 && static_cast<std::byte>(1 + proof_at_) == std::byte{};
    return cut_ == mine_.size() && key_.text() == ours.text() &&
           (proof_change_ == 0 || proof_change_ > 5 || flipped_to_same);
  }

 private:
  secret key_;
  hello_bytes mine_{};
  std::size_t cut_ = 0;
  int proof_change_ = 0;
  std::uint8_t proof_at_ = 0;
};

/// Requires that `peer` is a HELLO that a rank of this job may send, even if it has another idea of
/// the world.
void require_sound(const hello& peer) {
  fuzz::require(peer.version == wire_version && peer.job == job,
                "a peer is of this version and job");
  fuzz::require(
      peer.purpose == connection_purpose::peer || peer.purpose == connection_purpose::store,
      "a peer has a purpose");
  fuzz::require(peer.world >= 1 && peer.rank < peer.world && peer.rank >= -1, "a peer has a rank");
  fuzz::require(peer.rank >= 0 || peer.purpose == connection_purpose::store,
                "a launcher has no peer connections");
}

hello_bytes hello_in(const std::string& heard) {
  hello_bytes made{};
  std::memcpy(made.data(), heard.data(), std::min(heard.size(), made.size()));
  return made;
}

struct host final : authenticating_listener::handler {
  std::vector<hello> in;
  std::vector<std::unique_ptr<stream>> connections;
  task_group verdicts{fuzz::driver()};

  void handle_peer(std::unique_ptr<stream> connection, const hello& peer) override {
    require_sound(peer);
    in.push_back(peer);
    verdicts.start(give_verdict(*connection, verdict::other_world, world));
    connections.push_back(std::move(connection));
  }
};

void attack_listener(fuzz::input from, const secret& key) {
  fuzz::local_address address;
  listener at;
  at.adopt(address.take());
  host inside;
  authenticating_listener guard(fuzz::driver(), at, greeting(connection_purpose::peer, 0), key,
                                inside);
  std::vector<fuzz::peer> silent;
  for (int attempts = 0; attempts < 8 && !from.is_over(); ++attempts) {
    const int crowd = from.below(32) == 31 ? 40 : 0;
    for (int i = 0; i < crowd; ++i) {
      silent.emplace_back(address.connect());
      fuzz::settle();
    }
    fuzz::peer outside(address.connect());
    stranger hostile(from, key, 1);
    const int way = from.byte();
    outside.send(hostile.hello_text());
    if (way & 1) outside.stop_writing();
    fuzz::settle();
    const hello_bytes answer = hello_in(outside.receive());
    const std::size_t before = inside.in.size();
    outside.send(hostile.proof(detail::role::connects, hostile.mine(), answer));
    if (way & 2) outside.send(from.text());
    if (way & 4) outside.close();
    fuzz::settle();
    const bool was_accepted = inside.in.size() > before;
    fuzz::require(!was_accepted || hostile.is_right(key), "an accepted peer knows the secret");
    if (way & 8) silent.push_back(std::move(outside));
  }
}

struct outcome {
  std::optional<hello> peer;
  std::optional<verdict> answer;
};

task<> dial(stream& to, const hello& mine, const secret& key, outcome& into) {
  try {
    into.peer = co_await prove(to, mine, key);
    into.answer = co_await await_verdict(to, mine);
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
    fuzz::require(thrown.record().detail[0] != 0, "an error has a sentence");
  }
}

/// Any verdict with a correct checksum.
std::string verdict_text(fuzz::input& from) {
  std::string text(from.text(12));
  text.resize(12);
  std::array<std::byte, 4> sum{};
  detail::put_number(sum.data(), detail::crc32c(0, text.data(), text.size()));
  return text.append(reinterpret_cast<const char*>(sum.data()), sum.size());
}

/// Lets the deadline of `link` pass before its peer sends more.
void end_in_time(stream& link) {
  link.set_deadline(0);
  fuzz::settle_deadlines();
}

void attack_dialling(fuzz::input from, const secret& key) {
  auto [outside, inside] = fuzz::peer::pair();
  outcome found;
  {
    stream link(fuzz::driver(), std::move(inside));
    const hello mine = greeting(connection_purpose::peer, 1);
    task_group work(fuzz::driver());
    work.start(dial(link, mine, key, found));
    fuzz::settle();
    const hello_bytes dialled_hello = hello_in(outside.receive());
    stranger hostile(from, key, 0);
    const int way = from.byte();
    if (way & 8) end_in_time(link);
    outside.send(hostile.hello_text());
    if (way & 1) outside.stop_writing();
    fuzz::settle();
    if (way & 16) end_in_time(link);
    outside.send(hostile.proof(detail::role::accepts, dialled_hello, hostile.mine()));
    fuzz::settle();
    fuzz::require(!found.peer || hostile.is_right(key), "a peer that is dialled knows the secret");
    if (found.peer) require_sound(*found.peer);
    if (way & 32) end_in_time(link);
    outside.send(way & 64 ? std::string(from.rest()) : verdict_text(from));
    if (way & 2) outside.close();
    fuzz::settle();
    if (way & 4) link.close();
    fuzz::settle();
  }
  fuzz::require(
      !found.answer || *found.answer == verdict::accepted || *found.answer == verdict::duplicate,
      "a verdict that is returned accepts this rank");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  const int what = from.below(16);
  const secret key(what & 4 ? "" : "a secret", true);
  if ((what & 3) == 0) {
    attack_listener(from, key);
  } else {
    attack_dialling(from, key);
  }
  return 0;
}

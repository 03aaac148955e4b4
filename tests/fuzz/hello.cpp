// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// HELLO and proof: strangers at a door, and a stranger where this process dials.
//
// covers: bootstrap/handshake_messages.hpp
// covers: bootstrap/handshake.ipp: make_proof same_proof introduce compare prove challenge give_verdict await_verdict
// covers: bootstrap/authenticating_listener.ipp: greet

#include "peer.hpp"

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/os/crc32c.hpp>

#include <optional>

namespace {

using namespace colls;

constexpr int world = 4;
constexpr std::uint64_t job = 0x1234;

hello greeting(purpose what, int rank) {
  hello made;
  made.what = what;
  made.job = job;
  made.rank = rank;
  made.world = world;
  return made;
}

/// A HELLO and a proof as a peer would make them, but for what the run changes.
class stranger {
 public:
  stranger(fuzz::input& from, const secret& ours, int rank)
      : key_(from.below(8) == 0 ? secret("another") : ours) {
    hello said = greeting(from.below(8) == 0 ? purpose::store : purpose::link, rank);
    const int change = from.byte();
    if (change & 1) said.version = from.number<std::uint16_t>();
    if (change & 2) said.job = from.number<std::uint64_t>();
    if (change & 4) said.rank = from.number<std::int8_t>();
    if (change & 8) said.world = from.number<std::int8_t>();
    if (change & 16) said.what = static_cast<purpose>(from.byte());
    if (change & 32) said.link_set = from.byte();
    mine_ = detail::introduce(said, key_);
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

  /// Wrong in one of a few ways, or right.
  std::string proof(detail::role who, const hello_bytes& connecting, const hello_bytes& accepting) {
    using detail::role;
    if (proof_change_ == 1) who = who == role::connects ? role::accepts : role::connects;
    const bool swapped = proof_change_ == 2;
    proof_bytes made = detail::make_proof(key_, who, swapped ? accepting : connecting,
                                          swapped ? connecting : accepting);
    if (proof_change_ == 3) made[proof_at_ % made.size()] ^= static_cast<std::byte>(1 + proof_at_);
    if (proof_change_ == 4) made.fill(static_cast<std::byte>(proof_at_));
    const std::size_t size = proof_change_ == 5 ? proof_at_ % made.size() : made.size();
    return {reinterpret_cast<const char*>(made.data()), size};
  }
  /// Whether it is one that knows the secret, and says so.
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

/// Whether that is what a rank of this world, or one that has another idea of it, may say.
void require_sound(const hello& who) {
  fuzz::require(who.version == wire_version && who.job == job, "a peer is of this version and job");
  fuzz::require(who.what == purpose::link || who.what == purpose::store, "a peer has a purpose");
  fuzz::require(who.world >= 1 && who.rank < who.world && who.rank >= -1, "a peer has a rank");
  fuzz::require(who.rank >= 0 || who.what == purpose::store, "a launcher has no links");
}

hello_bytes first_of(const std::string& heard) {
  hello_bytes made{};
  std::memcpy(made.data(), heard.data(), std::min(heard.size(), made.size()));
  return made;
}

struct host final : door::host {
  std::vector<hello> in;
  std::vector<std::unique_ptr<stream>> guests;
  task_group words{fuzz::turned()};

  void enter(std::unique_ptr<stream> guest, const hello& who) override {
    require_sound(who);
    in.push_back(who);
    words.start(give_verdict(*guest, verdict::other_world, world));
    guests.push_back(std::move(guest));
  }
};

void at_the_door(fuzz::input from, const secret& key) {
  fuzz::local_address address;
  listener at;
  at.adopt(address.take());
  host inside;
  door guard(fuzz::turned(), at, greeting(purpose::link, 0), key, inside);
  std::vector<fuzz::peer> silent;
  for (int visits = 0; visits < 8 && !from.is_over(); ++visits) {
    const int crowd = from.below(32) == 31 ? 40 : 0;
    for (int i = 0; i < crowd; ++i) {
      silent.emplace_back(address.connect());
      fuzz::settle();
    }
    fuzz::peer outside(address.connect());
    stranger who(from, key, 1);
    const int way = from.byte();
    outside.say(who.hello_text());
    if (way & 1) outside.stop_writing();
    fuzz::settle();
    const hello_bytes answer = first_of(outside.hear());
    const std::size_t before = inside.in.size();
    outside.say(who.proof(detail::role::connects, who.mine(), answer));
    if (way & 2) outside.say(from.text());
    if (way & 4) outside.hang_up();
    fuzz::settle();
    const bool came_in = inside.in.size() > before;
    fuzz::require(!came_in || who.is_right(key), "who came in knows the secret");
    if (way & 8) silent.push_back(std::move(outside));
  }
}

struct outcome {
  bool proved = false;
  std::optional<hello> peer;
  std::optional<verdict> word;
};

task<> dial(stream& to, const hello& mine, const secret& key, outcome& into) {
  try {
    into.peer = co_await prove(to, mine, key);
    into.word = co_await await_verdict(to, mine);
  } catch (const error& thrown) {
    fuzz::require_sound(thrown.record());
    fuzz::require(thrown.record().detail[0] != 0, "an error has a sentence");
  }
}

/// Any verdict, with its checksum.
std::string verdict_text(fuzz::input& from) {
  std::string text(from.text(12));
  text.resize(12);
  std::array<std::byte, 4> sum{};
  detail::put_number(sum.data(), detail::crc32c(0, text.data(), text.size()));
  return text.append(reinterpret_cast<const char*>(sum.data()), sum.size());
}

/// Its peer says no more before the deadline.
void end_in_time(stream& link) {
  link.deadline(0);
  fuzz::settle_deadlines();
}

void where_it_dials(fuzz::input from, const secret& key) {
  auto [outside, inside] = fuzz::peer::pair();
  outcome found;
  {
    stream link(fuzz::turned(), std::move(inside));
    const hello mine = greeting(purpose::link, 1);
    task_group work(fuzz::turned());
    work.start(dial(link, mine, key, found));
    fuzz::settle();
    const hello_bytes asked = first_of(outside.hear());
    stranger who(from, key, 0);
    const int way = from.byte();
    if (way & 8) end_in_time(link);
    outside.say(who.hello_text());
    if (way & 1) outside.stop_writing();
    fuzz::settle();
    if (way & 16) end_in_time(link);
    outside.say(who.proof(detail::role::accepts, asked, who.mine()));
    fuzz::settle();
    fuzz::require(!found.peer || who.is_right(key), "a peer that is dialled knows the secret");
    if (found.peer) require_sound(*found.peer);
    if (way & 32) end_in_time(link);
    outside.say(way & 64 ? std::string(from.rest()) : verdict_text(from));
    if (way & 2) outside.hang_up();
    fuzz::settle();
    if (way & 4) link.close();
    fuzz::settle();
  }
  fuzz::require(
      !found.word || *found.word == verdict::accepted || *found.word == verdict::duplicate,
      "a verdict that is returned lets this rank in");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  const int what = from.below(16);
  const secret key(what & 4 ? "" : "a secret", true);
  if ((what & 3) == 0) {
    at_the_door(from, key);
  } else {
    where_it_dials(from, key);
  }
  return 0;
}

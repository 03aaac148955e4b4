// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The parts of a link, without a peer.
#include <colls/transport/interprocess/connection.hpp>

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <deque>
#include <functional>
#include <random>

namespace {

using namespace colls;
using namespace colls::tcp;

std::vector<std::byte> pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + seed);
  return all;
}

struct counter : completion {
  int times = 0;

  explicit counter(run_queue& queue) {
    become([](completion& self) noexcept { ++static_cast<counter&>(self).times; },
           completion(nullptr, &queue));
  }
};

/// Rank 0 of two in a call.
struct one_rank {
  run_queue queue;
  match matching{0};
  communicator_state all{7, 0, 2, nullptr};
  operation_record record;

  one_rank() {
    matching.add(all);
    record.communicator = &all;
  }
};

/// A send of its own bytes; its number is its sequence.
struct message : outgoing {
  std::vector<std::byte> bytes;
  counter ended;

  message(one_rank& here, std::uint64_t sequence, std::size_t length)
      : bytes(pattern(length, sequence)), ended(here.queue) {
    key = {1, 7, sequence, 0};
    data = bytes.data();
    size = length;
    record = &here.record;
    done = &ended;
    frame = header_for(kind::data, key, size, 0);
  }
};

struct receive : posted {
  std::vector<std::byte> bytes;
  counter ended;

  receive(one_rank& here, std::size_t length) : bytes(length), ended(here.queue) {
    data = bytes.data();
    size = received = length;
    record = &here.record;
    done = &ended;
  }
};

std::vector<std::byte> written_by(outbox& from, std::size_t at_most) {
  iovec parts[4];
  const int count = from.gather(parts);
  std::vector<std::byte> taken;
  for (int i = 0; i < count; ++i) {
    const auto* const part = static_cast<const std::byte*>(parts[i].iov_base);
    taken.insert(taken.end(), part, part + parts[i].iov_len);
  }
  taken.resize(std::min(taken.size(), at_most));
  from.advance(taken.size());
  return taken;
}

template <class... Parts>
std::vector<std::byte> joined(const Parts&... parts) {
  std::vector<std::byte> all;
  const auto add = [&](const auto& part) {
    if constexpr (std::is_base_of_v<header, std::remove_cvref_t<decltype(part)>>) {
      const auto* const bytes = reinterpret_cast<const std::byte*>(&part);
      all.insert(all.end(), bytes, bytes + sizeof(header));
    } else {
      all.insert(all.end(), part.begin(), part.end());
    }
  };
  (add(parts), ...);
  return all;
}

/// The two ends of a connection: what one writes the other reads.
struct by_socket {
  detail::descriptor out;
  detail::descriptor in;
  socket_frames reader;

  by_socket() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    out = detail::descriptor(ends[0]);
    in = detail::descriptor(ends[1]);
  }
  bool write(outbox& from) { return socket_frames::write(out.get(), from).moved; }
  /// Null, or what is wrong with a frame.
  template <class Begin>
  const char* read(landing& into, Begin begin) {
    if (reader.read(in.get(), into) <= 0) return nullptr;
    return reader.take(into, [] { return false; }, begin);
  }
};
struct by_ring {
  shm::segment memory;
  shm::ring out;
  shm::ring in;

  explicit by_ring(bool checked = false) : out(checked), in(checked) {
    REQUIRE(!memory.make(shm::link_bytes(shm::shortest_ring)));
    REQUIRE(!out.map(memory, 0));
    shm::segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.descriptor()))));
    REQUIRE(!in.map(same, 1));
  }
  bool write(outbox& from) { return write_frames(out, from); }
  template <class Begin>
  const char* read(landing& into, Begin begin) {
    const shm::slot* const next = in.front();
    if (next == nullptr) return in.is_numbered() ? nullptr : damaged;
    const char* const wrong = take_slot(in, *next, into, begin);
    in.settle();
    return wrong;
  }
};
/// The same with checksums.
struct by_checked_socket : by_socket {
  by_checked_socket() { reader.add_checksums(); }
};
struct by_checked_ring : by_ring {
  by_checked_ring() : by_ring(true) {}
};

/// What is written to it is for that way.
template <class Way>
void prepare(outbox& box) {
  if (std::is_same_v<Way, by_checked_socket>) box.add_checksums();
}

}  // namespace

TEST_CASE("an outbox writes what it has begun, then control frames, then other sends") {
  for (std::size_t cut = 1; cut < 200; ++cut) {
    CAPTURE(cut);
    one_rank here;
    message first(here, 1, 50);
    message second(here, 2, 0);
    const header word = header_for(kind::goodbye, {}, 0, 0);
    outbox box;
    CHECK(box.push(first));
    CHECK_FALSE(box.push(second));
    std::vector<std::byte> all = written_by(box, 1);
    REQUIRE(box.control(word, nullptr));
    while (!box.empty()) {
      const std::vector<std::byte> more = written_by(box, cut);
      all.insert(all.end(), more.begin(), more.end());
    }
    CHECK(all == joined(first.frame, first.bytes, word, second.frame));
    here.queue.run();
    CHECK(first.ended.times == 1);
    CHECK(second.ended.times == 1);
    CHECK(here.record.bytes == 50);
  }
}

TEST_CASE("a withdrawn send leaves no trace, or all of its frame from a copy") {
  for (std::size_t begun = 0; begun < sizeof(header) + 50; ++begun) {
    CAPTURE(begun);
    one_rank here;
    message first(here, 1, 50);
    message second(here, 2, 20);
    outbox box;
    box.push(first);
    box.push(second);
    std::vector<std::byte> all = written_by(box, begun);
    const std::vector<std::byte> whole = joined(first.frame, first.bytes);
    CHECK(box.withdraw(first));
    first.bytes.assign(50, std::byte{});
    first.frame = header{};
    while (!box.empty()) {
      const std::vector<std::byte> more = written_by(box, 7);
      all.insert(all.end(), more.begin(), more.end());
    }
    const std::vector<std::byte> rest = joined(second.frame, second.bytes);
    CHECK(all == (begun == 0 ? rest : joined(whole, rest)));
    here.queue.run();
    CHECK(first.ended.times == 0);
    CHECK(second.ended.times == 1);
  }
}

TEST_CASE("the rest of a withdrawn send is not moved while it is written") {
  for (const bool ends : {false, true}) {
    CAPTURE(ends);
    one_rank here;
    message first(here, 1, 1'000'000);
    outbox box;
    box.push(first);
    (void)written_by(box, 100);
    if (ends) box.end();
    CHECK(box.withdraw(first));
    CHECK(box.empty() == ends);  // nobody would take it
    if (ends) continue;
    const std::byte* const rest = box.front().data;
    box.advance_front(32'768);
    CHECK(box.front().data == rest + 32'768);
    (void)written_by(box, 10'000);
    CHECK(box.front().data == rest + 42'768);
    box.advance_front(box.front().size);
    CHECK(box.empty());
  }
}

TEST_CASE("the rest of a frame that was begun past the outbox goes before all others") {
  one_rank here;
  message sent(here, 1, 50);
  const std::vector<std::byte> whole = joined(sent.frame, sent.bytes);
  for (std::size_t done = 1; done < whole.size(); ++done) {
    CAPTURE(done);
    outbox box;
    std::vector<std::byte> copy = sent.bytes;
    REQUIRE(box.add_rest(sent.frame, {copy.data(), copy.size()}, done));
    copy.assign(copy.size(), std::byte(255));
    header word;
    word.kind = kind::goodbye;
    REQUIRE(box.control(word, nullptr));
    std::vector<std::byte> written(whole.begin(),
                                   whole.begin() + static_cast<std::ptrdiff_t>(done));
    while (!box.empty()) {
      const auto more = written_by(box, 7);
      written.insert(written.end(), more.begin(), more.end());
    }
    CHECK(written == joined(sent.frame, sent.bytes, word));
  }
}

TEST_CASE("control frames that come while others are written go out in their order") {
  outbox box;
  std::uint64_t made = 0;
  std::uint64_t gone = 0;
  while (gone < 1000) {
    for (int i = 0; i < 3 && made < 1000; ++i) {
      REQUIRE(box.control(header_for(kind::announce, {1, 7, made++, 0}, 0, 0), nullptr));
    }
    for (int i = 0; i < 2 && gone < made; ++i) {
      CHECK(box.front().frame.sequence == gone++);
      box.advance_front(0);
    }
  }
  CHECK(box.empty());
}

TEST_CASE("a send that is written while it starts is told of its end by that alone") {
  one_rank here;
  message whole(here, 1, 10);
  message half(here, 2, 10);
  outbox box;
  box.push(whole);
  CHECK(box.ends_at_once(whole, [&] { (void)written_by(box, 1000); }));
  box.push(half);
  CHECK_FALSE(box.ends_at_once(half, [&] { (void)written_by(box, 20); }));
  (void)written_by(box, 1000);
  here.queue.run();
  CHECK(whole.ended.times == 0);
  CHECK(half.ended.times == 1);
}

TEST_CASE("the window is spent, comes back by quarters, and never grows") {
  credit of;
  std::size_t sent = 0;
  while (of.spend(1000)) sent += weight(1000);
  CHECK(sent <= window);
  CHECK(sent + weight(1000) > window);
  CHECK(of.spend(10));
  of.refill(weight(1000));
  CHECK(of.spend(1000));
  CHECK_FALSE(of.spend(1000));
  of.refill(10 * window);  // a peer that lies
  CHECK_FALSE(of.spend(eager_limit + 1));
  for (sent = 0; of.spend(1000);) sent += weight(1000);
  CHECK(sent <= window);

  credit receiver;
  std::size_t used = 0;
  std::size_t given = 0;
  for (int i = 0; i < 1000; ++i) {
    used += weight(1000);
    const std::size_t back = receiver.consumed(1000);
    given += back;
    CHECK((back == 0 || back >= window / 4));
    CHECK(used - given < window / 4 + weight(1000));
  }
}

TEST_CASE("a receiver knows what its peer may still send unasked") {
  std::mt19937 random(1);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random()) % end; };
  const auto take = [&](auto& from, std::size_t at) {
    const std::size_t size = from[at];
    from.erase(from.begin() + static_cast<std::ptrdiff_t>(at));
    return size;
  };
  credit sender;
  credit receiver;
  std::deque<std::size_t> sent;   // on their way, as what follows
  std::deque<std::size_t> given;  // back to the sender
  std::vector<std::size_t> kept;
  int compared[2] = {0, 0};
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t size = below(3) == 0 ? eager_limit - below(200) : below(3000);
    const auto use_up = [&](std::size_t used) {
      if (const std::size_t back = receiver.consumed(used)) given.push_back(back);
    };
    switch (below(8)) {
      case 0:
      case 1:
        if (sender.spend(size)) sent.push_back(size);
        break;
      case 2:
      case 3:
      case 4:
        if (sent.empty()) break;
        REQUIRE(receiver.expects(sent.front()));
        if (below(4) == 0) {
          use_up(take(sent, 0));
        } else {
          kept.push_back(take(sent, 0));
          receiver.keep(kept.back());
        }
        break;
      case 5: {
        if (kept.empty()) break;
        const std::size_t wanted = take(kept, below(kept.size()));
        receiver.let_go(wanted);
        use_up(wanted);
        break;
      }
      default:
        if (!given.empty()) sender.refill(take(given, 0));
    }
    if (!sent.empty() || !given.empty()) continue;
    const bool goes = sender.spend(size);
    if (goes) sender.refill(weight(size));
    REQUIRE(receiver.expects(size) == goes);
    ++compared[goes];
  }
  CHECK(compared[false] > 100);
  CHECK(compared[true] > 100);
  CHECK_FALSE(credit().expects(eager_limit + 1));
  CHECK_FALSE(credit().expects(SIZE_MAX));
}

TEST_CASE("the grants of a key are a count, and those of a communicator end with it") {
  credit of;
  const message_key one{1, 7, 1, 0};
  const message_key two{1, 7, 2, 0};
  const message_key other{1, 8, 1, 0};
  for (const message_key& key : {one, one, two, other}) REQUIRE(of.bank_grant(key));
  CHECK(of.take_grant(one));
  CHECK(of.take_grant(one));
  CHECK_FALSE(of.take_grant(one));
  of.drop_grants(7);
  CHECK_FALSE(of.take_grant(two));
  CHECK(of.take_grant(other));

  one_rank here;
  message waits(here, 1, 100'000);
  waits.waits = true;
  of.waiting.push_back(waits);
  CHECK_FALSE(of.is_next(one));
  CHECK(of.is_next(two));
  of.fail(errc::closed, [](const outgoing&) { return true; });
  CHECK(of.is_next(one));
  CHECK_FALSE(waits.waits);
  CHECK(waits.ec == errc::closed);
}

TEST_CASE("no more grants wait on a link than its peer can have receives posted") {
  credit of;
  const auto key = [](std::size_t number) { return message_key{1, 7, number % 1000 + 1, 0}; };
  for (std::size_t i = 0; i < most_grants; ++i) REQUIRE(of.bank_grant(key(i)));
  CHECK_FALSE(of.bank_grant(key(0)));
  CHECK_FALSE(of.bank_grant({1, 8, 1, 0}));
  for (std::size_t i = 0; i < most_grants; ++i) REQUIRE(of.take_grant(key(i)));
  CHECK_FALSE(of.take_grant(key(0)));
  REQUIRE(of.bank_grant({1, 8, 1, 0}));
  for (std::size_t i = 1; i < most_grants; ++i) REQUIRE(of.bank_grant(key(i)));
  CHECK_FALSE(of.bank_grant(key(0)));
  of.drop_grants(7);
  CHECK_FALSE(of.take_grant(key(5)));
  for (std::size_t i = 1; i < most_grants; ++i) REQUIRE(of.bank_grant(key(i)));
  CHECK_FALSE(of.bank_grant(key(0)));
  CHECK(of.take_grant({1, 8, 1, 0}));
}

TEST_CASE("what a peer does not read takes a bounded amount of memory") {
  const std::vector<std::byte> payload = pattern(longest_control, 1);
  const auto frame = [](kind what, std::uint32_t communicator, std::size_t size) {
    return header_for(what, {1, communicator, 0, 0}, size, 0);
  };
  const auto drain = [](outbox& box) {
    std::size_t frames = 0;
    for (; !box.empty(); ++frames) box.advance_front(box.front().size);
    return frames;
  };
  for (const kind what : {kind::announce, kind::report}) {
    outbox box;
    const header word = frame(what, 7, sizeof(state_report));
    for (int round = 0; round < 3; ++round) {
      for (int i = 0; i < 10'000; ++i) REQUIRE(box.control(word, payload.data()));
      const header grant = frame(kind::grant, 7, 0);
      REQUIRE(box.control(grant, nullptr));
      CHECK(drain(box) == most_words_unread / (sizeof word + sizeof(state_report)) + 2);
    }
  }
  {
    // The same reason again is one, until it was written; what else there is to say is said.
    outbox box;
    const header one = frame(kind::revoke, 7, sizeof(failure));
    const header other = frame(kind::revoke, 8, sizeof(failure));
    const std::vector<std::byte> reason = pattern(sizeof(failure), 2);
    for (int round = 0; round < 3; ++round) {
      REQUIRE(box.control(frame(kind::grant, 7, 0), nullptr));
      for (int i = 0; i < 10; ++i) REQUIRE(box.control(one, payload.data()));
      CHECK(drain(box) == 2);
      REQUIRE(box.control(one, payload.data()));
      (void)written_by(box, 1);
      REQUIRE(box.control(one, payload.data()));
      (void)written_by(box, 1000);
      (void)written_by(box, 1000);
      CHECK(box.empty());
      for (const header& each : {one, one, other, other, one}) {
        REQUIRE(box.control(each, payload.data()));
      }
      REQUIRE(box.control(one, reason.data()));
      CHECK(drain(box) == 4);
    }
  }
  outbox box;
  std::size_t taken = 0;
  for (std::uint32_t i = 1;
       box.control(frame(kind::fingerprint, i, sizeof(fingerprint)), payload.data()); ++i) {
    taken += sizeof(header) + sizeof(fingerprint);
    REQUIRE(taken <= most_unread + 1000);
  }
  CHECK(taken > most_unread);
  CHECK(box.empty());  // and nothing is written any more
}

namespace {

/// An owner that has the peer write more whenever something of it has come.
struct fed_owner final : link_owner {
  match all{0};
  int came = 0;
  int losses = 0;
  std::function<void()> feed;

  void received(tcp::link&, const header&, const std::byte*) override {
    ++came;
    feed();
  }
  bool take_next(tcp::link&) override { return false; }
  void lost(tcp::link&, const failure&) override { ++losses; }
  void lent(tcp::link&, detail::descriptor) override {
    ++came;
    feed();
  }
  match& matching() override { return all; }
};

}  // namespace

TEST_CASE("a peer that writes on and on does not keep the thread, before its end and after") {
  constexpr int many = 20'000;
  for (const bool has_ended : {false, true}) {
    CAPTURE(has_ended);
    boost::asio::io_context context(1);
    const std::shared_ptr<engine> on = engine::of(context.get_executor());
    fed_owner owner;
    by_ring memory;
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    const detail::descriptor other(ends[0]);
    auto mine = std::make_unique<shm::ring>();
    shm::segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.memory.descriptor()))));
    REQUIRE(!mine->map(same, 1));
    tcp::link to(*on, owner, 1);
    to.open(detail::descriptor(ends[1]), std::move(mine));
    if (has_ended) {
      const header word = header_for(kind::mapped, {}, 0, 0);
      owner.feed = [&] {
        if (owner.came < many && memory.out.has_slot()) memory.out.write(word, nullptr, 0);
      };
      while (memory.out.has_slot()) memory.out.write(word, nullptr, 0);
      REQUIRE(::shutdown(other.get(), SHUT_WR) == 0);
      on->dispatch(0);
      CHECK(owner.came == static_cast<int>(shm::slots));  // all that lay there
      CHECK(to.ended());
      CHECK(owner.losses == 1);
    } else {
      owner.feed = [&] {
        if (owner.came < many) CHECK(::send(other.get(), "+", 1, MSG_NOSIGNAL) == 1);
      };
      owner.feed();
      int before = 0;
      for (int turn = 0; turn < 3; ++turn) {
        on->dispatch(0);
        CHECK(owner.came > before);  // it is told again
        CHECK(owner.came < before + 100);
        before = owner.came;
      }
      CHECK(!to.ended());
    }
  }
}

TEST_CASE("payload whose receive has gone is thrown away") {
  one_rank here;
  landing into(here.matching);
  const std::vector<std::byte> payload = pattern(100, 1);
  receive gone(here, 100);
  into.begin(100);
  into.deliver_to(gone, true);
  into.take(payload.data(), 40);
  here.matching.withdraw(gone);
  gone.bytes.assign(100, std::byte{});
  into.take(payload.data() + 40, 60);
  CHECK(into.left() == 0);
  CHECK(gone.bytes == std::vector<std::byte>(100));
  here.queue.run();
  CHECK(gone.ended.times == 0);

  receive next(here, 100);
  into.begin(100);
  into.deliver_to(next, true);
  into.fail(errc::closed, [](const posted&) { return true; });
  into.take(payload.data(), 100);
  here.queue.run();
  CHECK(next.ended.times == 1);
  CHECK(next.ec == errc::closed);
  CHECK(next.bytes == std::vector<std::byte>(100));
}

/// Nobody else is told anything.
struct silent_owner final : link_owner {
  match& all;
  std::vector<failure> losses;

  explicit silent_owner(match& of) : all(of) {}
  void received(tcp::link&, const header&, const std::byte*) override {}
  bool take_next(tcp::link&) override { return false; }
  void lost(tcp::link&, const failure& why) override { losses.push_back(why); }
  void lent(tcp::link&, detail::descriptor) override {}
  match& matching() override { return all; }
};

#if !defined(__SANITIZE_ADDRESS__)  // it ends a process that asks for too much
TEST_CASE("without memory for the rest of a half-written message its link ends, later") {
  boost::asio::io_context context(1);
  const auto on = engine::of(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  by_socket way;
  tcp::link to(*on, owner, 1);
  to.open(std::move(way.out));
  message half(here, 1, 10'000'000);
  CHECK_FALSE(to.enqueue(half));
  REQUIRE(half.written > sizeof(header));
  half.size = SIZE_MAX / 4;
  to.withdraw(half);
  CHECK(to.ended());
  CHECK(!to.is_open());
  CHECK(!to.peer_is_gone());
  CHECK(owner.losses.empty());
  on->queue().run();
  REQUIRE(owner.losses.size() == 1);
  CHECK(owner.losses[0].code == errc::peer_failed);
  CHECK(owner.losses[0].culprit == 0);
  std::vector<std::byte> taken(65536);
  ssize_t got = 1;
  while (got > 0) got = ::read(way.in.get(), taken.data(), taken.size());
  CHECK(got == 0);
}
#endif

TEST_CASE("after its end a link still tells when a peer that may be in lent memory has gone") {
  boost::asio::io_context context(1);
  const auto on = engine::of(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  by_socket way;
  tcp::link to(*on, owner, 1);
  to.is_seen = true;
  to.open(std::move(way.out));
  to.fail(0, "a frame that cannot be");
  CHECK(!to.is_open());
  std::byte some{};
  CHECK(::read(way.in.get(), &some, 1) == 0);
  CHECK(!to.peer_is_gone());
  way.in = {};
  CHECK(to.peer_is_gone());
}

TEST_CASE("a message that its link writes at once goes whole, or not at all") {
  boost::asio::io_context context(1);
  const auto on = engine::of(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  by_socket way;
  const int room = 8 * 1024;
  ::setsockopt(way.out.get(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  tcp::link to(*on, owner, 1);
  to.open(std::move(way.out));
  std::vector<std::byte> wanted;
  std::vector<std::byte> got;
  std::size_t parts = 0;
  std::size_t refused = 0;
  const auto read = [&] {
    std::vector<std::byte> some(20'000);
    const ssize_t size = ::read(way.in.get(), some.data(), some.size());
    if (size > 0) got.insert(got.end(), some.begin(), some.begin() + size);
    return size > 0;
  };
  for (std::size_t k = 0; k < 400; ++k) {
    message next(here, k, k * 997 % 30'000);
    if (to.write_whole(next.frame, {next.data, next.size})) {
      parts += !to.idle();
      wanted = joined(wanted, next.frame, next.bytes);
    } else {
      ++refused;
    }
    next.bytes.assign(next.size, std::byte(255));
    if (k % 3 == 0) read();
    if (k % 5 == 0) on->dispatch();
    if (k % 50 == 0) to.credit.refill(window);
  }
  while (read() || !to.idle()) on->dispatch();
  CHECK(parts > 0);
  CHECK(refused > 0);
  CHECK(got == wanted);
  // What was refused has left the window as it was.
  std::size_t left = 0;
  to.credit.refill(window);
  message more(here, 1, 2000);
  while (to.write_whole(more.frame, {more.data, more.size})) ++left;
  std::size_t spent = 0;
  while (to.credit.spend(2000)) ++spent;
  CHECK(left + spent == window / (2000 + 64));
}

TEST_CASE("a message that is expected is taken off its link whole, or comes as others do") {
  const std::vector<std::byte> payload = pattern(60, 3);
  for (const bool is_it : {true, false}) {
    for (std::size_t cut = 1; cut < 200; ++cut) {
      CAPTURE(is_it);
      CAPTURE(cut);
      one_rank here;
      landing into(here.matching);
      by_socket way;
      message first(here, 1, 60);
      message second(here, 2, 60);
      first.bytes = second.bytes = payload;
      header expected = first.frame;
      if (!is_it) expected.hash = 5;
      const std::vector<std::byte> all = joined(first.frame, payload, second.frame, payload);
      std::vector<std::byte> taken(60);
      std::vector<std::uint64_t> seen;
      receive got[] = {receive(here, 60), receive(here, 60)};
      const auto is_taken = [&] {
        const bool found = way.reader.take_whole(expected, taken.data());
        if (found) seen.push_back(1);
        return found;
      };
      const auto begin = [&](const header& frame, const std::byte*) {
        seen.push_back(frame.sequence + 10);
        into.begin(frame.length);
        into.deliver_to(got[frame.sequence - 1], true);
        return true;
      };
      const std::size_t end = std::min(cut, all.size());
      const auto come = [&](std::size_t from, std::size_t to) {
        if (from == to) return;
        REQUIRE(::write(way.out.get(), all.data() + from, to - from) ==
                static_cast<ssize_t>(to - from));
        REQUIRE(way.reader.read(way.in.get(), into) > 0);
        REQUIRE(way.reader.take(into, is_taken, begin) == nullptr);
      };
      come(0, end);
      come(end, all.size());
      const bool whole = is_it && (cut < sizeof(header) || cut >= sizeof(header) + payload.size());
      CHECK(seen == std::vector<std::uint64_t>{whole ? 1U : 11U, 12U});
      CHECK((whole ? taken : got[0].bytes) == payload);
      CHECK(got[1].bytes == payload);
    }
  }
}

TEST_CASE("a receive that waits for the rest of an early message can fail, and be withdrawn") {
  boost::asio::io_context context(1);
  const auto on = engine::of(context.get_executor());
  const std::vector<std::byte> payload = pattern(window / 4, 1);
  for (const bool fails : {true, false}) {
    CAPTURE(fails);
    one_rank here;
    silent_owner owner(here.matching);
    tcp::link from(*on, owner, 1);
    landing into(here.matching);
    receive waiting(here, payload.size());
    early& message = *early::make(payload.size());
    message.key = {1, 7, 1, 0};
    message.size = payload.size();
    message.from = &from;
    message.buffered = true;
    from.credit.keep(message.size);
    into.begin(payload.size());
    into.deliver_to(message);
    into.take(payload.data(), 40);
    into.complete_later(message, waiting);
    if (fails) {
      into.fail(errc::closed, [](const posted&) { return true; });
    } else {
      here.matching.withdraw(waiting);
    }
    CHECK(!waiting.busy());
    CHECK(!from.idle());  // the window goes back to the peer
    into.take(payload.data() + 40, payload.size() - 40);
    CHECK(into.left() == 0);
    here.queue.run();
    CHECK(waiting.ended.times == (fails ? 1 : 0));
    CHECK((!fails || waiting.ec == errc::closed));
    CHECK(waiting.bytes == std::vector<std::byte>(payload.size()));
  }
}

TEST_CASE("a message that did not go leaves its place in the window") {
  boost::asio::io_context context(1);
  const auto on = engine::of(context.get_executor());
  one_rank here;
  silent_owner owner(here.matching);
  tcp::link to(*on, owner, 1);  // not open yet
  for (int i = 0; i < 100; ++i) {
    message sent(here, 1, 16 * 1024);
    REQUIRE(to.credit.spend(sent.size));
    CHECK(!to.enqueue(sent));
    CHECK(sent.is_untouched());
    if (i % 2 == 0) {
      to.withdraw(sent);
    } else {
      to.fail_sends(errc::closed, [](const outgoing&) { return true; });
    }
    CHECK(!sent.is_pending());
  }
  CHECK(to.credit.spend(eager_limit));
}

TEST_CASE("a reduction gets whole elements, in place or all at once") {
  for (const bool in_place : {true, false}) {
    one_rank here;
    landing into(here.matching);
    const std::vector<std::byte> payload = pattern(120, 1);
    struct folded {
      std::vector<std::byte> bytes;
      int pieces = 0;
    } seen;
    receive wanted(here, 120);
    wanted.data = nullptr;
    wanted.grain = 12;
    wanted.folds = &seen;
    wanted.fold = [](void* self, std::size_t offset, const std::byte* piece, std::size_t size) {
      auto& all = *static_cast<folded*>(self);
      CHECK(offset == all.bytes.size());
      CHECK(size % 12 == 0);
      all.bytes.insert(all.bytes.end(), piece, piece + size);
      ++all.pieces;
    };
    into.begin(120);
    into.deliver_to(wanted, in_place);
    for (std::size_t at = 0; at < 120;) {
      const std::size_t size = into.takes(std::min<std::size_t>(31, 120 - at));
      into.take(payload.data() + at, size);
      at += size;
    }
    CHECK(seen.bytes == payload);
    CHECK((seen.pieces == 1) == !in_place);
    here.queue.run();
    CHECK(wanted.ended.times == 1);
  }
}

TEST_CASE_TEMPLATE("frames of every size go from an outbox to a landing", Way, by_socket, by_ring,
                   by_checked_socket, by_checked_ring) {
  Way way;
  one_rank here;
  std::mt19937 random(1);
  const std::size_t sizes[] = {0, 1, 24, 25, 1000, 5000, 65536, 300'000, 1'000'000};
  std::deque<message> sent;
  std::deque<receive> got;
  for (const std::size_t size : sizes) {
    sent.emplace_back(here, sent.size(), size);
    got.emplace_back(here, size);
  }
  outbox box;
  landing into(here.matching);
  const failure last(errc::closed);
  header word;
  word.kind = kind::revoke;
  word.length = sizeof last;
  std::size_t begun = 0;
  std::size_t words = 0;
  const auto begin = [&](const header& frame, const std::byte* payload) {
    if (frame.kind == kind::revoke) {
      const auto report = reported_failure::parse({payload, sizeof(failure)}, 2);
      REQUIRE(report);
      CHECK(report->why().code == errc::closed);
      into.begin(0);
      ++words;
      return true;
    }
    CHECK(frame.sequence == begun);
    CHECK(frame.length == got[begun].size);
    into.begin(frame.length);
    into.deliver_to(got[begun], true);
    if (frame.length == 0) into.end();
    ++begun;
    return true;
  };
  for (message& each : sent) {
    box.push(each);
    // They may queue before it is known by which way they go.
    if (&each == &sent[2]) prepare<Way>(box);
    if (&each > &sent[2] && random() % 2 == 0) way.write(box);
    ++word.communicator;
    REQUIRE(box.control(word, &last));
  }
  for (int turns = 0; turns < 10'000 && (!box.empty() || words < sent.size()); ++turns) {
    way.write(box);
    REQUIRE(way.read(into, begin) == nullptr);
  }
  for (int turns = 0; turns < 10'000; ++turns) REQUIRE(way.read(into, begin) == nullptr);
  CHECK(begun == sent.size());
  CHECK(words == sent.size());
  here.queue.run();
  for (std::size_t i = 0; i < sent.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i].bytes == sent[i].bytes);
    CHECK(got[i].ended.times == 1);
    CHECK(sent[i].ended.times == 1);
  }
}

TEST_CASE_TEMPLATE("a frame that cannot be is refused before it is begun", Way, by_socket, by_ring,
                   by_checked_socket, by_checked_ring) {
  const auto refuses = [](std::vector<header> frames) {
    Way way;
    one_rank here;
    landing into(here.matching);
    outbox box;
    prepare<Way>(box);
    const std::vector<std::byte> payload(sizeof(failure));
    for (const header& each : frames) {
      REQUIRE(box.control(each, control_size(each) != 0 ? payload.data() : nullptr));
    }
    way.write(box);
    std::size_t begun = 0;
    const auto begin = [&](const header&, const std::byte*) {
      into.begin(0);
      ++begun;
      return true;
    };
    bool good = true;
    for (std::size_t turns = 0; good && turns < frames.size(); ++turns) {
      good = way.read(into, begin) == nullptr;
    }
    CHECK(begun == frames.size() - !good);
    return !good;
  };
  header good;
  good.kind = kind::goodbye;
  header unknown = good;
  unknown.kind = static_cast<kind>(99);
  header long_goodbye = good;
  long_goodbye.length = 8;
  header short_failure;
  short_failure.kind = kind::revoke;
  short_failure.length = sizeof(failure) - 1;
  header too_long = header_for(kind::data, {1, 7, 1, 0}, std::uint64_t{1} << 63, 0, flag::granted);
  CHECK(refuses({good, too_long}));
  CHECK_FALSE(refuses({good, good}));
  CHECK(refuses({good, unknown}));
  CHECK(refuses({good, long_goodbye}));
  CHECK(refuses({good, short_failure}));
}

namespace {

/// Frames of every kind, and what a reader makes of them where one bit changes on the way.
template <class Way>
class flips {
 public:
  /// True: the reader refused it for its checksum, and nothing was made of it that it says.
  static bool are_found(const header& frame, std::size_t size, std::size_t bit) {
    flips all(size);
    all.write(frame);
    all.flip(bit);
    const char* const wrong = all.read();
    return wrong != nullptr && std::strcmp(wrong, damaged) == 0 && all.got_.ended.times == 0 &&
           (frame.kind == kind::data || all.begun_ == 0);
  }
  /// As above, with no bit changed: it comes.
  static bool comes(const header& frame, std::size_t size) {
    flips all(size);
    all.write(frame);
    const bool right = all.read() == nullptr && all.begun_ == 1;
    all.here_.queue.run();
    const bool ended = all.got_.ended.times == 1 && all.got_.bytes == all.sent_.bytes;
    return right && (size == 0 || frame.kind != kind::data || ended);
  }
  static std::size_t bits(const header& frame, std::size_t size) {
    flips all(size);
    all.write(frame);
    return 8 * all.changed_.size();
  }

 private:
  explicit flips(std::size_t size) : sent_(here_, 1, size), got_(here_, size) {
    prepare<Way>(box_);
  }

  void write(const header& frame) {
    const std::vector<std::byte> before = all_memory();
    if (frame.kind == kind::data && (frame.flags & flag::header_alone) == 0) {
      sent_.frame = frame;
      box_.push(sent_);
    } else {
      REQUIRE(box_.control(frame, sent_.bytes.data()));
    }
    if constexpr (std::is_base_of_v<by_socket, Way>) {
      while (!box_.empty()) {
        const std::vector<std::byte> more = written_by(box_, 1'000'000);
        changed_.insert(changed_.end(), more.begin(), more.end());
      }
    } else {
      while (!box_.empty()) REQUIRE(way_.write(box_));
      const std::vector<std::byte> after = all_memory();
      for (std::size_t at = 0; at < after.size(); ++at) {
        if (after[at] != before[at]) places_.push_back(at);
      }
      changed_.resize(places_.size());
    }
  }
  void flip(std::size_t bit) {
    const auto mask = static_cast<std::byte>(1U << bit % 8);
    if constexpr (std::is_base_of_v<by_socket, Way>) {
      changed_[bit / 8] ^= mask;
    } else {
      std::byte byte{};
      const auto at = static_cast<off_t>(places_[bit / 8]);
      REQUIRE(::pread(way_.memory.descriptor(), &byte, 1, at) == 1);
      byte ^= mask;
      REQUIRE(::pwrite(way_.memory.descriptor(), &byte, 1, at) == 1);
    }
  }
  const char* read() {
    const auto begin = [&](const header& frame, const std::byte*) {
      ++begun_;
      const bool brings = frame.kind == kind::data && (frame.flags & flag::header_alone) == 0;
      into_.begin(brings ? frame.length : 0);
      if (brings) into_.deliver_to(got_, !std::is_base_of_v<by_socket, Way>);
      return true;
    };
    std::size_t written = 0;
    const char* wrong = nullptr;
    for (int turns = 0; turns < 200 && wrong == nullptr; ++turns) {
      if constexpr (std::is_base_of_v<by_socket, Way>) {
        const ssize_t more =
            ::send(way_.out.get(), changed_.data() + written,
                   std::min<std::size_t>(changed_.size() - written, 3000), MSG_DONTWAIT);
        if (more > 0) written += static_cast<std::size_t>(more);
      }
      wrong = way_.read(into_, begin);
    }
    return wrong;
  }
  std::vector<std::byte> all_memory() {
    std::vector<std::byte> all;
    if constexpr (!std::is_base_of_v<by_socket, Way>) {
      all.resize(way_.memory.size());
      REQUIRE(::pread(way_.memory.descriptor(), all.data(), all.size(), 0) ==
              static_cast<ssize_t>(all.size()));
    }
    return all;
  }

  Way way_;
  one_rank here_;
  outbox box_;
  landing into_{here_.matching};
  message sent_;
  receive got_;
  std::vector<std::byte> changed_;   // what travels
  std::vector<std::size_t> places_;  // where it lies in shared memory
  int begun_ = 0;
};

}  // namespace

TEST_CASE_TEMPLATE("with checksums no bit of any frame changes unnoticed", Way, by_checked_socket,
                   by_checked_ring) {
  struct sample {
    header frame;
    std::size_t size;
  };
  const message_key key{1, 7, 0x0102030405060708, 0x1122};
  const auto of = [&](kind what, std::size_t size, std::uint8_t flags = 0) {
    return sample{header_for(what, key, size, 0x99aabbccddeeff00, flags), size};
  };
  std::vector<sample> samples{of(kind::data, 0),
                              of(kind::data, 3),
                              of(kind::data, 20),
                              of(kind::data, 24),
                              of(kind::data, 300),
                              of(kind::data, 100'000, flag::granted),
                              of(kind::data, 0, flag::header_alone),
                              of(kind::grant, 0),
                              of(kind::announce, sizeof(state_report)),
                              of(kind::report, sizeof(state_report)),
                              of(kind::revoke, sizeof(failure)),
                              of(kind::fingerprint, sizeof(fingerprint)),
                              of(kind::goodbye, 0),
                              of(kind::mapped, 0, flag::reads)};
  // A header alone and a grant tell of a length, and bring nothing.
  for (const std::size_t at : {6U, 7U}) samples[at].frame.length = 1'000'000;
  std::mt19937 random(5);
  for (const auto& [frame, size] : samples) {
    CAPTURE(static_cast<int>(frame.kind));
    CAPTURE(size);
    CHECK(flips<Way>::comes(frame, size));
    const std::size_t bits = flips<Way>::bits(frame, size);
    CHECK(bits >= 8 * std::min<std::size_t>(size, 1));
    int unnoticed = 0;
    int tried = 0;
    for (std::size_t bit = 0; bit < bits; bit += size < 100 ? 1 : 1 + random() % (bits / 100)) {
      unnoticed += !flips<Way>::are_found(frame, size, bit);
      ++tried;
    }
    CHECK(tried > 60);
    // One bit of a slot's number makes it look as if it was not written yet.
    const bool is_first_tried = std::is_same_v<Way, by_checked_ring>;
    CHECK(unnoticed == is_first_tried);
  }
}

TEST_CASE("the rest of a frame with checksums is written from a copy as it was begun") {
  for (std::size_t begun = 1; begun < sizeof(checked_header) + 50; ++begun) {
    CAPTURE(begun);
    by_checked_socket way;
    one_rank here;
    message first(here, 1, 50);
    receive got(here, 50);
    const std::vector<std::byte> bytes = first.bytes;
    outbox box;
    box.add_checksums();
    box.push(first);
    std::vector<std::byte> all = written_by(box, begun);
    CHECK(box.withdraw(first));
    first.bytes.assign(50, std::byte{});
    first.frame = header{};
    const std::vector<std::byte> rest = written_by(box, 1000);
    all.insert(all.end(), rest.begin(), rest.end());
    CHECK(box.empty());
    landing into(here.matching);
    REQUIRE(::write(way.out.get(), all.data(), all.size()) == static_cast<ssize_t>(all.size()));
    const auto begin = [&](const header& frame, const std::byte*) {
      into.begin(frame.length);
      into.deliver_to(got, false);
      return true;
    };
    CHECK(way.read(into, begin) == nullptr);
    here.queue.run();
    CHECK(got.ended.times == 1);
    CHECK(got.bytes == bytes);
  }
}

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/connector.hpp>

#include <colls/channel/channel.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// How a link opens where both ends want it, and what becomes of those who want one to a dead rank.

namespace {

using colls::task;

enum class part { sends, receives, both };

/// A rank of a world of two, on an engine that moves when the test says so.
class rank_of_two {
 public:
  rank_of_two(int rank, const colls::membership& parent, colls::offshoot::card& mine)
      : engine_(colls::engine::of(context_.get_executor())),
        who_(colls::offshoot::prepare(parent, rank, 2, mine)),
        state_(1, rank, 2, nullptr) {}
  rank_of_two(const rank_of_two&) = delete;
  rank_of_two& operator=(const rank_of_two&) = delete;
  ~rank_of_two() {
    work_.reset();
    if (net_) net_->matching().remove(state_);
  }

  /// With a store: as in a world that is so large that only the store knows where ranks listen.
  void open(const std::vector<colls::offshoot::card>& all,
            const std::shared_ptr<colls::store>& knows) {
    colls::offshoot::complete(*who_, all);
    if (knows != nullptr) {
      who_->book.clear();
      who_->rendezvous = knows;
    }
    net_.emplace(engine_, who_);
    net_->matching().add(state_);
    work_.emplace(*engine_);
  }

  /// A word to the other rank, and the same from it, or a part of that.
  void begin(part what = part::both, std::size_t size = sizeof(int)) {
    record_.communicator = &state_;
    record_.sequence = state_.take_sequence({});
    record_.hash = colls::hash_of({});
    record_.started = net_->now();
    record_.deadline = record_.started + 20 * colls::seconds;
    net_->matching().begin(record_);
    work_->start(exchange(what, size));
  }
  /// Gives that up and leaves.
  void leave() {
    work_.emplace(*engine_);
    net_->matching().end(record_);
    work_->start(depart());
  }
  void turn() {
    engine_->poll();
    engine_->dispatch();
    engine_->poll();
  }
  bool is_done() const { return done_; }
  bool has_failed() const { return state_.failed(); }
  const colls::failure& why() const { return state_.why(); }

  colls::engine& on() { return *engine_; }
  const colls::membership& who() const { return *who_; }
  void lose_secret() { who_->key = {}; }

 private:
  task<> exchange(part what, std::size_t size) {
    const int other = 1 - state_.rank();
    std::vector<std::byte> mine(size, static_cast<std::byte>(10 + state_.rank()));
    std::vector<std::byte> theirs(size);
    const colls::basic_channel<colls::tcp_transport> net(*net_, record_);
    const colls::const_bytes out(mine.data(), size);
    const colls::mutable_bytes in(theirs.data(), size);
    try {
      if (what == part::sends) {
        co_await net.send(other, out);
      } else if (what == part::receives) {
        co_await net.recv(other, in);
      } else {
        co_await colls::when_all(net.send(other, out), net.recv(other, in));
        CHECK(theirs.back() == static_cast<std::byte>(10 + other));
      }
    } catch (const colls::error& thrown) {
      CHECK(thrown.record().code == state_.why().code);
    }
    net_->matching().end(record_);
    done_ = true;
  }

  task<> depart() {
    co_await net_->close(engine_->now() + 5 * colls::seconds);
    done_ = true;
  }

  boost::asio::io_context context_{1};
  std::shared_ptr<colls::engine> engine_;
  std::shared_ptr<colls::membership> who_;
  std::optional<colls::tcp_transport> net_;
  colls::communicator_state state_;
  colls::operation_record record_;
  bool done_ = false;
  std::optional<colls::task_group> work_;
};

struct two {
  explicit two(const char* transport, const std::shared_ptr<colls::store>& knows = nullptr) {
    colls::membership parent;
    parent.address = boost::asio::ip::address_v4::loopback();
    parent.cfg.transport = transport;
    parent.key = colls::secret("known to both");
    std::vector<colls::offshoot::card> cards(2);
    for (std::size_t i = 0; i < 2; ++i) {
      all[i] = std::make_unique<rank_of_two>(static_cast<int>(i), parent, cards[i]);
    }
    for (const auto& each : all) each->open(cards, knows);
  }
  rank_of_two& operator[](int rank) { return *all[static_cast<std::size_t>(rank)]; }
  bool over() const {
    return (all[0]->is_done() && all[1]->is_done()) || all[0]->has_failed() || all[1]->has_failed();
  }
  std::array<std::unique_ptr<rank_of_two>, 2> all;
};

void check(two& ranks) {
  for (const auto& each : ranks.all) {
    CAPTURE(each->why().detail);
    CHECK(each->is_done());
    CHECK(!each->has_failed());
  }
}

/// Turns both until their exchange is over.
void finish(two& ranks) {
  const colls::time_point limit = ranks[0].on().now() + 10 * colls::seconds;
  while (!ranks.over() && ranks[0].on().now() < limit) {
    for (const auto& each : ranks.all) each->turn();
  }
  // A link that one side has given up would be seen to end.
  for (int i = 0; i < 20; ++i) {
    for (const auto& each : ranks.all) each->turn();
  }
  check(ranks);
}

task<> introduce(colls::stream& to, const colls::membership& as, bool* accepted) {
  *accepted = co_await as.introduce(to, 0);
}

}  // namespace

TEST_CASE("two ranks that need each other get one link, wherever the other's dialling is") {
  for (const char* transport : {"tcp", "shm"}) {
    for (const int first : {0, 1}) {
      for (const int pace : {0, 1, 3}) {  // turns of the second while the first has one
        for (int head_start = 0; head_start < 16; ++head_start) {
          CAPTURE(transport);
          CAPTURE(first);
          CAPTURE(pace);
          CAPTURE(head_start);
          two ranks(transport);
          rank_of_two& early = ranks[first];
          rank_of_two& late = ranks[1 - first];
          early.begin();
          for (int i = 0; i < head_start; ++i) {
            early.turn();
            for (int k = 0; k < pace; ++k) late.turn();
          }
          late.begin();
          // The first rests in the middle, or the second does.
          for (int i = 0; i < head_start; ++i) (pace == 0 ? late : early).turn();
          finish(ranks);
        }
      }
    }
  }
}

TEST_CASE("who leaves while it dials says goodbye to whom it has reached") {
  for (int start = 0; start < 32; ++start) {
    const char* const transport = start % 2 == 0 ? "shm" : "tcp";
    const int head_start = start / 2;
    CAPTURE(transport);
    CAPTURE(head_start);
    two ranks(transport);
    ranks[0].begin();
    for (int i = 0; i < head_start; ++i) {
      ranks[0].turn();
      ranks[1].turn();
    }
    ranks[0].turn();
    ranks[0].leave();
    const colls::time_point limit = ranks[0].on().now() + 10 * colls::seconds;
    while (!ranks[0].is_done() && ranks[0].on().now() < limit) {
      for (int i = 0; i < 200; ++i) ranks[0].turn();
      ranks[1].turn();
    }
    CHECK(ranks[0].is_done());
    for (int i = 0; i < 20; ++i) ranks[1].turn();
    ranks.all[0].reset();
    for (int i = 0; i < 20; ++i) ranks[1].turn();
    CAPTURE(ranks[1].why());
    CHECK(!ranks[1].has_failed());
  }
}

TEST_CASE("who has let a peer in does not dial it, unless the peer thinks better") {
  two ranks("shm");
  rank_of_two& lower = ranks[0];
  // Plays rank 1's dialling: it is let in, and is slow to send the memory.
  colls::detail::descriptor socket;
  REQUIRE(!colls::shm::connect_beside(lower.who().link_listener.local(), socket));
  std::optional<colls::stream> slow(std::in_place, lower.on(), std::move(socket));
  bool accepted = false;
  {
    colls::task_group work(lower.on());
    work.start(introduce(*slow, ranks[1].who(), &accepted));
    for (int i = 0; i < 1000 && !accepted; ++i) lower.turn();
  }
  REQUIRE(accepted);
  lower.begin();
  pollfd door{ranks[1].who().local_listener.descriptor(), POLLIN, 0};
  for (int i = 0; i < 200; ++i) lower.turn();
  CHECK(::poll(&door, 1, 0) == 0);
  slow.reset();
  for (int i = 0; i < 200; ++i) lower.turn();
  CHECK(::poll(&door, 1, 0) == 1);
  ranks[1].begin();
  finish(ranks);
}

TEST_CASE("whoever needs a link to a dead rank is told, at its first use too") {
  for (const char* transport : {"tcp", "shm", "hybrid"}) {
    for (const part what : {part::sends, part::receives, part::both}) {
      for (const std::size_t size : {sizeof(int), std::size_t{1} << 20}) {
        CAPTURE(transport);
        CAPTURE(static_cast<int>(what));
        CAPTURE(size);
        two ranks(transport);
        ranks.all[1].reset();
        rank_of_two& left = ranks[0];
        left.begin(what, size);
        const colls::time_point limit = left.on().now() + 5 * colls::seconds;
        while (!left.is_done() && left.on().now() < limit) left.turn();
        CHECK(left.is_done());
        CHECK(left.why().code == colls::errc::peer_failed);
        CHECK(left.why().culprit == 1);
      }
    }
  }
}

namespace {

/// A store whose server is gone.
class lost_store final : public colls::store {
  [[noreturn]] static void refuse() {
    colls::detail::raise(colls::errc::unreachable, "the store is gone: its server was killed");
  }
  task<> do_set(std::string, std::string, colls::time_point) override {
    refuse();
    co_return;
  }
  task<std::string> do_get(std::string, colls::time_point) override {
    refuse();
    co_return std::string();
  }
  task<std::int64_t> do_add(std::string, std::int64_t, colls::time_point) override {
    refuse();
    co_return 0;
  }
  task<> do_wait(std::vector<std::string>, colls::time_point) override {
    refuse();
    co_return;
  }
  task<std::string> do_compare_set(std::string, std::string, std::string,
                                   colls::time_point) override {
    refuse();
    co_return std::string();
  }
  task<std::string> do_check(std::vector<std::string>, colls::time_point) override {
    refuse();
    co_return std::string();
  }
};

}  // namespace

TEST_CASE("what a rank cannot do to open a link is its own failure, not the peer's") {
  for (const char* transport : {"tcp", "hybrid"}) {
    CAPTURE(transport);
    two ranks(transport);
    ranks[0].lose_secret();
    ranks[0].begin(part::sends);
    const colls::time_point limit = ranks[0].on().now() + 5 * colls::seconds;
    while (!ranks[0].is_done() && ranks[0].on().now() < limit) {
      for (const auto& each : ranks.all) each->turn();
    }
    CHECK(ranks[0].is_done());
    CHECK(ranks[0].why().code == colls::errc::insecure_bind);
    CHECK(ranks[0].why().culprit == 0);
    CHECK_FALSE(ranks[1].has_failed());
  }
}

TEST_CASE("local sockets that strangers keep full keep no link from opening: it goes by tcp") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  constexpr rlim_t enough = 16'000;
  if (before.rlim_max < enough) {
    MESSAGE("skipped: a local socket is filled by more open files than this process may have");
    return;
  }
  const rlimit many{std::max(before.rlim_cur, enough), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &many) == 0);
  {
    two ranks("hybrid");
    std::vector<colls::detail::descriptor> crowd;
    const auto fill = [&] {
      for (const auto& each : ranks.all) {
        colls::detail::descriptor one;
        while (!colls::shm::connect_beside(each->who().link_listener.local(), one)) {
          crowd.push_back(std::move(one));
          one = {};
        }
      }
    };
    fill();
    for (const auto& each : ranks.all) each->begin();
    const colls::time_point limit = ranks[0].on().now() + 10 * colls::seconds;
    while (!ranks.over() && ranks[0].on().now() < limit) {
      for (const auto& each : ranks.all) {
        each->turn();
        fill();
      }
    }
    check(ranks);
  }
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("a peer whose address only a lost store knows is not taken for dead") {
  for (const char* transport : {"tcp", "shm", "hybrid"}) {
    for (const part what : {part::sends, part::receives, part::both}) {
      CAPTURE(transport);
      CAPTURE(static_cast<int>(what));
      two ranks(transport, std::make_shared<lost_store>());
      ranks[0].begin(what);
      const colls::time_point limit = ranks[0].on().now() + 5 * colls::seconds;
      while (!ranks[0].is_done() && ranks[0].on().now() < limit) {
        for (const auto& each : ranks.all) each->turn();
      }
      CHECK(ranks[0].is_done());
      const colls::failure& why = ranks[0].why();
      CHECK(why.code == colls::errc::unreachable);
      CHECK(why.culprit == -1);
      CHECK(std::string(why.detail) ==
            "no link to rank 1: only the store knows where it listens, and the store is gone: its "
            "server was killed");
      CHECK_FALSE(ranks[1].has_failed());
    }
  }
}

namespace {

/// Rank 0 of two, whose links nobody uses.
struct asking final : colls::tcp::link_owner, colls::tcp::opener::host {
  boost::asio::io_context context{1};
  std::shared_ptr<colls::engine> on = colls::engine::of(context.get_executor());
  colls::membership who;
  colls::match all{0};
  colls::tcp::links every{*on, *this};
  std::optional<colls::tcp::opener> opens;

  explicit asking(const colls::listener& door) {
    who.size = 2;
    who.book = {door.local(), door.local()};
    opens.emplace(*on, who, every, *this);
  }
  void received(colls::tcp::link&, const colls::tcp::header&, const std::byte*) override {}
  bool take_next(colls::tcp::link&) override { return false; }
  void lost(colls::tcp::link&, const colls::failure&) override {}
  void lent(colls::tcp::link&, colls::detail::descriptor) override {}
  colls::match& matching() override { return all; }
  void opened(colls::tcp::link&) override {}
  void unreachable(colls::tcp::link&, const colls::failure&) override {}
  bool is_needed(colls::tcp::link&) override { return false; }

  /// As if its next time had come again and again.
  void probe_often() {
    for (int i = 0; i < 200; ++i) {
      every.at(1).next_probe = 0;
      opens->probe(every.at(1));
      on->poll();
      on->dispatch(1);
    }
  }
};

}  // namespace

TEST_CASE("a peer that computes has one connection at its door that asks whether it lives") {
  colls::listener door;
  REQUIRE(!door.listen({boost::asio::ip::address_v4::loopback(), 0}));
  asking rank(door);
  for (int turn = 0; turn < 2; ++turn) {
    CAPTURE(turn);
    rank.probe_often();
    CHECK(rank.every.at(1).probed);
    {
      const colls::detail::descriptor came = door.accept();
      CHECK(came);
      CHECK_FALSE(door.accept());
      char word = 0;
      CHECK(::recv(came.get(), &word, 1, 0) == 0);  // as of one that thought better
    }
    // It has looked at its door: the next question comes by another one.
    for (int i = 0; i < 20; ++i) {
      rank.on->poll();
      rank.on->dispatch(1);
    }
    CHECK_FALSE(rank.every.at(1).probed);
    // However often it has computed, it is missed as soon.
    CHECK(rank.every.at(1).next_probe <= rank.on->now() + 5 * colls::seconds);
  }
}

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/connector.hpp>

#include <colls/channel/channel.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/transport/interprocess/carrier/make_carriers.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// Tests how two ranks that dial each other open one connection, and how operations end that need a
// connection to a dead rank.

namespace {

using colls::task;

enum class part { sends, receives, both };

/// A rank of a world of two. Its engine runs only when the test polls it.
class rank_of_two {
 public:
  rank_of_two(int rank, const colls::world_info& parent, colls::subworld::rank_entry& entry)
      : engine_(colls::engine::get(context_.get_executor())),
        info_(colls::subworld::prepare(parent, rank, 2, entry)),
        state_(1, rank, 2, nullptr) {}
  rank_of_two(const rank_of_two&) = delete;
  rank_of_two& operator=(const rank_of_two&) = delete;
  ~rank_of_two() {
    work_.reset();
    if (net_) net_->matching().remove(state_);
  }

  /// Completes the rank. With `kv_store` only the store knows where ranks listen, as in a large
  /// world.
  void open(const std::vector<colls::subworld::rank_entry>& all,
            const std::shared_ptr<colls::store>& kv_store) {
    colls::subworld::complete(*info_, all);
    if (kv_store != nullptr) {
      info_->address_book.clear();
      info_->kv_store = kv_store;
    }
    net_.emplace(engine_, info_);
    net_->matching().add(state_);
    work_.emplace(*engine_);
  }

  /// Starts to send `size` bytes to the other rank and to receive as many, or one of both.
  void begin(part action = part::both, std::size_t size = sizeof(int)) {
    record_.communicator = &state_;
    record_.sequence = state_.take_sequence({});
    record_.hash = colls::hash_of({});
    record_.started = net_->now();
    record_.deadline = record_.started + 20 * colls::seconds;
    net_->matching().begin(record_);
    work_->start(exchange(action, size));
  }
  /// Abandons the exchange and leaves the world.
  void leave() {
    work_.emplace(*engine_);
    net_->matching().end(record_);
    work_->start(depart());
  }
  void poll() {
    engine_->poll();
    engine_->dispatch();
    engine_->poll();
  }
  bool is_done() const { return done_; }
  bool has_failed() const { return state_.failed(); }
  const colls::failure& reason() const { return state_.reason(); }

  colls::engine& driver() { return *engine_; }
  const colls::world_info& info() const { return *info_; }
  void lose_secret() { info_->key = {}; }

 private:
  task<> exchange(part action, std::size_t size) {
    const int other = 1 - state_.rank();
    std::vector<std::byte> mine(size, static_cast<std::byte>(10 + state_.rank()));
    std::vector<std::byte> theirs(size);
    const colls::basic_channel<colls::interprocess_transport> net(*net_, record_);
    const colls::const_bytes out(mine.data(), size);
    const colls::mutable_bytes in(theirs.data(), size);
    try {
      if (action == part::sends) {
        co_await net.send(other, out);
      } else if (action == part::receives) {
        co_await net.recv(other, in);
      } else {
        co_await colls::when_all(net.send(other, out), net.recv(other, in));
        CHECK(theirs.back() == static_cast<std::byte>(10 + other));
      }
    } catch (const colls::error& thrown) {
      CHECK(thrown.record().code == state_.reason().code);
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
  std::shared_ptr<colls::world_info> info_;
  std::optional<colls::interprocess_transport> net_;
  colls::communicator_state state_;
  colls::operation_record record_;
  bool done_ = false;
  std::optional<colls::task_group> work_;
};

struct two {
  explicit two(const char* transport, const std::shared_ptr<colls::store>& kv_store = nullptr) {
    colls::world_info parent;
    parent.address = boost::asio::ip::address_v4::loopback();
    parent.cfg.transport = transport;
    parent.key = colls::secret("known to both");
    std::vector<colls::subworld::rank_entry> entries(2);
    for (std::size_t i = 0; i < 2; ++i) {
      all[i] = std::make_unique<rank_of_two>(static_cast<int>(i), parent, entries[i]);
    }
    for (const auto& each : all) each->open(entries, kv_store);
  }
  rank_of_two& operator[](int rank) { return *all[static_cast<std::size_t>(rank)]; }
  bool over() const {
    return (all[0]->is_done() && all[1]->is_done()) || all[0]->has_failed() || all[1]->has_failed();
  }
  std::array<std::unique_ptr<rank_of_two>, 2> all;
};

void check(two& ranks) {
  for (const auto& each : ranks.all) {
    CAPTURE(each->reason().detail);
    CHECK(each->is_done());
    CHECK(!each->has_failed());
  }
}

/// Polls both ranks until their exchange is over.
void finish(two& ranks) {
  const colls::time_point limit = ranks[0].driver().now() + 10 * colls::seconds;
  while (!ranks.over() && ranks[0].driver().now() < limit) {
    for (const auto& each : ranks.all) each->poll();
  }
  // If one side has abandoned the connection, the other side now sees its end.
  for (int i = 0; i < 20; ++i) {
    for (const auto& each : ranks.all) each->poll();
  }
  check(ranks);
}

task<> authenticate(colls::stream& socket, const colls::world_info& info, bool* accepted) {
  *accepted = co_await info.authenticate(socket, 0);
}

}  // namespace

TEST_CASE("two ranks that dial each other get one connection, however far each dial is") {
  for (const char* transport : {"tcp", "shm"}) {
    for (const int first : {0, 1}) {
      for (const int pace : {0, 1, 3}) {  // polls of the second rank for each poll of the first
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
            early.poll();
            for (int k = 0; k < pace; ++k) late.poll();
          }
          late.begin();
          // The first rank pauses in the middle of its dial, or the second does.
          for (int i = 0; i < head_start; ++i) (pace == 0 ? late : early).poll();
          finish(ranks);
        }
      }
    }
  }
}

TEST_CASE("a rank that leaves while it dials says goodbye to the peers it has reached") {
  for (int start = 0; start < 32; ++start) {
    const char* const transport = start % 2 == 0 ? "shm" : "tcp";
    const int head_start = start / 2;
    CAPTURE(transport);
    CAPTURE(head_start);
    two ranks(transport);
    ranks[0].begin();
    for (int i = 0; i < head_start; ++i) {
      ranks[0].poll();
      ranks[1].poll();
    }
    ranks[0].poll();
    ranks[0].leave();
    const colls::time_point limit = ranks[0].driver().now() + 10 * colls::seconds;
    while (!ranks[0].is_done() && ranks[0].driver().now() < limit) {
      for (int i = 0; i < 200; ++i) ranks[0].poll();
      ranks[1].poll();
    }
    CHECK(ranks[0].is_done());
    for (int i = 0; i < 20; ++i) ranks[1].poll();
    ranks.all[0].reset();
    for (int i = 0; i < 20; ++i) ranks[1].poll();
    CAPTURE(ranks[1].reason());
    CHECK(!ranks[1].has_failed());
  }
}

TEST_CASE(
    "a rank that has accepted a peer does not dial it, unless the peer closes the connection") {
  two ranks("shm");
  rank_of_two& lower = ranks[0];
  // Stands for the dial of rank 1, which is accepted and is slow to send its shared memory.
  colls::detail::descriptor socket;
  REQUIRE(!colls::shm::connect_local(lower.info().peer_listener.local(), socket));
  std::optional<colls::stream> slow(std::in_place, lower.driver(), std::move(socket));
  bool accepted = false;
  {
    colls::task_group work(lower.driver());
    work.start(authenticate(*slow, ranks[1].info(), &accepted));
    for (int i = 0; i < 1000 && !accepted; ++i) lower.poll();
  }
  REQUIRE(accepted);
  lower.begin();
  pollfd listener{ranks[1].info().local_listener.descriptor(), POLLIN, 0};
  for (int i = 0; i < 200; ++i) lower.poll();
  CHECK(::poll(&listener, 1, 0) == 0);
  slow.reset();
  for (int i = 0; i < 200; ++i) lower.poll();
  CHECK(::poll(&listener, 1, 0) == 1);
  ranks[1].begin();
  finish(ranks);
}

TEST_CASE("an operation that needs a connection to a dead rank fails, at its first use too") {
  for (const char* transport : {"tcp", "shm", "hybrid"}) {
    for (const part action : {part::sends, part::receives, part::both}) {
      for (const std::size_t size : {sizeof(int), std::size_t{1} << 20}) {
        CAPTURE(transport);
        CAPTURE(static_cast<int>(action));
        CAPTURE(size);
        two ranks(transport);
        ranks.all[1].reset();
        rank_of_two& left = ranks[0];
        left.begin(action, size);
        const colls::time_point limit = left.driver().now() + 5 * colls::seconds;
        while (!left.is_done() && left.driver().now() < limit) left.poll();
        CHECK(left.is_done());
        CHECK(left.reason().code == colls::errc::peer_failed);
        CHECK(left.reason().culprit == 1);
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

TEST_CASE("what a rank cannot do to open a connection is its own failure, not the peer's") {
  for (const char* transport : {"tcp", "hybrid"}) {
    CAPTURE(transport);
    two ranks(transport);
    ranks[0].lose_secret();
    ranks[0].begin(part::sends);
    const colls::time_point limit = ranks[0].driver().now() + 5 * colls::seconds;
    while (!ranks[0].is_done() && ranks[0].driver().now() < limit) {
      for (const auto& each : ranks.all) each->poll();
    }
    CHECK(ranks[0].is_done());
    CHECK(ranks[0].reason().code == colls::errc::insecure_bind);
    CHECK(ranks[0].reason().culprit == 0);
    CHECK_FALSE(ranks[1].has_failed());
  }
}

TEST_CASE("a connection to a rank whose local socket strangers keep full opens over tcp") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  constexpr rlim_t enough = 16'000;
  if (before.rlim_max < enough) {
    MESSAGE("skipped: to fill a local socket takes more open files than this process may have");
    return;
  }
  const rlimit many{std::max(before.rlim_cur, enough), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &many) == 0);
  {
    two ranks("hybrid");
    std::vector<colls::detail::descriptor> sockets;
    const auto fill = [&] {
      for (const auto& each : ranks.all) {
        colls::detail::descriptor one;
        while (!colls::shm::connect_local(each->info().peer_listener.local(), one)) {
          sockets.push_back(std::move(one));
          one = {};
        }
      }
    };
    fill();
    for (const auto& each : ranks.all) each->begin();
    const colls::time_point limit = ranks[0].driver().now() + 10 * colls::seconds;
    while (!ranks.over() && ranks[0].driver().now() < limit) {
      for (const auto& each : ranks.all) {
        each->poll();
        fill();
      }
    }
    check(ranks);
  }
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
}

TEST_CASE("a peer whose address only a lost store knows is not taken for dead") {
  for (const char* transport : {"tcp", "shm", "hybrid"}) {
    for (const part action : {part::sends, part::receives, part::both}) {
      CAPTURE(transport);
      CAPTURE(static_cast<int>(action));
      two ranks(transport, std::make_shared<lost_store>());
      ranks[0].begin(action);
      const colls::time_point limit = ranks[0].driver().now() + 5 * colls::seconds;
      while (!ranks[0].is_done() && ranks[0].driver().now() < limit) {
        for (const auto& each : ranks.all) each->poll();
      }
      CHECK(ranks[0].is_done());
      const colls::failure& reason = ranks[0].reason();
      CHECK(reason.code == colls::errc::unreachable);
      CHECK(reason.culprit == -1);
      CHECK(std::string(reason.detail) ==
            "no connection to rank 1: only the store knows where it listens, and the store is "
            "gone: its "
            "server was killed");
      CHECK_FALSE(ranks[1].has_failed());
    }
  }
}

namespace {

/// Rank 0 of two ranks. It probes rank 1 and opens no connection.
struct prober final : colls::interprocess::connection_owner, colls::interprocess::connector::owner {
  boost::asio::io_context context{1};
  std::shared_ptr<colls::engine> driver = colls::engine::get(context.get_executor());
  colls::world_info info;
  colls::tag_matcher all{0};
  colls::interprocess::connection_table connections{*driver, *this};
  std::optional<colls::interprocess::connector> connector;

  explicit prober(const colls::listener& listener) {
    info.size = 2;
    info.address_book = {listener.local(), listener.local()};
    connector.emplace(*driver, info.rank, colls::interprocess::make_carriers(*driver, info),
                      connections, *this);
  }
  void received(colls::interprocess::connection&, const colls::interprocess::header&,
                const std::byte*) override {}
  void lost(colls::interprocess::connection&, const colls::failure&) override {}
  void heap_received(colls::interprocess::connection&, colls::detail::descriptor) override {}
  colls::tag_matcher& matching() override { return all; }
  void opened(colls::interprocess::connection&) override {}
  void unreachable(colls::interprocess::connection&, const colls::failure&) override {}
  bool is_excluded(int) override { return false; }
  bool is_needed(colls::interprocess::connection&) override { return false; }
  task<bool> has_left(int) override { co_return false; }
  void loss_examined(colls::interprocess::connection&, bool) override {}

  /// Probes as often as if much time had passed.
  void probe_often() {
    for (int i = 0; i < 200; ++i) {
      connections.get(1).next_probe = 0;
      connector->probe(connections.get(1));
      driver->poll();
      driver->dispatch(1);
    }
  }
};

}  // namespace

TEST_CASE("a peer that computes has one probing connection in its backlog") {
  colls::listener listener;
  REQUIRE(!listener.listen({boost::asio::ip::address_v4::loopback(), 0}));
  prober rank(listener);
  for (int round = 0; round < 2; ++round) {
    CAPTURE(round);
    rank.probe_often();
    CHECK(rank.connections.get(1).is_probing);
    {
      const colls::detail::descriptor accepted = listener.accept();
      CHECK(accepted);
      CHECK_FALSE(listener.accept());
      char byte = 0;
      CHECK(::recv(accepted.get(), &byte, 1, 0) == 0);  // closed without a HELLO
    }
    // The peer has accepted the probing connection: the next probe opens another one.
    for (int i = 0; i < 20; ++i) {
      rank.driver->poll();
      rank.driver->dispatch(1);
    }
    CHECK_FALSE(rank.connections.get(1).is_probing);
    // However often the peer has computed, its death is noticed as soon.
    CHECK(rank.connections.get(1).next_probe <= rank.driver->now() + 5 * colls::seconds);
  }
}

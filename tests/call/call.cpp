// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/call/call.hpp>
#include <colls/call/frameless_call.hpp>

#include "../support/communicators.hpp"

#include <algorithm>
#include <random>

// The life of a started operation, which is kept, polled, awaited or dropped, and of the coroutine
// that awaits it.

namespace {

using colls::algorithm;
using colls::errc;
using colls::operation;
using colls::task;
using colls::inproc::communicator;

/// A minimal coroutine of another library: it runs at once, and no coroutine awaits it.
struct fire_and_forget {
  struct promise_type {
    fire_and_forget get_return_object() {
      return fire_and_forget(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<promise_type> handle;

  explicit fire_and_forget(std::coroutine_handle<promise_type> coroutine) : handle(coroutine) {}
  fire_and_forget(fire_and_forget&& other) noexcept : handle(std::exchange(other.handle, {})) {}
  ~fire_and_forget() {
    if (handle) handle.destroy();
  }
};

TEST_CASE("a call starts at once and its result waits") {
  communicators all(2);
  std::vector<int> one{1};
  std::vector<int> two{2};
  operation<> first = all[0].all_reduce(one);
  CHECK_FALSE(first.done());
  operation<> second = all[1].all_reduce(two);
  while (!first.done() || !second.done()) {
  }
  CHECK(one[0] == 3);
  CHECK(two[0] == 3);
  CHECK(first.reason().code == errc{});
  CHECK(first.done());
  first.result();
  all.wait(second);  // a second wait, after the end
  all.check_good();
}

TEST_CASE("a waiter resumes in the same run of the queue that ends the call") {
  communicators all(2);
  operation<> first = all[0].barrier();
  struct waiter : colls::completion {
    bool ended = false;
  } waiting;
  waiting.bind([](colls::completion& self) noexcept { static_cast<waiter&>(self).ended = true; },
               colls::completion(nullptr, &all[0].queue()));
  CHECK_FALSE(first.start(waiting));
  operation<> second = all[1].barrier();
  CHECK(second.underlying_call().is_done());
  CHECK_FALSE(waiting.ended);
  CHECK(all[0].queue().run(1));
  CHECK(waiting.ended);
  CHECK(all[0].queue().empty());
}

TEST_CASE("if all ranks share a thread, no result is written before all ranks have called") {
  communicators all(2);
  using pair = std::vector<int>;
  const pair one{1, 10};
  const pair two{2, 20};
  pair first{-1, -1};
  pair second{-2, -2};
  operation<> early = all[0].all_reduce(one, first);
  CHECK(first == pair{-1, -1});
  operation<> late = all[1].all_reduce(two, second);
  all.wait(early);
  all.wait(late);
  CHECK(first == pair{3, 30});
  CHECK(second == pair{3, 30});
  CHECK(one == pair{1, 10});
  CHECK(two == pair{2, 20});
}

TEST_CASE("if all ranks share a thread, long sums are made in pieces, and completely") {
  // Without a fold over all inputs: it adds two of them at a time.
  const auto add_pair = [](int left, int right) { return left + right; };
  constexpr std::size_t count = 10001;
  for (const int size : {1, 2, 3, 8}) {
    for (const int way : {0, 1, 2, 3}) {
      CAPTURE(size);
      CAPTURE(way);
      communicators all(size);
      std::vector<std::vector<int>> in(static_cast<std::size_t>(size));
      for (auto& each : in) {
        for (std::size_t i = 0; i < count; ++i) each.push_back(static_cast<int>(i) + 1);
        each[count / 2] += static_cast<int>(&each - in.data());
      }
      std::vector<std::vector<int>> out(in.size(), std::vector<int>(count, -1));
      const bool in_place = way % 2 == 0;
      std::vector<operation<>> started;
      for (int rank = 0; rank < size; ++rank) {
        auto& input = in[static_cast<std::size_t>(rank)];
        auto& output = in_place ? input : out[static_cast<std::size_t>(rank)];
        started.push_back(way < 2
                              ? all[rank].all_reduce<algorithm::direct>(input, output)
                              : all[rank].all_reduce<algorithm::direct>(input, output, add_pair));
      }
      for (auto& each : started) all.wait(each);
      std::vector<int> sum;
      for (std::size_t i = 0; i < count; ++i) sum.push_back((static_cast<int>(i) + 1) * size);
      sum[count / 2] += size * (size - 1) / 2;
      for (const auto& each : in_place ? in : out) CHECK(each == sum);
    }
  }
}

TEST_CASE("operations move") {
  communicators all(2);
  std::vector<int> one{1};
  std::vector<int> two{2};
  std::vector<operation<>> kept;
  for (int rank = 0; rank < 2; ++rank) kept.push_back(all[rank].all_reduce(rank == 0 ? one : two));
  operation<> first = std::move(kept[0]);
  kept[0] = std::move(kept[1]);
  kept.pop_back();
  kept.push_back(std::move(first));
  for (auto& each : kept) all.wait(each);
  CHECK((one[0] == 3 && two[0] == 3));
  kept[0] = all[0].barrier();  // an operation that has ended may be replaced
  all.wait(all[1].barrier());
  all.wait(kept[0]);
}

TEST_CASE("kept operations end whatever the order in which each rank awaits them") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    std::mt19937 random(static_cast<unsigned>(comm.rank()));
    constexpr int calls = 300;
    std::vector<std::vector<int>> data;
    std::vector<int> order;
    for (int i = 0; i < calls; ++i) {
      data.emplace_back(static_cast<std::size_t>(1 + i * 37 % 5000), i + comm.rank());
      order.push_back(i);
    }
    std::vector<operation<>> kept;
    for (int i = 0; i < calls; ++i)
      kept.push_back(comm.all_reduce(data[static_cast<std::size_t>(i)]));
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      co_await kept[static_cast<std::size_t>(i)];
      CHECK(data[static_cast<std::size_t>(i)].back() == 3 * i + 3);
    }
  });
}

TEST_CASE("coroutines of another library await operations") {
  communicators all(2);
  std::vector<int> one{1};
  std::vector<int> two{2};
  int steps = 0;
  std::string caught;
  const auto rank_main = [&](communicator& comm, std::vector<int>& data) -> fire_and_forget {
    for (int i = 0; i < 1000; ++i) co_await comm.barrier();
    co_await comm.all_reduce(data);
    operation<> kept = comm.barrier();
    co_await kept;
    try {
      co_await comm.broadcast(data, 5);
    } catch (const colls::error& thrown) {
      caught += thrown.record().detail;
    }
    ++steps;
  };
  {
    const fire_and_forget first = rank_main(all[0], one);
    const fire_and_forget second = rank_main(all[1], two);
    all.settle();
    CHECK(steps == 2);
    CHECK((first.handle.done() && second.handle.done()));
  }
  CHECK((one[0] == 3 && two[0] == 3));
  CHECK(caught == "root 5 is not in 0..1root 5 is not in 0..1");
  all.check_good();
}

/// A completion that does nothing.
struct no_op_completion : colls::completion {
  explicit no_op_completion(communicators& all)
      : completion([](colls::completion&) noexcept {}, &all.world().queue()) {}
};

/// Tests run 0 to `moments - 1` completions of the queue before they destroy something, which
/// covers each moment of a call's life.
constexpr int moments = 24;
void run_completions(communicators& all, int steps) {
  for (int i = 0; i < steps; ++i) all.world().queue().run(1);
}

TEST_CASE("only one coroutine awaits an operation: a second is refused, and the first is resumed") {
  communicators all(2);
  std::vector<int> one{1};
  std::vector<int> two{2};
  operation<> kept = all[0].all_reduce(one);
  const auto await = [](operation<>& awaited, std::string& outcome) -> task<> {
    try {
      co_await awaited;
      outcome = "ended";
    } catch (const colls::error& thrown) {
      outcome = thrown.record().detail;
    }
  };
  std::string first;
  std::string second;
  const auto both = [&]() -> task<> {
    co_await colls::when_all(await(kept, first), await(kept, second));
  };
  operation<> other = all[1].all_reduce(two);
  all.wait(both());
  CHECK(first == "ended");
  CHECK(second == "another coroutine already awaits this operation: only one can at a time");
  all.wait(other);
  all.check_good();
}

TEST_CASE("an operation that fails because of another names the other and its number") {
  communicators all(2);
  std::vector<int> three(3);
  std::vector<int> four(4);
  operation<> first = all[0].all_reduce(three);
  operation<> pending = all[0].broadcast(three, 1);
  std::vector<int> five(5);
  operation<colls::received> receiving = all[0].recv(five, 1);
  operation<> differs = all[1].all_reduce(four);
  CHECK(says(failure_of(all, first), "rank 0 called all_reduce of 3 x int32"));
  CHECK_FALSE(says(first.reason(), "in all_reduce"));
  CHECK_FALSE(says(failure_of(all, differs), "in all_reduce"));
  CHECK(failure_of(all, pending).operation == colls::collective::broadcast);
  CHECK(says(pending.reason(), "in all_reduce #1: rank "));
  CHECK(says(failure_of(all, receiving), "in all_reduce #1: rank "));
  operation<> later = all[0].barrier();
  CHECK(says(failure_of(all, later), "in all_reduce #1: rank "));
}

TEST_CASE("a coroutine that awaits an operation can be destroyed at any moment") {
  for (int steps = 0; steps < moments; ++steps) {
    CAPTURE(steps);
    communicators all(2);
    operation<> kept = all[0].barrier();
    operation<> foreign = all[0].barrier();
    no_op_completion ignored(all);
    {
      const auto wait = [&]() -> task<> { co_await kept; };
      const auto wait_elsewhere = [&]() -> fire_and_forget { co_await foreign; };
      task<> waiting = wait();
      const bool ended = waiting.start(ignored);
      CHECK_FALSE(ended);
      const fire_and_forget waiting_elsewhere = wait_elsewhere();
      operation<> first = all[1].barrier();
      operation<> second = all[1].barrier();
      run_completions(all, steps);
      CHECK(failure_of(all, first).code == errc{});
      all.wait(second);
    }
    CHECK(kept.done());
    CHECK(foreign.done());
    all.check_good();
  }
}

TEST_CASE("the task that made a call may be destroyed at any moment") {
  for (int steps = 0; steps < moments; ++steps) {
    CAPTURE(steps);
    communicators all(2);
    no_op_completion ignored(all);
    std::vector<int> one{1};
    std::vector<int> two{2};
    {
      const auto calls = [&]() -> task<> { co_await all[0].all_reduce(one); };
      task<> calling = calls();
      CHECK_FALSE(calling.start(ignored));
      operation<> other = all[1].all_reduce(two);
      run_completions(all, steps);
      calling = {};
      // The other rank may already have received all it needs.
      const errc got = failure_of(all, other).code;
      CHECK((got == errc{} || got == errc::cancelled));
      for (const int rank : {0, 1}) {
        if (steps == 0) CHECK(all[rank].failed() != nullptr);
        if (steps == moments - 1) CHECK(all[rank].failed() == nullptr);
        if (got != errc{}) CHECK(all[rank].failed() != nullptr);
      }
    }
  }
}

TEST_CASE("code that done() runs may destroy the communicator") {
  communicators all(2);
  no_op_completion ignored(all);
  std::vector<int> into(1);
  operation<colls::received> never = all[0].recv(into, 1, 4);
  const auto reduce_and_reset = [&]() -> task<> {
    co_await all[0].all_reduce<algorithm::linear>(into);
    all[0] = {};
  };
  task<> waiting = reduce_and_reset();
  CHECK_FALSE(waiting.start(ignored));
  std::vector<int> other(1);
  operation<> matching_call = all[1].all_reduce<algorithm::linear>(other);
  for (int i = 0; i < 1000 && !never.done(); ++i) (void)matching_call.done();
  CHECK(never.done());
  CHECK(never.reason().code == errc::closed);
  CHECK_FALSE(all[0]);
}

namespace {

/// A frameless algorithm whose memory cannot be allocated.
struct out_of_memory {
  using channel = colls::basic_channel<communicator::transport_type>;
  explicit out_of_memory(const channel&) {}
  auto request(const channel& net) {
    if (net.size() == 1) throw std::bad_alloc();
    return net.arrive(nullptr);
  }
  void finish(const channel&, const auto&) {}
};
struct no_owner final : colls::detail::call_owner {
  void call_ended(colls::detail::call_base&) noexcept override {}
  void progress() override {}
  void wake_driver() override {}
};

}  // namespace

TEST_CASE("an exception of a frameless algorithm's start is thrown at the await") {
  communicators all(1);
  no_owner owner;
  colls::tag_matcher matching(0);
  colls::communicator_state state(77, 0, 1, nullptr);
  using call = colls::detail::frameless_call<out_of_memory::channel, out_of_memory>;
  auto* const made = new call(&owner, &matching, all[0].queue());
  made->communicator = &state;
  made->prepare(all[0].net());
  operation<> started(made);
  made->run();
  CHECK(made->is_done());
  CHECK(started.reason().code == errc::not_enough_memory);
}

TEST_CASE("dropping an unfinished collective revokes its communicator on all ranks") {
  for (const int last : {0, 1, 2}) {
    communicators all(3);
    std::vector<int> data(1000);
    std::vector<int> other(1000);
    operation<> waiting = all[1].all_reduce(other);
    if (last == 0) {
      operation<> dropped = all[0].all_reduce(data);
    } else if (last == 1) {
      operation<> dropped = all[0].all_reduce(data);
      all.settle();
      dropped = all[0].barrier();
    } else {
      // More calls than run at a time, so the dropped call has not begun.
      std::vector<operation<>> many;
      for (int i = 0; i < 200; ++i) many.push_back(all[0].all_reduce(data));
      many.pop_back();
    }
    for (int rank = 0; rank < 3; ++rank) {
      operation<> later = all[rank].barrier();
      const colls::failure why = failure_of(all, later);
      CHECK(why.code == errc::cancelled);
      CHECK(why.culprit == 0);
      CHECK(why.operation == colls::collective::barrier);
      CHECK(says(why, "dropped before it had ended"));
      REQUIRE(all[rank].failed() != nullptr);
    }
    CHECK(failure_of(all, waiting).code == errc::cancelled);
  }
}

TEST_CASE("a reason on which all ranks agree ends a call and leaves the communicator good") {
  for (const bool is_agreed : {true, false}) {
    communicators all(2);
    colls::fingerprint agreed;
    agreed.operation = colls::collective::attach;
    const auto refuse = [](bool by_all) -> task<> {
      colls::failure reason(errc::not_applicable, "no rank can do it");
      reason.agreed = by_all;
      throw colls::error(reason);
      co_return;
    };
    const auto start = [&](communicator& comm) {
      return comm.underlying_core().begin<colls::detail::call<void>>(
          colls::detail::cached_call(agreed), {}, 0,
          [&](auto& call) { (void)(call.body = refuse(is_agreed)); });
    };
    operation<> first = start(all[0]);
    operation<> second = start(all[1]);
    CHECK(failure_of(all, first).code == errc::not_applicable);
    CHECK(failure_of(all, second).code == errc::not_applicable);
    CHECK((all[0].failed() == nullptr) == is_agreed);
    if (is_agreed) all.check_good();
  }
}

TEST_CASE("a call that fails after it has taken its number is dropped and no longer in flight") {
  struct : colls::failure_hooks {
    void revoked(colls::communicator_state&, const colls::failure&, int) override {}
    void announce(int, const colls::operation_record&, const colls::state_report&) override {}
    void report(int, std::uint32_t, const colls::state_report&) override {}
    void dispute(int, std::uint32_t, std::uint64_t, const colls::fingerprint&) override {
      throw std::bad_alloc();
    }
    void refuse(int, const colls::failure&) override {}
  } throwing_hooks;
  struct : colls::unexpected_message {
    void drop() override {}
    void discard() noexcept override {}
  } unexpected;
  communicators all(2);
  colls::tag_matcher& matching = all[0].net().matching();
  // A message of another call with the same sequence number.
  unexpected.key = {1, 0, 1, 0};
  unexpected.hash = 5;
  matching.add_unexpected(unexpected);
  matching.add(throwing_hooks);
  CHECK_THROWS_AS((void)all[0].barrier(), std::bad_alloc);
  CHECK(!matching.any_in_flight());
  matching.sweep(all.world().now());
  operation<> waiting = all[1].barrier();
  CHECK(failure_of(all, waiting).code == errc::cancelled);
  matching.remove(throwing_hooks);
  matching.remove_unexpected(unexpected);
}

TEST_CASE("a send or a receive that no peer has matched is withdrawn without a trace") {
  communicators all(2);
  std::vector<int> large(100'000, 5);
  std::vector<int> into(100'000);
  {
    operation<> dropped = all[0].send(large, 1, 3);
  }
  {
    operation<colls::received> dropped = all[1].recv(into, 0, 3);
  }
  {
    operation<colls::received> dropped = all[1].recv(into, colls::any_source, 3);
  }
  {
    operation<colls::received> dropped = all[0].send_recv(large, 1, into, 1, 3);
  }
  all.settle();
  CHECK(into == std::vector<int>(100'000));
  large[0] = 6;
  operation<> send = all[0].send(large, 1, 3);
  CHECK(all.wait(all[1].recv(into, 0, 3)).count == 100'000);
  all.wait(send);
  CHECK(into == large);
  all.check_good();
}

TEST_CASE("closing or destroying a communicator at any moment ends the operations in flight") {
  for (int steps = 0; steps < moments; ++steps) {
    CAPTURE(steps);
    for (const bool closes : {true, false}) {
      communicators all(3);
      std::vector<int> data[3] = {{1}, {2}, {3}};
      std::vector<operation<>> kept;
      for (int rank = 0; rank < 3; ++rank) kept.push_back(all[rank].all_reduce(data[rank]));
      operation<colls::received> direct = all[1].recv(data[0], 2, 9);
      run_completions(all, steps);
      if (closes) {
        all.wait(all[1].close());
        all.wait(all[1].close());
        operation<> later = all[1].barrier();
        CHECK(failure_of(all, later).code == errc::closed);
        CHECK(failure_of(all, later).culprit == 1);
        operation<communicator> child = all[1].dup();
        CHECK(failure_of(all, child).code == errc::closed);
        operation<> message = all[1].send(data[1], 0);
        CHECK(failure_of(all, message).code == errc::closed);
        all[1].revoke("too late");
      } else {
        all[1] = {};
        CHECK_FALSE(all[1]);
      }
      CHECK(failure_of(all, direct).code == errc::closed);
      const errc ended = failure_of(all, kept[1]).code;
      CHECK((ended == errc{} || ended == errc::closed));
      for (const int rank : {0, 2}) {
        const colls::failure why = failure_of(all, kept[static_cast<std::size_t>(rank)]);
        CHECK((why.code == ended || (why.code == errc{} && ended == errc::closed)));
        if (why.code != errc{}) CHECK(why.culprit == 1);
        if (why.code != errc{}) CHECK(says(why, "closed the communicator"));
      }
      if (steps == 0) CHECK(ended == errc::closed);
      if (steps == moments - 1) CHECK(ended == errc{});
      // From now on, calls that need the closed rank fail.
      operation<> later = all[0].barrier();
      CHECK(failure_of(all, later).code == errc::closed);
    }
  }
}

TEST_CASE("an operation outlives its communicator") {
  communicators all(2);
  std::vector<int> data(3);
  operation<> kept = all[0].all_reduce(data);
  operation<> other = all[0].barrier();
  all[0] = {};
  CHECK(kept.done());
  CHECK(failure_of(all, kept).code == errc::closed);
  CHECK(other.reason().code == errc::closed);
}

TEST_CASE("a deferred call can be dropped with all others") {
  communicators all(2);
  std::vector<std::vector<int>> data(300, std::vector<int>(100));
  {
    std::vector<operation<>> many;
    for (auto& each : data) many.push_back(all[0].all_reduce(each));
    std::mt19937 random(7);
    std::shuffle(many.begin(), many.end(), random);
  }
  operation<> later = all[1].barrier();
  CHECK(failure_of(all, later).code == errc::cancelled);
}

}  // namespace

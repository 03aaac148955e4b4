// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Where the system refuses memory, what promises to go on does.

#include <colls/transport/tcp/links.hpp>

#include "counted_memory.hpp"

#include <doctest/doctest.h>

#include <sys/socket.h>

#include <optional>
#include <vector>

namespace {

using namespace colls;

/// `work()` with its first allocation refused and then `check()`, the same with its second, and so
/// on until none of them was.
template <class Work, class Check>
void refuse_each(Work work, Check check) {
  std::size_t left = 0;
  for (std::size_t nth = 1; left == 0; ++nth) {
    CAPTURE(nth);
    refused_allocation = nth;
    work();
    left = refused_allocation.exchange(0);
    check();
  }
}

/// An owner that has no memory for what comes.
struct poor_owner final : tcp::link_owner {
  match all{0};
  std::vector<failure> losses;

  void received(tcp::link&, const tcp::header&, const std::byte*) override {
    throw std::bad_alloc();
  }
  bool take_next(tcp::link&) override { return false; }
  void lost(tcp::link&, const failure& why) override { losses.push_back(why); }
  void lent(tcp::link&, detail::descriptor) override {}
  match& matching() override { return all; }
};

/// A link and the other end of its socket.
struct one_link {
  boost::asio::io_context context{1};
  std::shared_ptr<engine> on = engine::of(context.get_executor());
  poor_owner owner;
  tcp::link to{*on, owner, 1};
  detail::descriptor other;

  one_link() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    other = detail::descriptor(ends[0]);
    to.open(detail::descriptor(ends[1]));
  }
  /// Its owner is told so later.
  void check_lost() {
    CHECK(to.ended());
    CHECK(!to.is_open());
    CHECK(owner.losses.empty());
    on->queue().run();
    REQUIRE(owner.losses.size() == 1);
    CHECK(owner.losses[0].code == errc::peer_failed);
    CHECK(owner.losses[0].culprit == 1);
  }
};

}  // namespace

TEST_CASE("an arena gives no block and no other pages, and loses no place") {
  shm::arena own;
  REQUIRE(!own.make(2));
  const auto place_of = [&](const std::byte* block) { return own.locate({block, 1}); };
  std::byte* const first = own.allocate(1);
  const shm::place begin = place_of(first);
  std::byte* block = nullptr;
  refuse_each([&] { block = own.allocate(1); },
              [&] {
                if (block == nullptr) return;
                CHECK(place_of(block) == begin + shm::longest_page);
                own.free(block);
              });
  first[0] = std::byte{7};
  bool retired = false;
  refuse_each([&]() noexcept { retired = own.retire(first); },
              [&] {
                CHECK(place_of(first) == (retired ? begin + shm::longest_page : begin));
                CHECK(first[0] == std::byte{7});
              });
}

TEST_CASE("working memory that cannot be kept is given to the system") {
  std::optional<spare_memory> spare(std::in_place);
  const std::size_t before = blocks_in_use;
  spare_memory::block used;
  refuse_each([&]() noexcept { spare->give(used); },
              [&] {
                spare.emplace();
                CHECK(blocks_in_use == before);
                used = spare->take(1000);
              });
  spare->give(used);
}

TEST_CASE("a link ends that has no memory for what it has to say") {
  std::optional<one_link> here(std::in_place);
  std::vector<std::byte> payload(sizeof(failure));
  tcp::header frame;
  frame.kind = tcp::kind::revoke;
  frame.length = payload.size();
  bool is_whole = false;
  refuse_each(
      [&]() noexcept {
        here->to.control(frame, payload.data());
        is_whole = !here->to.ended();
      },
      [&] {
        if (!is_whole) here->check_lost();
        if (!is_whole) here.emplace();
      });
  here->to.flush();
  std::vector<std::byte> word(1000);
  CHECK(::read(here->other.get(), word.data(), word.size()) ==
        static_cast<ssize_t>(sizeof frame + payload.size()));
}

TEST_CASE("a link ends whose owner has no memory for what it brings") {
  one_link here;
  const std::vector<std::byte> payload(100);
  const tcp::header frame = tcp::header_for(tcp::kind::data, {1, 7, 1, 0}, payload.size(), 0);
  REQUIRE(::write(here.other.get(), &frame, sizeof frame) == sizeof frame);
  REQUIRE(::write(here.other.get(), payload.data(), payload.size()) == 100);
  CHECK(here.to.pump());
  here.check_lost();
}

TEST_CASE("a receive that cannot be listed is not, and a link that cannot be made is not there") {
  match all(0);
  posted asked;
  asked.key = {1, 7, 1, 0};
  bool is_listed = false;
  const auto list = [&] {
    is_listed = false;
    try {
      all.list(asked);
      is_listed = true;
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(list, [&] {
    CHECK(asked.listed == is_listed);
    all.withdraw(asked);
  });

  boost::asio::io_context context(1);
  poor_owner owner;
  tcp::links every(*engine::of(context.get_executor()), owner);
  const auto make = [&] {
    try {
      (void)every.at(3);
    } catch (const std::bad_alloc&) {
    }
  };
  refuse_each(make, [&] { every.each([](int peer, tcp::link& to) { CHECK(to.peer() == peer); }); });
  CHECK(every.at(3).peer() == 3);
}

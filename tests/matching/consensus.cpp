// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/matching/consensus.hpp>

#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <random>
#include <set>
#include <string>

// The protocol alone: ranks that exchange its messages in any order, stop, and lose links.

namespace {

using colls::collective;
using colls::consensus;
using colls::recovery_decision;
using colls::recovery_message;

constexpr collective any_call = collective::barrier;

/// The ranks of one communicator, and what is on its way between them. A step delivers the oldest
/// message of a link, or tells a rank of a loss.
class ranks {
 public:
  ranks(int size, bool is_always_proved) : size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      all_.push_back(std::make_unique<one_rank>(*this, rank, is_always_proved));
    }
    links_.resize(static_cast<std::size_t>(size * size));
  }

  consensus& operator[](int rank) { return at(rank).protocol; }
  int size() const { return size_; }
  bool is_alive(int rank) { return at(rank).is_alive; }
  std::uint64_t messages() const { return messages_; }

  /// Ends a rank, perhaps while it sends: on each link the last messages may be lost. The others
  /// see that it has ended after they have received the messages before.
  template <class Random>
  void kill(int rank, Random& random) {
    if (!std::exchange(at(rank).is_alive, false)) return;
    for (int other = 0; other < size_; ++other) {
      one_link& each = link(rank, other);
      each.messages.resize(random() % (each.messages.size() + 1));
      each.ends = true;
    }
  }
  /// Cuts the way from `source` to `dest`. Both will notice it.
  void cut(int source, int dest) {
    link(source, dest).is_cut = true;
    link(source, dest).messages.clear();
    suspect(source, dest);
  }
  /// Makes two ranks take each other for lost, perhaps although messages still pass.
  void suspect(int rank, int peer) {
    suspicions_.push_back({rank, peer});
    suspicions_.push_back({peer, rank});
  }

  /// Takes a step that `random` chooses. Returns false if nothing is left to happen.
  template <class Random>
  bool step(Random& random) {
    std::vector<int> possible;
    for (int i = 0; i < size_ * size_; ++i) {
      const one_link& each = links_[static_cast<std::size_t>(i)];
      if (!is_alive(i % size_)) continue;
      if (!each.messages.empty() || each.ends) possible.push_back(i);
    }
    const std::size_t choices = possible.size() + suspicions_.size();
    if (choices == 0) return false;
    const std::size_t choice = random() % choices;
    if (choice >= possible.size()) {
      const auto index = static_cast<std::ptrdiff_t>(choice - possible.size());
      const auto [rank, peer] = suspicions_[static_cast<std::size_t>(index)];
      suspicions_.erase(suspicions_.begin() + index);
      if (is_alive(rank)) at(rank).protocol.add_broken(rank, peer);
      return true;
    }
    const int source = possible[choice] / size_;
    const int dest = possible[choice] % size_;
    one_link& from = link(source, dest);
    if (from.messages.empty()) {
      from.ends = false;
      at(dest).protocol.add_proved(source);
      return true;
    }
    const std::vector<std::byte> bytes = std::move(from.messages.front());
    from.messages.pop_front();
    const auto message = recovery_message::parse(bytes, size_);
    REQUIRE(message);
    at(dest).protocol.receive(source, *message);
    return true;
  }

 private:
  struct one_rank final : consensus::network {
    one_rank(ranks& all, int own_rank, bool is_always_proved)
        : world(all), rank(own_rank), protocol(own_rank, all.size_, is_always_proved, *this) {}
    void send(int peer, const recovery_message& message) override {
      ++world.messages_;
      REQUIRE(peer != rank);
      if (!world.link(rank, peer).is_cut) {
        world.link(rank, peer).messages.push_back(message.bytes());
      }
    }

    ranks& world;
    int rank;
    consensus protocol;
    bool is_alive = true;
  };
  struct one_link {
    std::deque<std::vector<std::byte>> messages;
    bool is_cut = false;
    bool ends = false;  // the source has ended, which the destination has not seen yet
  };

  one_rank& at(int rank) { return *all_[static_cast<std::size_t>(rank)]; }
  one_link& link(int source, int dest) {
    return links_[static_cast<std::size_t>(source * size_ + dest)];
  }

  int size_;
  std::vector<std::unique_ptr<one_rank>> all_;
  std::vector<one_link> links_;
  std::vector<std::pair<int, int>> suspicions_;
  std::uint64_t messages_ = 0;
};

std::uint64_t value_of(int rank) { return ~(std::uint64_t{1} << rank); }

void call(ranks& all, int rank) {
  all[rank].call({any_call, colls::quorum::majority, false, value_of(rank)});
}

/// Checks that all decisions of the living ranks are equal, and that the value is that of the
/// survivors. Returns the number of living ranks with a decision.
int check_decisions(ranks& all) {
  const recovery_decision* first = nullptr;
  int count = 0;
  for (int rank = 0; rank < all.size(); ++rank) {
    if (!all.is_alive(rank) || all[rank].current_state() != consensus::state::decided) continue;
    const recovery_decision& own = all[rank].decision();
    ++count;
    if (first == nullptr) first = &own;
    CHECK(own.lost == first->lost);
    CHECK(own.request.value == first->request.value);
    std::uint64_t value = ~std::uint64_t{0};
    for (int other = 0; other < all.size(); ++other) {
      if (!own.has_lost(other)) value &= value_of(other);
    }
    CHECK(own.request.value == value);
  }
  return count;
}

TEST_CASE(
    "without losses an agreement takes 2(p-1) messages, or twice that if losses may be suspected") {
  std::mt19937 random(1);
  for (int size = 1; size <= 17; ++size) {
    for (const bool is_always_proved : {true, false}) {
      CAPTURE(size);
      ranks all(size, is_always_proved);
      for (int rank = size; rank-- > 0;) call(all, rank);
      while (all.step(random)) {
      }
      CHECK(check_decisions(all) == size);
      const auto peers = static_cast<std::uint64_t>(size - 1);
      CHECK(all.messages() == (is_always_proved ? 2 : 4) * peers);
    }
  }
}

TEST_CASE("ranks that stop at any moment: the others decide alike") {
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int size = 2 + static_cast<int>(random() % 5);
    ranks all(size, random() % 2 == 0);
    std::vector<int> late;
    for (int rank = 0; rank < size; ++rank) {
      random() % 4 == 0 ? late.push_back(rank) : call(all, rank);
    }
    int victims = static_cast<int>(random() % static_cast<unsigned>(size));
    for (;;) {
      if (victims > 0 && random() % 6 == 0) {
        all.kill(static_cast<int>(random() % static_cast<unsigned>(size)), random);
        --victims;
      }
      const bool calls = !late.empty() && random() % 4 == 0;
      if (calls) {
        if (all.is_alive(late.back())) call(all, late.back());
        late.pop_back();
      }
      if (!all.step(random) && late.empty() && !calls) break;
    }
    int alive = 0;
    for (int rank = 0; rank < size; ++rank) alive += all.is_alive(rank) ? 1 : 0;
    CHECK(check_decisions(all) == alive);
  }
}

TEST_CASE("links that break and false suspicions: no two decisions, and a majority that decides") {
  for (unsigned seed = 0; seed < 20'000; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const int size = 3 + static_cast<int>(random() % 4);
    ranks all(size, false);
    for (int rank = 0; rank < size; ++rank) call(all, rank);
    int faults = 1 + static_cast<int>(random() % 3);
    for (;;) {
      if (faults > 0 && random() % 8 == 0) {
        --faults;
        const int a = static_cast<int>(random() % static_cast<unsigned>(size));
        const int b = (a + 1 + static_cast<int>(random() % static_cast<unsigned>(size - 1))) % size;
        switch (random() % 3) {
          case 0:
            all.cut(a, b);
            break;
          case 1:
            all.cut(a, b);
            all.cut(b, a);
            break;
          default:
            all.suspect(a, b);
            break;
        }
      }
      if (!all.step(random) && faults == 0) break;
    }
    check_decisions(all);
    for (int rank = 0; rank < size; ++rank) {
      if (all[rank].survives()) CHECK(all[rank].current_state() != consensus::state::waiting);
    }
  }
}

}  // namespace

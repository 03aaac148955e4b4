// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// island: the ranks of a communicator, each on a GPU of its own, that write into each other's pages
// (shots.cuh). Short vectors are summed so: one launch, and no word of the host before it.

#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/cuda/async_mutex.hpp>
#include <colls/cuda/ipc_peers.hpp>
#include <colls/cuda/peer_buffers.hpp>
#include <colls/reduction/erased_reduction.hpp>

#include <array>

namespace colls::cuda {

static_assert(door_page::rows == shot_page::slots);

/// What the ranks of a communicator tell each other before the first of these sums.
struct island_card {
  visiting_card who;
  std::int64_t blocks = 0;  // of threads that run at a time, at most
};

/// A rank's page, and what its kernels leave words in.
struct own_page {
  std::shared_ptr<std::byte> memory;
  pinned_buffer<std::uint64_t> missed;
};

/// A rank's pages that no island uses. They stay for the next one, and with their communicator:
/// what frees memory may wait for the device, and so for a stream that waits for another call.
class own_pages {
 public:
  explicit own_pages(neighbourhood& here) : here_(here) {}

  /// Throws where there is no memory.
  own_page take() {
    if (spare_.empty()) {
      spare_.reserve(++made_);  // so that giving it back cannot fail
      const on_device guard(here_.by().device());
      return {here_.allocate(shot_page::bytes, passable_memory::work::of_colls),
              pinned_buffer<std::uint64_t>(shot_page::slots)};
    }
    own_page found = std::move(spare_.back());
    spare_.pop_back();
    return found;
  }
  void give(own_page&& used) noexcept { spare_.push_back(std::move(used)); }

 private:
  neighbourhood& here_;
  std::vector<own_page> spare_;
  std::size_t made_ = 0;
};

/// One rank's part in an island: its page, which others write into, and theirs.
class island {
 public:
  island(std::uint32_t of, neighbourhood& here, own_pages& pages, int rank, int ranks)
      : of_(of),
        here_(here),
        own_pages_(pages),
        rank_(rank),
        cards_(index(ranks)),
        doors_(index(ranks)),
        pages_(index(ranks)) {}
  island(const island&) = delete;
  ~island() { give_up(); }

  std::uint32_t of() const { return of_; }
  bool is_refused() const { return state_ == state::refused; }
  bool is_made() const { return state_ == state::made; }

  std::uint64_t take_number() { return ++taken_numbers_; }
  /// The calls that wait until it is known whether it can be made.
  turns& before() { return before_; }
  /// Those that have this number's slot.
  turns& line_of(std::uint64_t number) { return lines_[number % shot_page::slots]; }

  /// Says whether it can be made, alike on all ranks.
  template <channel Channel>
  task<> make(Channel net) {
    {
      const on_device guard(here_.by().device());
      own().who = here_.name();
      int processors = 0;
      check(api::count_processors(here_.by().device(), processors), "cudaDeviceGetAttribute");
      own().blocks = processors;
    }
    co_await tell_all(net.lane(3), own(), cards_.data());
    if (!all_apart()) {
      state_ = state::refused;
      co_return;
    }
    if (take_page()) {
      {
        const on_device guard(here_.by().device());
        here_.by().clear(page_.memory.get(), shot_page::flag_bytes);
      }
      is_clearing_ = true;
      co_await here_.by().reached();
      is_clearing_ = false;
      lend_page();
    }
    co_await tell_all(net.lane(4), own(), cards_.data());
    bool good = true;
    for (const island_card& each : cards_) good &= each.who.ticket != 0;
    std::vector<char> seen(cards_.size(), 0);
    if (good) {
      seen[index(rank_)] = sees_all() ? 1 : 0;
      co_await tell_all(net.lane(5), seen[index(rank_)], seen.data());
      for (const char each : seen) good &= each != 0;
    }
    state_ = good ? state::made : state::refused;
    if (!good) give_up();
  }

  /// Before the first launch of this rank's part in a sum. False: somebody has given it up.
  bool enter(std::uint64_t number, stream_ref on) {
    each_other([&](int rank) {
      doors_[index(rank)].raise(line(rank_, number), here_.process(), on, 0, number);
    });
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool good = true;
    each_other(
        [&](int rank) { good &= doors_[index(rank)].is_open(cards_[index(rank)].who.ticket); });
    return good;
  }
  /// The stream has done this rank's part, or has none of it.
  void leave(std::uint64_t number) {
    each_other([&](int rank) { doors_[index(rank)].lower(line(rank_, number), 0); });
  }
  bool has_missed(std::uint64_t number) const {
    return __atomic_load_n(missed(number), __ATOMIC_ACQUIRE) == number;
  }
  void finish(std::uint64_t number) { door_->finish(number); }
  /// Whether all others' pages are there, or not needed any more for this sum.
  bool may_go_on(std::uint64_t number) {
    bool good = true;
    each_other([&](int rank) {
      const door_view& theirs = doors_[index(rank)];
      good &= theirs.is_open(cards_[index(rank)].who.ticket) || theirs.has_finished(number);
    });
    return good;
  }

  void launch(const reduction& by, any_buffer in, any_buffer out, std::uint64_t number, bool twice,
              stream_ref on) {
    constexpr unsigned looks = 1000;  // some hundred nanoseconds each
    const on_device guard(here_.by().device());
    __atomic_store_n(missed(number), 0, __ATOMIC_RELAXED);
    // Whoever has finished has all that it gets from here, and may be gone.
    std::vector<std::byte*> pages = pages_;
    each_other([&](int rank) {
      if (doors_[index(rank)].has_finished(number)) pages[index(rank)] = nullptr;
    });
    by.shot_on_device(by.op.state,
                      {pages.data(), static_cast<int>(pages.size()), rank_, in.data(), out.data(),
                       in.size(), twice, blocks(), number, missed(number), looks, on});
  }

 private:
  enum class state : std::uint8_t { unknown, refused, made };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  static int line(int rank, std::uint64_t number) {
    return static_cast<int>(index(rank) * shot_page::slots + number % shot_page::slots);
  }
  island_card& own() { return cards_[index(rank_)]; }
  std::uint64_t* missed(std::uint64_t number) const {
    return page_.missed.data() + number % shot_page::slots;
  }
  std::size_t blocks() const {
    std::size_t least = shot_page::most_blocks;
    for (const island_card& each : cards_) {
      least = std::min(least, static_cast<std::size_t>(each.blocks));
    }
    return least;
  }
  template <class Use>
  void each_other(const Use& use) {
    for (int rank = 0; rank < static_cast<int>(cards_.size()); ++rank) {
      if (rank != rank_) use(rank);
    }
  }
  template <channel Channel, class Word>
  static task<> tell_all(Channel net, const Word& mine, Word* all) {
    const std::uint64_t before = net.record().bytes;
    const const_bytes word(reinterpret_cast<const std::byte*>(&mine), sizeof(Word));
    co_await one_round::share_with_all(net, word, reinterpret_cast<std::byte*>(all));
    net.record().in_place += net.record().bytes - before;
  }

  bool all_apart() const {
    for (const island_card& one : cards_) {
      int count = 0;
      for (const island_card& each : cards_) count += each.who.gpu == one.who.gpu ? 1 : 0;
      if (count != 1 || one.blocks < 1) return false;
    }
    return true;
  }
  bool take_page() {
    try {
      page_ = own_pages_.take();
    } catch (const error&) {
      return false;
    }
    door_ = std::make_unique<door>(line(static_cast<int>(cards_.size()), 0), here_.process());
    return true;
  }
  /// Those who lack its descriptor have it before this rank's card.
  void lend_page() {
    const on_device guard(here_.by().device());
    own().who.ticket = door_->open();
    if (own().who.ticket == 0) return;
    own().who.door = door_->address();
    own().who.in = here_.lend({page_.memory.get(), shot_page::bytes});
    pages_[index(rank_)] = page_.memory.get();
    each_other([&](int rank) { here_.pass(cards_[index(rank)].who, own().who.in); });
  }
  void give_up() {
    for (mapped_memory::piece* const each : taken_) mapped_memory::give_back(*each);
    taken_.clear();
    if (page_.memory == nullptr) return;
    if (is_clearing_) (void)api::synchronize(here_.by().ref());
    const std::uint64_t ticket = own().who.ticket;
    if (ticket == 0 || door_->revoke(ticket, door::patience::a_second)) {
      own_pages_.give(std::move(page_));
    } else {
      log_warn("rank %d leaves memory to a rank that may still write there", here_.rank());
      // Of memory with a descriptor other processes keep what they have mapped.
      if (!others_keep_it()) (void)new own_page(std::move(page_));
    }
    page_ = {};
  }
  bool others_keep_it() {
    bool keep = own().who.in.is_passable != 0;
    each_other([&](int rank) { keep &= cards_[index(rank)].who.process != here_.process(); });
    return keep;
  }
  bool sees_all() {
    const on_device guard(here_.by().device());
    const int lines = line(static_cast<int>(cards_.size()), 0);
    bool good = true;
    each_other([&](int rank) {
      const visiting_card& theirs = cards_[index(rank)].who;
      doors_[index(rank)] = door_view(theirs.door, lines);
      refusal no;  // which the visit that comes instead tells
      pages_[index(rank)] = here_.place_of(theirs, theirs.in, true, taken_, no);
      good &= doors_[index(rank)] && pages_[index(rank)] != nullptr;
    });
    return good;
  }

  std::uint32_t of_;
  neighbourhood& here_;
  own_pages& own_pages_;
  int rank_;
  state state_ = state::unknown;
  std::vector<island_card> cards_;
  std::vector<door_view> doors_;
  std::vector<std::byte*> pages_;
  std::vector<mapped_memory::piece*> taken_;
  own_page page_;
  bool is_clearing_ = false;
  std::unique_ptr<door> door_;
  std::uint64_t taken_numbers_ = 0;
  turns before_;
  std::array<turns, shot_page::slots> lines_;
};

/// The islands of one rank's communicators.
class islands {
 public:
  explicit islands(neighbourhood& here) : here_(here), pages_(here) {}

  /// Ends those of communicators that have ended since the last call.
  island& of(const communicator_state& which, const match& all) {
    const auto has_ended = [&all](const std::unique_ptr<island>& each) {
      return all.find(each->of()) == nullptr;
    };
    islands_.erase(std::remove_if(islands_.begin(), islands_.end(), has_ended), islands_.end());
    for (const auto& known : islands_) {
      if (known->of() == which.id()) return *known;
    }
    return *islands_.emplace_back(
        std::make_unique<island>(which.id(), here_, pages_, which.rank(), which.size()));
  }

 private:
  neighbourhood& here_;
  own_pages pages_;
  std::vector<std::unique_ptr<island>> islands_;
};

/// An operation that ends at the driver's next turn.
class next_turn : watched {
 public:
  struct request {
    using operation = next_turn;
  };
  explicit next_turn(const request&) {}
  bool start(completion& done) {
    done_ = &done;
    done.queue()->watch(*this);
    return false;
  }
  void result() const {}

 private:
  bool look() noexcept override {
    done_->post();
    return true;
  }
  completion* done_ = nullptr;
};

/// One rank's part in one sum. When it is destroyed the stream has got through it.
template <channel Channel>
class shot_call {
 public:
  shot_call(Channel net, island& with, std::uint64_t number, stream& by)
      : net_(net), with_(with), number_(number), by_(by) {}
  shot_call(const shot_call&) = delete;
  ~shot_call() {
    if (!inside_) return;
    (void)api::synchronize(by_.ref());
    leave();
  }

  /// After what the stream has. The words that all tell all are not waited for by any kernel: they
  /// compare fingerprints, and say that it is worth to launch once more.
  task<> run(const reduction& by, any_buffer in, any_buffer out, bool twice) {
    const bool good = with_.enter(number_, by_.ref());
    inside_ = true;
    const auto words = [&](int lane) {
      return one_round::share_with_all(net_.lane(lane), const_bytes(), nullptr);
    };
    if (!good) {
      // Somebody has given the operation up; that one's word never comes, why it did does.
      leave();
      co_await words(6);
      co_await words(nobodys_lane);
    }
    co_await when_all(attempt(by, in, out, twice), words(6));
    while (with_.has_missed(number_)) {
      co_await next_turn::request();
      const communicator_state& group = *net_.record().communicator;
      if (group.failed()) throw error(group.why());
      if (inside_ && !with_.may_go_on(number_)) leave();  // why not will be told
      if (inside_) co_await attempt(by, in, out, twice);
    }
    with_.finish(number_);
    leave();
    net_.record().bytes += bytes(in).size;
    net_.record().in_place += bytes(in).size;
  }

 private:
  void leave() {
    with_.leave(number_);
    inside_ = false;
  }
  task<> attempt(const reduction& by, any_buffer in, any_buffer out, bool twice) {
    try {
      with_.launch(by, in, out, number_, twice, by_.ref());
      co_await by_.reached();
    } catch (const error& thrown) {
      net_.revoke(thrown.record());  // first, so that the words beside this end too
      throw;
    }
  }

  Channel net_;
  island& with_;
  std::uint64_t number_;
  stream& by_;
  bool inside_ = false;
};

/// out = the sum of all ranks' `in`, on a stream that follows the caller's. False: this has no
/// island, on no rank.
template <channel Channel>
task<bool> shoot(Channel net, island& with, stream& by, any_buffer in, any_buffer out,
                 const reduction& how) {
  const std::uint64_t number = with.take_number();
  const communicator_state& group = *net.record().communicator;
  {
    turns::place turn(with.before());
    co_await turn.come();
    if (group.failed()) throw error(group.why());
    if (!with.is_made() && !with.is_refused()) co_await with.make(net);
  }
  if (with.is_refused()) co_return false;
  turns::place turn(with.line_of(number));
  co_await turn.come();
  if (group.failed()) throw error(group.why());
  shot_call call(net, with, number, by);
  co_await call.run(how, in, out, shots_for(bytes(in).size, in.element_size(), net.size()) == 2);
  co_return true;
}

}  // namespace colls::cuda

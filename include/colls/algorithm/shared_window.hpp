// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the ranks of one operation see of each other's buffers, and how they stay out of them once
// the operation is over.

#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/cache_lines.hpp>
#include <colls/channel/channel.hpp>

#include <algorithm>
#include <atomic>
#include <optional>

namespace colls::direct {

/// What a rank tells each other one before any data moves: where its buffers lie for that one.
/// Zeros where they lie in memory of its own, unless that one may read an input there: then
/// messages carry the data.
struct card {
  std::uint64_t ticket = 0;
  std::uint64_t in = 0;
  std::uint64_t out = 0;
};

/// What peers see of a rank's input and output: themselves where they are lent, else a desk that
/// holds copies; themselves, too, where there is none. Destroyed after what was lent of it.
template <channel Channel>
class desk {
  using memory_type = typename Channel::transport_type::desk;

 public:
  static constexpr std::size_t size = memory_type::size;

  desk(const Channel& net, const_bytes in, mutable_bytes out) : desk(in, out) {
    const auto is_seen = [&](const_bytes data) { return data.size == 0 || net.net().lends(data); };
    const bool sees_in = is_seen(in);
    const bool sees_out = is_seen(out);
    if ((sees_in && sees_out) || in.size > size) return;
    memory_.emplace(net.net());
    if (memory_->data() == nullptr) return;
    has_in_ = !sees_in;
    has_out_ = !sees_out;
  }
  /// Of two ranks each would wait until the other one has made its copies: they make none.
  static desk of_many(const Channel& net, const_bytes in, mutable_bytes out = {}) {
    if (net.size() > 2) return {net, in, out};
    return {in, out};
  }

  /// What to lend.
  const_bytes in() const { return has_in_ ? const_bytes(memory_->data(), in_.size) : in_; }
  const_bytes in(const_bytes part) const {
    return has_in_ ? place(part.data - in_.data, part.size) : part;
  }
  mutable_bytes out() const { return has_out_ ? mutable_bytes(memory_->data(), out_.size) : out_; }
  /// Of the input, for who alone reads a part of it and may write there then.
  mutable_bytes spent() const { return spent(in_); }
  mutable_bytes spent(const_bytes part) const {
    return has_in_ ? place(part.data - in_.data, part.size) : mutable_bytes();
  }
  bool has_out() const { return has_out_; }

  /// Copies a part of the input there, and one of the output from there.
  void bring(const Channel& net, const_bytes part) const {
    if (!has_in_) return;
    net.copy(place(part.data - in_.data, part.size), part);
    net.record().bytes += part.size;
  }
  void fetch(const Channel& net, mutable_bytes part) const {
    if (!has_out_) return;
    net.copy(part, place(part.data - out_.data, part.size));
    net.record().bytes += part.size;
  }

 private:
  desk(const_bytes in, mutable_bytes out) : in_(in), out_(out) {}

  mutable_bytes place(std::ptrdiff_t offset, std::size_t length) const {
    return {memory_->data() + offset, length};
  }

  std::optional<memory_type> memory_;
  const_bytes in_;
  mutable_bytes out_;
  bool has_in_ = false;
  bool has_out_ = false;
};

/// One rank's part in an operation whose ranks work in each other's buffers. All cards are read,
/// and with them all fingerprints compared, before anything is touched. When it is destroyed nobody
/// writes to this rank's buffers any more, and what is still read there is not used, however the
/// operation has ended.
template <channel Channel>
  requires lending_transport<typename Channel::transport_type>
class lending {
  using transport_type = typename Channel::transport_type;

 public:
  /// Elements are worked on in pieces of about so many bytes, which stay in the nearest cache;
  /// between two pieces a rank looks whether all others are still there.
  static constexpr std::size_t cached = 32 * 1024;
  /// Longer pieces take the kernel less time for each byte until they leave a core's own cache.
  static constexpr std::size_t read_at_once = 256 * 1024;

  /// `in(peer)` and `out(peer)`: what that one may read here, and what it may write. Inputs
  /// are lent in memory of this rank's own, too, if some ranks are the `own` ones that read it.
  template <std::invocable<int> In, std::invocable<int> Out>
  lending(Channel net, const In& in, const Out& out, readers own = readers::nobody)
      : net_(net),
        loan_(net.net(), *net.record().communicator),
        given_(static_cast<std::size_t>(net.size())),
        seen_(given_.size()),
        views_(given_.size()),
        read_(own == readers::nobody ? 0 : given_.size()) {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer == net.rank()) continue;
      card& mine = given_[index(peer)];
      const const_bytes input = in(peer);
      mine.in = loan_.place_for(net.world_rank(peer), input);
      mine.out = loan_.place_for(net.world_rank(peer), out(peer));
      if (mine.in == 0 && !read_.empty()) {
        mine.in = loan_.address_for(net.world_rank(peer), input, own);
        read_[index(peer)].lent = input;
      }
      if (mine.in != 0 || mine.out != 0) mine.ticket = loan_.ticket();
      if (mine.ticket == 0) mine = {};
    }
  }
  /// The same for all.
  lending(Channel net, const_bytes in, const_bytes out, readers own = readers::nobody)
      : lending(net, [&](int) { return in; }, [&](int) { return out; }, own) {}
  lending(const lending&) = delete;
  lending& operator=(const lending&) = delete;

  /// Before the ranks tell each other: who does not lend an input to all others lends none, so that
  /// all of them see the same.
  void lend_to_all_or_none() {
    const auto lent = [](const card& mine) { return mine.in != 0; };
    const auto others = std::count_if(given_.begin(), given_.end(), lent);
    if (others == net_.size() - 1) return;
    for (card& mine : given_) without_input(mine);
  }
  /// Afterwards: whether every rank lends an input to all others.
  bool all_lend() const {
    for (int peer = 0; peer < net_.size(); ++peer) {
      if (peer == net_.rank()) continue;
      if (!lends_in(peer) || !sees_in(peer)) return false;
    }
    return true;
  }
  /// The same, and some of them lie in memory of a rank's own, of which a peer reads `part(peer)`.
  /// Where not all lend, messages carry what lies there.
  template <class Part>
  bool all_read(const Part& part) {
    if (!reads() && std::none_of(given_.begin(), given_.end(), is_own)) return false;
    if (all_lend()) {
      for (int peer = 0; peer < net_.size(); ++peer) read_[index(peer)].lent = part(peer);
      return true;
    }
    for (int peer = 0; peer < net_.size(); ++peer) {
      for (card* const one : {&given_[index(peer)], &seen_[index(peer)]}) {
        if (is_own(*one)) without_input(*one);
      }
      if (seen_[index(peer)].ticket == 0) views_[index(peer)] = nullptr;
    }
    return false;
  }

  /// Whether some peer's input lies in memory of its own.
  bool reads() const { return std::any_of(seen_.begin(), seen_.end(), is_own); }

  /// After `begin`, instead of `end`: all ranks know that nobody touches what is lent.
  void leave_untouched() { loan_.settle(); }

  /// Cards that are under way.
  template <class Extent>
  class opening {
   public:
    opening(lending& of, const Extent& extent, const round_gives& given, const round_takes& seen)
        : of_(of),
          extent_(extent),
          given_(given),
          seen_(seen),
          cards_(one_round::round(of.net_, given, seen)) {}
    bool start(completion& done) { return cards_.start(done); }
    void result() {
      detail::unwrap_result(cards_);
      const auto count = [&](int) { of_.net_.record().in_place += sizeof(card); };
      given_.each(of_.net_.rank(), count);
      seen_.each(of_.net_.rank(), count);
      of_.see(extent_);
    }

   private:
    lending& of_;
    Extent extent_;
    round_gives given_;
    round_takes seen_;
    detail::awaited<decltype(one_round::round(std::declval<Channel&>(), round_gives(),
                                              round_takes()))>
        cards_;
  };
  /// Tells those ranks and hears those, of whose memory this rank touches `extent(peer)` bytes from
  /// each place on.
  template <class Extent>
  opening<Extent> begin(const Extent& extent, pattern::rank_range told, pattern::rank_range heard) {
    return {*this, extent, round_gives::blocks(told, zeroth(given_)),
            round_takes::blocks(heard, zeroth(seen_))};
  }
  /// All tell all.
  auto begin(std::size_t extent) {
    const auto of = [=](int) { return extent; };
    return begin(of, one_round::all(net_), one_round::all(net_));
  }

  /// Whether `peer` works in this rank's buffer, and this rank in `peer`'s.
  bool lends_in(int peer) const { return given_[index(peer)].in != 0; }
  bool lends_out(int peer) const { return given_[index(peer)].out != 0; }
  bool sees_in(int peer) const { return seen_[index(peer)].in != 0; }
  bool sees_out(int peer) const { return seen_[index(peer)].out != 0; }
  /// Whether `peer` reads and writes the same buffer.
  bool is_in_place(int peer) const { return seen_[index(peer)].in == seen_[index(peer)].out; }

  std::byte* in_of(int peer) const { return views_[index(peer)]->at(seen_[index(peer)].in, 0); }
  std::byte* out_of(int peer) const { return views_[index(peer)]->at(seen_[index(peer)].out, 0); }

  /// After `peer`'s input from byte `from` on was read, in a visit, and nobody needs it any more:
  /// where that one lends its output there.
  void leave(int peer, std::size_t from, std::size_t size) const {
    if (sees_out(peer) && is_in_place(peer)) detail::leave_lines(out_of(peer) + from, size);
  }

  /// While it lives, and if it is good, peers' memory may be touched. Not across a suspension.
  class visit {
   public:
    explicit visit(const lending& of) : of_(of) {
      of_.each_view([](auto& view, const card&) { view.raise(); });
      std::atomic_thread_fence(std::memory_order_seq_cst);
      of_.each_view([&](auto& view, const card& lent) { good_ &= view.is_open(lent.ticket); });
    }
    visit(const visit&) = delete;
    visit& operator=(const visit&) = delete;
    ~visit() {
      of_.each_view([](auto& view, const card&) { view.lower(); });
    }
    explicit operator bool() const { return good_; }
    /// Whether what was read meanwhile is what the peers lent: a peer that ends early
    /// closes its ticket before it takes pages away.
    bool is_still_good() const {
      std::atomic_thread_fence(std::memory_order_acquire);
      bool good = good_;
      of_.each_view([&](auto& view, const card& lent) { good &= view.is_open(lent.ticket); });
      return good;
    }

   private:
    const lending& of_;
    bool good_ = true;
  };

  /// `work(first, count)` inside a visit for all of `count` elements, piece by piece. Other
  /// operations of this thread get their turn between some of the pieces.
  template <class Work>
  task<> in_pieces(std::size_t count, std::size_t element, Work work) {
    const std::size_t step = elements_in(cached, element);
    const int next = (net_.rank() + 1) % net_.size();
    for (std::size_t at = 0; at < count; at += step) {
      const std::size_t n = std::min(step, count - at);
      bool good = false;
      {
        const visit inside(*this);
        good = static_cast<bool>(inside);
        if (good) {
          work(at, n);
          good = inside.is_still_good();
        }
      }
      if (!good) co_await word_of_end(next);
      net_.record().bytes += n * element;
      net_.record().in_place += n * element;
      if (is_turn_over(n * element)) co_await others_turn();
    }
  }

  /// Copies a peer's elements here, those from byte `from` of its input on, or ours there.
  template <buffer Data>
  task<> copy_in(Data here, int peer, std::size_t from = 0) {
    if (is_own(seen_[index(peer)])) return read_in(bytes(here), peer, from);
    return copy_seen(here, peer, from, true);
  }
  /// Copies so many as lie in the cache, perhaps not for the last time; false: they cannot be read.
  template <buffer Data>
  task<bool> copy_some(Data here, int peer, std::size_t from) {
    if (is_own(seen_[index(peer)])) co_return co_await read_once(bytes(here), peer, from);
    co_await copy_seen(here, peer, from, false);
    co_return true;
  }
  template <buffer Data>
  task<> copy_out(std::byte* there, Data here) {
    const std::size_t element = element_size(here);
    const auto work = [&](std::size_t at, std::size_t n) {
      net_.copy({there + at * element, n * element}, bytes(here.subspan(at, n)));
    };
    co_await in_pieces(here.size(), element, work);
  }

  /// After so many bytes more, whether other operations of this thread get their turn.
  bool is_turn_over(std::size_t size) {
    worked_ += size;
    if (worked_ < turn) return false;
    worked_ = 0;
    return true;
  }
  task<> others_turn() {
    co_await others_first{};
    net_.require_good();
  }

  /// Says that this rank has left its peers' buffers, and waits until they have left its own.
  task<> end() {
    const bool reads = !read_.empty();
    const mutable_bytes lacks = reads ? mutable_bytes(&read_[0].lacks, 1) : mutable_bytes();
    const mutable_bytes asked = reads ? mutable_bytes(&read_[0].is_asked, 1) : mutable_bytes();
    const std::size_t stride = reads ? sizeof(reading) : 0;
    const auto told = round_gives::spaced(one_round::all(net_), lacks, stride);
    const auto heard = round_takes::spaced(one_round::all(net_), asked, stride);
    co_await one_round::round(net_, told.among(seen_[0].ticket, sizeof(card)),
                              heard.among(given_[0].ticket, sizeof(card)));
    bool is_short = false;
    for (int peer = 0; peer < net_.size(); ++peer) {
      const auto word = [&](const card& of) { return of.ticket != 0 ? lacks.size : 0; };
      net_.record().in_place += word(seen_[index(peer)]) + word(given_[index(peer)]);
      is_short |= reads && is_unread(peer);
    }
    if (is_short) co_await send_unread();
    loan_.settle();
  }

  /// `make(peer)` for every other rank that `picks(peer)`, all at once.
  template <class Pick, class Make>
  auto with_those(const Pick& picks, const Make& make) const {
    using operation = detail::awaited<decltype(make(0))>;
    std::vector<operation, detail::recycling_allocator<operation>> operations;
    for (int peer = 0; peer < net_.size(); ++peer) {
      if (peer == net_.rank() || !picks(peer)) continue;
      if (operations.empty()) operations.reserve(given_.size());
      operations.emplace_back(make(peer));
    }
    return when_all(std::move(operations));
  }

 private:
  template <class T>
  using list = std::vector<T, detail::recycling_allocator<T>>;
  static constexpr std::size_t turn = 4 * 1024 * 1024;

  static std::size_t index(int peer) { return static_cast<std::size_t>(peer); }
  /// What a peer reads here in this rank's own memory, and this rank there.
  struct reading {
    const_bytes lent;
    mutable_bytes missing;  // what could not be read
    std::byte lacks{};      // this rank has to be sent it
    std::byte is_asked{};   // the peer has to be sent it
  };

  template <class Extent>
  void see(const Extent& extent) {
    for (int peer = 0; peer < net_.size(); ++peer) {
      const card& theirs = seen_[index(peer)];
      if (theirs.ticket == 0) continue;
      auto* const view = net_.net().view_of(net_.world_rank(peer));
      const auto is_there = [&](std::uint64_t place) {
        return place == 0 || view->at(place, extent(peer)) != nullptr;
      };
      const bool right =
          view != nullptr && is_there(theirs.out) &&
          (is_own(theirs) ? !read_.empty() && view->reads_owner() : is_there(theirs.in));
      if (!right) throw error(errc::protocol_error, "a rank lends memory that nobody has mapped");
      views_[index(peer)] = view;
    }
  }

  static bool is_own(const card& of) { return transport_type::view::is_own(of.in); }
  bool is_unread(int peer) const {
    const reading& of = read_[index(peer)];
    return of.lacks != std::byte{} || of.is_asked != std::byte{};
  }
  static void without_input(card& of) {
    of.in = 0;
    if (of.out == 0) of.ticket = 0;
  }

  template <buffer Data>
  task<> copy_seen(Data here, int peer, std::size_t from, bool is_last) {
    const std::size_t element = element_size(here);
    const auto work = [&](std::size_t at, std::size_t n) {
      const std::size_t first = from + at * element;
      net_.copy(bytes(here.subspan(at, n)), {in_of(peer) + first, n * element});
      if (is_last) leave(peer, first, n * element);
    };
    co_await in_pieces(here.size(), element, work);
  }

  // What is read while the ticket is open is what the peer lends: who ends early closes it first.
  // False: it cannot be read.
  task<bool> read_once(mutable_bytes here, int peer, std::size_t from) {
    const card& theirs = seen_[index(peer)];
    const auto& view = *views_[index(peer)];
    const bool has_read = !view.read(here, theirs.in + from);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (!view.is_open(theirs.ticket)) co_await word_of_end(peer);
    if (has_read) net_.record().bytes += here.size;
    co_return has_read;
  }

  task<> read_in(mutable_bytes here, int peer, std::size_t from) {
    for (std::size_t at = 0; at < here.size; at += read_at_once) {
      const std::size_t size = std::min(read_at_once, here.size - at);
      if (!co_await read_once({here.data + at, size}, peer, from + at)) {
        read_[index(peer)].missing = here;
        read_[index(peer)].lacks = std::byte{1};
        co_return;
      }
      if (is_turn_over(size)) co_await others_turn();
    }
  }

  task<> send_unread() {
    const auto lacks = [&](int peer) { return read_[index(peer)].lacks != std::byte{}; };
    const auto is_asked = [&](int peer) { return read_[index(peer)].is_asked != std::byte{}; };
    const auto take = [&](int peer) { return net_.recv(peer, read_[index(peer)].missing); };
    const auto give = [&](int peer) {
      loan_.unread(net_.world_rank(peer));
      return net_.send(peer, read_[index(peer)].lent);
    };
    co_await when_all(with_those(is_asked, give), with_those(lacks, take));
  }

  // A peer has given the operation up and says why.
  task<> word_of_end(int peer) { co_await net_.lane(nobodys_lane).recv(peer, mutable_bytes()); }

  static mutable_bytes zeroth(list<card>& all) {
    return {reinterpret_cast<std::byte*>(all.data()), sizeof(card)};
  }
  template <class Use>
  void each_view(Use use) const {
    for (std::size_t i = 0; i < views_.size(); ++i) {
      if (views_[i] != nullptr) use(*views_[i], seen_[i]);
    }
  }

  Channel net_;
  typename transport_type::loan loan_;
  list<card> given_;  // what this rank told
  list<card> seen_;   // what it was told
  list<typename transport_type::view*> views_;
  list<reading> read_;  // nothing, unless inputs may be read
  std::size_t worked_ = 0;
};

}  // namespace colls::direct

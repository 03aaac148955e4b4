// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// visit: one operation whose ranks see each other's device memory. One rank of each GPU does its
// work, by kernels and copies of its stream; the others wait for its word. No stream waits for
// another process, since that one may die.

#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/cuda/ipc_peers.hpp>

namespace colls::cuda {

/// One rank's part in one operation. When it is destroyed nobody touches this rank's buffers any
/// more, and this rank nobody else's, however the operation has ended.
template <channel Channel>
class visit {
 public:
  /// `lends`: whether this rank's buffers suit; else the operation is staged on all ranks.
  visit(Channel net, neighbourhood& here, const_bytes in, const_bytes out, bool lends,
        ring_use ring = ring_use::never)
      : net_(net),
        here_(here),
        cards_(static_cast<std::size_t>(net.size())),
        in_(cards_.size()),
        out_(cards_.size()) {
    const on_device guard(here.by().device());
    if (lends) cards_[own()] = here.introduce(in, out);
    cards_[own()].ring = ring;
    in_[own()] = const_cast<std::byte*>(in.data);
    out_[own()] = const_cast<std::byte*>(out.data);
  }
  visit(const visit&) = delete;
  ~visit() {
    const bool is_cut = cards_[own()].ticket != 0;
    // Also what other calls have begun: their ranks may wait for this one as this one for them.
    if (is_cut) here_.rest();
    for (mapped_memory::piece* const each : taken_) mapped_memory::give_back(*each);
    if (!is_cut) return;
    if (here_.revoke(cards_[own()].ticket)) return;
    log_warn("rank %d ends an operation while another rank may still work in its device memory",
             here_.rank());
  }

  /// After this rank's buffers are ready: whether all ranks' are lent, and seen by those who work.
  /// Equal on all ranks.
  task<bool> begin() {
    co_await tell_all(0, bytes_of(cards_[own()]), bytes_of(cards_[0]).data);
    bool lent = true;
    for (const visiting_card& each : cards_) lent &= each.ticket != 0;
    if (lent) {
      std::vector<sight> seen(cards_.size(), sight::none);
      seen[own()] = look(false);
      co_await tell_each(1, seen);
      if (worst(seen) == sight::lacking) {
        pass_to_those(seen);
        co_await tell_all(3, const_bytes(), nullptr);
        seen[own()] = look(true);
        co_await tell_each(4, seen);
        if (worst(seen) == sight::lacking) here_.do_not_pass("a descriptor was not taken");
      }
      lent = worst(seen) == sight::whole;
      if (!lent && seen[own()] == worst(seen)) here_.refuse(net_.record(), refused_, refusal_);
    }
    if (!lent) settle();
    co_return lent;
  }

  /// After `begin`, on all ranks: nobody works.
  void decline() { settle(); }
  /// `work(*this)` where this rank works, on its stream; ends when all have done theirs.
  template <class Work>
  task<> run(const Work& work) {
    if (works()) co_await part(work);
    co_await end();
  }
  /// A part of this rank's work: `work(*this)` on its stream; ends when that is done.
  template <class Work>
  task<> part(const Work& work) {
    const std::uint64_t rests = here_.rests();
    const bool good = enter();
    if (good) {
      try {
        {
          const on_device guard(here_.by().device());
          work(*this);
        }
        co_await here_.by().reached();
      } catch (const error& thrown) {
        // First, so that the parts beside this one end too, here and on the other ranks.
        here_.rest();
        net_.revoke(thrown.record());
        throw;
      }
    }
    // Since a rest they are down.
    if (rests == here_.rests()) lower_lines();
    if (good) co_return;
    // Somebody has given the operation up, and says why once nobody is inside.
    const int next = (net_.rank() + 1) % net_.size();
    co_await net_.lane(nobodys_lane).recv(next, mutable_bytes());
  }
  /// This rank has done its work; ends when all have.
  task<> end() {
    co_await tell_all(2, const_bytes(), nullptr);
    settle();
  }

  const Channel& net() const { return net_; }
  const std::vector<visiting_card>& cards() const { return cards_; }

  /// Who works for a rank: the first one on its GPU.
  int worker_of(int rank) const {
    int first = 0;
    while (!(cards_[index(first)].gpu == cards_[index(rank)].gpu)) ++first;
    return first;
  }
  bool works_for(int rank) const { return worker_of(rank) == net_.rank(); }
  bool works() const { return works_for(net_.rank()); }
  /// How many ranks work, and how many of them come before this one.
  int workers() const { return workers_before(net_.size()); }
  int number() const { return workers_before(net_.rank()); }

  std::byte* in(int rank) const { return in_[index(rank)]; }
  std::byte* out(int rank) const { return out_[index(rank)]; }

  void copy(std::byte* to, const std::byte* from, std::size_t size) {
    if (to == from || size == 0) return;
    here_.by().copy(to, from, size);
    count(size);
  }
  /// outs = ins[0] (+) ins[1] (+) ..., prepared, and finished as of so many ranks.
  void fold(const reduction& by, const std::vector<const void*>& ins,
            const std::vector<std::byte*>& outs, std::size_t elements, int ranks) {
    if (elements == 0) return;
    const std::size_t size = elements * by.storage_size;
    void* const second = outs.size() > 1 ? outs[1] : nullptr;
    by.on_device(by.op.state,
                 {ins.data(), ins.size(), outs[0], second, elements, ranks, here_.by().ref()});
    count(size);
    for (std::size_t i = 2; i < outs.size(); ++i) copy(outs[i], outs[0], size);
  }

 private:
  // What a rank sees of what it needs of others, the worst first: of `lacking`, somebody has to
  // pass it a descriptor.
  enum class sight : char { none, lacking, whole };

  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }
  std::size_t own() const { return index(net_.rank()); }
  static mutable_bytes bytes_of(visiting_card& it) {
    return {reinterpret_cast<std::byte*>(&it), sizeof it};
  }
  int workers_before(int end) const {
    int count = 0;
    for (int rank = 0; rank < end; ++rank) count += worker_of(rank) == rank ? 1 : 0;
    return count;
  }
  void count(std::size_t size) {
    net_.record().bytes += size;
    net_.record().in_place += size;
  }

  task<> tell_all(int lane, const_bytes mine, std::byte* all) {
    const std::uint64_t before = net_.record().bytes;
    co_await one_round::share_with_all(net_.lane(lane), mine, all);
    net_.record().in_place += net_.record().bytes - before;  // words about data, no data
  }

  task<> tell_each(int lane, std::vector<sight>& seen) {
    auto* const all = reinterpret_cast<std::byte*>(seen.data());
    return tell_all(lane, const_bytes(all + own(), sizeof(sight)), all);
  }
  static sight worst(const std::vector<sight>& seen) {
    return *std::min_element(seen.begin(), seen.end());
  }
  void pass_to_those(const std::vector<sight>& seen) const {
    each_other([&](int rank, int) {
      const visiting_card& theirs = cards_[index(rank)];
      const visiting_card& mine = cards_[own()];
      if (seen[index(rank)] != sight::lacking) return;
      here_.pass(theirs, mine.in);
      if (mine.out.base != mine.in.base) here_.pass(theirs, mine.out);
    });
  }

  template <class Use>
  void each_other(const Use& use) const {
    for (int rank = 0; rank < net_.size(); ++rank) {
      if (rank != net_.rank()) use(rank, net_.world_rank(rank));
    }
  }

  /// `passed`: whether everybody has passed the descriptors that this rank lacked. All see the
  /// doors of those who work, where their streams tell how far they have come.
  sight look(bool passed) {
    sight all = sight::whole;
    const on_device guard(here_.by().device());
    doors_.resize(cards_.size());
    each_other([&](int rank, int world) {
      if (!works() && worker_of(rank) != rank) return;
      const visiting_card& theirs = cards_[index(rank)];
      const auto refuse = [&](const refusal& no, sight how) {
        if (how < all) {
          all = how;
          refusal_ = no;
          refused_ = world;
        }
      };
      doors_[index(rank)] = here_.door_of(world, theirs);
      if (doors_[index(rank)] == nullptr) {
        refuse({"its process cannot be seen from here",
                "both have to be in one pid namespace, of one user"},
               sight::none);
      }
      if (!works()) return;
      const auto find = [&](const lent_buffer& lent) -> std::byte* {
        if (all == sight::none || lent.size == 0) return nullptr;
        refusal no;
        std::byte* const place = here_.place_of(theirs, lent, passed, taken_, no);
        if (place != nullptr) return place;
        const bool by_descriptor = lent.is_passable != 0 && theirs.process != here_.process();
        refuse(no, by_descriptor ? sight::lacking : sight::none);
        return nullptr;
      };
      in_[index(rank)] = find(theirs.in);
      out_[index(rank)] = find(theirs.out);
    });
    return all;
  }

  bool enter() {
    each_other([&](int rank, int) {
      doors_[index(rank)]->raise(here_.rank(), here_.process(), here_.by().ref(),
                                 here_.by().next());
    });
    std::atomic_thread_fence(std::memory_order_seq_cst);
    bool good = true;
    each_other(
        [&](int rank, int) { good &= doors_[index(rank)]->is_open(cards_[index(rank)].ticket); });
    return good;
  }
  void lower_lines() {
    const std::uint32_t last = here_.by().next() - 1;
    each_other([&](int rank, int) { doors_[index(rank)]->lower(here_.rank(), last); });
  }
  void settle() {
    if (cards_[own()].ticket != 0) here_.door().close(std::exchange(cards_[own()].ticket, 0));
  }

  Channel net_;
  neighbourhood& here_;
  std::vector<visiting_card> cards_;
  std::vector<std::byte*> in_;
  std::vector<std::byte*> out_;
  std::vector<door_view*> doors_;
  std::vector<mapped_memory::piece*> taken_;
  refusal refusal_;  // why this rank cannot see all
  int refused_ = 0;
};

}  // namespace colls::cuda

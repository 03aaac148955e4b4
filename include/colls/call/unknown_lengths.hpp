// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// unknown_lengths: collectives in which no rank knows the lengths of the others. The ranks first
// exchange the lengths, and then run an algorithm for these lengths in the same call. These
// functions work on bytes and are compiled once per transport.

#include <colls/call/choose_algorithm.hpp>
#include <colls/call/communicator_core.hpp>
#include <colls/call/gathered.hpp>
#include <colls/call/view_body.hpp>

#include <algorithm>
#include <cstring>

namespace colls::detail {

/// Returns the largest number of elements that a buffer can have. It is less than `invalid_count`.
constexpr std::size_t max_elements(std::size_t element_size) {
  return (invalid_count - 1) / element_size;
}

/// The bodies of calls of unknown lengths. A body has two phases, which use the same lanes. This is
/// possible because messages with equal keys arrive in the order in which they were sent, and every
/// algorithm that moves data receives all messages that are sent to it.
///
/// A rank whose elements are not contiguous says so with the lengths. All ranks then move the data
/// in pieces, directly between the ranks. An all_gather needs no pieces: it packs a view into this
/// rank's block of the result.
template <class Transport>
class unknown_lengths_body {
 public:
  using channel = basic_channel<Transport>;
  using offsets = std::vector<std::size_t>;
  using length_list = std::vector<std::uint64_t>;

  /// `custom` is the algorithm of the user's own that the call pins, or null.
  unknown_lengths_body(const tuning& selection, const options& opts, const algorithm_info* custom)
      : selection_(&selection), opts_(opts), custom_(custom) {}

  /// Makes `check` fail if no algorithm can do the call. The lengths do not matter for that.
  template <collective Coll>
  void check_choice(checks& check, int ranks) const {
    if (check.failed()) return;
    (void)choose_algorithm<Coll, Transport>(*selection_, {}, {Coll, 0, ranks}, opts_, custom_,
                                            check);
  }

  static task<> run(channel net, unknown_lengths_body how, unknown_lengths_request call,
                    resizable_result& result) {
    switch (call.operation) {
      case collective::broadcast:
        return broadcast(net, how, std::move(call), result);
      case collective::scatter:
        return scatter(net, how, std::move(call), result);
      case collective::all_to_all:
        return all_to_all(net, how, std::move(call), result);
      default:
        return gather(net, how, std::move(call), result);
    }
  }

 private:
  // Chooses an algorithm of the collective `Coll` for a vector of `size` bytes, and sets its
  // parameters in the record of the call. The choice is equal on all ranks if `size` is.
  template <collective Coll>
  auto choose(const channel& net, std::uint64_t size) const {
    using entry = typename std::remove_cvref_t<
        decltype(algorithm_table<channel>::template algorithms<Coll>())>::value_type;
    checks check(Coll);
    const call_cache::entry chosen = choose_algorithm<Coll, Transport>(
        *selection_, {}, {Coll, size, net.size()}, opts_, custom_, check);
    if (check.failed()) throw error(check.reason());
    const operation_record& parameters = chosen.cached.record;
    net.record().segment = parameters.segment;
    net.record().lanes = parameters.lanes;
    net.record().radix = parameters.radix;
    return static_cast<const entry&>(*chosen.algorithm).run;
  }
  // Chooses an algorithm for the exchange of `count` lengths. The caller's options do not apply.
  template <collective Coll>
  auto choose_for_lengths(const channel& net, std::size_t count) const {
    const unknown_lengths_body automatic(*selection_, {}, nullptr);
    return automatic.template choose<Coll>(net, count * sizeof(std::uint64_t));
  }

  static any_buffer as_buffer(length_list& lengths) {
    return {lengths.data(), lengths.size(), sizeof(std::uint64_t)};
  }
  static partition one_each(const channel& net) { return partition::blocks(1, net.size()); }

  // Returns the offsets of blocks of these lengths. Peers have sent the lengths, so nothing is
  // allocated for them before this check.
  static offsets checked_offsets(const length_list& lengths, std::size_t element_size) {
    offsets blocks = offsets_of(lengths);
    if (blocks.back() > max_elements(element_size)) {
      throw error(errc::not_enough_memory,
                  "the lengths that the ranks pass add up to more than memory can hold");
    }
    return blocks;
  }
  // The bit of a length that tells that elements of the rank that passes it are not contiguous.
  static constexpr std::uint64_t strided_mark = std::uint64_t{1} << 63;
  static std::uint64_t marked_length(const any_view& block, bool is_strided) {
    return block.size() | (is_strided ? strided_mark : 0);
  }
  // Removes the marks from the lengths. Returns whether there was one.
  static bool remove_marks(length_list& lengths) {
    bool was_marked = false;
    for (std::uint64_t& length : lengths) {
      was_marked |= (length & strided_mark) != 0;
      length &= ~strided_mark;
    }
    return was_marked;
  }
  static bool has_strided(const std::vector<any_view>& blocks) {
    return !std::all_of(blocks.begin(), blocks.end(),
                        [](const any_view& block) { return block.is_contiguous(); });
  }
  // Moves views in pieces. `pairs` has one exchange for each rank that sends or receives anything.
  task<> move_in_pieces(channel net, std::vector<view_exchange> pairs,
                        std::size_t element_size) const {
    const std::size_t most = piece_elements(opts_.segment, element_size);
    return view_body<channel>::exchange(net, std::move(pairs), most);
  }
  static view_range block_of(const any_buffer& all, const offsets& blocks, std::size_t rank) {
    return {all, blocks[rank], blocks[rank + 1] - blocks[rank]};
  }

  static any_buffer allocate(resizable_result& result, std::size_t count,
                             std::size_t element_size) {
    return {result.resize(count), count, element_size};
  }

  static task<> gather(channel net, unknown_lengths_body how, unknown_lengths_request call,
                       resizable_result& result) {
    const any_view& in = call.blocks.front();
    const bool goes_to_all = call.operation == collective::all_gather;
    const auto rank = static_cast<std::size_t>(net.rank());
    length_list lengths(static_cast<std::size_t>(net.size()));
    lengths[rank] = marked_length(in, !goes_to_all && !in.is_contiguous());
    const any_buffer all_lengths = as_buffer(lengths);
    const auto exchange =
        how.template choose_for_lengths<collective::all_gather>(net, lengths.size());
    co_await exchange(net, all_lengths.subspan(rank, 1), all_lengths, one_each(net));
    const bool in_pieces = remove_marks(lengths);
    offsets blocks = checked_offsets(lengths, call.element_size);
    const bool gets_all = goes_to_all || net.rank() == call.root;
    const any_buffer all = gets_all ? allocate(result, blocks.back(), call.element_size)
                                    : any_buffer(nullptr, 0, call.element_size);
    const partition parts = partition::from_offsets(blocks.data(), net.size());
    const std::uint64_t size = blocks.back() * call.element_size;
    if (goes_to_all) {
      const bool packs = !in.is_contiguous();
      const any_buffer own = packs ? all.subspan(blocks[rank], in.size()) : in.contiguous();
      if (packs) pack(in, 0, in.size(), static_cast<std::byte*>(own.data()));
      const auto algorithm = how.template choose<collective::all_gather>(net, size);
      co_await algorithm(net, own, all, parts);
    } else if (in_pieces) {
      std::vector<view_exchange> pairs;
      for (int peer = 0; peer < net.size(); ++peer) {
        const bool receives = gets_all;
        const bool sends = peer == call.root;
        if (!sends && !receives) continue;
        const auto block = static_cast<std::size_t>(peer);
        pairs.push_back({peer, sends, sends ? view_range(in) : view_range(), receives,
                         receives ? block_of(all, blocks, block) : view_range()});
      }
      co_await how.move_in_pieces(net, std::move(pairs), call.element_size);
    } else {
      const auto algorithm = how.template choose<collective::gather>(net, size);
      co_await algorithm(net, in.contiguous(), all, parts, call.root);
    }
    if (!gets_all) std::fill(blocks.begin(), blocks.end(), std::size_t{0});
    result.offsets = std::move(blocks);
  }

  static task<> broadcast(channel net, unknown_lengths_body how, unknown_lengths_request call,
                          resizable_result& result) {
    const bool is_root = net.rank() == call.root;
    length_list lengths{is_root ? call.blocks.front().size() : 0};
    const auto tell = how.template choose_for_lengths<collective::broadcast>(net, 1);
    co_await tell(net, as_buffer(lengths), call.root);
    const std::size_t count = checked_offsets(lengths, call.element_size).back();
    const any_buffer data =
        is_root ? call.blocks.front().contiguous() : allocate(result, count, call.element_size);
    const auto algorithm =
        how.template choose<collective::broadcast>(net, count * call.element_size);
    co_await algorithm(net, data, call.root);
  }

  static task<> scatter(channel net, unknown_lengths_body how, unknown_lengths_request call,
                        resizable_result& result) {
    const auto rank = static_cast<std::size_t>(net.rank());
    length_list lengths(static_cast<std::size_t>(net.size()));
    const bool is_strided = has_strided(call.blocks);
    for (std::size_t i = 0; i < call.blocks.size(); ++i) {
      lengths[i] = marked_length(call.blocks[i], is_strided);
    }
    const auto tell = how.template choose_for_lengths<collective::broadcast>(net, lengths.size());
    co_await tell(net, as_buffer(lengths), call.root);
    const bool in_pieces = remove_marks(lengths);
    const offsets blocks = checked_offsets(lengths, call.element_size);
    const any_buffer own = allocate(result, blocks[rank + 1] - blocks[rank], call.element_size);
    if (in_pieces) {
      std::vector<view_exchange> pairs;
      for (int peer = 0; peer < net.size(); ++peer) {
        const bool receives = peer == call.root;
        const bool sends = net.rank() == call.root;
        if (!sends && !receives) continue;
        const auto block = static_cast<std::size_t>(peer);
        pairs.push_back({peer, sends, sends ? view_range(call.blocks[block]) : view_range(),
                         receives, receives ? view_range(own) : view_range()});
      }
      co_await how.move_in_pieces(net, std::move(pairs), call.element_size);
      co_return;
    }
    const bool packs = !are_adjacent(call.blocks);
    const auto memory = net.scratch_bytes(packs ? blocks.back() * call.element_size : 0);
    const any_buffer all = packs ? packed(call, memory.data()) : spanned(call);
    const auto algorithm =
        how.template choose<collective::scatter>(net, blocks.back() * call.element_size);
    co_await algorithm(net, all, own, partition::from_offsets(blocks.data(), net.size()),
                       call.root);
  }

  static task<> all_to_all(channel net, unknown_lengths_body how, unknown_lengths_request call,
                           resizable_result& result) {
    length_list sent(call.blocks.size());
    length_list arriving(call.blocks.size());
    const bool is_strided = has_strided(call.blocks);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      sent[i] = marked_length(call.blocks[i], is_strided);
    }
    const auto tell = how.template choose_for_lengths<collective::all_to_all>(net, sent.size());
    co_await tell(net, as_buffer(sent), one_each(net), as_buffer(arriving), one_each(net));
    // This rank marks what it sends to itself, too, so all ranks find a mark or none does.
    const bool in_pieces = remove_marks(arriving);
    remove_marks(sent);
    const offsets sends = checked_offsets(sent, call.element_size);
    offsets receives = checked_offsets(arriving, call.element_size);
    const any_buffer out = allocate(result, receives.back(), call.element_size);
    if (in_pieces) {
      std::vector<view_exchange> pairs;
      for (int peer = 0; peer < net.size(); ++peer) {
        const auto block = static_cast<std::size_t>(peer);
        pairs.push_back(
            {peer, true, view_range(call.blocks[block]), true, block_of(out, receives, block)});
      }
      result.offsets = std::move(receives);
      co_await how.move_in_pieces(net, std::move(pairs), call.element_size);
      co_return;
    }
    const bool packs = !are_adjacent(call.blocks);
    const auto memory = net.scratch_bytes(packs ? sends.back() * call.element_size : 0);
    const any_buffer in = packs ? packed(call, memory.data()) : spanned(call);
    // The ranks know only their own lengths, so the choice does not depend on them.
    constexpr std::size_t long_block = 64 * 1024;
    const auto algorithm =
        how.template choose<collective::all_to_all>(net, sent.size() * long_block);
    co_await algorithm(net, in, partition::from_offsets(sends.data(), net.size()), out,
                       partition::from_offsets(receives.data(), net.size()));
    result.offsets = std::move(receives);
  }

  // ---- a list of blocks as one buffer, which algorithms take

  // Returns whether the blocks lie one behind the other in memory.
  static bool are_adjacent(const std::vector<any_view>& blocks) {
    const std::byte* end = nullptr;
    for (const any_view& block : blocks) {
      const const_bytes part = bytes(block.contiguous());
      if (part.size == 0) continue;
      if (end != nullptr && part.data != end) return false;
      end = part.data + part.size;
    }
    return true;
  }
  // Returns the buffer that adjacent blocks form together.
  static any_buffer spanned(const unknown_lengths_request& call) {
    void* first = nullptr;
    std::size_t count = 0;
    for (const any_view& block : call.blocks) {
      if (count == 0) first = block.contiguous().data();
      count += block.size();
    }
    return {first, count, call.element_size};
  }
  // Copies the blocks to `memory`, and returns the buffer of the copies.
  static any_buffer packed(const unknown_lengths_request& call, std::byte* memory) {
    std::byte* position = memory;
    std::size_t count = 0;
    for (const any_view& block : call.blocks) {
      const const_bytes part = bytes(block.contiguous());
      if (part.size != 0) std::memcpy(position, part.data, part.size);
      position += part.size;
      count += block.size();
    }
    return {memory, count, call.element_size};
  }

  const tuning* selection_;
  options opts_;
  const algorithm_info* custom_;
};

template <class Transport>
fingerprint core<Transport>::check_unknown_lengths(const unknown_lengths_request& call,
                                                   const options& opts, checks& check) {
  if (is_called_by_other_thread()) {
    check.fail(second_thread_failure(queue()));
    return {};
  }
  const collective coll = call.operation;
  const bool has_root =
      coll == collective::broadcast || coll == collective::gather || coll == collective::scatter;
  if (has_root) check_root(check, call.root, state().size());
  const bool has_list = coll == collective::all_to_all ||
                        (coll == collective::scatter && state().rank() == call.root);
  check.require(!has_list || call.blocks.size() == static_cast<std::size_t>(state().size()),
                "the list has %zu blocks for %d ranks", call.blocks.size(), state().size());
  std::vector<std::size_t> lengths;
  for (const any_view& block : call.blocks) {
    check_readable(check, block);
    lengths.push_back(block.size());
    check.require(coll == collective::all_gather || block.is_contiguous() ||
                      opts.algorithm == algorithm::automatic,
                  "views move directly between the ranks, so there is no algorithm to choose");
  }
  check.require(offsets_of(lengths).back() <= max_elements(call.element_size),
                "the blocks of the list have more elements than memory can hold");
  if constexpr (phantom_transport<Transport>) {
    if (net_->is_phantom()) {
      check.fail(failure(errc::not_applicable, "this simulation moves no bytes, so no lengths"));
    }
  }
  const algorithm_info* const custom = custom_of(opts, coll);
  const unknown_lengths_body<Transport> how(tuning(), opts, custom);
  with_collective(
      coll, [&]<collective Coll>() { how.template check_choice<Coll>(check, state().size()); });
  fingerprint agreed = fingerprint_of(coll, call.type, call.element_size, 0, call.root, opts);
  agreed.shape = with_name(0, "unknown lengths");
  if (custom != nullptr) agreed.shape = with_name(agreed.shape, custom->name);
  return agreed;
}

template <class Transport>
task<> core<Transport>::run_unknown_lengths(call_base& owner, unknown_lengths_request call,
                                            resizable_result& result, const options& opts) {
  const unknown_lengths_body<Transport> how(tuning(), opts, custom_of(opts, call.operation));
  return unknown_lengths_body<Transport>::run({*net_, owner}, how, std::move(call), result);
}

}  // namespace colls::detail

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// grid: ranks as a grid of named axes, with a communicator along each axis, and collectives between
// neighbours.

#include <colls/call/communicator.hpp>
#include <colls/call/view_request.hpp>
#include <colls/coroutine/task.hpp>

#include <concepts>
#include <string_view>
#include <vector>

namespace colls {

/// An axis of a grid: its name, and the number of ranks along it. The size 0 stands for the ranks
/// that the other axes leave. The name must stay valid until the mesh is made.
struct axis {
  constexpr axis(const char* axis_name, int axis_size)
      : name(axis_name != nullptr ? axis_name : ""), size(axis_size) {}
  const char* name;
  int size;
};

namespace detail {

struct grid_axis {
  std::string_view name() const { return {letters.data(), letters.size()}; }
  std::vector<char> letters;  // of the name
  int size = 0;
  int coordinate = 0;  // of this rank
  int stride = 1;      // the distance of two ranks that are neighbours along this axis
};

/// Makes the axes of a grid of `ranks` ranks, with the coordinates of the rank `rank`. The last
/// axis varies fastest. Throws `errc::invalid_argument` if the axes do not fit. `observer` is the
/// world rank of this rank.
inline std::vector<grid_axis> make_axes(const std::vector<axis>& requested, int rank, int ranks,
                                        int observer) {
  checks check(collective::split);
  check.require(!requested.empty(), "a grid needs an axis");
  std::vector<grid_axis> axes;
  long long product = 1;  // so far, at most the square of INT_MAX
  grid_axis* rest = nullptr;
  axes.reserve(requested.size());
  for (const axis& each : requested) {
    const std::string_view name = each.name;
    check.require(!name.empty(), "an axis has no name")
        .require(each.size >= 0, "the size %d of the axis %s is negative", each.size, each.name);
    for (const grid_axis& other : axes) {
      check.require(other.name() != name, "two axes have the name %s", each.name);
    }
    axes.push_back({{name.begin(), name.end()}, each.size});
    if (each.size == 0) {
      check.require(rest == nullptr, "two axes have the size 0");
      rest = &axes.back();
    } else if (each.size > 0 && product <= ranks) {
      product *= each.size;
    }
  }
  if (rest != nullptr && product <= ranks) {
    rest->size = static_cast<int>(ranks / product);
    product *= rest->size;
  }
  check.require(product == ranks, "the axes have %lld ranks, the communicator %d", product, ranks);
  if (check.failed()) {
    failure reason = check.reason();
    reason.observer = observer;
    throw error(reason);
  }
  int stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    axes[i].stride = stride;
    axes[i].coordinate = rank / stride % axes[i].size;
    stride *= axes[i].size;
  }
  return axes;
}

}  // namespace detail

/// The ranks of a communicator as a grid, which `mesh` makes.
template <class Transport>
class process_mesh {
 public:
  process_mesh(std::vector<detail::grid_axis> axes, std::vector<communicator<Transport>> lines,
               int rank)
      : axes_(std::move(axes)), lines_(std::move(lines)), rank_(rank) {
    for (const detail::grid_axis& each : axes_) {
      for (const int offset : {-1, +1}) {
        const int nearest = neighbour(each.name(), offset);
        if (nearest >= 0) graph_.sources.push_back(nearest);
      }
    }
    graph_.destinations = graph_.sources;
  }

  /// Returns the communicator of the ranks that differ from this rank in the coordinate of the axis
  /// `name` alone. A rank's number there is that coordinate.
  communicator<Transport>& along(std::string_view name) { return lines_[index_of(name)]; }
  /// Returns the communicator along the axis with the number `axis`, which is counted from 0 and
  /// must be less than `dimensions()`.
  communicator<Transport>& along(int axis) { return lines_[static_cast<std::size_t>(axis)]; }
  /// Returns the number of axes.
  int dimensions() const { return static_cast<int>(axes_.size()); }
  /// Returns the coordinate of this rank on the axis `name`, counted from 0.
  int coordinate(std::string_view name) const { return axes_[index_of(name)].coordinate; }
  /// Returns the number of ranks along the axis `name`.
  int size(std::string_view name) const { return axes_[index_of(name)].size; }
  /// Returns the rank whose coordinate on the axis `name` is greater by `offset`, as its number in
  /// the communicator that `mesh` was called with. Returns -1 if that is outside of the grid.
  int neighbour(std::string_view name, int offset) const {
    const detail::grid_axis& along = axes_[index_of(name)];
    const long long position = static_cast<long long>(along.coordinate) + offset;
    if (position < 0 || position >= along.size) return -1;
    return rank_ + offset * along.stride;
  }
  /// Returns the graph of the nearest neighbours: for each axis, the rank before this one and the
  /// rank after it, where there is one. Its ranks are those of the communicator that `mesh` was
  /// called with.
  const neighbour_graph& graph() const { return graph_; }

 private:
  std::size_t index_of(std::string_view name) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      if (axes_[i].name() == name) return i;
    }
    failure reason(errc::invalid_argument);
    reason.observer = lines_.front().world_rank(lines_.front().rank());
    reason.set_detail("the grid has no axis %.*s", static_cast<int>(name.size()), name.data());
    throw error(reason);
  }

  std::vector<detail::grid_axis> axes_;
  std::vector<communicator<Transport>> lines_;  // one along each axis
  neighbour_graph graph_;
  int rank_;
};

namespace detail {

template <class Transport>
task<process_mesh<Transport>> make_mesh(communicator<Transport>& comm, std::vector<axis> requested,
                                        options opts) {
  auto& core = comm.underlying_core();
  const int rank = comm.rank();
  std::vector<grid_axis> axes = make_axes(requested, rank, comm.size(), core.matching().rank());
  std::uint64_t shape = with_name(0, "mesh");
  for (const grid_axis& each : axes) {
    for (const char letter : each.name()) shape = mix(shape, static_cast<unsigned char>(letter));
    shape = mix(mix(shape, 0), static_cast<std::uint64_t>(each.size));
  }
  std::vector<operation<communicator<Transport>>> splits;
  splits.reserve(axes.size());
  for (const grid_axis& each : axes) {
    const int color = rank - each.coordinate * each.stride;  // the first rank of the line
    splits.push_back(core.split(collective::split, color, each.coordinate, shape, opts));
  }
  std::vector<communicator<Transport>> lines;
  lines.reserve(axes.size());
  for (auto& split : splits) lines.push_back(co_await split);
  co_return process_mesh<Transport>(std::move(axes), std::move(lines), rank);
}

template <class Transport, class In, class Out>
operation<> start_neighbour_exchange(collective coll, communicator<Transport>& comm, In&& in,
                                     Out&& out, const neighbour_graph& graph, const options& opts) {
  using memory = transport_memory_t<Transport>;
  check_same_element<In, Out>();
  core<Transport>& owner = comm.underlying_core();
  checks check(coll);
  const erased_view input = erase_argument<memory>(check, &owner, std::forward<In>(in));
  const erased_view output = erase_argument<memory>(check, &owner, written(std::forward<Out>(out)));
  check.require(input.type == output.type, "both buffers must have the same element type");
  if (check.failed()) return owner.refuse(owner.make(coll), check.reason());
  constexpr bool in_pieces = viewable<In> || viewable<Out>;
  return owner.exchange_with_neighbours(coll, input.type, input.view, output.view, in_pieces, graph,
                                        opts);
}

/// Starts the exchange of the halo of `field` along the dimension `dimension` with the ranks before
/// and after this one in `line`.
template <class Transport, class T>
operation<> exchange_halo_along(communicator<Transport>& line, const strided_view<T>& field,
                                int dimension, std::size_t width, const options& opts) {
  constexpr collective coll = collective::all_to_all;
  core<Transport>& owner = line.underlying_core();
  const std::size_t length = field.extent(dimension);
  const auto slab = [&](std::size_t first) {
    return view_range(field.slice(dimension, first, width).erased());
  };
  std::vector<view_exchange> pairs;
  const int before = line.rank() - 1;
  const int after = line.rank() + 1;
  if (before >= 0) pairs.push_back({before, true, slab(width), true, slab(0)});
  if (after < line.size()) {
    pairs.push_back({after, true, slab(length - 2 * width), true, slab(length - width)});
  }
  const std::size_t count = line.size() == 1 ? 0 : slab(0).count;
  fingerprint agreed = fingerprint_of(coll, type_id<T>(), sizeof(T), count, -1, opts);
  agreed.shape = mix(with_name(0, "halo"), width);
  return owner.exchange_views(agreed, std::move(pairs), opts);
}

template <class Transport, class T>
task<> exchange_halo_of(process_mesh<Transport>& mesh, strided_view<T> field, std::size_t width,
                        options opts) {
  checks check(collective::all_to_all);
  check_writable(check, field.erased())
      .require(opts.algorithm == algorithm::automatic,
               "an exchange of halos has no algorithm to choose")
      .require(field.dimensions() == mesh.dimensions(),
               "the field has %d dimensions, the grid %d axes", field.dimensions(),
               mesh.dimensions());
  for (int i = 0; i < mesh.dimensions() && !check.failed(); ++i) {
    check.require(mesh.along(i).size() == 1 || field.extent(i) / 3 >= width,
                  "dimension %d of the field has %zu elements, fewer than 3 times the width %zu", i,
                  field.extent(i), width);
  }
  if (check.failed()) {
    failure reason = check.reason();
    reason.observer = mesh.along(0).underlying_core().matching().rank();
    throw error(reason);
  }
  for (int i = 0; i < mesh.dimensions(); ++i) {
    co_await exchange_halo_along(mesh.along(i), field, i, width, opts);
  }
}

}  // namespace detail

/// Arranges the ranks of `comm` as a grid and makes a communicator along each axis. The last axis
/// varies fastest. A collective call: all ranks pass the same axes. The call starts when the task
/// is awaited, and makes one split for each axis. If the axes do not have as many ranks as `comm`,
/// or one has no name of its own, throws `errc::invalid_argument` on each rank that has passed such
/// axes, and `comm` stays good.
///
///     auto m = co_await colls::mesh(world, colls::axis("data", 4), colls::axis("pipe", 2));
///     co_await m.along("data").all_reduce(gradients);
template <class Transport, std::same_as<axis>... Axes>
task<process_mesh<Transport>> mesh(communicator<Transport>& comm, axis first, Axes... others) {
  return detail::make_mesh(comm, std::vector<axis>{first, others...}, options());
}
/// Does the same with axes whose number is known only at run time.
template <class Transport>
task<process_mesh<Transport>> mesh(communicator<Transport>& comm, const std::vector<axis>& axes,
                                   const options& opts = {}) {
  return detail::make_mesh(comm, axes, opts);
}

/// Sends `in` to each destination of this rank, and receives block i of `out` from source i. All
/// blocks have the length of `in`, which is equal on all ranks. `in` and `out` must not overlap. A
/// collective call: ranks without neighbours make it, too. The graphs of two ranks are not
/// compared: a rank that waits for a message that no rank sends fails when its deadline is over.
template <class Transport, detail::data_argument In, detail::data_argument Out>
operation<> neighbour_all_gather(communicator<Transport>& comm, In&& in, Out&& out,
                                 const neighbour_graph& graph, const options& opts = {}) {
  return detail::start_neighbour_exchange(collective::all_gather, comm, std::forward<In>(in),
                                          std::forward<Out>(out), graph, opts);
}
/// Sends block i of `in` to destination i of this rank, and receives block i of `out` from source
/// i. All blocks have the same length on all ranks. Everything else is as for
/// `neighbour_all_gather`.
template <class Transport, detail::data_argument In, detail::data_argument Out>
operation<> neighbour_all_to_all(communicator<Transport>& comm, In&& in, Out&& out,
                                 const neighbour_graph& graph, const options& opts = {}) {
  return detail::start_neighbour_exchange(collective::all_to_all, comm, std::forward<In>(in),
                                          std::forward<Out>(out), graph, opts);
}

/// Exchanges the halo of a field, of which each rank of the grid has a part: dimension i of `field`
/// lies along axis i of the grid. The first and the last `width` elements along each dimension are
/// the halo. Afterwards they hold the elements of the ranks next to this one, also at corners. At
/// the border of the grid, nothing changes. Along an axis, the parts have equal extents in all
/// other dimensions. A collective call of all ranks of the grid, which starts when the task is
/// awaited: one exchange after the other, for each axis. `mesh` and the elements must stay alive
/// until it has ended.
///
///     const colls::strided_view field(cells.data(), {rows + 2, columns + 2}, {columns + 2, 1});
///     co_await colls::exchange_halo(grid, field, 1);
template <class Transport, class T>
task<> exchange_halo(process_mesh<Transport>& mesh, const strided_view<T>& field, std::size_t width,
                     const options& opts = {}) {
  static_assert(!std::is_const_v<T>,
                "colls: the elements of this view are const, and the call writes them");
  return detail::exchange_halo_of(mesh, field, width, opts);
}

}  // namespace colls

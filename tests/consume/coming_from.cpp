// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The calls of docs/coming_from.md, with their results checked: colls-run -n 3 coming_from. With an
// argument, a world of one rank whose config the program sets.

#include <colls/colls.hpp>
#include <colls/grid.hpp>
#include <colls/join.hpp>
#include <colls/objects.hpp>
#include <colls/run.hpp>
#include <colls/stop_when.hpp>

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <complex>
#include <cstdio>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

void require(bool holds, const char* call) {
  if (!holds) throw std::runtime_error(std::string("wrong result: ") + call);
}

struct particle {
  double x, mass;
};
struct heavier {
  particle operator()(const particle& a, const particle& b) const {
    return a.mass < b.mass ? b : a;
  }
};

colls::task<> messages(colls::world& world) {
  const int next = (world.rank() + 1) % world.size();
  const int prev = (world.rank() + world.size() - 1) % world.size();
  const int tag = 4;
  std::vector<float> out(8, float(world.rank())), in(8);
  if (world.rank() == 0) {
    for (int left = world.size() - 1; left > 0; --left) {
      auto message = co_await world.recv(in, colls::any_source, tag);
      require(in[0] == float(message.source) && message.count == 8, "recv from any source");
    }
    const int dest = 1;
    co_await world.send(out, dest, tag);
  } else {
    co_await world.send(out, 0, tag);
    const int source = 0;
    if (world.rank() == 1) {
      auto message = co_await world.recv(in, source, tag);
      require(message.source == 0 && in[0] == 0, "recv");
    }
  }
  const std::uint64_t flags = 7;
  const colls::agreement agreed = co_await world.agree(flags);
  require(agreed.value == flags && agreed.lost.empty(), "agree");
  co_await world.barrier();  // otherwise rank 0 could receive a message of the next call
  co_await world.send_recv(out, next, in, prev, tag);
  require(in[7] == float(prev), "send_recv");

  auto receiving = world.recv(in, prev, tag);
  auto sending = world.send(out, next, tag);
  const std::size_t first = co_await colls::when_any(receiving, sending);
  require(first == 0 ? receiving.done() : sending.done(), "when_any");
  co_await receiving;
  co_await sending;

  std::vector<std::vector<float>> halos(2, std::vector<float>(8));
  std::vector<colls::operation<colls::received>> receives;
  for (std::vector<float>& halo : halos) receives.push_back(world.recv(halo, prev, tag));
  co_await world.send(out, next, tag);
  co_await world.send(out, next, tag);
  for (std::size_t taken = 0; taken < 2;) {
    const auto ended = co_await colls::wait_some(std::span(receives));
    for (const std::size_t i : ended) co_await receives[i];
    taken += ended.size();
  }
  require(halos[1][7] == float(prev), "wait_some");

  std::vector<colls::transfer> transfers;
  transfers.push_back(colls::transfer::send(out, next, tag));
  transfers.push_back(colls::transfer::recv(in, prev, tag));
  co_await world.batch(transfers);
  auto kept = world.send(out, next, tag);
  auto found = co_await world.probe(colls::any_source, colls::any_tag);
  const std::vector<float> values = co_await found.recv_vector<float>();
  require(found.source() == prev && found.tag() == tag && values.size() == 8, "probe");
  co_await kept;
  auto arriving = world.send(out, next, tag);
  const auto whole = co_await world.recv_vector<float>(prev, tag);
  require(whole.size() == 8, "recv_vector");
  co_await arriving;

  std::stop_source source;
  const std::stop_token token = source.get_token();
  auto waiting = colls::stop_when(token, world.recv(in, prev, tag));
  source.request_stop();
  try {
    co_await waiting;
  } catch (const colls::error& error) {
    require(error.record().code == colls::errc::cancelled, "stop_when");
  }
}

struct settings {
  std::string name;
  std::map<std::string, int> limits;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, limits);
  }
};

colls::task<> objects(colls::world& world) {
  const int root = 1, tag = 4;
  const settings own{"rank " + std::to_string(world.rank()), {{"epochs", 3}}};
  const settings common = co_await colls::broadcast(world, own, root);
  require(common.name == "rank 1", "broadcast of an object");
  const std::vector<settings> all = co_await colls::all_gather(world, own);
  require(all[2].name == "rank 2", "all_gather of objects");
  const auto there = co_await colls::gather(world, own, root);
  require(there.size() == (world.rank() == root ? 3 : 0), "gather of objects");
  const settings back = co_await colls::scatter(world, all, root);
  require(back.name == own.name, "scatter of objects");
  const auto longer = [](const settings& a, const settings& b) {
    return a.name.size() < b.name.size() ? b : a;
  };
  const settings longest = co_await colls::all_reduce(world, own, longer);
  require(longest.name == "rank 0", "all_reduce of objects");
  const int dest = (world.rank() + 1) % world.size();
  const int source = (world.rank() + world.size() - 1) % world.size();
  auto sending = colls::send(world, own, dest, tag);
  const settings got = co_await colls::recv<settings>(world, source, tag);
  require(got.name == "rank " + std::to_string(source), "recv of an object");
  co_await sending;
}

colls::task<> grids(colls::world& world) {
  auto grid = co_await colls::mesh(world, colls::axis("row", 0), colls::axis("column", 1));
  int sum[] = {1};
  co_await grid.along("row").all_reduce(sum);
  require(sum[0] == 3 && grid.coordinate("row") == world.rank(), "mesh");
  const int below = grid.neighbour("row", +1);
  require(below == (world.rank() < 2 ? world.rank() + 1 : -1), "neighbour");
  const int own[] = {world.rank()};
  const auto graph = grid.graph();
  std::vector<int> halos(graph.sources.size());
  co_await colls::neighbour_all_gather(world, own, halos, graph);
  require(halos == graph.sources, "neighbour_all_gather");
  int cells[3][2] = {{-1, -1}, {world.rank(), world.rank()}, {-1, -1}};
  const colls::strided_view field(&cells[0][0], {3, 1}, {2, 1});
  auto rows = co_await colls::mesh(world, colls::axis("row", 3), colls::axis("column", 1));
  co_await colls::exchange_halo(rows, field, 1);
  require(cells[2][0] == below && cells[0][1] == -1, "exchange_halo");
  const auto border = field.slice(0, 2, 1);
  co_await world.broadcast(border, 0);
  require(cells[2][0] == 1 && cells[2][1] == -1, "broadcast of a view");
}

colls::task<> collectives(colls::world& world) {
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto me = static_cast<std::size_t>(world.rank());
  const int root = 1;
  const bool is_root = world.rank() == root;
  std::vector<float> data(4, 1), sum(4);
  co_await world.barrier();
  co_await world.broadcast(data, root);
  co_await world.all_reduce(data, sum);
  require(sum[3] == float(ranks), "all_reduce");
  co_await world.all_reduce(data, colls::maximum{});
  require(data[3] == 1, "maximum");
  co_await world.all_reduce(data, colls::average{});
  require(data[3] == 1, "average");
  if (is_root) {
    co_await world.reduce(data, sum, root);
  } else {
    co_await world.reduce(data, colls::none, root);
  }
  co_await world.reduce(data, root);
  require(data[0] == (is_root ? float(ranks) : 1), "reduce");
  data.assign(4, 1);
  co_await world.all_reduce(colls::group{data, sum});
  data.assign(4, 1);
  co_await world.scan(data);
  require(data[0] == float(me + 1), "scan");
  co_await world.exscan(data, std::plus<float>());
  co_await world.all_reduce(data);

  std::vector<float> block(2, float(me)), blocks(2 * ranks);
  co_await world.gather(block, blocks, root);
  require(!is_root || blocks[5] == 2, "gather");
  co_await world.scatter(blocks, block, root);
  require(block[1] == float(me), "scatter");
  co_await world.all_gather(block, blocks);
  require(blocks[5] == 2, "all_gather");
  std::vector<float> exchanged(2 * ranks);
  co_await world.all_to_all(blocks, exchanged);
  require(exchanged[5] == float(me), "all_to_all");
  co_await world.reduce_scatter(exchanged, block);

  const std::vector<std::size_t> counts{1, 2, 3};
  std::vector<float> own(counts[me], float(me)), all(6);
  co_await world.gather_v(own, all, counts, root);
  co_await world.scatter_v(all, counts, own, root);
  co_await world.all_gather_v(own, all, counts);
  require(all[5] == 2, "all_gather_v");
  co_await world.reduce_scatter_v(all, own, counts);
  const auto gathered = co_await world.all_gather_v(own);
  require(gathered.block(2).size() == 3, "all_gather_v without counts");
  const std::vector<std::size_t> send_counts(ranks, 2), recv_counts(ranks, 2);
  co_await world.all_to_all_v(blocks, send_counts, exchanged, recv_counts);

  std::vector<particle> particles(2, particle{0, double(me)});
  co_await world.all_reduce(particles, heavier{});
  require(particles[1].mass == 2, "an operation of the user");
  const auto either = [](int a, int b) { return a | b; };
  int flags[] = {1 << me};
  co_await world.all_reduce(flags, colls::commutative(either));
  require(flags[0] == 7, "a commutative operation of the user");
  std::vector<colls::value_index<float>> best{{float(me), world.rank()}};
  co_await world.all_reduce(best, colls::max_loc{});
  require(best[0].index == 2, "max_loc");
  double scale = 0.5;
  double weighted[] = {1};
  co_await world.all_reduce(weighted, colls::pre_multiplied_sum(scale));
  require(weighted[0] == 1.5, "pre_multiplied_sum");
  co_await world.all_reduce(data, colls::plus{}, {.timeout = 5s});
  auto step = world.prepare_all_reduce(data);
  co_await step.start();
  int value[] = {world.rank()};
  co_await world.all_reduce(value);
  co_await world.all_reduce(data,
                            {.algorithm = colls::algorithm::ring, .order = colls::order::any});
  require(world.explain(colls::collective::all_reduce, 1 << 20).predictions.size() > 1, "explain");
}

colls::task<> communicators(colls::world& world) {
  const int color = world.rank() % 2;
  const int key = 0;
  colls::world half = co_await world.split(color, key);
  colls::world host = co_await world.split(world.node());
  require(host.rank() == world.local_rank() && host.size() == world.local_size(), "split");
  const std::vector<int> ranks{2, 0};
  colls::world some = co_await world.group(ranks);
  require(bool(some) == (world.rank() != 1), "group");
  auto shared = world.allocate<float>(1000);
  co_await world.all_reduce(shared);
  colls::world copy = co_await world.dup();
  if (world.rank() == 0) copy.revoke("no more data");
  auto refused = copy.barrier();
  try {
    co_await refused;
  } catch (const colls::error& error) {
    require(error.record().code == colls::errc::revoked && error.record().culprit == 0, "revoke");
    require(copy.failed() != nullptr, "failed");
  }
  co_await copy.close();
}

colls::task<> rank_main(colls::world& world) {
  co_await messages(world);
  co_await collectives(world);
  co_await communicators(world);
  co_await objects(world);
  co_await grids(world);
  auto left = co_await world.shrink();
  require(left.size() == world.size() && left.previous_rank(1) == 1, "shrink");
  co_await left.barrier();
}

int join_by_config() {
  boost::asio::io_context context(1);
  const auto executor = context.get_executor();
  colls::config config{.rank = 0, .size = 1, .address = "tcp://127.0.0.1:29500", .timeout = 30s};
  auto joining = colls::join(executor, config);
  while (!joining.done()) context.run_one();
  colls::world world = joining.result();
  colls::sync_wait(world, world.barrier());
  colls::sync_wait(world, world.close());
  return 0;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) return join_by_config();
  return colls::run(rank_main);
}

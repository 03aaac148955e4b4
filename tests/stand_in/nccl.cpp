// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "nccl.hpp"

#include <colls/base/half.hpp>
#include <colls/cuda/nccl_api.hpp>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "cuda.hpp"

namespace stand_in {
namespace {

namespace api = colls::cuda::nccl_api;
using api::status;

struct part {
  std::string what;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;
  api::type type{};
  api::op by{};
  int other = -1;  // root or peer
  bool is_done = false;

  bool agrees(const part& one) const {
    return what == one.what && count == one.count && type == one.type && by == one.by &&
           other == one.other;
  }
};
using shared_part = std::shared_ptr<part>;

struct clique;
struct comm {
  std::shared_ptr<clique> of;
  int rank = 0;
  int device = 0;  // the thread's device when it was made
  bool is_dead = false;
  bool is_final = false;
  std::function<void()> late;  // enqueues the last call
  int polls = 0;               // until the call is accepted
  std::size_t collectives = 0;
  std::map<int, std::size_t> sends;
  std::map<int, std::size_t> receives;
};
struct clique {
  int size = 0;
  std::vector<comm*> ranks;
  // By number: the parts that have become the first of their stream.
  std::map<std::size_t, std::map<int, shared_part>> collectives;
  std::map<std::pair<int, int>, std::map<std::size_t, shared_part>> sent;
  std::map<std::pair<int, int>, std::map<std::size_t, shared_part>> awaited;
};

struct state {
  std::vector<int> versions;
  std::size_t version_queries = 0;
  int late_percent = 0;
  bool has_blocks = true;
  int broken = 0;
  int aborted = 0;
  int mismatches = 0;
  std::uint64_t ids = 0;
  std::map<std::string, std::shared_ptr<clique>> cliques;
  std::vector<std::unique_ptr<comm>> comms;  // kept, to detect the use of dead handles
  std::map<int, std::vector<std::string>> calls;
};
state& nccl() {
  static state one;
  return one;
}

struct batch {
  comm* by;
  colls::stream_ref on;
  std::vector<shared_part> parts;
};
thread_local int depth = 0;
thread_local std::vector<batch> group;

std::size_t size_of(api::type of) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[static_cast<int>(of)];
}

template <class T, class Wide>
void reduce_as(const std::vector<const void*>& in, void* out, std::size_t first, std::size_t count,
               api::op by) {
  std::vector<T> made(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto of = [&](std::size_t rank) {
      return static_cast<Wide>(static_cast<const T*>(in[rank])[first + i]);
    };
    Wide all = of(0);
    for (std::size_t r = 1; r < in.size(); ++r) {
      const Wide one = of(r);
      switch (by) {
        case api::op::prod:
          all = static_cast<Wide>(all * one);
          break;
        case api::op::max:
          all = one > all ? one : all;
          break;
        case api::op::min:
          all = one < all ? one : all;
          break;
        default:
          all = static_cast<Wide>(all + one);
          break;
      }
    }
    if (by == api::op::avg) all = static_cast<Wide>(all / static_cast<Wide>(in.size()));
    made[i] = static_cast<T>(all);
  }
  if (count != 0) std::memcpy(out, made.data(), count * sizeof(T));
}
void reduce(const part& how, const std::vector<const void*>& in, void* out, std::size_t first,
            std::size_t count) {
  switch (how.type) {
    case api::type::int8:
      return reduce_as<std::int8_t, std::int64_t>(in, out, first, count, how.by);
    case api::type::uint8:
      return reduce_as<std::uint8_t, std::uint64_t>(in, out, first, count, how.by);
    case api::type::int32:
      return reduce_as<std::int32_t, std::int64_t>(in, out, first, count, how.by);
    case api::type::uint32:
      return reduce_as<std::uint32_t, std::uint64_t>(in, out, first, count, how.by);
    case api::type::int64:
      return reduce_as<std::int64_t, std::int64_t>(in, out, first, count, how.by);
    case api::type::uint64:
      return reduce_as<std::uint64_t, std::uint64_t>(in, out, first, count, how.by);
    case api::type::float16:
      return reduce_as<colls::float16, float>(in, out, first, count, how.by);
    case api::type::float32:
      return reduce_as<float, float>(in, out, first, count, how.by);
    case api::type::float64:
      return reduce_as<double, double>(in, out, first, count, how.by);
    case api::type::bfloat16:
      return reduce_as<colls::bfloat16, float>(in, out, first, count, how.by);
  }
}

/// The number of blocks of `count` elements that a rank reads, and that it writes.
std::size_t blocks_read(const part& one, int rank, std::size_t ranks) {
  const bool is_root = one.other == rank;
  if (one.what == "recv") return 0;
  if (one.what == "broadcast") return is_root ? 1 : 0;
  if (one.what == "scatter") return is_root ? ranks : 0;
  return one.what == "reduce_scatter" || one.what == "all_to_all" ? ranks : 1;
}
std::size_t blocks_written(const part& one, int rank, std::size_t ranks) {
  const bool is_root = one.other == rank;
  if (one.what == "send") return 0;
  if (one.what == "reduce") return is_root ? 1 : 0;
  if (one.what == "gather") return is_root ? ranks : 0;
  return one.what == "all_gather" || one.what == "all_to_all" ? ranks : 1;
}

/// Does a collective at which all ranks have arrived. All inputs are read before an output is
/// written.
void run_collective(const std::map<int, shared_part>& by_rank) {
  const part& how = *by_rank.begin()->second;
  std::vector<std::vector<std::byte>> copies;
  std::vector<const void*> in;
  const std::size_t element = size_of(how.type);
  for (const auto& [rank, one] : by_rank) {
    const std::size_t bytes = how.count * element * blocks_read(how, rank, by_rank.size());
    std::vector<std::byte> copy(bytes);
    if (bytes != 0) std::memcpy(copy.data(), one->in, bytes);
    copies.push_back(std::move(copy));
  }
  for (const auto& copy : copies) in.push_back(copy.data());
  for (const auto& [rank, one] : by_rank) {
    one->is_done = true;
    if (how.count == 0) continue;
    auto* const out = static_cast<std::byte*>(one->out);
    const auto mine = static_cast<std::size_t>(rank);
    if (how.what == "all_reduce" || (how.what == "reduce" && rank == how.other)) {
      reduce(how, in, out, 0, how.count);
    } else if (how.what == "reduce_scatter") {
      reduce(how, in, out, mine * how.count, how.count);
    } else if (how.what == "broadcast") {
      std::memcpy(out, in[static_cast<std::size_t>(how.other)], how.count * element);
    } else if (how.what == "all_gather" || (how.what == "gather" && rank == how.other)) {
      for (std::size_t r = 0; r < in.size(); ++r) {
        std::memcpy(out + r * how.count, in[r], how.count);
      }
    } else if (how.what == "scatter") {
      const auto& all = copies[static_cast<std::size_t>(how.other)];
      std::memcpy(out, all.data() + mine * how.count, how.count);
    } else if (how.what == "all_to_all") {
      for (std::size_t r = 0; r < in.size(); ++r) {
        std::memcpy(out + r * how.count, copies[r].data() + mine * how.count, how.count);
      }
    }
  }
}

/// Called when the part is the first of its rank's stream.
void arrive(clique& of, int rank, std::size_t number, const shared_part& one) {
  if (one->what == "send" || one->what == "recv") {
    const bool sends = one->what == "send";
    const std::pair<int, int> pair =
        sends ? std::pair(rank, one->other) : std::pair(one->other, rank);
    (sends ? of.sent : of.awaited)[pair][number] = one;
    const auto from = of.sent[pair].find(number);
    const auto into = of.awaited[pair].find(number);
    if (from == of.sent[pair].end() || into == of.awaited[pair].end()) return;
    part& source = *from->second;
    part& target = *into->second;
    if (source.is_done || target.is_done) return;
    if (source.count != target.count) {
      ++nccl().mismatches;
      source.other = -2;  // it matches no receive any more
      return;
    }
    std::memcpy(target.out, source.in, source.count);
    source.is_done = target.is_done = true;
    return;
  }
  auto& arrived = of.collectives[number];
  arrived[rank] = one;
  if (static_cast<int>(arrived.size()) < of.size || one->is_done) return;
  for (const auto& [other, theirs] : arrived) {
    if (theirs->agrees(*one)) continue;
    ++nccl().mismatches;
    return;
  }
  run_collective(arrived);
}

void enqueue(comm& by, colls::stream_ref on, std::vector<shared_part> parts) {
  std::vector<span> uses;
  std::vector<std::size_t> numbers;
  std::string description = parts.size() == 1 ? "" : "(";
  for (const shared_part& one : parts) {
    if (description.size() > 1) description += " ";
    description += one->what;
    const std::size_t bytes = one->count * size_of(one->type);
    const auto ranks = static_cast<std::size_t>(by.of->size);
    const std::size_t read = bytes * blocks_read(*one, by.rank, ranks);
    const std::size_t written = bytes * blocks_written(*one, by.rank, ranks);
    if (read != 0) uses.push_back({one->in, read});
    if (written != 0) uses.push_back({one->out, written});
    if (one->what == "all_to_all" && one->in == one->out && bytes != 0) {
      note("NCCL has no all_to_all in place");
    }
    numbers.push_back(one->what == "send"   ? by.sends[one->other]++
                      : one->what == "recv" ? by.receives[one->other]++
                                            : by.collectives++);
  }
  nccl().calls[by.rank].push_back(parts.size() == 1 ? description : description + ")");
  const auto step = [&by, parts, numbers] {
    bool done = true;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!by.is_dead && !parts[i]->is_done) arrive(*by.of, by.rank, numbers[i], parts[i]);
      done &= parts[i]->is_done;
    }
    return done || by.is_dead;
  };
  enqueue_barrier(on.handle, by.of.get(), step, uses);
}

/// NCCL selects the communicator's device itself, but not in every call of a single rank.
void needs_device(const comm& of) {
  int current = 0;
  (void)colls::cuda::api::current_device(current);
  if (current != of.device) note("NCCL is called while another device is in use");
}

/// The communicator of a call, or null if the call may not be made now.
comm* usable(api::comm_ref by) {
  auto* const known = static_cast<comm*>(by.handle);
  if (known == nullptr || known->is_dead || known->is_final) {
    note("NCCL is called on a communicator that does not exist");
    return nullptr;
  }
  if (known->polls > 0 || static_cast<int>(known->of->ranks.size()) < known->of->size) {
    note("NCCL is called before it has accepted the last call");
    return nullptr;
  }
  return known;
}
status submit(batch what) {
  comm& by = *what.by;
  if (draw(100) >= nccl().late_percent) {
    enqueue(by, what.on, std::move(what.parts));
    return api::success;
  }
  by.polls = 1 + draw(3);
  by.late = [&by, on = what.on, parts = std::move(what.parts)] { enqueue(by, on, parts); };
  return api::in_progress;
}
status add(const char* function, part what, api::comm_ref by, colls::stream_ref on) {
  const auto held = lock();
  if (const int fault = fault_of(function); fault != 0) return fault;
  comm* const known = usable(by);
  if (known == nullptr) return api::invalid_usage;
  needs_device(*known);
  if (nccl().broken != api::success) return nccl().broken;
  const auto made = std::make_shared<part>(std::move(what));
  if (depth == 0) return submit({known, on, {made}});
  for (batch& each : group) {
    if (each.by == known && each.on.handle == on.handle) {
      each.parts.push_back(made);
      return api::success;
    }
  }
  group.push_back({known, on, {made}});
  return api::success;
}

}  // namespace

void boot_nccl(std::vector<int> versions, int late_percent, bool has_blocks) {
  const auto held = lock();
  nccl() = {};
  nccl().versions = std::move(versions);
  nccl().late_percent = late_percent;
  nccl().has_blocks = has_blocks;
}
void break_nccl(int how) {
  const auto held = lock();
  nccl().broken = how;
}
int nccl_alive() {
  const auto held = lock();
  int alive = 0;
  for (const auto& each : nccl().comms) alive += each->is_dead ? 0 : 1;
  return alive;
}
int nccl_aborted() {
  const auto held = lock();
  return nccl().aborted;
}
std::vector<std::string> nccl_calls(int rank) {
  const auto held = lock();
  return nccl().calls[rank];
}
int nccl_mismatches() {
  const auto held = lock();
  return nccl().mismatches;
}

}  // namespace stand_in

namespace colls::cuda::nccl_api {

using namespace stand_in;

const char* text(status of) {
  switch (of) {
    case remote_error:
      return "remote process exited (stand-in)";
    case internal_error:
      return "internal error (stand-in)";
  }
  return "stand-in";
}

status version(int& found) {
  const auto held = lock();
  const auto& all = nccl().versions;
  found = all[nccl().version_queries < all.size() ? nccl().version_queries++ : all.size() - 1];
  return fault_of("nccl_version");
}
status make_id(unique_id& made) {
  const auto held = lock();
  std::memset(made.bytes, 0, sizeof made.bytes);
  std::snprintf(made.bytes, sizeof made.bytes, "clique %llu",
                static_cast<unsigned long long>(++nccl().ids));
  return fault_of("nccl_make_id");
}
status make_comm(comm_ref& made, int ranks, const unique_id& id, int rank) {
  const auto held = lock();
  if (const int fault = fault_of("nccl_make_comm"); fault != 0) return fault;
  auto& of = nccl().cliques[id.bytes];
  if (of == nullptr) of = std::make_shared<clique>();
  if (of->size != 0 && of->size != ranks) note("ranks make one communicator with different sizes");
  of->size = ranks;
  nccl().comms.push_back(std::make_unique<comm>());
  comm& one = *nccl().comms.back();
  one.of = of;
  one.rank = rank;
  (void)cuda::api::current_device(one.device);
  one.polls = draw(4);
  of->ranks.push_back(&one);
  made.handle = &one;
  return in_progress;
}
status async_error(comm_ref by, status& found) {
  const auto held = lock();
  if (const int fault = fault_of("nccl_async_error"); fault != 0) {
    found = fault;
    return success;
  }
  auto* const known = static_cast<comm*>(by.handle);
  if (known == nullptr || known->is_dead) {
    note("the status of a communicator that does not exist is queried");
    return invalid_argument;
  }
  found = nccl().broken;
  if (found != success) return success;
  found = in_progress;
  if (static_cast<int>(known->of->ranks.size()) < known->of->size) return success;
  if (known->polls > 0 && --known->polls > 0) return success;
  if (known->late) std::exchange(known->late, nullptr)();
  found = success;
  return success;
}
status abort(comm_ref by) {
  const auto held = lock();
  auto* const known = static_cast<comm*>(by.handle);
  if (known == nullptr || known->is_dead) note("a communicator is aborted that does not exist");
  if (known != nullptr) known->is_dead = true;
  ++nccl().aborted;
  return success;
}
status finalize(comm_ref by) {
  const auto held = lock();
  comm* const known = usable(by);
  if (known == nullptr) return invalid_usage;
  known->is_final = true;
  known->polls = draw(3);
  return known->polls > 0 ? in_progress : success;
}
status destroy(comm_ref by) {
  const auto held = lock();
  auto* const known = static_cast<comm*>(by.handle);
  if (known == nullptr || known->is_dead || !known->is_final || known->polls > 0) {
    note("a communicator is destroyed that was not finalized");
    return invalid_usage;
  }
  known->is_dead = true;
  return success;
}

status group_start() {
  const auto held = lock();
  if (const int fault = fault_of("nccl_group_start"); fault != 0) return fault;
  ++depth;
  return success;
}
status group_end() {
  const auto held = lock();
  if (depth == 0) note("a group ends that has not begun");
  if (--depth > 0) return success;
  status result = fault_of("nccl_group_end");
  for (batch& each : std::exchange(group, {})) {
    if (result != success && result != in_progress) break;
    needs_device(*each.by);
    const status one = submit(std::move(each));
    if (one != success) result = one;
  }
  return result;
}
status all_reduce(const void* in, void* out, std::size_t count, type of, op by, comm_ref comm,
                  stream_ref stream) {
  return add("nccl_all_reduce", {"all_reduce", in, out, count, of, by}, comm, stream);
}
status reduce(const void* in, void* out, std::size_t count, type of, op by, int root, comm_ref comm,
              stream_ref stream) {
  return add("nccl_reduce", {"reduce", in, out, count, of, by, root}, comm, stream);
}
status reduce_scatter(const void* in, void* out, std::size_t count, type of, op by, comm_ref comm,
                      stream_ref stream) {
  return add("nccl_reduce_scatter", {"reduce_scatter", in, out, count, of, by}, comm, stream);
}
status broadcast(const void* in, void* out, std::size_t bytes, int root, comm_ref comm,
                 stream_ref stream) {
  return add("nccl_broadcast", {"broadcast", in, out, bytes, type::int8, op::sum, root}, comm,
             stream);
}
status all_gather(const void* in, void* out, std::size_t bytes, comm_ref comm, stream_ref stream) {
  return add("nccl_all_gather", {"all_gather", in, out, bytes}, comm, stream);
}
status send(const void* from, std::size_t bytes, int peer, comm_ref comm, stream_ref stream) {
  return add("nccl_send", {"send", from, nullptr, bytes, {}, {}, peer}, comm, stream);
}
status recv(void* into, std::size_t bytes, int peer, comm_ref comm, stream_ref stream) {
  return add("nccl_recv", {"recv", nullptr, into, bytes, {}, {}, peer}, comm, stream);
}
bool has_blocks() {
  const auto held = lock();
  return nccl().has_blocks;
}
status gather(const void* block, void* blocks, std::size_t bytes, int root, comm_ref comm,
              stream_ref stream) {
  return add("nccl_gather", {"gather", block, blocks, bytes, {}, {}, root}, comm, stream);
}
status scatter(const void* blocks, void* block, std::size_t bytes, int root, comm_ref comm,
               stream_ref stream) {
  return add("nccl_scatter", {"scatter", blocks, block, bytes, {}, {}, root}, comm, stream);
}
status all_to_all(const void* in, void* out, std::size_t bytes, comm_ref comm, stream_ref stream) {
  return add("nccl_all_to_all", {"all_to_all", in, out, bytes}, comm, stream);
}

}  // namespace colls::cuda::nccl_api

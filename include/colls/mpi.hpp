// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// mpi: `mpi::attach`, which makes a communicator that has the collectives of an installed MPI
// beside all algorithms of colls. No other header of colls includes that of MPI.

#include <colls/world.hpp>
#include <colls/transport/mpi/attach_order.hpp>
#include <colls/transport/mpi/measure_native.hpp>

#include <colls/call/communicator.ipp>
#include <colls/interprocess.hpp>

namespace colls::mpi {

/// A communicator whose calls can use MPI.
using communicator = colls::communicator<transport>;

namespace detail {

using channel = basic_channel<interprocess_transport>;

/// What a rank tells the others while they attach MPI.
struct attach_report {
  enum class state : std::int32_t {
    good,
    finalised,
    wrong_thread,
    not_initialised,
    no_communicator,
    broken,
    other_ranks
  };

  state problem = state::good;
  std::int32_t rank = -1;      // in the communicator of MPI
  std::int32_t size = 0;       // of the communicator of MPI
  std::int32_t process = -1;   // the rank in MPI_COMM_WORLD
  std::int32_t processes = 0;  // of MPI_COMM_WORLD
  std::int32_t number = -1;    // of the attachment, if this is rank 0
};

inline task<std::vector<attach_report>> exchange(channel net, attach_report own) {
  std::vector<attach_report> all(static_cast<std::size_t>(net.size()));
  const any_buffer reports(all.data(), all.size(), sizeof(attach_report));
  const any_buffer place = reports.subspan(static_cast<std::size_t>(net.rank()), 1);
  *static_cast<attach_report*>(place.data()) = own;
  co_await recursive_doubling::all_gather.run(net, place, reports,
                                              partition::blocks(1, net.size()));
  co_return all;
}

/// Ends the call on all ranks with `reason`, and leaves the communicator good.
[[noreturn]] inline void refuse(failure reason) {
  reason.agreed = true;
  throw error(reason);
}

/// Throws if a rank has reported a problem.
inline void check_reports(const std::vector<attach_report>& reports) {
  using state = attach_report::state;
  for (int rank = 0; rank < static_cast<int>(reports.size()); ++rank) {
    failure reason(errc::invalid_argument);
    switch (reports[static_cast<std::size_t>(rank)].problem) {
      case state::good:
        continue;
      case state::finalised:
        reason.set_detail("MPI has been finalised on rank %d: attach it before", rank);
        break;
      case state::wrong_thread:
        reason.set_detail(
            "rank %d: MPI was initialised for one thread, and another calls attach: use the thread "
            "that has initialised MPI, or call MPI_Init_thread with MPI_THREAD_SERIALIZED",
            rank);
        break;
      case state::not_initialised:
        reason.set_detail(
            "MPI is not initialised on rank %d, and all processes must initialise it together: "
            "attach it to the world before, or call MPI_Init on all ranks",
            rank);
        break;
      case state::no_communicator:
        reason.set_detail("options::comm of rank %d is MPI_COMM_NULL or an intercommunicator",
                          rank);
        break;
      case state::other_ranks:
        reason.set_detail("options::comm of rank %d has other ranks, or has them in another order",
                          rank);
        break;
      case state::broken:
        reason.code = errc::not_applicable;
        reason.set_detail(
            "an earlier attachment of options::comm has failed or was dropped on rank %d: pass "
            "another communicator of MPI, such as a duplicate",
            rank);
        break;
      default:
        reason.code = errc::protocol_error;
        reason.set_detail("rank %d has sent no report of MPI", rank);
    }
    refuse(reason);
  }
}

/// Throws unless the communicator of MPI has exactly the ranks of `reports`, in this order.
inline void check_ranks(const std::vector<attach_report>& reports) {
  const int ranks = static_cast<int>(reports.size());
  for (int rank = 0; rank < ranks; ++rank) {
    const attach_report& each = reports[static_cast<std::size_t>(rank)];
    if (each.processes == 1 && ranks > 1) {
      refuse(failure(errc::not_applicable)
                 .set_detail("MPI knows of one rank alone on rank %d: start the program with "
                             "mpirun, or another launcher that speaks the PMI of this MPI",
                             rank));
    }
    if (each.size != ranks || each.rank != rank) {
      refuse(failure(errc::invalid_argument)
                 .set_detail("rank %d of %d is rank %d of %d in options::comm, which must have the "
                             "same ranks in the same order",
                             rank, ranks, each.rank, each.size));
    }
  }
}

/// Reports what the communicator `comm` of MPI is.
inline attach_report report_on(MPI_Comm comm) {
  attach_report result;
  int is_inter = 0;
  if (comm != MPI_COMM_NULL) check(MPI_Comm_test_inter(comm, &is_inter), "MPI_Comm_test_inter");
  if (comm == MPI_COMM_NULL || is_inter != 0) {
    result.problem = attach_report::state::no_communicator;
    return result;
  }
  check(MPI_Comm_rank(comm, &result.rank), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &result.size), "MPI_Comm_size");
  check(MPI_Comm_size(MPI_COMM_WORLD, &result.processes), "MPI_Comm_size");
  check(MPI_Comm_rank(MPI_COMM_WORLD, &result.process), "MPI_Comm_rank");
  if (attach_order::of(comm).is_broken) result.problem = attach_report::state::broken;
  return result;
}

/// Makes MPI progress while this process waits for something else, until MPI is finalised. MPI
/// moves nothing by itself, and other ranks may need messages of a call that has ended here.
inline task<> keep_in_progress(engine& driver) {
  while (!environment::is_finalised()) {
    const bool is_recent = environment::get().is_recently_used();
    co_await driver.sleep_until(driver.now() + (is_recent ? 2 : 500) * milliseconds);
    environment::get().make_progress();
  }
}

/// Returns whether the communicator `comm` of MPI has exactly the processes of `reports`, in this
/// order.
inline bool has_processes(MPI_Comm comm, const std::vector<attach_report>& reports) {
  MPI_Group members = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm, &members), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  std::vector<int> ranks(reports.size());
  std::vector<int> processes(reports.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  check(MPI_Group_translate_ranks(members, static_cast<int>(ranks.size()), ranks.data(), all,
                                  processes.data()),
        "MPI_Group_translate_ranks");
  check(MPI_Group_free(&members), "MPI_Group_free");
  check(MPI_Group_free(&all), "MPI_Group_free");
  return std::equal(processes.begin(), processes.end(), reports.begin(),
                    [](int process, const attach_report& each) { return process == each.process; });
}

/// A duplicate of a communicator of MPI that is being made, as the attachment `number` of it. If
/// this object is destroyed before it has been made, MPI keeps the memory, and the communicator
/// cannot be attached any more.
class duplication {
 public:
  duplication(MPI_Comm comm, int number) : order_(attach_order::of(comm)), comm_(comm) {
    if (number < order_.next) {
      throw error(errc::protocol_error, "rank 0 has given an attachment a wrong number");
    }
    number_ = number;
  }
  duplication(const duplication&) = delete;
  duplication& operator=(const duplication&) = delete;
  ~duplication() {
    if (is_made_) return;
    order_.is_broken = true;
    environment::get().note_failure();
    (void)made_.release();
  }

  task<MPI_Comm> make(channel net) {
    while (order_.next != number_) {
      if (order_.is_broken) {
        throw error(errc::not_applicable, "an earlier attachment of options::comm has failed");
      }
      co_await pause(net);
    }
    check(MPI_Comm_idup(comm_, &made_->comm, &made_->request), "MPI_Comm_idup");
    ++order_.next;
    for (;;) {
      int has_ended = 0;
      check(MPI_Test(&made_->request, &has_ended, MPI_STATUS_IGNORE), "MPI_Comm_idup");
      if (has_ended != 0) break;
      co_await pause(net);
    }
    check(MPI_Comm_set_errhandler(made_->comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    co_return made_->comm;
  }
  /// Called when all ranks have the duplicate.
  void complete() { is_made_ = true; }

 private:
  struct result {
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  // Waits a little. Throws if the wait has been in vain.
  task<> pause(channel net) {
    const communicator_state& state = *net.record().communicator;
    engine& driver = net.net().driver();
    if (state.failed()) throw error(state.reason());
    if (start_ == never) start_ = driver.now();
    if (driver.now() - start_ > state.inactivity) {
      throw error(errc::timeout,
                  "MPI_Comm_idup has not ended: all ranks have to pass the same "
                  "communicator of MPI, not duplicates of it");
    }
    co_await driver.sleep_until(driver.now() + milliseconds / 10);
  }

  attach_order& order_;
  MPI_Comm comm_;
  int number_ = 0;
  time_point start_ = never;
  std::unique_ptr<result> made_ = std::make_unique<result>();
  bool is_made_ = false;
};

/// Returns the number of this attachment of `comm`, which rank 0 gives. If a rank fails meanwhile,
/// the ranks have not all got it, so `comm` cannot be attached any more.
inline task<int> next_number(channel net, MPI_Comm comm) {
  struct guard {
    attach_order& order;
    bool is_done = false;
    ~guard() {
      if (!is_done) order.is_broken = true;
    }
  } breaks{attach_order::of(comm)};
  attach_report own;
  if (net.rank() == 0) own.number = breaks.order.given++;
  const std::vector<attach_report> all = co_await exchange(net, own);
  breaks.is_done = true;
  co_return all.front().number;
}

inline task<communicator> attach_body(channel net, colls::detail::core<interprocess_transport>& on,
                                      options opts) {
  attach_report own;
  if (environment::is_finalised()) {
    own.problem = attach_report::state::finalised;
  } else if (!environment::is_initialised()) {
    // MPI_Init would wait for the ranks that do not take part.
    if (net.size() != net.net().size()) own.problem = attach_report::state::not_initialised;
  } else if (environment::get().thread_obstacle() != nullptr) {
    own.problem = attach_report::state::wrong_thread;
  }
  check_reports(co_await exchange(net, own));
  environment::get().initialise();
  interprocess_transport& links = net.net();
  if (environment::get().add_world(links.has_left_orderly())) {
    links.run_beside(keep_in_progress(links.driver()));
  }

  own = report_on(opts.comm);
  const std::vector<attach_report> reports = co_await exchange(net, own);
  check_reports(reports);
  check_ranks(reports);
  if (!has_processes(opts.comm, reports)) own.problem = attach_report::state::other_ranks;
  check_reports(co_await exchange(net, own));

  const int number = co_await next_number(net, opts.comm);
  duplication copy(opts.comm, number);
  const MPI_Comm duplicate = co_await copy.make(net);
  environment::get().add_duplicate(duplicate);
  const auto made = std::make_shared<transport>(on.shared_net(), opts, duplicate, on.state().id());
  auto splitting = colls::detail::split_body<interprocess_transport, transport>(
      net, on, {0, net.rank(), 0}, made);
  communicator result = co_await splitting;
  copy.complete();
  made->set_communicator(result.underlying_core().state().id());
  co_return result;
}

}  // namespace detail

/// Makes a communicator that has the same ranks as `comm` and, for the collectives on it, the
/// non-blocking ones of MPI as `algorithm::native` beside all algorithms of colls. Messages, and
/// all algorithms but `native`, use the links of colls. Afterwards `measure()` finds out how long
/// MPI takes, and `automatic` chooses `native` where that is less than any algorithm of colls would
/// take; before, only calls that pin it use MPI. While the call runs, the program must make no
/// collective calls of its own on `options::comm`, which is duplicated meanwhile.
///
///     auto fast = co_await colls::mpi::attach(world);
///     co_await fast.measure();
///     co_await fast.all_reduce(gradients);
///
/// MPI does broadcasts, gathers, scatters and exchanges of elements of all types, and sums and
/// products of 8- to 64-bit integers, float, double and their complex numbers, with the other
/// built-in operations on integers. Calls that it cannot do use the algorithms of colls, or fail
/// with `not_applicable` if they pin `native`. What `split`, `group` and `dup` make of the result
/// has no communicator of MPI: attach one to what they make of `comm`.
///
/// MPI is initialised if the program has not done so, and then finalised when the process exits,
/// unless something has failed. One thread of a process uses all communicators with MPI.
///
/// Fails on all ranks, and leaves `comm` good, with `invalid_argument` if `options::comm` has other
/// ranks or another order, if MPI has been finalised, or if it was initialised for another thread;
/// and with `not_applicable` if MPI knows of one rank alone, because its launcher was not used.
/// Two exceptions to what colls promises otherwise: a rank that dies while MPI is initialised may
/// leave the others waiting in MPI_Init_thread, and `options::in_place` says of another.
inline operation<communicator> attach(world& comm, const options& opts = {}) {
  using colls::detail::cached_call;
  auto& on = comm.underlying_core();
  fingerprint agreed;
  agreed.operation = collective::attach;
  agreed.shape = opts.in_place ? 6 : 5;
  return on.template begin<colls::detail::call<communicator>>(
      cached_call(agreed), {}, 0,
      [&](auto& call) { (void)(call.body = detail::attach_body({on.net(), call}, on, opts)); });
}

}  // namespace colls::mpi

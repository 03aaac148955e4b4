// SPDX-FileCopyrightText: 2026 The colls authors SPDX-License-Identifier: BSL-1.0 colls-run: starts
// the ranks of a world on this machine and supervises them until all have ended. It may start them
// again after a failure.

#include "colls_run/coordinated_job.hpp"
#include "colls_run/failure_channel.hpp"
#include "colls_run/job.hpp"
#include "colls_run/options.hpp"
#include "colls_run/world.hpp"

#include <fcntl.h>

#include <cstdio>

namespace launcher {
namespace {

using colls::detail::descriptor;

// The ranks' files become descriptors 0 to 2, so the launcher must not use these for anything else.
void open_standard_files() {
  for (int fd = ::open("/dev/null", O_RDWR); fd >= 0; fd = ::open("/dev/null", O_RDWR)) {
    if (fd > 2) {
      ::close(fd);
      break;
    }
  }
}

// Each rank needs four descriptors while it starts. The ranks get the old limit back.
rlimit raise_file_limit() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  rlimit raised = before;
  raised.rlim_cur = raised.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &raised);  // a failure shows when a pipe cannot be made
  return before;
}

// The signals that the launcher handles. Ignored signals stay ignored, in the launcher and in the
// ranks: nohup, and `&` in a script, depend on it.
sigset_t handled_signals() {
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
    struct sigaction current{};
    ::sigaction(number, nullptr, &current);
    if (current.sa_handler != SIG_IGN) sigaddset(&all, number);
  }
  return all;
}

// What this process had when it started. The ranks of every start get it back.
struct inherited_settings {
  rlimit files = raise_file_limit();
  sigset_t handled = handled_signals();
  sigset_t mask{};
  struct sigaction broken_pipe{};

  inherited_settings() {
    ::sigprocmask(SIG_BLOCK, nullptr, &mask);
    ::sigaction(SIGPIPE, nullptr, &broken_pipe);
    ::signal(SIGPIPE, SIG_IGN);
  }
};

struct pipe_ends {
  descriptor read, write;
};

pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int error = errno;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    throw start_error(fmt::format(
        "no pipe for a rank's output: {}{}", std::strerror(error),
        error != EMFILE ? ""
                        : fmt::format(": each rank needs four files while it starts, and {} is the "
                                      "limit (ulimit -Hn)",
                                      limit.rlim_cur)));
  }
  return {descriptor(ends[0]), descriptor(ends[1])};
}

void set_non_blocking(const descriptor& end) {
  if (::fcntl(end.get(), F_SETFL, O_NONBLOCK) != 0) {
    throw start_error(fmt::format("cannot make a pipe non-blocking: {}", std::strerror(errno)));
  }
}

// Starts the ranks of this node once, and runs until the job has ended. `first_replacement` is the
// number of the first of them as a replacement, or 0. `listener` is where node 0 serves them.
job_result run_ranks(boost::asio::io_context& io, colls::engine& engine, const options& o,
                     const world& shared, int first_replacement, const colls::listener& listener,
                     coordination* coordinated, const inherited_settings& inherited,
                     std::span<char> title) {
  connections ends;
  start_plan plan;
  plan.command = o.command;
  plan.title = title;
  plan.files = inherited.files;
  plan.mask = inherited.mask;
  plan.replaces = o.on_failure == failure_policy::replace;

  const descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<descriptor> rank_ends;
  const bool has_input = o.node_rank == 0;
  for (int i = 0; i < o.local_size; ++i) {
    rank_start rank;
    const int replacement = first_replacement > 0 ? first_replacement + i : 0;
    rank.environment = environment_of(i, replacement, o, shared);
    rank.input = has_input && i == 0 ? 0 : null.get();
    if (rank.input == 0 && ::isatty(0) != 0) {
      pipe_ends input = make_pipe();
      set_non_blocking(input.write);
      rank.input = input.read.get();
      ends.input = std::move(input.write);
      rank_ends.push_back(std::move(input.read));
    }
    for (const auto& [local_ends, rank_end] :
         {std::pair{&ends.out, &rank.output}, {&ends.err, &rank.errors}}) {
      pipe_ends output = make_pipe();
      set_non_blocking(output.read);
      *rank_end = output.write.get();
      local_ends->push_back(std::move(output.read));
      rank_ends.push_back(std::move(output.write));
    }
    plan.ranks.push_back(std::move(rank));
  }

  // From now on the launcher reads its signals from a descriptor.
  ::sigprocmask(SIG_BLOCK, &inherited.handled, nullptr);
  ::sigaction(SIGPIPE, &inherited.broken_pipe, nullptr);
  ends.began = std::chrono::steady_clock::now();
  ends.control = descriptor(start_guard(plan, ends.guard));
  if (!ends.control) throw start_error(fmt::format("cannot fork: {}", std::strerror(errno)));
  rank_ends.clear();
  ::signal(SIGPIPE, SIG_IGN);
  ends.signals = descriptor(::signalfd(-1, &inherited.handled, SFD_NONBLOCK | SFD_CLOEXEC));

  const pid_t guard = ends.guard;
  // The channel of each world, the last of which is the current one. A node that comes later has
  // none before the first repair.
  std::vector<std::unique_ptr<failure_channel>> channels;
  job running(io, engine, o, std::move(ends));
  running.on_failure = [&](int rank, const std::string& reason) {
    for (const auto& each : channels) each->announce(rank, reason);
  };
  running.on_success = [&](int rank) {
    if (!channels.empty()) channels.back()->exited_well(rank);
  };
  running.absent_peer_of = [&](int rank) {
    return channels.empty() ? std::nullopt : channels.back()->absent_peer_of(rank);
  };
  running.needed = [&] {
    if (coordinated != nullptr && running.is_final()) return false;
    const bool is_for_others = coordinated != nullptr && coordinated->local_coordinator &&
                               o.on_failure != failure_policy::restart && !running.is_ending() &&
                               coordinated->local_coordinator->has_others();
    return is_for_others || (!channels.empty() && channels.back()->needed());
  };
  running.has_restarts = o.restarts() && shared.restarts < o.max_restarts;
  const auto open_channel = [&](const world& of, const colls::listener& at) {
    // Ranks leave an earlier world as if they failed there.
    if (!channels.empty()) channels.back()->on_failure = nullptr;
    channels.push_back(std::make_unique<failure_channel>(engine, o, of, at));
    channels.back()->on_failure = [&](int rank, const std::string& reason, bool died) {
      // The coordinator's connection tells whether node 0 is gone, or has only ended this start.
      if (rank >= 0 || coordinated == nullptr) running.handle_reported_failure(rank, reason, died);
    };
  };
  if (first_replacement == 0) open_channel(shared, listener);
  std::optional<coordinated_job> connected;
  if (coordinated != nullptr) {
    connected.emplace(*coordinated, running, o, shared, channels, open_channel);
  }
  const job_result result = running.run();
  (void)::waitpid(guard, nullptr, 0);  // the guard's own status no longer matters
  return result;
}

// Returns the signal by which the user has ended this launcher while none of its ranks runs, or 0.
// Before the first start, signals are not blocked.
int pending_end() {
  sigset_t pending;
  if (::sigpending(&pending) != 0) return 0;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (::sigismember(&pending, signal) == 1) return signal;
  }
  return 0;
}

// Waits for the next order of the coordinator. Returns nothing if there will be none; `status` is
// then what this launcher ends with.
std::optional<start_order> await_order(boost::asio::io_context& io, launcher_link& link,
                                       int& status) {
  using clock = std::chrono::steady_clock;
  std::optional<clock::time_point> left;  // when a signal has come
  for (;;) {
    while (const auto text = link.take()) {
      std::istringstream in(*text);
      const std::string kind = kind_of(in);
      if (kind == "start") {
        const auto order = start_order::parse(in);
        if (!order)
          throw start_error("node 0 has sent an order that this node does not understand");
        if (left) continue;
        return order;
      }
      if (kind != "end" && kind != "refused") continue;
      const std::string reason = rest_of(in);
      if (kind == "refused") print_line("node 0 does not take this node: " + reason);
      if (kind == "end" && !reason.empty()) print_line(reason);
      if (!reason.empty() && status == 0) status = 1;
      return std::nullopt;
    }
    if (!link.problem().empty()) throw start_error(link.problem());
    const int signal = left ? 0 : pending_end();
    if (signal != 0) {
      link.send(fmt::format("over {}", static_cast<int>(node_outcome::leaving)));
      status = 128 + signal;
      left = clock::now();
    }
    if (left && clock::now() > *left + std::chrono::seconds(2)) return std::nullopt;
    io.run_one_for(std::chrono::milliseconds(100));
  }
}

// Runs until the other launchers know that this one ends.
void leave(boost::asio::io_context& io, colls::engine& engine, coordination& with, double grace) {
  // Node 0 stays while other nodes end their ranks.
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(grace + 8);
  while (with.local_coordinator && with.local_coordinator->has_others() &&
         std::chrono::steady_clock::now() < until) {
    io.run_one_for(std::chrono::milliseconds(100));
  }
  with.link.leave();
  while (!with.link.is_gone()) io.run_one();
  if (!with.local_coordinator) return;
  bool is_drained = false;
  colls::task_group tasks(engine);
  tasks.start([](coordinator& center, bool& done) -> colls::task<> {
    co_await center.drain();
    done = true;
  }(*with.local_coordinator, is_drained));
  while (!is_drained) io.run_one();
}

// Starts the ranks as often as node 0 says. Returns the exit status.
int run_coordinated(boost::asio::io_context& io, colls::engine& engine, const options& o,
                    world shared, const colls::listener& socket,
                    const inherited_settings& inherited, std::span<char> title) {
  const world common = shared;
  coordination with(engine, o, common, socket);
  int status = 1;
  while (const auto order = await_order(io, with.link, status)) {
    options now = o;
    now.node_rank = order->node;
    now.nodes = std::max(order->nodes, order->node + 1);
    shared.restarts = order->restarts;
    shared.store = order->store;
    if (o.restarts()) {
      print_line(fmt::format("start {} of {}: {} ranks, job {}", shared.restarts + 1,
                             o.max_restarts + 1, now.size(), shared.started_job()));
    }
    const colls::listener none;
    const job_result ended =
        run_ranks(io, engine, now, shared, order->replacement,
                  with.local_coordinator ? with.local_coordinator->store_of_ranks() : none, &with,
                  inherited, title);
    status = ended.status;
    if (!with.link.problem().empty()) {
      if (!ended.has_told_loss) print_line(with.link.problem());
      return status;
    }
    with.link.send(fmt::format("over {}", static_cast<int>(ended.outcome)));
    if (with.has_ended) break;
  }
  leave(io, engine, with, o.grace);
  return status;
}

int launch(const options& o, std::span<char> title) {
  const inherited_settings inherited;
  if (!adopt_orphans()) {
    throw start_error(fmt::format("cannot adopt orphans: {}", std::strerror(errno)));
  }
  colls::listener socket;
  const world shared = make_world(o, socket);
  // The name of this process in its own log lines. Without memory for it they have no name.
  (void)::setenv("COLLS_RANK", "launcher", 1);
  boost::asio::io_context io(1);
  const auto engine = colls::engine::get(io.get_executor());
  if (o.is_coordinated()) return run_coordinated(io, *engine, o, shared, socket, inherited, title);
  return run_ranks(io, *engine, o, shared, 0, socket, nullptr, inherited, title).status;
}

}  // namespace
}  // namespace launcher

int main(int argc, char** argv) {
  using namespace launcher;
  open_standard_files();
  std::string help;
  try {
    const options o = parse({argv + 1, argv + argc}, help);
    char* const end = argv[argc - 1] + std::strlen(argv[argc - 1]) + 1;
    return launch(o, {argv[0], end});
  } catch (const CLI::CallForHelp&) {
    return std::fputs(help.c_str(), stdout) < 0 ? 1 : 0;
  } catch (const usage_error& error) {
    print_line(error.what());
    print_line("try colls-run --help");
    return 2;
  } catch (const std::exception& error) {
    print_line(error.what());
    return 1;
  }
}

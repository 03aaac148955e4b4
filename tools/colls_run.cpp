// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-run: starts the ranks of a world on this machine and supervises them until all have ended. It
// may start them again after a failure.

#include "colls_run/failure_channel.hpp"
#include "colls_run/job.hpp"
#include "colls_run/options.hpp"
#include "colls_run/replacements.hpp"
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

void print_line(const std::string& message) {
  std::fprintf(stderr, "colls-run: %s\n", message.c_str());
}

// The sockets at which this launcher serves the ranks.
struct listeners {
  colls::listener store;
  colls::listener replacements;  // open if ranks are replaced
};

// Starts the ranks of this node once, and runs until the job has ended.
job_result run_ranks(const options& o, const world& shared, const listeners& sockets,
                     const inherited_settings& inherited, std::span<char> title) {
  connections ends;
  start_plan plan;
  plan.command = o.command;
  plan.title = title;
  plan.files = inherited.files;
  plan.mask = inherited.mask;
  plan.replaces = o.on_failure == failure_policy::replace;
  for (const colls::listener* const each : {&sockets.store, &sockets.replacements}) {
    if (each->is_open()) plan.not_for_guard.push_back(each->descriptor());
  }

  const descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<descriptor> rank_ends;
  const bool has_input = o.node_rank == 0;
  for (int i = 0; i < o.local_size; ++i) {
    rank_start rank;
    rank.environment = environment_of(i, o, shared);
    rank.input = has_input && i == 0 ? 0 : null.get();
    if (rank.input == 0 && ::isatty(0) != 0) {
      pipe_ends input = make_pipe();
      set_non_blocking(input.write);
      rank.input = input.read.get();
      plan.not_for_guard.push_back(input.write.get());
      ends.input = std::move(input.write);
      rank_ends.push_back(std::move(input.read));
    }
    for (const auto& [local_ends, rank_end] :
         {std::pair{&ends.out, &rank.output}, {&ends.err, &rank.errors}}) {
      pipe_ends output = make_pipe();
      set_non_blocking(output.read);
      *rank_end = output.write.get();
      plan.not_for_guard.push_back(output.read.get());
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
  boost::asio::io_context io(1);
  const auto engine = colls::engine::get(io.get_executor());
  // The channel of each world, the last of which is the current one.
  std::vector<std::unique_ptr<failure_channel>> channels;
  job running(io, *engine, o, std::move(ends));
  running.on_failure = [&](int rank, const std::string& reason) {
    for (const auto& each : channels) each->announce(rank, reason);
  };
  running.on_success = [&](int rank) { channels.back()->exited_well(rank); };
  running.absent_peer_of = [&](int rank) { return channels.back()->absent_peer_of(rank); };
  running.needed = [&] { return channels.back()->needed(); };
  running.has_restarts = o.restarts() && shared.restarts < o.max_restarts;
  const auto open_channel = [&](const world& of, const colls::listener& listener) {
    // Ranks leave an earlier world as if they failed there.
    if (!channels.empty()) channels.back()->on_failure = nullptr;
    channels.push_back(std::make_unique<failure_channel>(*engine, o, of, listener));
    channels.back()->on_failure = [&](int rank, const std::string& reason, bool died) {
      running.handle_reported_failure(rank, reason, died);
    };
  };
  open_channel(shared, sockets.store);
  std::optional<replacements> replacing;
  if (sockets.replacements.is_open()) {
    replacing.emplace(*engine, o, shared, sockets.replacements);
    replacing->on_next_world = open_channel;
    replacing->is_running = [&](int local) { return running.is_running(local); };
    replacing->on_kill = [&](int local) { running.kill(local); };
    replacing->on_waiting = [&](int count) {
      for (const auto& each : channels) each->announce_waiting(count);
      running.dismiss_waiting();
    };
    replacing->on_request = [&](int number) {
      std::erase_if(channels, [=](const auto& each) { return each->world_number() < number; });
    };
    running.on_replacement = [&](int local, int number) { replacing->started(local, number); };
    running.on_end = [&](int local, bool is_replaced) { replacing->ended(local, is_replaced); };
    running.has_place = [&](int local) { return replacing->has_place(local); };
  }
  const job_result result = running.run();
  (void)::waitpid(guard, nullptr, 0);  // the guard's own status no longer matters
  return result;
}

int launch(const options& o, std::span<char> title) {
  const inherited_settings inherited;
  if (!adopt_orphans()) {
    throw start_error(fmt::format("cannot adopt orphans: {}", std::strerror(errno)));
  }
  listeners sockets;
  world shared = make_world(o, sockets.store);
  if (o.on_failure == failure_policy::replace) {
    const std::string host = sockets.store.local().address().to_string();
    sockets.replacements = listen_at(o, host, 0);
    shared.launcher =
        "tcp://" + colls::detail::host_and_port(host, sockets.replacements.local().port());
  }
  // The name of this process in its own log lines. Without memory for it they have no name.
  (void)::setenv("COLLS_RANK", "launcher", 1);
  for (;; ++shared.restarts) {
    if (o.restarts()) {
      print_line(fmt::format("start {} of {}: {} ranks, job {}", shared.restarts + 1,
                             o.max_restarts + 1, o.size(), shared.started_job()));
    }
    const job_result ended = run_ranks(o, shared, sockets, inherited, title);
    if (!ended.starts_again) return ended.status;
  }
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

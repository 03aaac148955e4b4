// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-run: starts the ranks of a world on this machine, and sees them through to their end.

#include "colls_run/failure_channel.hpp"
#include "colls_run/job.hpp"
#include "colls_run/options.hpp"
#include "colls_run/world.hpp"

#include <fcntl.h>

#include <cstdio>

namespace launcher {
namespace {

using colls::detail::descriptor;

// Descriptors 0 to 2 are what the ranks' files become: they must not be something else.
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
  rlimit most = before;
  most.rlim_cur = most.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &most);  // else the pipe that fails says so
  return before;
}

// Those that are ignored stay so, here and in the ranks: nohup and `&` in a script work by that.
sigset_t signals_to_take() {
  ::signal(SIGCHLD, SIG_DFL);
  sigset_t all;
  sigemptyset(&all);
  for (const int number :
       {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD}) {
    struct sigaction now{};
    ::sigaction(number, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&all, number);
  }
  return all;
}

struct pipe_ends {
  descriptor read, write;
};

pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int error = errno;
    rlimit most{};
    ::getrlimit(RLIMIT_NOFILE, &most);
    throw start_error(fmt::format(
        "no pipe for a rank's output: {}{}", std::strerror(error),
        error != EMFILE ? ""
                        : fmt::format(": each rank needs four files while it starts, and {} is the "
                                      "limit (ulimit -Hn)",
                                      most.rlim_cur)));
  }
  return {descriptor(ends[0]), descriptor(ends[1])};
}

void non_blocking(const descriptor& end) {
  if (::fcntl(end.get(), F_SETFL, O_NONBLOCK) != 0) {
    throw start_error(fmt::format("a pipe that would block: {}", std::strerror(errno)));
  }
}

int launch(const options& o, std::span<char> title) {
  connections ends;
  start_plan plan;
  plan.command = o.command;
  plan.title = title;
  plan.files = raise_file_limit();

  colls::listener served;
  const world shared = meet(o, served);
  if (served.is_open()) plan.not_for_guard.push_back(served.descriptor());

  const descriptor null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  std::vector<descriptor> for_ranks;
  const bool has_input = o.node_rank == 0;
  for (int i = 0; i < o.local_size; ++i) {
    rank_start rank;
    rank.environment = environment_of(i, o, shared);
    rank.input = has_input && i == 0 ? 0 : null.get();
    if (rank.input == 0 && ::isatty(0) != 0) {
      pipe_ends typed = make_pipe();
      non_blocking(typed.write);
      rank.input = typed.read.get();
      plan.not_for_guard.push_back(typed.write.get());
      ends.input = std::move(typed.write);
      for_ranks.push_back(std::move(typed.read));
    }
    for (const auto& [mine, theirs] :
         {std::pair{&ends.out, &rank.output}, {&ends.err, &rank.errors}}) {
      pipe_ends made = make_pipe();
      non_blocking(made.read);
      *theirs = made.write.get();
      plan.not_for_guard.push_back(made.read.get());
      mine->push_back(std::move(made.read));
      for_ranks.push_back(std::move(made.write));
    }
    plan.ranks.push_back(std::move(rank));
  }

  const sigset_t taken = signals_to_take();
  ::sigprocmask(SIG_BLOCK, &taken, &plan.mask);
  if (!adopt_orphans()) {
    throw start_error(fmt::format("cannot adopt orphans: {}", std::strerror(errno)));
  }
  ends.began = std::chrono::steady_clock::now();
  ends.control = descriptor(start_guard(plan, ends.guard));
  if (!ends.control) throw start_error(fmt::format("cannot fork: {}", std::strerror(errno)));
  for_ranks.clear();
  ::signal(SIGPIPE, SIG_IGN);
  ends.signals = descriptor(::signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC));

  // How our own log lines call this process; without memory for it they call it nothing.
  (void)::setenv("COLLS_RANK", "launcher", 1);

  const pid_t guard = ends.guard;
  boost::asio::io_context io(1);
  const auto engine = colls::engine::of(io.get_executor());
  failure_channel channel(*engine, o, shared, served);
  served.close();
  job running(io, *engine, o, std::move(ends));
  running.on_failure = [&](int rank, const std::string& how) { channel.announce(rank, how); };
  running.on_success = [&](int rank) { channel.ended_well(rank); };
  running.missed_by = [&](int rank) { return channel.missed_by(rank); };
  channel.on_failure = [&](int rank, const std::string& why, bool died) {
    running.told_of_failure(rank, why, died);
  };
  running.needed = [&] { return channel.needed(); };
  const int status = running.run();
  (void)::waitpid(guard, nullptr, 0);  // how it ended changes nothing any more
  return status;
}

void complain(const std::string& what) { std::fprintf(stderr, "colls-run: %s\n", what.c_str()); }

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
  } catch (const usage_error& wrong) {
    complain(wrong.what());
    complain("try colls-run --help");
    return 2;
  } catch (const std::exception& wrong) {
    complain(wrong.what());
    return 1;
  }
}

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Another library, measured by the loop, the checks and the report of colls-bench: a program gives
// a communicator of its library, which has the calls of ours and returns when they have ended.

#include "../colls_bench/command_line.hpp"
#include "../colls_bench/measure.hpp"
#include "../colls_bench/processes.hpp"

#include <colls/sync_wait.hpp>

#include <cstdio>
#include <exception>

namespace bench {

/// What a call that has ended leaves to await.
struct ended {
  bool start(colls::completion&) const noexcept { return true; }
  void result() const noexcept {}
};

template <class Buffer>
using element = std::remove_cvref_t<decltype(*std::data(std::declval<Buffer&>()))>;

[[noreturn]] inline void has_no(const options& how, const std::string& what) {
  throw std::invalid_argument(how.library + " has no " + what);
}

/// One rank's run; calls that block need nobody to drive them.
template <class Communicator>
void measure_blocking(Communicator& comm, const options& how) {
  struct nobody {
    colls::run_queue& queue() { return queue_; }
    bool poll() { return false; }
    void idle(unsigned) {}
    void enter() {}
    void leave() {}
    colls::run_queue queue_;
  } driver;
  const auto work = make_workload(comm, how);
  colls::sync_wait(driver, measure(*work, comm, how));
}

/// `main` of such a program: `run(how) -> int`. What the ranks talk through is their launcher's
/// or library's business.
template <class Run>
int peer_main(int argc, char** argv, const char* library, Run run) {
  CLI::App app(std::string("Times a collective of ") + library + " as colls-bench does ours.");
  options how;
  how.library = library;
  how.transport = "as launched";
  declare(app, how);
  try {
    app.parse(argc, argv);
    if (!how.congestion.empty()) has_no(how, "--congestion: the system's is what it has");
    return run(how);
  } catch (const CLI::ParseError& wrong) {
    return refused(app, library, wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "%s\n", failed.what());
    return 1;
  }
}

}  // namespace bench

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Starts ranks.cpp by the launchers of Open MPI and MPICH, and by one that MPI does not know.

#include "../support/shell.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace scripts;

namespace {

struct implementation {
  std::string name;
  std::string program;   // of its ranks
  std::string launch;    // starts $n ranks
  std::string survivor;  // starts $n ranks, which a death does not end
};
const std::vector<implementation> implementations = {
    {"openmpi", "tests/mpi_ranks_openmpi", "mpirun.openmpi --oversubscribe -n $n",
     "mpirun.openmpi --oversubscribe --enable-recovery -n $n"},
    {"openmpi over ucx", "tests/mpi_ranks_openmpi",
     "mpirun.openmpi --oversubscribe --mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any "
     "-n $n",
     ""},
    {"mpich", "tests/mpi_ranks_mpich", "mpirun.mpich -n $n",
     "mpirun.mpich -disable-auto-cleanup -n $n"},
};

/// The program of an implementation that was there when the tests were built, or none.
std::string program_for(const implementation& mpi) {
  return std::filesystem::exists(mpi.program) ? "$here/" + mpi.program : "";
}

outcome start(const std::string& launch, const std::string& program, const std::string& name,
              int ranks) {
  return shell(
      "here=" + std::filesystem::current_path().string() + "\nn=" + std::to_string(ranks) +
          "\n"
          "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 UCX_LOG_LEVEL=fatal\n" +
          launch + ' ' + program + ' ' + name,
      120);
}

/// Runs a case with each implementation. After a failure the ranks leave MPI as it is, of which its
/// launcher complains, so only what they print counts then.
void run(const std::string& name, const std::vector<int>& sizes, bool ends_well = true) {
  for (const implementation& mpi : implementations) {
    CAPTURE(mpi.name);
    const std::string program = program_for(mpi);
    if (program.empty()) {
      MESSAGE("skipped: no ", mpi.name);
      continue;
    }
    for (const int ranks : sizes) {
      const outcome ran = start(mpi.launch, program, name, ranks);
      CAPTURE(ranks);
      CAPTURE(ran.text);
      if (ends_well) CHECK(ran.status == 0);
      CHECK(count(ran.text, "wrong:") == 0);
      CHECK(count(ran.text, name + " ok") == 1);
    }
  }
}

bool is_full() { return std::getenv("COLLS_TEST_FULL") != nullptr; }
std::vector<int> many() { return is_full() ? std::vector<int>{1, 2, 3, 4, 5, 8} : std::vector{3}; }

TEST_CASE("native collectives give the results of colls") { run("results", many()); }
TEST_CASE("native collectives without copies") { run("results_in_place", many()); }
TEST_CASE("vectors that are longer than a count of MPI") { run("in_pieces", many()); }
TEST_CASE("all algorithms of colls run on a communicator with MPI") {
  run("every_algorithm", many());
}
TEST_CASE("automatic takes native where it is measured to be faster") { run("measured", many()); }
TEST_CASE("a program that initialises MPI itself") { run("own_init", many()); }
TEST_CASE("attachments at the same time, in another order on each rank") {
  run("opposite_order", is_full() ? many() : std::vector{4});
}

TEST_CASE("native calls of many parts begin in the same order on all ranks") {
  run("same_order", {4});
}

TEST_CASE("a rank that has ended its part makes progress for the others") {
  run("progress", {4});
  const std::string program = program_for(implementations.front());
  if (program.empty()) return;
  const outcome ran = start("mpirun.openmpi --oversubscribe --mca pml ob1 --mca btl tcp,self -n $n",
                            program, "progress", 4);
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
}

TEST_CASE("what cannot be attached is refused on all ranks, and the world stays good") {
  for (const char* const what : {"null", "reversed", "part", "half", "thread", "finalised"}) {
    run(std::string("refused_") + what, {3});
  }
  for (const implementation& mpi : implementations) {
    const std::string program = program_for(mpi);
    if (program.empty() || mpi.survivor.empty()) continue;
    const outcome ran = start("$run -n $n", program, "refused_singleton", 2);
    CAPTURE(mpi.name);
    CAPTURE(ran.text);
    CHECK(ran.status == 0);
    CHECK(count(ran.text, "refused_singleton ok") == 1);
  }
}

TEST_CASE("groups of the same size and of other ranks are refused") { run("other_groups", {4}); }
TEST_CASE("an attachment is dropped") { run("dropped_attach", {3}, false); }

TEST_CASE("native calls that do not match end on all ranks") { run("mismatch", {2, 4}, false); }
TEST_CASE("a native call is dropped") { run("dropped", {2, 4}, false); }
/// Runs a case in which rank 1 of four fails, by launchers that let the others go on.
void run_survivors(const std::string& name, bool dies) {
  for (const implementation& mpi : implementations) {
    const std::string program = program_for(mpi);
    if (program.empty() || mpi.survivor.empty()) continue;
    if (dies && mpi.name == "mpich") {
      MESSAGE(
          "skipped: mpiexec of MPICH 4.0 often fails when a rank dies, and takes the others along");
      continue;
    }
    const outcome ran = start(mpi.survivor, program, name, 4);
    CAPTURE(mpi.name);
    CAPTURE(ran.text);
    CHECK(ran.status != 124);
    CHECK(count(ran.text, "wrong:") == 0);
    CHECK(count(ran.text, name + " ok") == 3);
  }
}
TEST_CASE("a rank that dies in a native call is named on all others") {
  run_survivors("death", true);
}
TEST_CASE("a rank whose main function throws does not hang, nor do the others") {
  run_survivors("throws", false);
}

TEST_CASE("vectors of more than 2^31 elements") {
  if (!is_full()) {
    MESSAGE("skipped: COLLS_TEST_FULL=1 runs it, with 2 ranks and 9 GiB");
    return;
  }
  run("huge", {2});
}

}  // namespace

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/checkpoint.hpp>

#include <colls/inproc.hpp>

#include "../support/folder.hpp"

#include <doctest/doctest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace {

namespace files = std::filesystem;
using colls::errc;
using colls::ddp::atomic_file;

/// The number of files in a folder.
std::size_t files_in(const folder& place) {
  return static_cast<std::size_t>(
      std::distance(files::directory_iterator(place.path), files::directory_iterator()));
}

std::string content(const std::string& path) {
  const std::vector<char> bytes = colls::ddp::read_whole_file(path);
  return {bytes.begin(), bytes.end()};
}

void put(const std::string& path, const std::string& text) {
  atomic_file file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// The text of the error that `work` throws.
template <class Work>
std::string error_of(Work work) {
  try {
    work();
  } catch (const colls::error& thrown) {
    if (thrown.code() == errc::file_failed) return thrown.what();
  }
  return "no file_failed";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

// Runs `work` in a child process.
template <class Work>
pid_t in_child(Work work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 1;
    try {
      work();
      status = 0;
    } catch (...) {
    }
    ::_exit(status);
  }
  REQUIRE(child > 0);
  return child;
}

int ended(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

const std::string old_text(300'000, 'o');
const std::string new_text(5'000'000, 'n');

}  // namespace

TEST_CASE("a file is replaced atomically, and nothing else is left") {
  const folder here;
  put(here / "f", "first");
  CHECK(content(here / "f") == "first");
  put(here / "f", new_text);
  CHECK(content(here / "f") == new_text);
  put(here / "f", "");
  CHECK(content(here / "f").empty());
  CHECK(files_in(here) == 1);
}

TEST_CASE("a file name without a folder is in the current folder") {
  const folder here;
  const files::path before = files::current_path();
  files::current_path(here.path);
  put("f", "x");
  files::current_path(before);
  CHECK(content(here / "f") == "x");
}

TEST_CASE("without a commit the old file stays") {
  const folder here;
  put(here / "f", old_text);
  {
    atomic_file file(here / "f");
    file.write("half", 4);
  }
  CHECK(content(here / "f") == old_text);
  CHECK(files_in(here) == 1);
}

TEST_CASE(
    "if killed at any step of the writing, the old file is intact, and the next writer succeeds") {
  const folder here;
  put(here / "f", old_text);
  for (int steps = 0; steps <= 11; ++steps) {
    int reached[2];
    REQUIRE(::pipe(reached) == 0);
    const pid_t child = in_child([&] {
      atomic_file file(here / "f");
      for (int step = 0; step < steps; ++step) file.write(new_text.data(), new_text.size() / 10);
      [[maybe_unused]] const ssize_t written = ::write(reached[1], "x", 1);
      for (;;) ::pause();
    });
    ::close(reached[1]);
    char byte;
    REQUIRE(::read(reached[0], &byte, 1) == 1);
    ::close(reached[0]);
    ::kill(child, SIGKILL);
    CHECK(WTERMSIG(ended(child)) == SIGKILL);
    CHECK(content(here / "f") == old_text);
  }
  CHECK(files_in(here) == 2);  // what the killed process left
  put(here / "f", "new");
  CHECK(content(here / "f") == "new");
  CHECK(files_in(here) == 1);
}

TEST_CASE("a partial file that another user may have made is not written") {
  const folder here;
  SUBCASE("a file that is open there") {
    const int foreign = ::open((here / "f.partial").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    REQUIRE(foreign >= 0);
    put(here / "f", "new");
    struct stat found{};
    REQUIRE(::fstat(foreign, &found) == 0);
    CHECK(found.st_size == 0);
    REQUIRE(::write(foreign, "bad", 3) == 3);
    ::close(foreign);
    CHECK(content(here / "f") == "new");
    CHECK(files_in(here) == 1);
  }
  SUBCASE("a second name of another file") {
    put(here / "other", "other");
    files::create_hard_link(here / "other", here / "f.partial");
    put(here / "f", "new");
    CHECK(content(here / "f") == "new");
    CHECK(content(here / "other") == "other");
  }
  SUBCASE("a symbolic link") {
    put(here / "other", "other");
    files::create_symlink(here / "other", here / "f.partial");
    CHECK(contains(error_of([&] { put(here / "f", "new"); }), here / "f: Too many levels"));
    CHECK(content(here / "other") == "other");
  }
  SUBCASE("a pipe that has no reader") {
    REQUIRE(::mkfifo((here / "f.partial").c_str(), 0666) == 0);
    const pid_t child = in_child([&] {
      ::alarm(10);
      if (!contains(error_of([&] { put(here / "f", "new"); }), here / "f: No such device")) throw 1;
    });
    CHECK(ended(child) == 0);
  }
}

TEST_CASE("if killed at any moment, one complete file is there") {
  const folder here;
  put(here / "f", old_text);
  for (int round = 0; round < 40; ++round) {
    const pid_t child = in_child([&] {
      for (;;) {
        put(here / "f", new_text);
        put(here / "f", old_text);
      }
    });
    ::usleep(static_cast<useconds_t>(1000 + 700 * round));
    ::kill(child, SIGKILL);
    ended(child);
    const std::string found = content(here / "f");
    CHECK((found == old_text || found == new_text));
  }
}

TEST_CASE("a full disk gives one error that names the file, and the old file is intact") {
  const folder here;
  put(here / "f", old_text);
  const pid_t child = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1'000'000, 1'000'000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = error_of([&] { put(here / "f", new_text); });
    if (!contains(message, here / "f") || !contains(message, "File too large")) throw 1;
  });
  CHECK(ended(child) == 0);
  CHECK(content(here / "f") == old_text);
  CHECK(files_in(here) == 1);
}

TEST_CASE("of two writers of one file the second gets an error") {
  const folder here;
  atomic_file first(here / "f");
  first.write("first", 5);
  const std::string message = error_of([&] { put(here / "f", "second"); });
  CHECK(contains(message, "another process"));
  first.commit();
  CHECK(content(here / "f") == "first");
  put(here / "f", "third");
  CHECK(content(here / "f") == "third");
}

TEST_CASE("invalid paths are errors that name the path") {
  const folder here;
  const std::string no_folder = error_of([&] { put(here / "no/f", "x"); });
  CHECK(contains(no_folder, here / "no/f: No such file or directory"));
  files::create_directory(here / "d");
  CHECK(contains(error_of([&] { put(here / "d", "x"); }), here / "d: Is a directory"));
  CHECK(contains(error_of([&] { content(here / "d"); }), here / "d: Is a directory"));
  CHECK(contains(error_of([&] { content(here / "f"); }), here / "f: No such file or directory"));
  CHECK(files_in(here) == 1);
}

TEST_CASE("rank 0 writes, all ranks read") {
  const folder here;
  const std::string path = here / "f";
  for (const int ranks : {1, 2, 5}) {
    const auto rank_main = [&](colls::inproc::communicator& comm) -> colls::task<> {
      bool called = false;
      const auto write = [&](atomic_file& file) {
        called = true;
        file.write(new_text.data(), new_text.size());
      };
      co_await colls::ddp::write_file(comm, path, write);
      CHECK(called == (comm.rank() == 0));
      CHECK(files::file_size(path) == new_text.size());
      const std::vector<char> read = co_await colls::ddp::read_file(comm, path);
      CHECK(std::string(read.begin(), read.end()) == new_text);
    };
    colls::inproc::run(ranks, rank_main);
  }
}

TEST_CASE("an error of rank 0 is thrown on every rank, and the communicator stays usable") {
  const folder here;
  const std::string path = here / "f";
  put(path, old_text);
  int errors = 0;
  const auto rank_main = [&](colls::inproc::communicator& comm) -> colls::task<> {
    const auto fails = [](atomic_file& file) {
      file.write("half", 4);
      throw std::runtime_error("the model is on fire");
    };
    try {
      co_await colls::ddp::write_file(comm, path, fails);
    } catch (const colls::error& thrown) {
      errors += thrown.code() == errc::file_failed && thrown.record().observer == 0;
      CHECK(contains(thrown.what(), path + ": the model is on fire"));
    }
    try {
      co_await colls::ddp::read_file(comm, "/no/such/file");
    } catch (const colls::error& thrown) {
      errors += thrown.code() == errc::file_failed;
      CHECK(contains(thrown.what(), "cannot read /no/such/file: No such file"));
    }
    co_await comm.barrier();
  };
  colls::inproc::run(3, rank_main);
  CHECK(errors == 6);
  CHECK(content(path) == old_text);
  CHECK(files_in(here) == 1);
}

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/known_variables.hpp>

#include "../support/logged.hpp"

#include <string>

using namespace logged;

TEST_CASE("unknown COLLS_ variables produce a warning, with the name that may be meant") {
  char wrong[] = "COLLS_TIMEOUTS=5";
  char far[] = "COLLS_BANANA=1";
  char known[] = "COLLS_SECRET=x=y";
  char other[] = "NCCL_DEBUG=INFO";
  char* all[] = {wrong, far, known, other, nullptr};
  const output got = in_process({}, [&] {
    if (colls::warn_about_unknown_variables(all) != 2) ::_exit(1);
  });
  CHECK(contains(got.err, "unknown variable COLLS_TIMEOUTS: did you mean COLLS_TIMEOUT?"));
  CHECK(contains(got.err, "unknown variable COLLS_BANANA\n"));
  CHECK(!contains(got.err, "SECRET"));
  CHECK(!contains(got.err, "NCCL"));
  CHECK(colls::warn_about_unknown_variables(nullptr) == 0);
}

TEST_CASE("edit distance") {
  using colls::detail::edit_distance;
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("COLLS_RANKS", "COLLS_RANK") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

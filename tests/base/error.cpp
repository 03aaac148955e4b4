// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/error.hpp>

#include <doctest/doctest.h>
#include <ostream>
#include <string>

namespace {

using colls::errc;
using colls::error;
using colls::failure;

TEST_CASE("every error has a name and a hint, and compares with the conditions of std") {
  for (int value = 1; value <= static_cast<int>(colls::detail::last_errc); ++value) {
    const std::error_code code = static_cast<errc>(value);
    CHECK(std::string(code.category().name()) == "colls");
    CHECK(code.message() != "unknown error");
    CHECK(std::string(colls::detail::text_of(static_cast<errc>(value)).hint).size() > 10);
  }
  CHECK(std::error_code(static_cast<errc>(static_cast<int>(colls::detail::last_errc) + 1))
            .message() == "unknown error");
  CHECK(make_error_code(errc::timeout) == std::errc::timed_out);
  CHECK(make_error_code(errc::join_timeout) == std::errc::timed_out);
  CHECK(make_error_code(errc::cancelled) == std::errc::operation_canceled);
  CHECK(make_error_code(errc::invalid_argument) == std::errc::invalid_argument);
  CHECK(make_error_code(errc::truncated) == std::errc::message_size);
  CHECK(make_error_code(errc::mismatch) != std::errc::timed_out);
  CHECK(make_error_code(errc::mismatch) == errc::mismatch);
}

TEST_CASE("the text of an error has the ranks, the operation, the progress and a hint") {
  failure why(errc::timeout, "nothing moved");
  CHECK(
      std::string(error(why).what()) ==
      "colls: timeout: nothing moved. Hint: no progress before the deadline: a rank is late or did "
      "not call; options.timeout and COLLS_TIMEOUT set the deadline");
  why.observer = 1;
  why.culprit = 3;
  why.waited_for = 3;
  why.operation = colls::collective::all_reduce;
  why.sequence = 12;
  why.communicator = 0xab;
  why.bytes_done = 5;
  why.bytes_expected = 10;
  why.elapsed_ns = 1'500'000'000;
  std::snprintf(why.address, sizeof why.address, "10.0.0.1:99");
  const std::string text = error(why).what();
  CHECK(text.find("colls: rank 1: all_reduce #12 on communicator ab failed: timeout: rank 3 "
                  "(10.0.0.1:99): nothing moved; 5 of 10 bytes done after 1.500 s. Hint: ") == 0);
  CHECK(error(why).record().culprit == 3);
  CHECK(error(why).code() == errc::timeout);
  CHECK(to_text(why) == text);
}

TEST_CASE("a rank is named once, and bytes without an expected number stand alone") {
  failure why(errc::timeout, "rank 3 has not entered #12 all_reduce");
  why.culprit = 3;
  why.waited_for = 2;
  why.bytes_done = 40'000;
  CHECK(to_text(why).find("colls: timeout: rank 3 has not entered #12 all_reduce; 40000 bytes sent "
                          "and received. Hint: ") == 0);
  why.culprit = -1;
  CHECK(to_text(why).find("; waited for rank 2; ") != std::string::npos);
  why = failure(errc::timeout, "rank 31 has not sent tag 5");
  why.culprit = 3;
  CHECK(to_text(why).find("colls: timeout: rank 3: rank 31 has not sent tag 5. Hint") == 0);
}

TEST_CASE("only the text of a refused call says that nothing was sent") {
  failure why(errc::invalid_argument, "no");
  CHECK(to_text(why) == "colls: invalid_argument: no");
  why.operation = colls::collective::all_reduce;
  CHECK(to_text(why) == "colls: all_reduce failed: invalid_argument: no");
  why.refused = true;
  CHECK(to_text(why) ==
        "colls: all_reduce failed: invalid_argument: no. Hint: nothing was sent and the "
        "communicator is still good");
}

TEST_CASE("texts that are too long are truncated") {
  const std::string long_one(5000, 'x');
  const failure why(errc::revoked, long_one.c_str());
  CHECK(std::string(why.detail).size() == sizeof why.detail - 1);
  CHECK(std::string(error(why).what()).find("Hint") != std::string::npos);
  CHECK(std::string(failure(errc::revoked, "100% %s").detail) == "100% %s");
  colls::detail::line line;
  for (int i = 0; i < 100; ++i) line.add("%s", "0123456789012345678901234567890123456789");
  CHECK(std::string(line.text()).size() < 1024);
}

}  // namespace

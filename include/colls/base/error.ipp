// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Failures in words: the second half of error.hpp.

#include <colls/base/compiler.hpp>
#include <colls/base/error.hpp>

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace colls::detail {

COLLS_ONCE std::error_condition category::default_error_condition(int value) const noexcept {
  switch (static_cast<errc>(value)) {
    case errc::timeout:
    case errc::join_timeout:
      return std::errc::timed_out;
    case errc::cancelled:
      return std::errc::operation_canceled;
    case errc::invalid_argument:
      return std::errc::invalid_argument;
    case errc::not_enough_memory:
      return std::errc::not_enough_memory;
    case errc::address_in_use:
      return std::errc::address_in_use;
    case errc::truncated:
      return std::errc::message_size;
    case errc::protocol_error:
      return std::errc::protocol_error;
    case errc::too_many_files:
      return std::errc::too_many_files_open;
    default:
      return {value, *this};
  }
}

/// Whether the sentence names the culprit itself.
inline bool begins_with_culprit(const failure& why) {
  line name;
  name.add("rank %d ", why.culprit);
  return why.address[0] == 0 &&
         std::strncmp(why.detail, name.text(), std::strlen(name.text())) == 0;
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE const std::error_category& error_category() noexcept {
  static const detail::category instance;
  return instance;
}

COLLS_ONCE std::string to_text(const failure& why) {
  detail::line to;
  to.add("colls: ");
  if (why.observer >= 0) to.add("rank %d: ", why.observer);
  if (why.operation != collective::none) {
    to.add("%s", colls::name(why.operation));
    if (why.sequence != 0) to.add(" #%llu", static_cast<unsigned long long>(why.sequence));
    if (why.communicator != 0) to.add(" on communicator %x", why.communicator);
    to.add(" failed: ");
  }
  to.add("%s", detail::words(why.code).name);
  if (why.culprit >= 0 && !detail::begins_with_culprit(why)) {
    to.add(": rank %d", why.culprit);
    if (why.address[0] != 0) to.add(" (%.63s)", why.address);
  }
  if (why.detail[0] != 0) to.add(": %.319s", why.detail);
  if (why.waited_for >= 0 && why.culprit < 0) to.add("; waited for rank %d", why.waited_for);
  if (why.bytes_expected != 0) {
    to.add("; %llu of %llu bytes done", static_cast<unsigned long long>(why.bytes_done),
           static_cast<unsigned long long>(why.bytes_expected));
  } else if (why.bytes_done != 0) {
    to.add("; %llu bytes sent and received", static_cast<unsigned long long>(why.bytes_done));
  }
  if (why.elapsed_ns != 0) to.add(" after %.3f s", static_cast<double>(why.elapsed_ns) * 1e-9);
  const char* const hint = detail::hint(why);
  if (hint[0] != 0) to.add(". Hint: %s", hint);
  return to.text();
}

COLLS_ONCE failure failure_of(const std::exception_ptr& thrown) noexcept {
  try {
    std::rethrow_exception(thrown);
  } catch (const error& known) {
    return known.record();
  } catch (const std::bad_alloc&) {
    return failure(errc::not_enough_memory);
  } catch (const std::exception& other) {
    return failure(errc::user_op_failed, other.what());
  } catch (...) {
    return failure(errc::user_op_failed);
  }
}

COLLS_ONCE error::error(const failure& why)
    : std::system_error(make_error_code(why.code)), record_(why), text_(to_text(why)) {}

COLLS_ONCE error::error(errc code, const char* sentence) : error(failure(code, sentence)) {}

COLLS_ONCE const char* error::what() const noexcept { return text_.c_str(); }

}  // namespace colls

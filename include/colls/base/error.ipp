// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of error.hpp: the category, the texts and the exception.

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

/// Returns true if `reason.address` is empty and `reason.detail` begins with the rank of the
/// culprit, as in "rank 3 has left". In this case `to_text` does not add the rank of the culprit,
/// because the text would then contain it twice.
inline bool names_culprit(const failure& reason) {
  line name;
  name.add("rank %d ", reason.culprit);
  return reason.address[0] == 0 &&
         std::strncmp(reason.detail, name.text(), std::strlen(name.text())) == 0;
}

}  // namespace colls::detail

namespace colls {

COLLS_ONCE const std::error_category& error_category() noexcept {
  static const detail::category instance;
  return instance;
}

COLLS_ONCE std::string to_text(const failure& reason) {
  detail::line message;
  message.add("colls: ");
  if (reason.observer >= 0) message.add("rank %d: ", reason.observer);
  if (reason.operation != collective::none) {
    message.add("%s", colls::name(reason.operation));
    if (reason.sequence != 0)
      message.add(" #%llu", static_cast<unsigned long long>(reason.sequence));
    if (reason.communicator != 0) message.add(" on communicator %x", reason.communicator);
    message.add(" failed: ");
  }
  message.add("%s", detail::text_of(reason.code).name);
  if (reason.culprit >= 0 && !detail::names_culprit(reason)) {
    message.add(": rank %d", reason.culprit);
    if (reason.address[0] != 0) message.add(" (%.63s)", reason.address);
  }
  if (reason.detail[0] != 0) message.add(": %.319s", reason.detail);
  if (reason.waited_for >= 0 && reason.culprit < 0)
    message.add("; waited for rank %d", reason.waited_for);
  if (reason.bytes_expected != 0) {
    message.add("; %llu of %llu bytes done", static_cast<unsigned long long>(reason.bytes_done),
                static_cast<unsigned long long>(reason.bytes_expected));
  } else if (reason.bytes_done != 0) {
    message.add("; %llu bytes sent and received",
                static_cast<unsigned long long>(reason.bytes_done));
  }
  if (reason.elapsed_ns != 0)
    message.add(" after %.3f s", static_cast<double>(reason.elapsed_ns) * 1e-9);
  const char* const hint = detail::hint(reason);
  if (hint[0] != 0) message.add(". Hint: %s", hint);
  return message.text();
}

COLLS_ONCE failure failure_of(const std::exception_ptr& cause) noexcept {
  try {
    std::rethrow_exception(cause);
  } catch (const error& failed) {
    return failed.record();
  } catch (const std::bad_alloc&) {
    return failure(errc::not_enough_memory);
  } catch (const std::exception& other) {
    return failure(errc::user_op_failed, other.what());
  } catch (...) {
    return failure(errc::user_op_failed, "an exception that is no std::exception");
  }
}

COLLS_ONCE error::error(const failure& reason)
    : std::system_error(make_error_code(reason.code)), record_(reason), text_(to_text(reason)) {}

COLLS_ONCE error::error(errc code, const char* sentence) : error(failure(code, sentence)) {}

COLLS_ONCE const char* error::what() const noexcept { return text_.c_str(); }

}  // namespace colls

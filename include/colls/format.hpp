// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// format: formatters with which the fmt library can print types of colls. No other header of colls
// includes fmt.

#include <colls/base/error.hpp>
#include <colls/base/half.hpp>
#include <colls/selection/tuning.hpp>

#include <fmt/format.h>

/// Formats an algorithm as its name, such as "ring".
template <>
struct fmt::formatter<colls::algorithm> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::algorithm algo, Context& context) const {
    return formatter<const char*>::format(colls::name(algo), context);
  }
};

/// Formats a collective as its name, such as "all_reduce".
template <>
struct fmt::formatter<colls::collective> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::collective coll, Context& context) const {
    return formatter<const char*>::format(colls::name(coll), context);
  }
};

/// Formats an error code as its name, such as "peer_failed".
template <>
struct fmt::formatter<colls::errc> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::errc code, Context& context) const {
    return formatter<const char*>::format(colls::detail::text_of(code).name, context);
  }
};

/// Formats a failure as one line of text. An `error` with this failure returns the same text from
/// `what()`.
template <>
struct fmt::formatter<colls::failure> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const colls::failure& why, Context& context) const {
    return formatter<std::string>::format(colls::to_text(why), context);
  }
};

/// Formats an explanation, which is the result of `communicator::explain`, as the text that
/// `to_text` returns for it.
template <>
struct fmt::formatter<colls::explanation> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const colls::explanation& value, Context& context) const {
    return formatter<std::string>::format(colls::to_text(value), context);
  }
};

/// Converts a float16 or bfloat16 value to float and formats the result.
template <class Half>
  requires colls::half_type<Half>
struct fmt::formatter<Half> : fmt::formatter<float> {
  template <class Context>
  auto format(Half value, Context& context) const {
    return formatter<float>::format(static_cast<float>(value), context);
  }
};

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Words of colls for fmt: the only header that includes it.

#include <colls/base/error.hpp>
#include <colls/base/half.hpp>
#include <colls/selection/tuning.hpp>

#include <fmt/format.h>

/// "ring"
template <>
struct fmt::formatter<colls::algorithm> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::algorithm how, Context& context) const {
    return formatter<const char*>::format(colls::name(how), context);
  }
};

/// "all_reduce"
template <>
struct fmt::formatter<colls::collective> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::collective what, Context& context) const {
    return formatter<const char*>::format(colls::name(what), context);
  }
};

/// "peer_failed"
template <>
struct fmt::formatter<colls::errc> : fmt::formatter<const char*> {
  template <class Context>
  auto format(colls::errc code, Context& context) const {
    return formatter<const char*>::format(colls::detail::words(code).name, context);
  }
};

/// The whole line that `error::what()` gives.
template <>
struct fmt::formatter<colls::failure> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const colls::failure& why, Context& context) const {
    return formatter<std::string>::format(colls::to_text(why), context);
  }
};

/// The lines of `to_text`.
template <>
struct fmt::formatter<colls::explanation> : fmt::formatter<std::string> {
  template <class Context>
  auto format(const colls::explanation& told, Context& context) const {
    return formatter<std::string>::format(colls::to_text(told), context);
  }
};

/// As a float.
template <class Half>
  requires colls::half_type<Half>
struct fmt::formatter<Half> : fmt::formatter<float> {
  template <class Context>
  auto format(Half value, Context& context) const {
    return formatter<float>::format(static_cast<float>(value), context);
  }
};

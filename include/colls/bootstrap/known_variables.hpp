// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// known_variables: the environment variables of colls, and a warning about others that begin with
// COLLS_.

namespace colls {

namespace detail {

inline constexpr const char* known_variables[] = {
    "COLLS_RANK",         "COLLS_WORLD_SIZE",  "COLLS_LOCAL_RANK", "COLLS_LOCAL_WORLD_SIZE",
    "COLLS_NODE_RANK",    "COLLS_NNODES",      "COLLS_STORE",      "COLLS_JOB",
    "COLLS_SECRET",       "COLLS_SECRET_FILE", "COLLS_TIMEOUT",    "COLLS_JOIN_TIMEOUT",
    "COLLS_PORT",         "COLLS_INSECURE",    "COLLS_LOG",        "COLLS_LOG_FILE",
    "COLLS_TERMINAL",     "COLLS_MNIST",       "COLLS_SIM_SEEDS",  "COLLS_SIM_SEED",
    "COLLS_SIM_SCENARIO", "COLLS_TRANSPORT",   "COLLS_READS",      "COLLS_CHECKSUM",
};

/// Changes of one letter that turn `a` into `b`.
int edit_distance(const char* a, const char* b);

/// The known variable that `name` is most like, or null if it is like none.
const char* nearest_variable(const char* name);

}  // namespace detail

/// Warns of variables in `environment` that begin with COLLS_ and mean nothing, with the name that
/// may have been meant. Returns how many there are.
int warn_about_unknown_variables(char** environment);

/// The same for this process, once.
void warn_about_unknown_variables();

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/known_variables.ipp>
#endif

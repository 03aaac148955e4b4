// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The names of the environment variables of colls, and a warning about unknown `COLLS_*` variables.

namespace colls {

namespace detail {

inline constexpr const char* known_variables[] = {
    "COLLS_RANK",          "COLLS_WORLD_SIZE",    "COLLS_LOCAL_RANK",   "COLLS_LOCAL_WORLD_SIZE",
    "COLLS_NODE_RANK",     "COLLS_NNODES",        "COLLS_STORE",        "COLLS_JOB",
    "COLLS_SECRET",        "COLLS_SECRET_FILE",   "COLLS_TIMEOUT",      "COLLS_JOIN_TIMEOUT",
    "COLLS_PORT",          "COLLS_INSECURE",      "COLLS_LOG",          "COLLS_LOG_FILE",
    "COLLS_TERMINAL",      "COLLS_MNIST",         "COLLS_SIM_SEEDS",    "COLLS_SIM_SEED",
    "COLLS_SIM_SCENARIO",  "COLLS_TRANSPORT",     "COLLS_READS",        "COLLS_CHECKSUM",
    "COLLS_CHECK_THREADS", "COLLS_RESTART_COUNT", "COLLS_MAX_RESTARTS", "COLLS_LAUNCHER",
    "COLLS_REPLACEMENT",   "COLLS_SOCKET_IFNAME",
};

/// Returns the Levenshtein distance between `a` and `b`, or 64 if `b` is longer than 64 characters.
int edit_distance(const char* a, const char* b);

/// Returns the name of the known variable that is most similar to `name`. Returns null if the edit
/// distance between `name` and every known name is greater than 3.
const char* nearest_variable(const char* name);

}  // namespace detail

/// Logs a warning for each unknown `COLLS_*` variable in `environment`. If a known name is similar,
/// the warning suggests this name. Returns the number of unknown variables.
int warn_about_unknown_variables(char** environment);

/// Logs a warning for each unknown `COLLS_*` variable in the environment of this process. Only the
/// first call has an effect.
void warn_about_unknown_variables();

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/known_variables.ipp>
#endif

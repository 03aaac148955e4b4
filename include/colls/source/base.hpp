// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/base: a part of source.hpp for programs that define COLLS_SEPARATE_COMPILATION. The one
// source file that includes this header compiles the most common reductions, the choice of
// algorithms, and the functions of the error class, the log and the tag matcher, and defines the
// symbols of build_check.

#include <colls/reduction/erased_reduction.hpp>

#include <colls/base/build_check.ipp>
#include <colls/base/error.ipp>
#include <colls/base/fingerprint.ipp>
#include <colls/base/log.ipp>
#include <colls/base/node_map.ipp>
#include <colls/coroutine/completion.ipp>
#include <colls/matching/communicator_recovery.ipp>
#include <colls/matching/communicator_table.ipp>
#include <colls/matching/consensus.ipp>
#include <colls/matching/recovery_message.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>
#include <colls/selection/tuning.ipp>

COLLS_REDUCTIONS()

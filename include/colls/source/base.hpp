// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/base: a part of source.hpp for programs that define COLLS_SEPARATE_COMPILATION. The one
// source file that includes this header compiles the errors, the log, the tag matcher and the most
// common reductions.

#include <colls/reduction/erased_reduction.hpp>

#include <colls/base/error.ipp>
#include <colls/base/fingerprint.ipp>
#include <colls/base/log.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>

COLLS_REDUCTIONS()

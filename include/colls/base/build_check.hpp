// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// build_check: symbols that make the linker refuse a program whose files disagree about how colls
// is compiled. Their names are the message. They cost no run time.
//
// A file that defines COLLS_SEPARATE_COMPILATION needs symbols that only a library compiled with
// the same _GLIBCXX_DEBUG and the same sanitizer defines.
//
// A header-only file defines a weak thread-local symbol. The library defines a symbol of that name
// that is not thread-local, and linkers refuse a name of both kinds. With g++ the symbol is
// defined in assembler, because its link-time optimisation would drop a weak variable before the
// linker compares. clang compares variables only. Under clang -flto this needs lld.

#if defined(__SANITIZE_ADDRESS__)
#define COLLS_DETAIL_ADDRESS_SANITIZER
#elif defined(__SANITIZE_THREAD__)
#define COLLS_DETAIL_THREAD_SANITIZER
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COLLS_DETAIL_ADDRESS_SANITIZER
#elif __has_feature(thread_sanitizer)
#define COLLS_DETAIL_THREAD_SANITIZER
#endif
#endif

#if defined(COLLS_DETAIL_ADDRESS_SANITIZER)
#define COLLS_DETAIL_SANITIZER colls_library_built_with_address_sanitizer
#elif defined(COLLS_DETAIL_THREAD_SANITIZER)
#define COLLS_DETAIL_SANITIZER colls_library_built_with_thread_sanitizer
#else
#define COLLS_DETAIL_SANITIZER colls_library_built_without_sanitizers
#endif

#ifdef _GLIBCXX_DEBUG
#define COLLS_DETAIL_DEBUG colls_library_built_with_GLIBCXX_DEBUG
#else
#define COLLS_DETAIL_DEBUG colls_library_built_without_GLIBCXX_DEBUG
#endif

#if defined(__CUDA_ARCH__)
// Code for devices is linked by nvcc.
#elif defined(COLLS_SEPARATE_COMPILATION)
extern "C" {
extern const char COLLS_DETAIL_DEBUG;
extern const char COLLS_DETAIL_SANITIZER;
}
namespace colls::detail {
[[gnu::used]] static const char* const needed_symbols[] = {&COLLS_DETAIL_DEBUG,
                                                           &COLLS_DETAIL_SANITIZER};
}
#elif defined(__clang__)
extern "C" {
[[gnu::weak, gnu::used,
  gnu::visibility(
      "hidden")]] __thread char colls_is_header_only_in_some_files_and_compiled_once_in_others;
}
#else
asm(R"(
.ifndef colls_is_header_only_in_some_files_and_compiled_once_in_others
  .pushsection .tbss.colls_is_header_only, "awT", %nobits
  .weak colls_is_header_only_in_some_files_and_compiled_once_in_others
  .hidden colls_is_header_only_in_some_files_and_compiled_once_in_others
  colls_is_header_only_in_some_files_and_compiled_once_in_others: .zero 1
  .popsection
.endif
)");
#endif

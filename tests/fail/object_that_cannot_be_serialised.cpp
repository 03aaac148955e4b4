// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this type cannot be serialised: give it a member
#include <colls/inproc.hpp>
#include <colls/objects.hpp>

#ifdef MUST_NOT_COMPILE
struct picture {
  std::vector<char> pixels;
};
#else
struct picture {
  std::vector<char> pixels;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(pixels);
  }
};
#endif

colls::operation<> rank_main(colls::inproc::communicator& comm) {
  return colls::send(comm, picture(), 0);
}

// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Objects of several types, made of bytes that a peer has sent. The memory that a reader allocates
// is bounded by the number of bytes.
//
// covers: objects/archive.hpp
// covers: objects/serializer.hpp: read

#include "input.hpp"

#include <colls/objects/serializer.hpp>

#include <new>
#include <optional>

namespace {

std::size_t allocated = 0;

struct node {
  std::string name;
  std::vector<node> children;
  std::map<std::string, std::optional<double>> values;
  std::unique_ptr<node> next;
  template <class Archive>
  void serialize(Archive& archive) {
    archive(name, children, values, next);
  }
};
struct nothing {
  template <class Archive>
  void serialize(Archive&) {}
};

template <class T>
void read(std::span<const std::byte> bytes) {
  allocated = 0;
  try {
    const T value = colls::serializer<T>::read(bytes);
    const std::size_t after_reading = allocated;
    std::vector<std::byte> again;
    colls::serializer<T>::write(value, again);
    fuzz::require(after_reading <= 1024 * (bytes.size() + 1), "a value is bounded by its bytes");
  } catch (const std::exception& refused) {
    fuzz::require(refused.what()[0] != 0, "a refusal has a reason");
    fuzz::require(allocated <= 1024 * (bytes.size() + 1), "a refusal is bounded by its bytes");
  }
}

}  // namespace

// All forms, because memory of one form must not be given back by another.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  allocated += size;
  return std::malloc(size != 0 ? size : 1);
}
void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new[](std::size_t size, const std::nothrow_t& tag) noexcept {
  return operator new(size, tag);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  const int type = from.below(6);
  const std::string_view rest = from.rest();
  const auto bytes = std::as_bytes(std::span(rest.data(), rest.size()));
  if (type == 0) read<node>(bytes);
  if (type == 1) read<std::vector<std::string>>(bytes);
  if (type == 2) read<std::map<int, std::vector<std::pair<float, std::string>>>>(bytes);
  if (type == 3) read<std::tuple<std::variant<int, std::string>, std::array<short, 3>>>(bytes);
  if (type == 4) read<std::vector<std::vector<nothing>>>(bytes);
  if (type == 5) read<std::vector<std::optional<std::vector<bool>>>>(bytes);
  return 0;
}

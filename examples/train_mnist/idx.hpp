// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Reads digits from IDX files, the format of MNIST, raw or compressed with gzip.

#include "digits.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace mnist {

/// One IDX file of bytes. Memory is allocated as data arrives, not by the sizes in the header.
class idx_file {
 public:
  explicit idx_file(const std::string& path) : path_(path), file_(::gzopen(path.c_str(), "rb")) {
    if (file_ == nullptr) fail(errno != 0 ? std::strerror(errno) : "cannot be opened");
  }

  /// Checks that the file has bytes in so many dimensions, and returns their sizes.
  std::vector<std::uint32_t> head(unsigned dimensions) {
    const std::vector<std::uint8_t> magic = take(4);
    if (magic != std::vector<std::uint8_t>{0, 0, 8, static_cast<std::uint8_t>(dimensions)}) {
      fail("is no IDX file of bytes in " + std::to_string(dimensions) + " dimensions" +
           (dimensions == 1 ? " (labels)" : " (pictures)"));
    }
    std::vector<std::uint32_t> sizes;
    for (const std::vector<std::uint8_t> all = take(4 * dimensions); sizes.size() < dimensions;) {
      const std::uint8_t* const bytes = all.data() + 4 * sizes.size();
      sizes.push_back(std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
                      std::uint32_t{bytes[2]} << 8 | bytes[3]);
    }
    return sizes;
  }

  /// Returns the rest of the file, which must have exactly `size` bytes.
  std::vector<std::uint8_t> rest(std::uint64_t size) {
    std::vector<std::uint8_t> bytes = take(size);
    std::uint8_t more;
    if (read(&more, 1) != 0) fail("goes on after the " + std::to_string(size) + " bytes of data");
    return bytes;
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw std::runtime_error(path_ + ": " + message);
  }

 private:
  struct closer {
    void operator()(gzFile file) const { ::gzclose_r(file); }
  };

  std::size_t read(std::uint8_t* data, std::size_t size) {
    const int count = ::gzread(file_.get(), data, static_cast<unsigned>(size));
    int code = Z_OK;
    const char* const message = ::gzerror(file_.get(), &code);
    if (count < 0 || code == Z_BUF_ERROR) fail(code == Z_ERRNO ? std::strerror(errno) : message);
    return static_cast<std::size_t>(count);
  }

  std::vector<std::uint8_t> take(std::uint64_t size) {
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < size) {
      const std::size_t offset = bytes.size();
      const auto piece = std::min<std::uint64_t>(size - offset, 1 << 20);
      bytes.resize(offset + piece);
      const std::size_t count = read(bytes.data() + offset, piece);
      if (count == 0) {
        fail("ends after " + std::to_string(offset) + " of " + std::to_string(size) +
             " bytes: is it truncated?");
      }
      bytes.resize(offset + count);
    }
    return bytes;
  }

  std::string path_;
  std::unique_ptr<gzFile_s, closer> file_;
};

/// Reads the pictures of one file and the labels of the other. Throws an error that names the file.
inline digits read_idx(const std::string& images_path, const std::string& labels_path) {
  digits all;
  idx_file images(images_path);
  const std::vector<std::uint32_t> sizes = images.head(3);
  if (sizes[1] != side || sizes[2] != side) {
    images.fail("its pictures are " + std::to_string(sizes[1]) + " x " + std::to_string(sizes[2]) +
                ", this network takes 28 x 28");
  }
  if (sizes[0] == 0) images.fail("has no pictures");
  all.pixels = images.rest(sizes[0] * std::uint64_t{pixels_per_picture});

  idx_file labels(labels_path);
  const std::uint32_t count = labels.head(1)[0];
  if (count != sizes[0]) {
    labels.fail("has " + std::to_string(count) + " labels for the " + std::to_string(sizes[0]) +
                " pictures of " + images_path);
  }
  all.labels = labels.rest(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (all.labels[i] > 9) {
      labels.fail("label " + std::to_string(i) + " is " + std::to_string(all.labels[i]) +
                  ", no digit");
    }
  }
  return all;
}

}  // namespace mnist

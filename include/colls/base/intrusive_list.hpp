// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// intrusive_list: a doubly linked list whose links lie in its elements.

namespace colls {

/// The links of an element of an `intrusive_list`. An element of several lists has several members
/// of this type.
template <class T>
struct list_links {
  T* next = nullptr;
  T* prev = nullptr;
};

/// A list of elements that exist elsewhere. Their links are the member `Links`. The list allocates
/// nothing. An element must be removed before it is destroyed.
template <class T, list_links<T> T::* Links>
class intrusive_list {
 public:
  intrusive_list() = default;
  intrusive_list(const intrusive_list&) = delete;
  intrusive_list& operator=(const intrusive_list&) = delete;

  bool empty() const { return first_ == nullptr; }
  /// Returns the first element, or null if the list is empty.
  T* front() const { return first_; }
  /// Returns the element that follows `element`, or null if `element` is the last one.
  static T* next(const T& element) { return (element.*Links).next; }

  void push_back(T& element) {
    element.*Links = {nullptr, last_};
    (last_ != nullptr ? (last_->*Links).next : first_) = &element;
    last_ = &element;
  }
  void push_front(T& element) {
    element.*Links = {first_, nullptr};
    (first_ != nullptr ? (first_->*Links).prev : last_) = &element;
    first_ = &element;
  }
  /// Inserts `element` before `position`, or at the end if `position` is null.
  void insert_before(T* position, T& element) {
    if (position == nullptr) return push_back(element);
    T* const before = (position->*Links).prev;
    element.*Links = {position, before};
    (before != nullptr ? (before->*Links).next : first_) = &element;
    (position->*Links).prev = &element;
  }
  void remove(T& element) {
    const list_links<T> links = element.*Links;
    (links.prev != nullptr ? (links.prev->*Links).next : first_) = links.next;
    (links.next != nullptr ? (links.next->*Links).prev : last_) = links.prev;
    element.*Links = {};
  }
  /// Calls `visit(element)` for each element. `visit` may remove this element, but no other.
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (T* element = first_; element != nullptr;) {
      T* const following = next(*element);
      visit(*element);
      element = following;
    }
  }

 private:
  T* first_ = nullptr;
  T* last_ = nullptr;
};

/// Reverses the list that begins with `last` and is linked through the member `Next`, and returns
/// its new first element. Threads push to such a list at its beginning, so it is in the order from
/// the newest element to the oldest.
template <class T, T* T::* Next>
T* reversed(T* last) noexcept {
  T* first = nullptr;
  while (last != nullptr) {
    T* const previous = last->*Next;
    last->*Next = first;
    first = last;
    last = previous;
  }
  return first;
}

}  // namespace colls

#include "halftape/core/machine/free_list.h"

#include <array>
#include <new>

#include "halftape/core/machine/build_flags.h"
#include "halftape/core/machine/per_thread.h"

namespace halftape {
namespace {

constexpr size_t kStep = 64, kLists = 16;  // objects up to 1 KiB
constexpr int kKept = 1024;                // of each size

class Lists {
 public:
  Lists() = default;
  Lists(const Lists&) = delete;
  Lists& operator=(const Lists&) = delete;
  ~Lists() {
    for (List& list : lists_)
      while (void* object = list.take()) ::operator delete(object);
  }
  void* take(size_t list) { return lists_[list].take(); }
  bool keep(size_t list, void* object) { return lists_[list].keep(object); }

 private:
  struct Link {
    Link* next;
  };
  struct List {
    Link* first = nullptr;
    int count = 0;
    void* take() {
      Link* link = first;
      if (link) first = link->next, --count;
      return link;
    }
    bool keep(void* object) {
      if (count == kKept) return false;
      first = new (object) Link{first};
      ++count;
      return true;
    }
  };
  std::array<List, kLists> lists_;
};

/// The list of objects of this size; kLists: none.
size_t list_of(size_t size) {
  return kAddressSanitizer || size > kLists * kStep ? kLists : (size - 1) / kStep;
}

void* fresh(size_t size) {
  try {
    return ::operator new(size);
  } catch (const std::bad_alloc&) {
    if (FreeListed::out_of_memory) FreeListed::out_of_memory(size);
    throw;
  }
}

}  // namespace

void* FreeListed::operator new(size_t size) {
  const size_t list = list_of(size);
  if (list == kLists) return fresh(size);
  Lists* lists = per_thread<Lists>();
  void* object = lists ? lists->take(list) : nullptr;
  return object ? object : fresh((list + 1) * kStep);
}

void FreeListed::operator delete(void* object, size_t size) noexcept {
  const size_t list = list_of(size);
  Lists* lists = list == kLists ? nullptr : per_thread<Lists>();
  if (!lists || !lists->keep(list, object)) ::operator delete(object);
}

}  // namespace halftape

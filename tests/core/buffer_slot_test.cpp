// Parts of a buffer, and slots, which lend them.
#include <doctest/doctest.h>

#include <string>

#include "halftape/core/capture/buffer_slot.h"
#include "halftape/core/contract/backend.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using testing::has;
using testing::message;

namespace {

/// An array of 64 zeros, and its two halves as parts.
struct Two {
  Array all = full({64}, 0, kFloat32, kCPU);
  BufferPtr first = Buffer::part_of(all.buffer(), 0, 128),
            second = Buffer::part_of(all.buffer(), 128, 128);
};

}  // namespace

TEST_CASE("a part has the bytes of the whole, and keeps them alive") {
  const int64_t bytes = Buffer::live_bytes(), buffers = Buffer::live_count();
  BufferPtr part;
  {
    const Array all = full({64}, 7, kFloat32, kCPU);
    part = Buffer::part_of(all.buffer(), 32 * 4, 8 * 4);
    CHECK(part->bytes() == all.data<float>() + 32);
    CHECK(part->size() == 32);
    CHECK(part->whole() == all.buffer().get());
    CHECK(all.buffer()->whole() == nullptr);
    CHECK(part->context() == nullptr);
  }
  CHECK(static_cast<const float*>(part->bytes())[7] == 7);
  CHECK(Buffer::live_bytes() == bytes + 256);  // the part is not counted again
  CHECK(Buffer::live_count() == buffers + 2);
  part = {};
  CHECK(Buffer::live_bytes() == bytes);
  CHECK(Buffer::live_count() == buffers);
}

TEST_CASE("a write to a part raises the whole's version, not the other part's") {
  const Two t;
  t.first->bump_version();
  CHECK(t.first->version() == 1);
  CHECK(t.second->version() == 0);
  CHECK(t.all.version() == 1);
  t.second->bump_version();
  t.second->bump_version();
  CHECK(t.first->version() == 1);
  CHECK(t.second->version() == 2);
  CHECK(t.all.version() == 3);
}

TEST_CASE("a write to the whole raises the version of each part, also of later parts") {
  const Array all = full({64}, 0, kFloat32, kCPU);
  all.bump_version();
  const BufferPtr part = Buffer::part_of(all.buffer(), 0, 4);
  CHECK(all.version() == 1);
  const uint64_t before = part->version();
  all.bump_version();
  CHECK(part->version() == before + 1);
  CHECK(all.version() == 2);
  const BufferPtr later = Buffer::part_of(all.buffer(), 4, 4);
  const uint64_t then = later->version();
  all.bump_version();
  CHECK(later->version() == then + 1);
}

TEST_CASE("a part that is exposed exposes the whole, but no other part") {
  const Two t;
  t.first->expose();
  CHECK(t.first->exposed());
  CHECK_FALSE(t.second->exposed());
  CHECK(t.all.buffer()->exposed());
  const Two u;
  u.all.buffer()->expose();
  CHECK(u.first->exposed());
  CHECK(u.second->exposed());
}

TEST_CASE("a part of a part, and one that reaches outside, are refused") {
  const Two t;
  CHECK(has(message([&] { Buffer::part_of(t.first, 0, 4); }), "a part cannot have parts"));
  CHECK(has(message([&] { Buffer::part_of(t.all.buffer(), 252, 8); }),
            "8 bytes from byte 252 on reach outside of the 256"));
  CHECK_NOTHROW(Buffer::part_of(t.all.buffer(), 256, 0));
}

TEST_CASE("a slot lends its bytes to one holder at a time") {
  const Array all = full({64}, 3, kFloat32, kCPU);
  const Ref<BufferSlot> slot = make_ref<BufferSlot>(all, 32, Shape{2, 5});
  CHECK(slot->free());
  Array a = slot->lend();
  CHECK(a.shape() == Shape{2, 5});
  CHECK(a.raw() == all.data<float>() + 32);
  CHECK(a.unique());
  CHECK(slot->holds(a));
  CHECK_FALSE(slot->free());
  CHECK_FALSE(slot->lend().defined());
  Array other = a.slice(0, 0, 1);
  CHECK_FALSE(a.unique());
  CHECK_FALSE(slot->holds(other));
  a = {};
  CHECK_FALSE(slot->lend().defined());  // a view still has them
  other = {};
  CHECK(slot->free());
  CHECK(slot->lend().defined());
  CHECK(slot->free());
}

TEST_CASE("an array that a slot has lent outlives the slot") {
  Array a;
  {
    BufferSlot* const slot =
        make_ref<BufferSlot>(full({32}, 3, kFloat32, kCPU), 0, Shape{4}).leak();
    a = slot->lend();
    Ref<BufferSlot>::adopt(slot);
  }
  CHECK(a.unique());
  CHECK(a.data<float>()[3] == 3);
}

TEST_CASE("a slot that a graph writes lends nothing until the graph is gone") {
  const Ref<BufferSlot> slot = make_ref<BufferSlot>(full({32}, 0, kFloat32, kCPU), 0, Shape{});
  {
    const BufferPtr graph = slot->buffer();
    graph->hold_for_graph();
    CHECK_FALSE(slot->free());
    CHECK_FALSE(slot->lend().defined());
    graph->release_from_graph();
  }
  CHECK(slot->free());
  CHECK(slot->lend().numel() == 1);
}

#include "halftape/io/file/deflate.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <new>

#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"

#ifndef HALFTAPE_HAVE_ZLIB
#define HALFTAPE_HAVE_ZLIB 0
#endif
#if HALFTAPE_HAVE_ZLIB
#include <zlib.h>
#endif

namespace halftape {

namespace {
// The most bytes that one byte of deflate data can give: zlib.net/zlib_tech.html.
constexpr uint64_t kMaxRatio = 1032, kUsualRatio = 64;
std::atomic<uint64_t> limit{uint64_t{256} << 20};
}  // namespace

void set_unpack_limit(uint64_t bytes) { limit = bytes; }
uint64_t unpack_limit(uint64_t packed) {
  return packed > UINT64_MAX / kUsualRatio ? UINT64_MAX
                                           : std::max<uint64_t>(limit, packed * kUsualRatio);
}

std::string unpacking_refused(uint64_t packed, uint64_t unpacked) {
  const std::string found = "only " + std::to_string(packed) + " bytes of compressed data, which ";
  if (unpacked / kMaxRatio > packed) return found + "cannot hold them";
  if (unpacked <= unpack_limit(packed)) return {};
  return found + "may unpack to " + std::to_string(unpack_limit(packed)) +
         "; if you trust the file, call set_unpack_limit(" + std::to_string(unpacked) + ")";
}

bool can_inflate() { return HALFTAPE_HAVE_ZLIB != 0; }

#if HALFTAPE_HAVE_ZLIB
namespace {
constexpr size_t kMost = std::numeric_limits<uInt>::max();       // that zlib takes at once
constexpr size_t kOfDeflate = 256 << 10, kOfInflate = 40 << 10;  // bytes that zlib asks for

/// zlib's pointers are not const, but it does not write there.
Bytef* input(std::string_view bytes) {
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}
}  // namespace

std::string deflated(std::string_view bytes) {
  z_stream z{};
  if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    out_of_memory(kOfDeflate);
  const std::unique_ptr<z_stream, decltype(&deflateEnd)> end(&z, &deflateEnd);
  std::string out;
  char chunk[1 << 14];
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (z.avail_in == 0) {
      const std::string_view next = bytes.substr(0, kMost);
      z.next_in = input(next);
      z.avail_in = static_cast<uInt>(next.size());
      bytes.remove_prefix(next.size());
    }
    z.next_out = reinterpret_cast<Bytef*>(chunk);
    z.avail_out = sizeof(chunk);
    status = deflate(&z, bytes.empty() ? Z_FINISH : Z_NO_FLUSH);
    out.append(chunk, sizeof(chunk) - z.avail_out);
  }
  return out;
}

namespace {
/// Goes on until out has `size` bytes, the data are at their end, or zlib's status is not Z_OK.
int inflate_on(z_stream& z, std::string_view data, size_t& taken, void* out, size_t size,
               size_t& have) {
  int status = Z_OK;
  while (status == Z_OK && have < size && taken < data.size()) {
    z.next_in = input(data.substr(taken));
    z.next_out = static_cast<Bytef*>(out) + have;
    const uInt in = z.avail_in = static_cast<uInt>(std::min(data.size() - taken, kMost));
    const uInt room = z.avail_out = static_cast<uInt>(std::min(size - have, kMost));
    status = inflate(&z, Z_NO_FLUSH);
    taken += in - z.avail_in;
    have += room - z.avail_out;
  }
  if (status == Z_MEM_ERROR) out_of_memory(kOfInflate);
  return status;
}

/// `window`: -15 for raw data, 15 + 16 for gzip.
class Inflater : public z_stream {
 public:
  explicit Inflater(int window) : z_stream{} {
    if (inflateInit2(this, window) != Z_OK) out_of_memory(kOfInflate);
  }
  ~Inflater() { inflateEnd(this); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};
}  // namespace

bool inflate_into(void* out, size_t n, std::string_view data) {
  Inflater z(-15);
  size_t taken = 0, have = 0, more = 0;
  char beyond;  // one byte more than there should be
  int status = inflate_on(z, data, taken, out, n, have);
  if (status == Z_OK) status = inflate_on(z, data, taken, &beyond, 1, more);
  return status == Z_STREAM_END && have == n && more == 0 && taken == data.size();
}

std::string gunzip(std::string_view data, size_t most, const InputFile& file) {
  constexpr const char* kFetchAgain = "; fetch or copy the file again";
  Inflater z(15 + 16);
  std::string out = host_string(most);
  size_t have = 0, taken = 0;
  bool member_done = false;
  while (have < most) {
    if (taken == data.size() && member_done) break;
    if (taken == data.size())
      file.fail("expected the end of the gzip data, found the end of the file after ", taken,
                " bytes: it is truncated", kFetchAgain);
    if (member_done) {
      if (data[taken] != 0x1f)
        file.fail("expected the end of the file after the gzip data, found other bytes",
                  kFetchAgain);
      inflateReset(&z);
    }
    const int status = inflate_on(z, data, taken, out.data(), most, have);  // checks CRC and length
    member_done = status == Z_STREAM_END;
    if (status != Z_OK && !member_done)
      file.fail("expected sound gzip data, found damage before byte ", taken,
                " (zlib: ", z.msg ? z.msg : "dictionary needed", ")", kFetchAgain);
  }
  out.resize(have);
  return out;
}

#else

std::string gunzip(std::string_view, size_t, const InputFile& file) {
  file.fail(
      "expected plain data, found gzip data, which this build cannot read; run gunzip on the ",
      "file, or rebuild with zlib");
}

std::string deflated(std::string_view bytes) {
  std::string out;
  do {
    const std::string_view block = bytes.substr(0, 0xffff);
    bytes.remove_prefix(block.size());
    out += static_cast<char>(bytes.empty());  // 1: this is the last block
    out += little_endian(block.size(), 2) + little_endian(~block.size(), 2);
    out += block;
  } while (!bytes.empty());
  return out;
}

bool inflate_into(void*, size_t, std::string_view) { return false; }

#endif

}  // namespace halftape

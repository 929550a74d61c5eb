// Compressed bytes (RFC 1951), for zip, PNG and gzip.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "halftape/io/file/file.h"

namespace halftape {

/// The one rule for what compressed data may unpack to: 64 times their size, or this many bytes if
/// that is more, 256 MiB by default. Larger files, such as a gigabyte of zeros, need another limit.
void set_unpack_limit(uint64_t bytes);
/// What a file of `packed` bytes may unpack to by that rule.
uint64_t unpack_limit(uint64_t packed);
/// Why deflate data of `packed` bytes must not be unpacked to `unpacked` bytes; empty if they may.
std::string unpacking_refused(uint64_t packed, uint64_t unpacked);

/// Raw deflate, without header and check sum. In a build without zlib the bytes are stored.
std::string deflated(std::string_view bytes);
/// Fills `out` from raw deflate data. False when the data are damaged, end too early, give other
/// than n bytes or go on after them; and in a build without zlib (see can_inflate()).
bool inflate_into(void* out, size_t n, std::string_view data);
/// Whether the library was built with zlib.
bool can_inflate();
/// The first `most` bytes of what the gzip data of `file` (RFC 1952), in one or several members,
/// unpack to; fewer only at their sound end. Throws FileError for damage, and in a build without
/// zlib.
std::string gunzip(std::string_view data, size_t most, const InputFile& file);

}  // namespace halftape

// PKWARE's APPNOTE.TXT, sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (its
// end), 4.5.3 (ZIP64).
#include "halftape/io/file/zip.h"

#include <algorithm>
#include <set>

#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/crc.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/file/json.h"

namespace halftape {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50, kLocator = 0x07064b50;
constexpr size_t kLocalSize = 30, kCentralSize = 46, kEndSize = 22;
constexpr size_t kEnd64Size = 56, kLocatorSize = 20;
constexpr uint64_t kIn64 = 0xffffffff;  // the number is in the field of ZIP64
constexpr uint16_t kExtra64 = 1;        // ZIP64's field, with numbers of eight bytes
constexpr uint16_t kPadding = 0x4246;   // a field that PyTorch fills up with, too
constexpr uint16_t kUtf8 = 1 << 11;     // flag: the name is UTF-8
constexpr uint16_t kEncrypted = 1;      // flag
constexpr uint16_t kStored = 0, kDeflated = 8;

uint64_t eight(std::string_view bytes, size_t at) {
  return from_little_endian(bytes.substr(at, 8));
}
uint32_t four(std::string_view bytes, size_t at) {
  return static_cast<uint32_t>(from_little_endian(bytes.substr(at, 4)));
}
uint16_t two(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(from_little_endian(bytes.substr(at, 2)));
}

std::string two(uint64_t value) { return little_endian(value, 2); }
std::string four(uint64_t value) { return little_endian(value, 4); }
std::string eight(uint64_t value) { return little_endian(value, 8); }

bool is_large(const ZipMember& m) { return std::max(m.packed, m.size) >= kIn64; }
std::string field64(const std::string& numbers) {
  return numbers.empty() ? "" : two(kExtra64) + two(numbers.size()) + numbers;
}
/// The fields that a local header and the directory share. The date is the first one of the format,
/// so that equal tensors make equal files.
std::string common(const ZipMember& m, size_t extra) {
  const bool large = is_large(m);
  return two(large ? 45 : 20) + two(kUtf8) + two(m.deflated ? kDeflated : kStored) + two(0) +
         two(0x21) + four(m.crc) + four(large ? kIn64 : m.packed) + four(large ? kIn64 : m.size) +
         two(m.name.size()) + two(extra);
}

std::string read(InputFile& file, uint64_t at, size_t n, const char* what) {
  std::string bytes = host_string(n);
  file.read_at(at, bytes.data(), n, what);
  return bytes;
}

/// The directory's position, bytes and number of members.
struct Directory {
  uint64_t offset, size, count;
};

/// What ZIP64's records before the end record at byte `end` say, where there are such; `end` is
/// then where they begin.
void read_end64(InputFile& file, Directory& d, uint64_t& end) {
  if (end < kLocatorSize + kEnd64Size) return;
  const uint64_t at = end - kLocatorSize - kEnd64Size;
  const std::string records = read(file, at, kEnd64Size + kLocatorSize, "the end");
  if (four(records, kEnd64Size) != kLocator) return;
  const Directory wide{eight(records, 48), eight(records, 40), eight(records, 32)};
  const auto agree = [](uint64_t narrow, uint64_t number, uint64_t none) {
    return narrow == number || narrow == none;
  };
  if (four(records, 0) != kEnd64 || eight(records, 4) != kEnd64Size - 12 ||
      eight(records, kEnd64Size + 8) != at || four(records, kEnd64Size + 4) != 0 ||
      four(records, kEnd64Size + 16) != 1 || four(records, 16) != 0 || four(records, 20) != 0 ||
      eight(records, 24) != wide.count || !agree(d.offset, wide.offset, kIn64) ||
      !agree(d.size, wide.size, kIn64) || !agree(d.count, wide.count, 0xffff))
    file.fail("expected ZIP64's end record at byte ", at, ", agreeing with the one after it");
  d = wide;
  end = at;
}

Directory find_directory(InputFile& file) {
  if (file.size() < kEndSize)
    file.fail("expected a zip archive, found only ", file.size(), " bytes");
  const auto tail_size = static_cast<size_t>(std::min<uint64_t>(file.size(), kEndSize + 0xffff));
  const std::string tail = read(file, file.size() - tail_size, tail_size, "the end");
  // A comment follows the end record; its length must reach the end of the file.
  size_t at = tail_size - kEndSize + 1;
  do {
    if (at == 0)
      file.fail("expected a zip archive's directory at its end, found none: this is no .npz or ",
                ".pt file, or it is truncated");
    --at;
  } while (four(tail, at) != kEnd || at + kEndSize + two(tail, at + 20) != tail_size);
  Directory d{four(tail, at + 16), four(tail, at + 12), two(tail, at + 10)};
  if (two(tail, at + 4) != 0 || two(tail, at + 6) != 0 || two(tail, at + 8) != d.count)
    file.fail("expected an archive in one piece");
  uint64_t end = file.size() - tail_size + at;
  read_end64(file, d, end);
  if (d.size > end || d.offset != end - d.size)
    file.fail("expected the directory of ", d.size, " bytes to end at byte ", end,
              ", found that it begins at ", d.offset);
  return d;
}

/// Replaces the numbers that stand in ZIP64's field of a member's extra fields.
void read_extra64(const InputFile& file, std::string_view extra, ZipMember& m) {
  for (size_t at = 0; at + 4 <= extra.size(); at += 4 + two(extra, at + 2)) {
    std::string_view field = extra.substr(at + 4, two(extra, at + 2));
    if (two(extra, at) != kExtra64) continue;
    for (uint64_t* number : {&m.size, &m.packed, &m.offset}) {
      if (*number != kIn64 || field.size() < 8) continue;
      *number = eight(field, 0);
      field.remove_prefix(8);
    }
    break;
  }
  if (m.packed > file.size() || m.offset > file.size())
    file.fail("member ", json_quoted(m.name), ": expected fewer than the file's ", file.size(),
              " bytes, found ", m.packed, " from byte ", m.offset, " on");
}

/// Turns the offset of the local header into that of the data, whose end check_cover() looks at.
void find_data(InputFile& file, ZipMember& m, uint64_t end) {
  if (m.offset + kLocalSize > end)
    file.fail("member ", json_quoted(m.name), ": its offset ", m.offset, " is none");
  const std::string local = read(file, m.offset, kLocalSize, "a local header");
  const size_t name_size = two(local, 26), extra = two(local, 28);
  if (four(local, 0) != kLocal || name_size != m.name.size() ||
      read(file, m.offset + kLocalSize, name_size, "a name") != m.name ||
      two(local, 8) != (m.deflated ? kDeflated : kStored))
    file.fail("member ", json_quoted(m.name), ": what stands at byte ", m.offset,
              " does not agree with the directory");
  m.offset += kLocalSize + name_size + extra;
}

/// Throws unless each member begins where the one before it ends, or up to 24 bytes later, for a
/// data descriptor: no bytes are hidden, and none belong to two members.
void check_cover(const InputFile& file, std::vector<std::pair<uint64_t, uint64_t>> spans,
                 uint64_t end) {
  spans.emplace_back(end, end);
  std::sort(spans.begin(), spans.end());
  uint64_t covered = 0;
  for (const auto& [begin, stop] : spans) {
    if (begin < covered || begin - covered > 24)
      file.fail("expected the next member at byte ", covered, ", found it at byte ", begin,
                begin < covered ? ": they overlap" : ": a gap lies between them");
    covered = stop;
  }
}

}  // namespace

std::vector<ZipMember> zip_members(InputFile& file) {
  const Directory where = find_directory(file);
  const std::string directory = read(file, where.offset, where.size, "the directory");
  std::vector<ZipMember> members;
  std::vector<std::pair<uint64_t, uint64_t>> spans;
  std::set<std::string> names;
  size_t at = 0;
  uint64_t packed = 0, unpacked = 0;  // of all deflated members so far
  for (uint64_t i = 0; i < where.count; ++i) {
    if (directory.size() - at < kCentralSize || four(directory, at) != kCentral)
      file.fail("the directory: expected member ", i, " of ", where.count, " at its byte ", at);
    ZipMember m;
    const uint16_t flags = two(directory, at + 8), method = two(directory, at + 10);
    m.crc = four(directory, at + 16);
    m.packed = four(directory, at + 20);
    m.size = four(directory, at + 24);
    m.offset = four(directory, at + 42);
    const size_t name_size = two(directory, at + 28);
    const size_t total =
        kCentralSize + name_size + two(directory, at + 30) + two(directory, at + 32);
    if (directory.size() - at < total) file.fail("the directory: expected more of member ", i);
    m.name = directory.substr(at + kCentralSize, name_size);
    const size_t extra = at + kCentralSize + name_size;
    read_extra64(file, std::string_view(directory).substr(extra, two(directory, at + 30)), m);
    at += total;
    const std::string name = "member " + json_quoted(m.name) + ": ";
    if (!names.insert(m.name).second) file.fail(name, "expected each name once, found it twice");
    if (flags & kEncrypted) file.fail(name, "expected it unencrypted");
    if (method != kStored && method != kDeflated)
      file.fail(name, "expected it stored (0) or deflated (8), found method ", method);
    m.deflated = method == kDeflated;
    if (!m.deflated && m.packed != m.size)
      file.fail(name, "expected ", m.size, " stored bytes, found ", m.packed);
    if (m.deflated) {
      if (__builtin_add_overflow(unpacked, m.size, &unpacked)) unpacked = UINT64_MAX;
      const std::string why = unpacking_refused(packed += m.packed, unpacked);
      if (!why.empty())
        file.fail(name, "expected ", unpacked, " bytes after unpacking it and those before it, ",
                  "found ", why);
    }
    const uint64_t begin = m.offset;
    find_data(file, m, where.offset);
    spans.emplace_back(begin, m.offset + m.packed);
    members.push_back(std::move(m));
  }
  if (at != directory.size()) file.fail("the directory: expected its end after the last member");
  check_cover(file, std::move(spans), where.offset);
  return members;
}

void zip_read(InputFile& file, const ZipMember& m, void* out) {
  if (m.deflated) {
    if (!can_inflate())
      file.fail("member ", json_quoted(m.name), ": expected it stored, found it deflated, which ",
                "this build cannot read; rebuild with zlib");
    if (!inflate_into(out, m.size, read(file, m.offset, m.packed, m.name.c_str())))
      file.fail("member ", json_quoted(m.name), ": expected ", m.size,
                " bytes of sound deflate data, found damage");
  } else {
    file.read_at(m.offset, out, m.size, m.name.c_str());
  }
  if (crc32(out, m.size) != m.crc)
    file.fail("member ", json_quoted(m.name), ": its CRC-32 does not fit: the file is damaged");
}

std::string zip_read(InputFile& file, const ZipMember& m) {
  std::string bytes = host_string(m.size);
  zip_read(file, m, bytes.data());
  return bytes;
}

void ZipWriter::add(const std::string& name, std::string_view bytes, bool deflate,
                    size_t alignment) {
  HALFTAPE_CHECK(name.size() < 0xffff, "zip: a name of ", name.size(),
                 " bytes is too long for the format, which allows 65534");
  const std::string small =
      on_host(bytes.size(), [&] { return deflate ? deflated(bytes) : std::string(); });
  const std::string_view data = deflate ? std::string_view(small) : bytes;
  ZipMember m{name,        deflate,      crc32(bytes.data(), bytes.size()),
              data.size(), bytes.size(), file_.size()};
  std::string extra = is_large(m) ? field64(eight(m.size) + eight(m.packed)) : "";
  if (const uint64_t beyond = (m.offset + kLocalSize + name.size() + extra.size()) % alignment) {
    const size_t padding = (2 * alignment - beyond - 4) % alignment;  // behind the field's head
    extra += two(kPadding) + two(padding) + std::string(padding, '\0');
  }
  const std::string header = four(kLocal) + common(m, extra.size()) + name + extra;
  file_.write(header.data(), header.size());
  file_.write(data.data(), data.size());
  members_.push_back(std::move(m));
}

void ZipWriter::finish() {
  const uint64_t offset = file_.size();
  for (const ZipMember& m : members_) {
    const bool far = m.offset >= kIn64;
    const std::string extra = field64((is_large(m) ? eight(m.size) + eight(m.packed) : "") +
                                      (far ? eight(m.offset) : ""));
    // Made on Unix (3), a regular file of mode 0644.
    const std::string entry = four(kCentral) + two(3 << 8 | 45) + common(m, extra.size()) + two(0) +
                              two(0) + two(0) + four(uint64_t{0100644} << 16) +
                              four(far ? kIn64 : m.offset) + m.name + extra;
    file_.write(entry.data(), entry.size());
  }
  const uint64_t end = file_.size(), size = end - offset, count = members_.size();
  std::string records;
  if (std::max(size, offset) >= kIn64 || count >= 0xffff)
    records = four(kEnd64) + eight(kEnd64Size - 12) + two(3 << 8 | 45) + two(45) + four(0) +
              four(0) + eight(count) + eight(count) + eight(size) + eight(offset) + four(kLocator) +
              four(0) + eight(end) + four(1);
  const uint64_t few = std::min<uint64_t>(count, 0xffff);
  records += four(kEnd) + two(0) + two(0) + two(few) + two(few) + four(std::min(size, kIn64)) +
             four(std::min(offset, kIn64)) + two(0);
  file_.write(records.data(), records.size());
}

}  // namespace halftape

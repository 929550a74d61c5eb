// Not a JSON library: the form is fixed and three levels deep, so the reader needs no recursion,
// and everything a library tolerates (duplicate keys, floats, -0, a byte-order mark, any depth)
// would have to be refused again.
#include "halftape/io/formats/safetensors_header.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "halftape/io/file/json.h"
#include "halftape/io/formats/tensor_bytes.h"

namespace halftape::safetensors {
namespace {

constexpr std::string_view kMetadata = "__metadata__";

struct DtypeName {
  Dtype dtype;
  std::string_view name;
};
constexpr DtypeName kDtypes[] = {
    {kBool, "BOOL"}, {kUInt8, "U8"},    {kInt8, "I8"},       {kInt16, "I16"},   {kInt32, "I32"},
    {kInt64, "I64"}, {kFloat16, "F16"}, {kBFloat16, "BF16"}, {kFloat32, "F32"}, {kFloat64, "F64"}};

std::string shown(std::string_view name) {
  constexpr size_t most = 60;
  return name.size() <= most ? json_quoted(name) : json_quoted(name.substr(0, most)) + "…";
}

class Reader {
 public:
  Reader(std::string_view text, const InputFile& file) : text_(text), file_(file) {}

  Header read() {
    Header header;
    bool has_metadata = false;
    if (text_.empty() || text_[0] != '{') fail("expected '{' as its first byte, found ", found());
    members("the name of a tensor", name_, [&] {
      if (name_ == kMetadata) {
        if (std::exchange(has_metadata, true)) fail("is there twice");
        read_metadata(header.metadata);
        return;
      }
      if (name_->empty() || name_->size() > kMaxName)
        fail("expected a name of 1 to ", kMaxName, " bytes, found ", name_->size());
      if (name_->find('\0') != std::string::npos) fail("expected a name without the character 0");
      header.entries.push_back(read_entry());
      header.entries.back().name = *std::move(name_);
    });
    if (at_ < text_.size()) fail("expected the end, found ", found());
    return header;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    std::string where;
    if (name_) where = (name_ == kMetadata ? "" : "tensor ") + shown(*name_);
    if (field_) where += ", " + shown(*field_);
    file_.fail("header, byte ", at_, ": ", where, name_ ? ": " : "", parts...);
  }
  std::string found() const {
    return at_ < text_.size() ? json_quoted(text_.substr(at_, 1)) : "the end of the header";
  }
  void skip_space() {
    while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != text_.npos) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c, std::string_view what) {
    if (!take(c)) fail("expected ", what, " ('", c, "'), found ", found());
  }

  /// Calls f(), which reads the value, for each member of an object, with the key in `key`.
  template <class F>
  void members(const char* what, std::optional<std::string>& key, F f) {
    expect('{', "an object");
    if (!take('}')) {
      do {
        std::string found = string(what);
        expect(':', "a colon");
        key = std::move(found);
        f();
        key.reset();
      } while (take(','));
      expect('}', "a comma or the end of the object");
    }
    skip_space();
  }
  template <class F>
  void elements(F f) {
    expect('[', "a list");
    if (take(']')) return;
    do f();
    while (take(','));
    expect(']', "a comma or the end of the list");
  }

  uint32_t hex4() {
    uint32_t value = 0;
    const std::string_view four = text_.substr(at_, 4);
    const char* const end = std::from_chars(four.data(), four.data() + four.size(), value, 16).ptr;
    at_ += static_cast<size_t>(end - four.data());
    if (end != four.data() + 4) fail("expected four hexadecimal digits, found ", found());
    return value;
  }
  void escape(std::string& out) {
    constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
    const size_t simple = at_ < text_.size() ? letters.find(text_[at_]) : letters.npos;
    if (simple != letters.npos) {
      out += meanings[simple];
      ++at_;
      return;
    }
    if (at_ == text_.size() || text_[at_] != 'u') fail("expected an escape, found ", found());
    ++at_;
    uint32_t c = hex4();
    if (c >= 0xd800 && c < 0xdc00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const uint32_t low = hex4();
      if (low < 0xdc00 || low > 0xdfff) fail("expected the second half of a surrogate pair");
      c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
    } else if (c >= 0xd800 && c <= 0xdfff) {
      fail("expected a surrogate pair, found one half of it");
    }
    const auto byte = [&](uint32_t b) { out += static_cast<char>(b); };
    if (c < 0x80) return byte(c);
    const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;  // bytes after the first
    byte((0xff00u >> (more + 1) & 0xff) | c >> 6 * more);
    for (int i = more; i-- > 0;) byte(0x80 | (c >> 6 * i & 63));
  }
  std::string string(std::string_view what) {
    expect('"', what);
    const size_t start = at_;
    std::string out;
    for (;;) {
      if (at_ == text_.size()) fail("expected the end of a string, found the end of the header");
      const char c = text_[at_];
      if (static_cast<uint8_t>(c) < 0x20) fail("expected no control character in a string");
      ++at_;
      if (c == '"') break;
      if (c == '\\')
        escape(out);
      else
        out += c;
    }
    if (!is_utf8(out)) {
      at_ = start;
      fail("expected UTF-8, found other bytes in the string that begins here");
    }
    return out;
  }

  int64_t whole_number() {
    skip_space();
    int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    const std::string_view digits(begin, static_cast<size_t>(end - begin));
    const bool leading_zero = digits.size() > 1 && digits[0] == '0';
    if (digits.empty() || digits[0] == '-' || leading_zero)
      fail("expected a whole number from 0 on, found ", leading_zero ? "a leading 0" : found());
    if (error != std::errc()) fail("expected a number below 2^63, found ", digits.substr(0, 24));
    at_ += digits.size();
    return value;
  }

  void read_metadata(std::map<std::string, std::string>& metadata) {
    members("a key", field_, [&] {
      if (!metadata.emplace(*field_, string("a string")).second) fail("is there twice");
    });
  }

  /// Without its name.
  Entry read_entry() {
    constexpr std::string_view kFields[] = {"dtype", "shape", "data_offsets"};
    Entry entry;
    bool has[std::size(kFields)] = {};
    members("a field", field_, [&] {
      const auto* const field = std::find(std::begin(kFields), std::end(kFields), *field_);
      if (field == std::end(kFields))
        fail("expected one of \"dtype\", \"shape\", \"data_offsets\"");
      if (std::exchange(has[field - kFields], true)) fail("is there twice");
      if (field == &kFields[0])
        entry.dtype = read_dtype();
      else if (field == &kFields[1])
        elements([&] {
          if (entry.shape.size() == kMaxDims) fail("expected at most ", kMaxDims, " dimensions");
          entry.shape.push_back(whole_number());
        });
      else
        read_offsets(entry);
    });
    for (const auto& field : kFields)
      if (!has[&field - kFields]) fail("expected the field \"", field, "\", found none");
    check_bytes(entry);
    return entry;
  }
  Dtype read_dtype() {
    const std::string found = string("a string");
    const auto* known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                     [&](const DtypeName& d) { return d.name == found; });
    if (known == std::end(kDtypes))
      fail("expected one of BOOL, U8, I32, I64, F16, BF16, F32, F64, found ", shown(found));
    return known->dtype;
  }
  void read_offsets(Entry& entry) {
    size_t n = 0;
    elements([&] {
      const auto offset = static_cast<uint64_t>(whole_number());
      if (n++ < 2) (n == 1 ? entry.begin : entry.end) = offset;
    });
    if (n != 2) fail("expected two numbers, found ", n);
  }

  void check_bytes(const Entry& entry) const {
    const std::optional<uint64_t> bytes = byte_count(entry.dtype, entry.shape);
    if (!bytes) fail("expected fewer than 2^63 bytes, found the shape ", entry.shape);
    if (entry.begin > entry.end || entry.end - entry.begin != *bytes)
      fail("expected data_offsets ", *bytes, " bytes apart, as ", name(entry.dtype), " of shape ",
           entry.shape, " takes, found [", entry.begin, ", ", entry.end, "]");
  }

  std::string_view text_;
  const InputFile& file_;
  size_t at_ = 0;
  std::optional<std::string> name_, field_;  // what is being read
};

void check_names(const Header& header, const InputFile& file) {
  std::vector<std::string_view> names;
  for (const Entry& e : header.entries) names.push_back(e.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end())
    file.fail("header: tensor ", shown(*twice), ": expected each name once, found it twice");
}

void check_cover(const Header& header, uint64_t data_size, const InputFile& file) {
  uint64_t covered = 0;
  for (const size_t i : by_offset(header.entries)) {
    const Entry& e = header.entries[i];
    if (e.begin != covered)
      file.fail("header: tensor ", shown(e.name), ": expected its data at byte ", covered,
                ", where the tensor before it ends, found byte ", e.begin,
                e.begin < covered ? ": they overlap" : ": a gap lies between them");
    covered = e.end;
  }
  if (covered != data_size)
    file.fail("expected ", covered, " bytes of data, as the header says, found ", data_size,
              covered > data_size ? ": the file is truncated" : ": bytes follow the data");
}

}  // namespace

std::vector<size_t> by_offset(const std::vector<Entry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(entries[a].begin, entries[a].end) <
           std::pair(entries[b].begin, entries[b].end);
  });
  return order;
}

Header parse_header(std::string_view text, uint64_t data_size, const InputFile& file) {
  Header header = Reader(text, file).read();
  check_names(header, file);
  check_cover(header, data_size, file);
  return header;
}

std::string header_text(const Header& header) {
  std::string out = "{";
  const auto comma = [&] {
    if (out.back() != '{') out += ',';
  };
  if (!header.metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      comma();
      out += json_quoted_exactly(key, "safetensors: the metadata key") + ':' +
             json_quoted_exactly(value, "safetensors: the metadata value");
    }
    out += '}';
  }
  for (const Entry& e : header.entries) {
    comma();
    out += json_quoted_exactly(e.name, "safetensors: the name") + ":{\"dtype\":\"";
    out += std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& d) {
             return d.dtype == e.dtype;
           })->name;
    out += "\",\"shape\":[";
    for (int i = 0; i < e.shape.size(); ++i) out += (i ? "," : "") + std::to_string(e.shape[i]);
    out += "],\"data_offsets\":[" + std::to_string(e.begin) + ',' + std::to_string(e.end) + "]}";
  }
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

}  // namespace halftape::safetensors

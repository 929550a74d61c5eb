#include "halftape/io/formats/pt.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "halftape/autograd/tape/grad_mode.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/deflate.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/json.h"
#include "halftape/io/file/zip.h"
#include "halftape/io/formats/pt_source.h"
#include "halftape/io/formats/tensor_bytes.h"

namespace halftape::pt {
namespace {

using pickle::Id, pickle::Kind, pickle::Value;

constexpr size_t kMaxName = 4096;  // bytes
constexpr int kMaxDepth = 100;
constexpr uint64_t kItemBytes = 64;     // of memory that a name takes at least,
constexpr uint64_t kTensorBytes = 600;  // and a tensor beside its storage

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && is_utf8(name) && name.find('\0') == name.npos;
}

/// A tensor as the pickle describes it.
struct Entry {
  std::string name;
  const Storage* storage = nullptr;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
};

/// Follows dicts and lists to the tensors, and checks these against their storages.
class Walk {
 public:
  Walk(const Source& source, const InputFile& file, const std::string& key)
      : source_(source), file_(file), key_(key) {}

  std::vector<Entry> entries;
  Metadata metadata;
  std::string tops;  // names at the top, for the message that there is no such key

  void visit(Id id, const std::string& name, int depth) {
    claim(kItemBytes + name.size());  // of names that lead nowhere, too
    if (!leads_to_key(name)) return;
    const Value& value = source_.pickle[id];
    claim(value.text.size());
    if (depth > kMaxDepth)
      file_.fail("expected dicts and lists at most ", kMaxDepth, " deep in each other, found ",
                 json_quoted(name.substr(0, 60)), "…");
    const auto below = [&](Id item, const std::string& part) {
      if (depth == 0 && tops.size() < 400)
        tops += (tops.empty() ? "" : ", ") + json_quoted(part.substr(0, 60));
      visit(item, name.empty() ? part : name + '.' + part, depth + 1);
    };
    if (value.kind == Kind::Dict) {
      for (size_t i = 0; i < value.items.size(); i += 2)
        below(value.items[i + 1], key_text(value.items[i], name));
    } else if (value.kind == Kind::List || value.kind == Kind::Tuple) {
      for (size_t i = 0; i < value.items.size(); ++i) below(value.items[i], std::to_string(i));
    } else if (const std::optional<std::string> wanted = wanted_name(name)) {
      if (value.kind == Kind::Call && value.text.starts_with("torch._utils._rebuild"))
        add_tensor(value, *wanted);
      else if (!metadata.emplace(*wanted, text_of(value)).second)
        file_.fail(json_quoted(wanted->substr(0, 60)), ": expected each name once, found it twice");
    }
  }

 private:
  /// What the file asks for in names may be as much as a deflated file may unpack to.
  void claim(uint64_t bytes) {
    if (__builtin_add_overflow(claimed_, bytes, &claimed_)) claimed_ = UINT64_MAX;
    const std::string why = unpacking_refused(file_.size(), claimed_);
    if (!why.empty())
      file_.fail("expected names and tensors of as many bytes as such a file may hold, found ",
                 why);
  }

  /// False for what neither lies below the key nor has it below.
  bool leads_to_key(const std::string& name) const {
    const auto& [shorter, longer] =
        std::minmax(name, key_, [](const auto& a, const auto& b) { return a.size() < b.size(); });
    return shorter.empty() || name == key_ || longer.starts_with(shorter + '.');
  }
  /// Without the key and the dot behind it; nothing for names that are not below the key.
  std::optional<std::string> wanted_name(const std::string& name) const {
    if (key_.empty() || name == key_) return name.empty() || name == key_ ? "tensor" : name;
    if (!name.starts_with(key_) || name[key_.size()] != '.') return {};
    return name.substr(key_.size() + 1);
  }
  std::string key_text(Id id, const std::string& name) const {
    const Value& key = source_.pickle[id];
    if (key.kind == Kind::Int) return std::to_string(key.integer);
    if (key.kind != Kind::Text)
      file_.fail("dict ", json_quoted(name), ": expected keys that are text or integers, found ",
                 pickle::name(key.kind));
    return std::string(key.text);
  }
  static std::string text_of(const Value& value) {
    switch (value.kind) {
      case Kind::Bool:
        return value.integer ? "True" : "False";
      case Kind::Int:
        return std::to_string(value.integer);
      case Kind::Float:
        return halftape::text_of(value.real);
      case Kind::Bytes:
      case Kind::Persistent:
      case Kind::None:
        return std::string(pickle::name(value.kind));
      default:
        return std::string(value.text);
    }
  }

  template <class... Parts>
  [[noreturn]] void fail(const std::string& name, const Parts&... parts) const {
    file_.fail("tensor ", json_quoted(name.substr(0, 60)), ": ", parts...);
  }
  int64_t whole_number(Id id, const std::string& name) const {
    const Value& value = source_.pickle[id];
    if (value.kind != Kind::Int || value.integer < 0)
      fail(name, "expected sizes, strides and an offset from 0 on, found ",
           value.kind == Kind::Int ? std::to_string(value.integer)
                                   : std::string(pickle::name(value.kind)));
    return value.integer;
  }
  Dims dims_of(Id id, const std::string& name) const {
    const Value* list = &source_.pickle[id];
    if (list->kind == Kind::Call && list->text == "torch.Size") {
      list = &source_.pickle[list->items[0]];
      if (list->items.size() == 1) list = &source_.pickle[list->items[0]];
    }
    if (list->kind != Kind::Tuple && list->kind != Kind::List)
      fail(name, "expected sizes and strides as tuples, found ", pickle::name(list->kind));
    if (list->items.size() > static_cast<size_t>(kMaxDims))
      fail(name, "expected at most ", kMaxDims, " dimensions, found ", list->items.size());
    Dims dims;
    for (const Id item : list->items) dims.push_back(whole_number(item, name));
    return dims;
  }

  /// _rebuild_tensor_v2(storage, offset, size, stride, …) and _rebuild_parameter(tensor, …).
  void add_tensor(const Value& call, const std::string& name) {
    const std::vector<Id>& given = source_.pickle[call.items[0]].items;
    if (call.text.starts_with("torch._utils._rebuild_parameter")) {
      if (given.empty() || source_.pickle[given[0]].kind != Kind::Call ||
          !source_.pickle[given[0]].text.starts_with("torch._utils._rebuild_tensor"))
        fail(name, "expected a parameter's tensor, found none");
      add_tensor(source_.pickle[given[0]], name);
      return;
    }
    if (given.size() < 4 || source_.pickle[given[0]].kind != Kind::Persistent)
      fail(name, "expected a storage, an offset, sizes and strides");
    if (given.size() > 6 && !source_.pickle[given[6]].items.empty())
      fail(name,
           "expected plain numbers, found a conjugated or negated view; in Python save "
           "x.resolve_conj().resolve_neg()");
    if (!is_name(name)) fail(name, "expected a name of 1 to ", kMaxName, " bytes of UTF-8");
    Entry e{name, &source_.storage(source_.pickle[given[0]]), dims_of(given[2], name),
            dims_of(given[3], name), whole_number(given[1], name)};
    check_inside(e);
    claim(kTensorBytes);
    entries.push_back(std::move(e));
  }
  void check_inside(Entry& e) {
    if (e.shape.size() != e.strides.size())
      fail(e.name, "expected a stride for each size, found ", e.shape, " and ", e.strides);
    const std::optional<uint64_t> bytes = byte_count(e.storage->dtype, e.shape);
    if (!bytes) fail(e.name, "expected fewer than 2^63 bytes, found the shape ", e.shape);
    if (__builtin_add_overflow(viewed_, *bytes, &viewed_)) viewed_ = UINT64_MAX;
    if (const uint64_t most = unpack_limit(file_.size()); viewed_ > most)
      fail(e.name, "expected tensors of as many bytes as such a file may hold, ", most, ", found ",
           viewed_, ", as views that share elements; if you trust the file, call ",
           "set_unpack_limit(", viewed_, ") or more");
    if (*bytes == 0) {
      e.strides = contiguous_strides(e.shape);
      e.offset = 0;
      return;
    }
    int64_t last = e.offset;
    bool overflow = false;
    for (int i = 0; i < e.shape.size(); ++i) {
      int64_t reach = 0;
      overflow |= __builtin_mul_overflow(e.shape[i] - 1, e.strides[i], &reach);
      overflow |= __builtin_add_overflow(last, reach, &last);
    }
    if (overflow || static_cast<uint64_t>(last) >= e.storage->numel)
      fail(e.name, "expected elements within its storage of ", e.storage->numel,
           ", found the shape ", e.shape, " with strides ", e.strides, " from element ", e.offset,
           " on");
  }

  const Source& source_;
  const InputFile& file_;
  const std::string& key_;
  uint64_t claimed_ = 0, viewed_ = 0;  // bytes of names, and of tensors
};

/// Its elements in one dimension.
Array read_storage(const Source& source, const Storage& s, const InputFile& file) {
  Array a(Shape{static_cast<int64_t>(s.numel)}, s.dtype, kCPU);
  source.read(s, a.raw());
  if (source.big_endian) {
    const size_t size = element_size(s.dtype);
    auto* p = static_cast<char*>(a.raw());
    for (uint64_t i = 0; i < s.numel; ++i, p += size) std::reverse(p, p + size);
  }
  if (find_damaged_bool(a))
    file.fail("storage ", json_quoted(s.key),
              ": expected bools of the bytes 0 and 1, found others");
  return a;
}

Contents read(InputFile& file, Device device, const std::string& key) {
  const Source source = open_source(file);
  Walk walk(source, file, key);
  walk.visit(source.pickle.root, "", 0);
  if (walk.entries.empty() && !key.empty())
    file.fail("expected tensors under the key ", json_quoted(key), ", found none; at the top are ",
              walk.tops);
  std::map<const Storage*, Array> storages;
  std::vector<Tensors::Item> items;
  items.reserve(walk.entries.size());
  for (Entry& e : walk.entries) {
    Array a;
    if (numel(e.shape) == 0) {
      a = Array(e.shape, e.storage->dtype, kCPU);
    } else {
      Array& storage = storages[e.storage];
      if (!storage.defined()) storage = read_storage(source, *e.storage, file);
      a = Array(storage.buffer(), e.shape, e.strides, storage.offset() + e.offset,
                e.storage->dtype);
    }
    items.emplace_back(std::move(e.name), Tensor(a.to(device)));
  }
  std::vector<std::string_view> names;
  names.reserve(items.size());
  for (const auto& item : items) names.push_back(item.key());
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    file.fail("tensor ", json_quoted(*twice), ": expected each name once, found it twice");
  return {Tensors(std::move(items)), std::move(walk.metadata)};
}

// What save_file() writes.
std::string opcode_text(std::string_view text) {
  return 'X' + little_endian(text.size(), 4) + std::string(text);
}
std::string opcode_int(int64_t value) {
  return "\x8a\x08" + little_endian(static_cast<uint64_t>(value), 8);
}
std::string opcode_dims(const Dims& dims) {
  std::string out = "(";
  for (const int64_t d : dims) out += opcode_int(d);
  return out + 't';
}
constexpr std::string_view kNewDict = "ccollections\nOrderedDict\n)R";

std::string pickled(const Tensors& tensors, const std::vector<Array>& arrays) {
  std::string out = "\x80\2" + std::string(kNewDict) + '(';
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Array& a = arrays[i];
    const std::string_view storage =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const DtypeName& d) {
          return d.dtype == a.dtype();
        })->storage;
    out += opcode_text(tensors[i].key()) + "ctorch._utils\n_rebuild_tensor_v2\n((" +
           opcode_text("storage") + "ctorch\n" + std::string(storage.substr(6)) + '\n' +
           opcode_text(std::to_string(i)) + opcode_text("cpu") + opcode_int(a.numel()) + "tQ" +
           opcode_int(0) + opcode_dims(a.shape()) + opcode_dims(a.strides()) + '\x89' +
           std::string(kNewDict) + "tR";
  }
  return out + "u.";
}

}  // namespace

void save_file(const Tensors& tensors, const std::filesystem::path& path) {
  const NoGradGuard no_grad;
  std::vector<Array> arrays;
  for (const auto& item : tensors) {
    HALFTAPE_CHECK(is_name(item.key()), "pt: a tensor cannot be called ",
                   json_quoted(item.key().substr(0, 60)), ": names have 1 to ", kMaxName,
                   " bytes of UTF-8, none of them 0");
    HALFTAPE_CHECK(item.value().defined(), "pt: the tensor ", json_quoted(item.key()),
                   " is undefined");
    const Array a = item.value().detach().contiguous().cpu().array();
    arrays.emplace_back(a.buffer(), a.shape(), contiguous_strides(a.shape()), a.offset(),
                        a.dtype());
  }
  OutputFile file("pt", path);
  ZipWriter zip(file);
  // As torch.save aligns them, for programs that map the file.
  const auto add = [&](const std::string& name, std::string_view bytes) {
    zip.add("archive/" + name, bytes, false, 64);
  };
  add("data.pkl", pickled(tensors, arrays));
  add("byteorder", "little");
  for (size_t i = 0; i < arrays.size(); ++i)
    add("data/" + std::to_string(i), arrays[i].numel() > 0 ? bytes_of(arrays[i]) : "");
  add("version", "3\n");
  zip.finish();
  file.commit();
}

Contents read_file(const std::filesystem::path& path, Device device, const std::string& key) {
  InputFile file("pt", path);
  return on_host(file.size(), [&] { return read(file, device, key); });
}

Tensors load_file(const std::filesystem::path& path, Device device, const std::string& key) {
  return read_file(path, device, key).tensors;
}

}  // namespace halftape::pt

// The forms: torch/serialization.py and caffe2/serialize/inline_container.h of PyTorch.
#include "halftape/io/formats/pt_source.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file_kind.h"
#include "halftape/io/file/json.h"
#include "halftape/io/file/zip.h"

namespace halftape::pt {
namespace {

using pickle::Kind;

constexpr uint64_t kMaxPickle = 100'000'000;  // bytes

/// What plain dicts of tensors name. None of it is called.
std::vector<pickle::Global> known_globals() {
  std::vector<pickle::Global> globals = {{"collections.OrderedDict", true},
                                         {"torch._utils._rebuild_tensor_v2"},
                                         {"torch._utils._rebuild_tensor"},
                                         {"torch._utils._rebuild_parameter"},
                                         {"torch._utils._rebuild_parameter_with_state"},
                                         {"torch.serialization._get_layout"},
                                         {"torch.Size"},
                                         {"torch.device"},
                                         {"torch.float32"},
                                         {"torch.float16"},
                                         {"torch.bfloat16"},
                                         {"torch.float64"},
                                         {"torch.int64"},
                                         {"torch.strided"}};
  for (const DtypeName& d : kDtypes) globals.push_back({d.storage});
  return globals;
}

/// ("storage", torch.FloatStorage, "0", "cpu", 6), in the old form with None or a view after it.
Storage storage_of(const pickle::Pickle& p, const pickle::Value& persistent,
                   const InputFile& file) {
  const pickle::Value& id = p[persistent.items.at(0)];
  const auto field = [&](size_t i) -> const pickle::Value& { return p[id.items[i]]; };
  if (id.kind != Kind::Tuple || id.items.size() < 5 || id.items.size() > 6 ||
      field(0).text != "storage" || field(1).kind != Kind::Global || field(2).kind != Kind::Text ||
      field(3).kind != Kind::Text || field(4).kind != Kind::Int || field(4).integer < 0)
    file.fail("expected (\"storage\", class, key, device, size) for a storage, found ",
              name(id.kind), " of another form");
  if (id.items.size() == 6 && field(5).kind != Kind::None)
    file.fail("storage ", json_quoted(field(2).text), ": expected it whole, found a part of ",
              "another, as PyTorch 0.3 wrote it; load and save the file with a later one");
  const auto* const known =
      std::find_if(std::begin(kDtypes), std::end(kDtypes),
                   [&](const DtypeName& d) { return d.storage == field(1).text; });
  if (known == std::end(kDtypes))
    file.fail("storage ", json_quoted(field(2).text), ": expected a class of storages, found ",
              field(1).text);
  Storage s{field(2).text, known->dtype, static_cast<uint64_t>(field(4).integer), 0};
  if (__builtin_mul_overflow(s.numel, uint64_t{element_size(s.dtype)}, &s.bytes))
    file.fail("storage ", json_quoted(s.key), ": expected fewer than 2^64 bytes, found ", s.numel,
              " elements of ", s.dtype);
  return s;
}

void find_storages(Source& source, const InputFile& file) {
  for (const pickle::Value& value : source.pickle.values) {
    if (value.kind != Kind::Persistent) continue;
    const Storage s = storage_of(source.pickle, value, file);
    const Storage& first = source.storages.emplace(s.key, s).first->second;
    if (first.dtype != s.dtype || first.numel != s.numel)
      file.fail("storage ", json_quoted(s.key), ": expected it to be one, found ", first.numel,
                " elements of ", first.dtype, " and ", s.numel, " of ", s.dtype);
  }
}

[[noreturn]] void refuse_program(const InputFile& file) {
  file.fail(
      "expected a dict of tensors, found a TorchScript archive (torch.jit.save, or torch::save of "
      "LibTorch); convert it in Python: torch.save(torch.jit.load(PATH).state_dict(), NEW)");
}

/// NAME/data.pkl, NAME/byteorder, NAME/version and NAME/data/KEY for each storage.
Source open_zip(InputFile& file) {
  std::vector<ZipMember> members = zip_members(file);
  const std::string prefix =
      members.empty() ? "" : members[0].name.substr(0, members[0].name.find('/') + 1);
  const auto find = [&](std::string_view name) -> const ZipMember* {
    const auto found = std::find_if(members.begin(), members.end(), [&](const ZipMember& m) {
      return m.name == prefix + std::string(name);
    });
    return found == members.end() ? nullptr : &*found;
  };
  const auto text_of = [&](const char* name) -> std::optional<std::string> {
    const ZipMember* const member = find(name);
    if (!member) return {};
    if (member->size > 100) file.fail("member ", json_quoted(name), ": expected a word");
    return zip_read(file, *member);
  };
  if (find("constants.pkl")) refuse_program(file);
  const ZipMember* const data = find("data.pkl");
  if (!data)
    file.fail("expected an archive with ", json_quoted(prefix + "data.pkl"),
              ", as torch.save writes it, found one of other files");
  if (data->size > kMaxPickle)
    file.fail("data.pkl: expected at most ", kMaxPickle, " bytes, found ", data->size);
  if (const std::string version = text_of("version").value_or("none");
      version.find_first_not_of("0123456789\n") != version.npos)
    file.fail("expected a member \"version\" with a number, found ", json_quoted(version));
  const std::string order = text_of("byteorder").value_or("little");
  if (order != "little" && order != "big")
    file.fail("byteorder: expected \"little\" or \"big\", found ", json_quoted(order));

  Source source;
  source.big_endian = order == "big";
  source.stream = std::make_unique<std::string>(zip_read(file, *data));
  source.pickle = pickle::read(*source.stream, known_globals(), file, "data.pkl");
  if (source.pickle.end != source.stream->size())
    file.fail("data.pkl: expected its end at byte ", source.pickle.end, ", found ",
              source.stream->size(), " bytes");
  find_storages(source, file);
  std::unordered_map<std::string, ZipMember> places;
  for (ZipMember& m : members) places.emplace(m.name, m);
  for (const auto& [key, storage] : source.storages) {
    const auto place = places.find(prefix + "data/" + std::string(key));
    const uint64_t found = place == places.end() ? 0 : place->second.size;
    if (place == places.end() || found != storage.bytes)
      file.fail("storage ", json_quoted(key), ": expected ", storage.bytes, " bytes, as its ",
                storage.numel, " elements of ", storage.dtype, " take, found ",
                place == places.end() ? "none" : std::to_string(found));
  }
  source.read = [&file, prefix, places = std::move(places)](const Storage& s, void* out) {
    zip_read(file, places.at(prefix + "data/" + std::string(s.key)), out);
  };
  return source;
}

/// Pickles of a magic number, a version, the system, the tensors and the storages' keys; then, for
/// each key, its number of elements and their bytes.
Source open_legacy(InputFile& file) {
  Source source;
  source.stream = std::make_unique<std::string>(host_string(file.size()));
  file.read_at(0, source.stream->data(), source.stream->size(), "the file");
  const std::string_view all = *source.stream;
  const std::vector<pickle::Global> globals = known_globals();
  size_t at = legacy_pt_mark(all);
  const auto next = [&](const char* what) {
    pickle::Pickle p = pickle::read(all.substr(at, kMaxPickle), globals, file, what);
    at += p.end;
    return p;
  };
  const pickle::Pickle version = next("the version");
  if (version[version.root].kind != Kind::Int || version[version.root].integer != 1001)
    file.fail("the version: expected 1001, found another");
  (void)next("the system");  // its byte order is not that of the storages, always little-endian
  source.pickle = next("the tensors");
  find_storages(source, file);
  const pickle::Pickle keys = next("the list of storages");
  std::unordered_map<std::string_view, size_t> places;
  for (const pickle::Id id : keys[keys.root].items) {
    const auto storage = source.storages.find(keys[id].text);
    const std::string shown = "storage " + json_quoted(keys[id].text.substr(0, 60)) + ": ";
    if (storage == source.storages.end() || all.size() - at < 8)
      file.fail(shown, "expected one that a tensor has, and its number of elements");
    const uint64_t numel = from_little_endian(all.substr(at, 8)), bytes = storage->second.bytes;
    at += 8;
    if (numel != storage->second.numel || bytes > all.size() - at)
      file.fail(shown, "expected ", storage->second.numel, " elements, found ", numel, " and ",
                all.size() - at, " bytes in the rest of the file");
    if (!places.emplace(storage->first, at).second) file.fail(shown, "is there twice");
    at += bytes;
  }
  if (places.size() != source.storages.size() || at != all.size())
    file.fail("expected ", source.storages.size(), " storages and the end of the file at byte ", at,
              ", found ", places.size(), " storages and ", all.size(), " bytes");
  source.read = [data = all, places](const Storage& s, void* out) {
    if (s.bytes > 0) std::memcpy(out, &data[places.at(s.key)], s.bytes);
  };
  return source;
}

}  // namespace

const Storage& Source::storage(const pickle::Value& value) const {
  return storages.at(pickle[pickle[value.items[0]].items[2]].text);
}

Source open_source(InputFile& file) {
  switch (const FileKind kind = kind_of(file)) {
    case FileKind::LegacyPt:
      return open_legacy(file);
    case FileKind::Pt:
    case FileKind::Zip:
      return open_zip(file);
    case FileKind::Unknown:
      file.fail("expected a file of torch.save, found none that begins as such");
    default:
      file.fail("expected a PyTorch .pt file, found ", described(kind));
  }
}

}  // namespace halftape::pt

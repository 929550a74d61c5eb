// .pt files that want code to be run, more memory than they account for, or are damaged: refused,
// each with its reason.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include "halftape/tests/io/formats/pt_files.h"
#include "halftape/tests/support/close.h"
#include "halftape/tests/support/message.h"
#include "halftape/tests/support/temp_folder.h"

using namespace halftape;
using namespace std::string_literals;
using testing::has;
using testing::message;
using testing::number;
using testing::numbers;
using testing::storage;
using testing::stream;
using testing::TempFolder;
using testing::tensor_call;
using testing::text;
using testing::write_pt;

namespace {

const std::string kFour(16, '\1');  // the bytes of four floats
/// What is said of a file with this pickle and a storage "0" of four floats.
std::string said(const std::string& bytes) {
  TempFolder folder;
  write_pt(folder / "bad.pt", bytes, {{"0", kFour}});
  return message<FileError>([&] { (void)pt::load_file(folder / "bad.pt"); });
}
std::string said_of(const std::string& value) { return said(stream(value)); }
std::string four(std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides,
                 int64_t offset = 0) {
  return testing::dict_of(tensor_call(storage("Float", "0", 4), offset, sizes, strides));
}
std::string times(const std::string& what, int n) {
  std::string all;
  for (int i = 0; i < n; ++i) all += what;
  return all;
}

}  // namespace

TEST_CASE("no code that a pickle names is run: each way to it is refused by name") {
  const std::string call = "(" + text("touch /tmp/halftape_was_here") + "tR";
  CHECK(
      has(said_of("cposix\nsystem\n" + call),
          "found \"posix.system\", a class or function of Python. Nothing of a file is run here"));
  CHECK(has(said_of("cos\nsystem\n" + call), "found \"os.system\""));
  CHECK(has(said_of("cbuiltins\neval\n(" + text("1") + "tR"), "found \"builtins.eval\""));
  CHECK(has(said_of("c__builtin__\nexec\n(" + text("1") + "tR"), "found \"__builtin__.exec\""));
  CHECK(has(said("\x80\4" + text("os") + text("system") + "\x93" + call + "."),
            "found \"os.system\""));
  CHECK(has(said_of("c__main__\nNet\n)R}b"), "found \"__main__.Net\""));
  CHECK(has(said_of("(S'x'\nios\nsystem\n"), "found the opcode 0x53"));
  CHECK(has(said_of("(ios\nsystem\n"), "found the opcode INST"));
  CHECK(has(said_of("(ccollections\nOrderedDict\no"), "found the opcode OBJ"));
  CHECK(has(said_of("ccollections\nOrderedDict\n)\x81"), "found the opcode NEWOBJ,"));
  CHECK(has(said_of("ccollections\nOrderedDict\n)}\x92"), "found the opcode NEWOBJ_EX"));
  for (const char* code : {"\x82\1", "\x83\1\1", "\x84\1\1\1\1"})
    CHECK(has(said_of(code), "found the opcode EXT"));
  CHECK(has(said_of("P0\n"), "found the opcode PERSID"));
  // __setstate__ with a state of its own, or on what is no dict.
  CHECK(has(said_of("ccollections\nOrderedDict\n)R(" + text("x") + "tb"),
            "expected attributes in a dict, found a tuple"));
  CHECK(has(said_of("ctorch\nSize\n())R}b"), "expected"));
  CHECK(has(said_of("]}b"), "expected a dict to which attributes belong, found a list"));
  // What is known is not called either: these are only names and arguments.
  CHECK(has(said_of("ccollections\nOrderedDict\n(" + text("x") + "tR"), "without arguments"));
  CHECK(has(said_of("ccollections\nOrderedDict\n](K\1e\x85R"), "a list of pairs, found in it an"));
  CHECK(has(said_of("ccollections\nOrderedDict\n](K\1K\2e]\x86R"), "without arguments"));
  CHECK(has(said_of(text("os") + ")R"), "expected a global and its arguments, found text"));
  CHECK(has(said_of("ccollections\nOrderedDict\nNR"), "found a class or function and None"));
  CHECK(has(said_of("ctorch\nsave\n"), "found \"torch.save\""));
  CHECK(has(said_of("ctorch._utils\n_rebuild_tensor_v3\n"), "of a dtype or kind"));
  CHECK(has(said_of("ctorch\nQInt8Storage\n"), "\"torch.QInt8Storage\", a dtype that is not read"));
}

TEST_CASE("a pickle takes no memory or time that its size does not account for") {
  // Ten lists, each of which holds the one before it ten times: 10^10 numbers.
  std::string bomb = "](" + times("K\1", 10) + "e";
  for (char i = 0; i < 10; ++i) bomb += "q"s + i + "0](" + times("h"s + i, 10) + "e";
  CHECK(has(said_of(bomb), "found the opcode 0x30"));  // POP, which torch does not write
  bomb = "(](" + times("K\1", 10) + "e";
  for (char i = 0; i < 10; ++i) bomb += "q"s + i + "](" + times("h"s + i, 10) + "e";
  CHECK(has(said_of(bomb + "t"), "as many bytes as such a file may hold"));
  // A list of 100 times one that has 100 times one tensor.
  std::string tensors = "](" + tensor_call(storage("Float", "0", 4), 0, {4}, {1}) + "q\0"s;
  tensors = "](" + tensors + times("h\0"s, 99) + "eq\1" + times("h\1", 99) + "e";
  CHECK(has(said_of(tensors), "as many bytes as such a file may hold"));
  CHECK(has(said_of("]q\0h\0a"s), "at most 100 deep"));  // a list in itself
  CHECK(has(said_of(times("]", 102) + times("a", 101)), "at most 100 deep"));
  CHECK(has(said_of(times("(", 1001)), "expected at most 1000 marks"));
  CHECK(has(said_of(times("]", 100'000)), "expected one value at the end, found 100000"));
  CHECK(has(said_of("]r\xff\xff\xff\xff"), "expected the memo's number 0, found 4294967295"));
  CHECK(has(said_of("j\xff\xff\xff\xff"), "under the memo's number 4294967295, found none"));
  CHECK(has(said_of("X\xff\xff\xff\xff"s + "ab"), "a string: expected 4294967295 bytes, found 3"));
  CHECK(
      has(said_of("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"s), "expected 18446744073709551615 bytes"));
  CHECK(has(said("\x80\4\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."s), "expected a frame within"));
  // Four floats that claim to be 2^40, each of them one of the four.
  CHECK(has(said_of(four({int64_t{1} << 40}, {0})),
            "as many bytes as such a file may hold, 268435456, found 4398046511104, as views that "
            "share elements; if you trust the file, call set_unpack_limit(4398046511104)"));
  CHECK(has(said_of(four({int64_t{1} << 40, int64_t{1} << 40}, {0, 0})), "fewer than 2^63 bytes"));
  // A list of pairs that makes one dict after another.
  CHECK(has(said_of("(]q\0](K\1K\2eaccollections\nOrderedDict\nh\0\x85R"s +
                    "ccollections\nOrderedDict\nh\0\x85Rt"s),
            "without arguments or with a list of pairs"));
  // Below 3,000 names "k" a dict of 3,000 names of no bytes, when the key is another one.
  const std::string nothing = "}q\0("s + times(text("") + "N", 3000) + "u";
  TempFolder folder;
  write_pt(folder / "names",
           stream("}(" + text("k") + nothing + times(text("k") + "h\0"s, 2999) + "u"));
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "names", kCPU, "k.x"); }),
            "as many bytes as such a file may hold"));
}

TEST_CASE("streams that are no pickle, or end in the midst of one, are refused") {
  CHECK(has(said(""), "expected 1 bytes, found 0"));
  CHECK(has(said("("), "expected the opcode PROTO"));
  CHECK(has(said("\x80\6N."), "expected protocol 2 to 5, found 6"));
  CHECK(has(said("\x80\1N."), "found 1"));
  CHECK(has(said(stream("N") + "N."), "expected its end at byte 4, found 6 bytes"));
  CHECK(has(said_of(""), "expected one value at the end, found 0"));
  CHECK(has(said_of("NN"), "found 2"));
  CHECK(has(said_of("(N"), "expected one value"));
  CHECK(has(said_of("t"), "expected a mark on the stack"));
  CHECK(has(said_of("\x85"), "expected a value on the stack"));
  CHECK(has(said_of("N(\x85"), "expected a value on the stack"));  // below the mark
  CHECK(has(said_of("q\0"s), "expected a value to remember"));
  CHECK(has(said_of("}Na"), "expected a list, found a dict"));
  CHECK(has(said_of("]NNs"), "expected a dict, found a list"));
  CHECK(has(said_of("}(Nu"), "expected a value for each key"));
  CHECK(has(said_of("ctorch"), "expected the end of a global's name"));
  for (const std::string& name : {"NN"s, "N" + text("Size"), text("torch") + "N"})
    CHECK(has(said_of(name + "\x93"), "expected the name of a global"));
  CHECK(has(said_of("}(NNu"), "expected keys that are text or integers, found None"));
  CHECK(has(said_of("\xff"), "found the opcode 0xff"));
}

TEST_CASE("tensors that reach beyond their storage, or are of another form, are refused") {
  CHECK(said_of(four({2, 2}, {2, 1})).empty());
  CHECK(said_of(four({2}, {3})).empty());
  for (const auto& beyond :
       {four({5}, {1}), four({2, 2}, {2, 2}), four({4}, {1}, 1), four({}, {}, 4), four({2}, {4}),
        four({3}, {int64_t{1} << 62}), four({1}, {1}, INT64_MAX)})
    CHECK(has(said_of(beyond), "tensor \"a\": expected elements within its storage of 4"));
  CHECK(has(said_of(four({-1}, {1})), "found -1"));
  CHECK(has(said_of(four({2}, {-1})), "found -1"));
  CHECK(has(said_of(four({2}, {1}, -1)), "found -1"));
  CHECK(has(said_of(four({2, 2}, {1})), "expected a stride for each size"));
  CHECK(has(said_of(four({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})),
            "expected at most 10 dimensions, found 11"));
  CHECK(has(said_of(testing::dict_of("ctorch._utils\n_rebuild_tensor_v2\n)R")),
            "expected a storage, an offset"));
  for (const char* given : {")", "(Nt", "(ctorch\ndevice\n)Rt"})
    CHECK(has(said_of(testing::dict_of("ctorch._utils\n_rebuild_parameter\n"s + given + "R")),
              "expected a parameter's tensor"));
  const std::string t = tensor_call(storage("Float", "0", 4), 0, {1}, {1});
  CHECK(has(said_of("}(" + text("a.b") + t + text("a") + "}(" + text("b") + t + "uu"),
            "tensor \"a.b\": expected each name once, found it twice"));
  CHECK(has(said_of("}(" + number(1) + number(10) + text("1") + number(20) + "u"),
            "\"1\": expected each name once, found it twice"));  // both are legal in one dict
  CHECK(has(said_of("}(" + text("a\0b"s) + t + "u"), "bytes of UTF-8"));
  // With other arguments than torch.save writes of plain numbers.
  const auto given = [](const std::string& arguments) {
    return said_of(testing::dict_of("ctorch._utils\n_rebuild_tensor_v2\n(" +
                                    storage("Float", "0", 4) + arguments + "tR"));
  };
  const std::string one = numbers({1}), none = number(0);
  CHECK(given(none + "ctorch\nSize\n(" + one + "tR](K\1e\x89}}").empty());
  CHECK(has(given("N" + one + one), "strides and an offset from 0 on, found None"));
  CHECK(has(given(none + "N" + one), "expected sizes and strides as tuples, found None"));
  CHECK(has(given(none + "ctorch\ndevice\n)R" + one), "as tuples, found an object"));
  CHECK(has(given(none + one + "ctorch\nSize\n(K\1tR"), "as tuples, found an integer"));
  CHECK(has(given(none + one + one + "\x89}}" + text("neg") + "\x88s"),
            "tensor \"a\": expected plain numbers, found a conjugated or negated view"));
  // Its storage.
  const auto of = [](const std::string& s) {
    return said_of(testing::dict_of(tensor_call(s, 0, {1}, {1})));
  };
  CHECK(has(of(storage("Float", "0", 3)), "storage \"0\": expected 12 bytes, as its 3 elements"));
  CHECK(has(of(storage("Double", "0", 4)), "expected 32 bytes"));
  CHECK(has(of(storage("Float", "1", 4)), "storage \"1\": expected 16 bytes"));
  CHECK(has(of(storage("Double", "0", INT64_MAX)), "expected fewer than 2^64 bytes"));
  CHECK(has(of(storage("Float", "0", -4)), "expected (\"storage\", class, key, device, size)"));
  CHECK(has(of("NQ"), "found None of another form"));
  const std::vector<std::string> id = {text("storage"), "ctorch\nFloatStorage\n", text("0"),
                                       text("cpu"), number(4)};
  for (size_t i = 0; i < 7; ++i) {  // one of its parts is None, or it has too few or too many
    std::string parts;
    for (size_t k = 0; k < (i == 5 ? 4 : 5); ++k) parts += k == i ? "N" : id[k];
    CHECK(has(of("(" + parts + (i == 6 ? "NN" : "") + "tQ"), "found a tuple of another form"));
  }
  const std::string whole = id[0] + id[1] + id[2] + id[3] + id[4];
  CHECK(of("(" + whole + "NtQ").empty());
  CHECK(has(of("(" + whole + ")tQ"), "storage \"0\": expected it whole, found a part of another"));
  CHECK(has(of("(" + id[0] + "ctorch\nfloat32\n" + id[2] + id[3] + id[4] + "tQ"),
            "storage \"0\": expected a class of storages, found torch.float32"));
  CHECK(has(of("N"), "expected a storage, an offset"));
  CHECK(of(storage("Bool", "0", 16)).empty());
  TempFolder folder;
  write_pt(folder / "x", stream(tensor_call(storage("Bool", "0", 2), 0, {1}, {1})),
           {{"0", "\1\2"}});
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "x"); }),
            "storage \"0\": expected bools of the bytes 0 and 1"));
  for (const std::string& other : {storage("Int", "0", 4), storage("Float", "0", 3)})
    CHECK(has(said_of("(" + t + tensor_call(other, 0, {1}, {1}) + "t"),
              "storage \"0\": expected it to be one, found 4 elements of float32 and "));
}

TEST_CASE("every truncation of a .pt file is refused, and every flip of a bit is, or is harmless") {
  TempFolder folder;
  const pt::Tensors saved = {{"a", arange(5, kInt32)}, {"b", ones({2, 2}, kFloat16)}};
  pt::save_file(saved, folder / "x");
  const std::string whole = testing::read_bytes(folder / "x");
  for (size_t n = 0; n < whole.size(); ++n) {
    testing::write_bytes(folder / "cut", whole.substr(0, n));
    CHECK(!message<FileError>([&] { (void)pt::load_file(folder / "cut"); }).empty());
  }
  size_t refused = 0, harmless = 0;
  for (size_t i = 0; i < whole.size() * 8; ++i) {
    std::string damaged = whole;
    damaged[i / 8] = static_cast<char>(damaged[i / 8] ^ (1 << i % 8));
    testing::write_bytes(folder / "flipped", damaged);
    try {
      const pt::Tensors loaded = pt::load_file(folder / "flipped");  // a date, padding …
      ++harmless;
      REQUIRE(loaded.keys() == saved.keys());
      for (const auto& item : saved) CHECK(testing::same_bits(loaded[item.key()], item->cpu()));
    } catch (const FileError&) {
      ++refused;
    }
  }
  CHECK(refused > harmless);
  MESSAGE(refused, " of ", whole.size() * 8, " flips of one bit refused, ", harmless, " harmless");
}

TEST_CASE("archives of another kind say what they are") {
  TempFolder folder;
  const auto of = [&](const std::string& byteorder, const std::string& more) {
    write_pt(folder / "x", stream("}"), {}, byteorder, more);
    return message<FileError>([&] { (void)pt::load_file(folder / "x"); });
  };
  CHECK(of("little", "").empty());
  CHECK(has(of("middle", ""), "byteorder: expected \"little\" or \"big\", found \"middle\""));
  CHECK(has(of(std::string(101, 'l'), ""), "member \"byteorder\": expected a word"));
  CHECK(has(of("little", "constants.pkl"), "found a TorchScript archive"));
  CHECK(of("little", "").empty());
  std::string renamed = testing::read_bytes(folder / "x");
  for (size_t at; (at = renamed.find("data.pkl")) != renamed.npos;) renamed[at] = 'D';
  testing::write_bytes(folder / "x", renamed);
  CHECK(
      has(message<FileError>([&] { (void)pt::load_file(folder / "x"); }),
          "expected an archive with \"x/data.pkl\", as torch.save writes it, found one of other"));
  // Deflated, it says, to more than a pickle may be.
  write_pt(folder / "x", std::string(100'000, 'N'));
  std::string large = testing::read_bytes(folder / "x");
  const size_t entry = large.find("PK\1\2");
  large[8] = large[entry + 10] = 8;
  large.replace(entry + 24, 4, little_endian(100'000'001, 4));
  testing::write_bytes(folder / "x", large);
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "x"); }),
            "data.pkl: expected at most 100000000 bytes, found 100000001"));
  npy::savez(folder / "x", {{"a", ones({1})}});
  CHECK(has(message<FileError>([&] { (void)pt::load_file(folder / "x"); }),
            "expected a PyTorch .pt file, found a NumPy .npz archive; read it with npy::load_npz"));
}

// The opcodes: Lib/pickletools.py of CPython, which documents each.
#include "halftape/io/formats/pickle.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "halftape/core/bit_cast.h"
#include "halftape/core/buffer.h"
#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/json.h"

namespace halftape::pickle {
namespace {

constexpr size_t kMaxValues = 10'000'000;
constexpr size_t kMaxMarks = 1000;  // of tuples and lists within each other
constexpr Id kNothing = ~Id{0};     // in the memo

/// Opcodes of pickle that make objects by running code, or take them from elsewhere.
struct Opcode {
  char code;
  std::string_view name;
};
constexpr Opcode kRunning[] = {{'i', "INST"},         {'o', "OBJ"},     {'\x81', "NEWOBJ"},
                               {'\x92', "NEWOBJ_EX"}, {'\x82', "EXT1"}, {'\x83', "EXT2"},
                               {'\x84', "EXT4"},      {'P', "PERSID"}};

class Reader {
 public:
  Reader(std::string_view bytes, std::span<const Global> globals, const InputFile& file,
         std::string_view what)
      : bytes_(bytes), globals_(globals), file_(file), what_(what) {}

  Pickle read() {
    if (byte("the protocol") != 0x80) fail("expected the opcode PROTO");
    if (const uint8_t protocol = byte("the protocol"); protocol < 2 || protocol > 5)
      fail("expected protocol 2 to 5, found ", int{protocol});
    while (step(static_cast<char>(byte("an opcode")))) {
    }
    if (stack_.size() != 1 || !marks_.empty())
      fail("expected one value at the end, found ", stack_.size());
    pickle_.root = stack_.back();
    pickle_.end = at_;
    return std::move(pickle_);
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    file_.fail(what_, ", byte ", at_, ": ", parts...);
  }

  std::string_view take(uint64_t n, const char* what) {
    if (n > bytes_.size() - at_)
      fail(what, ": expected ", n, " bytes, found ", bytes_.size() - at_,
           ": the file is damaged or truncated");
    const std::string_view taken = bytes_.substr(at_, n);
    at_ += n;
    return taken;
  }
  uint8_t byte(const char* what) { return static_cast<uint8_t>(take(1, what)[0]); }
  uint64_t number(size_t bytes) { return from_little_endian(take(bytes, "a number")); }
  std::string_view line() {
    const size_t end = bytes_.find('\n', at_);
    if (end == bytes_.npos) fail("expected the end of a global's name");
    const std::string_view found = bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return found;
  }

  Value& push(Kind kind) {
    if (pickle_.values.size() == kMaxValues) fail("expected at most ", kMaxValues, " values");
    host_grow(pickle_.values, 1);
    stack_.push_back(static_cast<Id>(pickle_.values.size()));
    pickle_.values.emplace_back().kind = kind;
    return pickle_.values.back();
  }
  void push_int(int64_t value) { push(Kind::Int).integer = value; }
  void push_bool(bool value) { push(Kind::Bool).integer = value; }
  void push_text(Kind kind, size_t width) {
    const std::string_view text = take(number(width), "a string");
    push(kind).text = text;
  }

  /// The values below the last mark are out of reach until it is taken.
  Id pop() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back()))
      fail("expected a value on the stack, found none");
    const Id id = stack_.back();
    stack_.pop_back();
    return id;
  }
  Value& top(Kind kind, const char* what) {
    const Id id = pop();
    stack_.push_back(id);
    Value& value = pickle_.values[id];
    if (value.kind != kind) fail("expected ", what, ", found ", name(value.kind));
    return value;
  }
  std::vector<Id> pop_to_mark() {
    if (marks_.empty()) fail("expected a mark on the stack, found none");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<Id> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<Id> pop_some(int n) {
    std::vector<Id> items(static_cast<size_t>(n));
    for (auto item = items.rbegin(); item != items.rend(); ++item) *item = pop();
    return items;
  }
  void push_tuple(std::vector<Id> items) { push(Kind::Tuple).items = std::move(items); }
  void add(Kind kind, const char* what, const std::vector<Id>& items) {
    Value& to = top(kind, what);
    if (kind == Kind::Dict && items.size() % 2) fail("expected a value for each key");
    host_grow(to.items, items.size());
    to.items.insert(to.items.end(), items.begin(), items.end());
  }

  void put(uint64_t index) {
    // Python counts from 0 or 1 on without gaps; a gap would take memory that no value accounts
    // for.
    if (index > memo_.size() + 1)
      fail("expected the memo's number ", memo_.size(), ", found ", index);
    if (stack_.empty()) fail("expected a value to remember, found none");
    if (index >= memo_.size()) memo_.resize(index + 1, kNothing);
    memo_[index] = stack_.back();
  }
  void get(uint64_t index) {
    if (index >= memo_.size() || memo_[index] == kNothing)
      fail("expected a value under the memo's number ", index, ", found none");
    stack_.push_back(memo_[index]);
  }

  void push_global(std::string_view module, std::string_view member) {
    const std::string found = std::string(module) + '.' + std::string(member);
    const auto known = std::find_if(globals_.begin(), globals_.end(),
                                    [&](const Global& g) { return g.name == found; });
    if (known == globals_.end()) refuse(found);
    push(Kind::Global).text = known->name;
  }
  [[noreturn]] void refuse(const std::string& global) const {
    const std::string shown = json_quoted(global.substr(0, 200));
    if (global.starts_with("torch.") && global.ends_with("Storage"))
      fail("found a tensor of ", shown,
           ", a dtype that is not read here; convert it in Python "
           "before saving: x.float(), x.int()");
    if (global.starts_with("torch._utils._rebuild"))
      fail("found a tensor made by ", shown,
           ", of a dtype or kind (float8, quantized, sparse) that "
           "is not read here; convert it in Python before saving: x.float(), x.to_dense()");
    fail("expected tensors in dicts and lists, numbers and text, found ", shown,
         ", a class or function of Python. Nothing of a file is run here; in Python save "
         "model.state_dict() instead of the model, and plain numbers: "
         "torch.save(model.state_dict(), PATH)");
  }
  void reduce() {
    const Id arguments = pop();
    const Id callee = pop();
    if (pickle_[callee].kind != Kind::Global || pickle_[arguments].kind != Kind::Tuple)
      fail("expected a global and its arguments, found ", name(pickle_[callee].kind), " and ",
           name(pickle_[arguments].kind));
    const std::string_view called = pickle_[callee].text;
    const bool is_dict = std::find_if(globals_.begin(), globals_.end(), [&](const Global& g) {
                           return g.name == called;
                         })->is_dict;
    if (is_dict) {
      std::vector<Id> items = first_items(called, pickle_[arguments].items);
      push(Kind::Dict).items = std::move(items);
      return;
    }
    Value& result = push(Kind::Call);
    result.text = called;
    result.items = {arguments};
  }
  /// What a dict is made with: nothing, or, by Python 2, a list of pairs, which no other value
  /// holds. The list is used up, so that a file cannot ask for its memory again and again.
  std::vector<Id> first_items(std::string_view dict, const std::vector<Id>& arguments) {
    std::vector<Id> items;
    if (arguments.empty()) return items;
    Value& list = pickle_.values[arguments[0]];
    if (arguments.size() > 1 || list.kind != Kind::List)
      fail("expected ", dict, " without arguments or with a list of pairs");
    for (const Id id : list.items) {
      const Value& pair = pickle_[id];
      if ((pair.kind != Kind::List && pair.kind != Kind::Tuple) || pair.items.size() != 2)
        fail("expected ", dict, " with a list of pairs, found in it ", name(pair.kind));
      host_grow(items, 2);
      items.insert(items.end(), pair.items.begin(), pair.items.end());
    }
    list = {};
    return items;
  }
  void build() {
    const Kind state = pickle_[pop()].kind;
    if (state != Kind::Dict) fail("expected attributes in a dict, found ", name(state));
    (void)top(Kind::Dict, "a dict to which attributes belong");
  }

  void push_long() {
    const std::string_view digits = take(byte("a length"), "an integer");
    if (digits.size() > 8) {  // kept as they are: none that tensors need is so long
      push(Kind::Bytes).text = digits;
      return;
    }
    uint64_t value = from_little_endian(digits);
    if (!digits.empty() && digits.size() < 8 && (static_cast<uint8_t>(digits.back()) & 0x80) != 0)
      value |= ~uint64_t{0} << 8 * digits.size();
    push_int(static_cast<int64_t>(value));
  }

  /// False at the end.
  bool step(char code) {
    switch (code) {
      case '.':  // STOP
        return false;
      case '\x95':  // FRAME
        if (number(8) > bytes_.size() - at_) fail("expected a frame within the file");
        break;
      case '(':  // MARK
        if (marks_.size() == kMaxMarks) fail("expected at most ", kMaxMarks, " marks");
        marks_.push_back(stack_.size());
        break;
      case 'N':
        push(Kind::None);
        break;
      case '\x88':  // NEWTRUE
      case '\x89':  // NEWFALSE
        push_bool(code == '\x88');
        break;
      case 'J':  // BININT
        push_int(static_cast<int32_t>(number(4)));
        break;
      case 'K':  // BININT1
        push_int(static_cast<int64_t>(number(1)));
        break;
      case 'M':  // BININT2
        push_int(static_cast<int64_t>(number(2)));
        break;
      case '\x8a':  // LONG1
        push_long();
        break;
      case 'G':  // BINFLOAT
        push(Kind::Float).real = bit_cast<double>(from_big_endian(take(8, "a number")));
        break;
      case 'U':     // SHORT_BINSTRING: text of Python 2
      case '\x8c':  // SHORT_BINUNICODE
        push_text(Kind::Text, 1);
        break;
      case 'T':  // BINSTRING
      case 'X':  // BINUNICODE
        push_text(Kind::Text, 4);
        break;
      case '\x8d':  // BINUNICODE8
        push_text(Kind::Text, 8);
        break;
      case 'C':  // SHORT_BINBYTES
        push_text(Kind::Bytes, 1);
        break;
      case 'B':  // BINBYTES
        push_text(Kind::Bytes, 4);
        break;
      case ']':
        push(Kind::List);
        break;
      case '}':
        push(Kind::Dict);
        break;
      case ')':
        push(Kind::Tuple);
        break;
      case 't':  // TUPLE
        push_tuple(pop_to_mark());
        break;
      case '\x85':  // TUPLE1
      case '\x86':  // TUPLE2
      case '\x87':  // TUPLE3
        push_tuple(pop_some(code - '\x84'));
        break;
      case 'a':  // APPEND
        add(Kind::List, "a list", pop_some(1));
        break;
      case 'e':  // APPENDS
        add(Kind::List, "a list", pop_to_mark());
        break;
      case 's':  // SETITEM
        add(Kind::Dict, "a dict", pop_some(2));
        break;
      case 'u':  // SETITEMS
        add(Kind::Dict, "a dict", pop_to_mark());
        break;
      case 'q':  // BINPUT
        put(number(1));
        break;
      case 'r':  // LONG_BINPUT
        put(number(4));
        break;
      case '\x94':  // MEMOIZE
        put(memo_.size());
        break;
      case 'h':  // BINGET
        get(number(1));
        break;
      case 'j':  // LONG_BINGET
        get(number(4));
        break;
      case 'c': {  // GLOBAL
        const std::string_view module = line();
        push_global(module, line());
        break;
      }
      case '\x93': {  // STACK_GLOBAL
        const Id member = pop(), module = pop();
        if (pickle_[member].kind != Kind::Text || pickle_[module].kind != Kind::Text)
          fail("expected the name of a global");
        push_global(pickle_[module].text, pickle_[member].text);
        break;
      }
      case 'R':
        reduce();
        break;
      case 'b':
        build();
        break;
      case 'Q': {  // BINPERSID
        std::vector<Id> items = pop_some(1);
        push(Kind::Persistent).items = std::move(items);
        break;
      }
      default:
        refuse_opcode(code);
    }
    return true;
  }
  [[noreturn]] void refuse_opcode(char code) const {
    const auto* const running = std::find_if(std::begin(kRunning), std::end(kRunning),
                                             [&](const Opcode& o) { return o.code == code; });
    if (running != std::end(kRunning))
      fail("found the opcode ", running->name, ", which makes an object of a class of Python. ",
           "Nothing of a file is run here; in Python save model.state_dict() instead of the model");
    fail("found the opcode 0x", hex({&code, 1}),
         ", which dicts of tensors do not need; the file is damaged, or not of torch.save");
  }

  std::string_view bytes_;
  std::span<const Global> globals_;
  const InputFile& file_;
  std::string_view what_;
  size_t at_ = 0;
  Pickle pickle_;
  std::vector<Id> stack_, memo_;
  std::vector<size_t> marks_;  // sizes of the stack
};

}  // namespace

std::string_view name(Kind kind) {
  constexpr std::string_view kNames[] = {
      "None",   "a bool", "an integer",          "a number",  "text",     "bytes", "a tuple",
      "a list", "a dict", "a class or function", "an object", "a storage"};
  return kNames[static_cast<size_t>(kind)];
}

Pickle read(std::string_view bytes, std::span<const Global> globals, const InputFile& file,
            std::string_view what) {
  return Reader(bytes, globals, file, what).read();
}

}  // namespace halftape::pickle

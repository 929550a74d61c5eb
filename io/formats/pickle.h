// Python's pickle as data: the values of a stream of opcodes, of which none is run. What pickle
// would import and call stands as its name.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "halftape/io/file/file.h"

namespace halftape::pickle {

enum class Kind : uint8_t {
  None,
  Bool,
  Int,
  Float,
  Text,
  Bytes,
  Tuple,
  List,
  Dict,        // items: key, value, key, value …
  Global,      // text: "torch._utils._rebuild_tensor_v2"
  Call,        // text: what is called; items: the tuple of its arguments
  Persistent,  // items: the one value that stands for something outside the pickle
};
std::string_view name(Kind kind);

/// Numbers of values in Pickle::values: a list may hold itself.
using Id = uint32_t;

struct Value {
  Kind kind = Kind::None;
  int64_t integer = 0;  // Bool and Int
  double real = 0;
  std::string_view text;  // a part of the stream
  std::vector<Id> items;
};

struct Pickle {
  std::vector<Value> values;
  Id root = 0;
  size_t end = 0;  // of the stream, in the bytes that were read
  const Value& operator[](Id id) const { return values[id]; }
};

/// A global that a stream may name. Calling one that makes a dict, collections.OrderedDict, gives a
/// Dict; calling another gives a Call. Python 2 gives it a list of its pairs.
struct Global {
  std::string_view name;
  bool is_dict = false;
};
/// Reads the stream at the beginning of `bytes`, in protocol 2 to 5, which must outlive the result.
/// Attributes of dicts (OrderedDict's _metadata) are left out. Throws FileError, whose message says
/// `what` is read, for any other global, by name, and for opcodes and values that tensors do not
/// need. A value takes some 60 bytes of memory, and there are at most 10 million.
Pickle read(std::string_view bytes, std::span<const Global> globals, const InputFile& file,
            std::string_view what);

}  // namespace halftape::pickle

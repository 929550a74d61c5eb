"""How gdb prints tensors, arrays, shapes, dtypes, devices and modules:

    (gdb) print x
    $1 = Tensor float32 [2, 2] on cpu {1, 2, 3, 4}, grad_fn mul

gdb loads it by itself for an installed shared library; else say `source halftape-gdb.py`. It reads memory alone and calls no
function of the program, so it also works on a core file. Values on a GPU are not read.

Where the library has no debug information, compile the program with -g -femit-class-debug-always (g++) or -g -fstandalone-debug
(clang++): otherwise the parts of modules and the names of ops are unknown.
"""
import struct

import gdb
import gdb.printing
import gdb.types

FIRST = 8  # values of a tensor that are shown
UNREADABLE = (gdb.error, gdb.MemoryError, ValueError, OverflowError)
MOST = 10000  # elements of a list; one with more is taken for damaged
FORMATS = {"Bool": ("bool", "B"), "UInt8": ("uint8", "B"), "Int8": ("int8", "b"), "Int16": ("int16", "h"),
           "Int32": ("int32", "i"), "Int64": ("int64", "q"),
           "Float16": ("float16", "e"), "BFloat16": ("bfloat16", "H"), "Float32": ("float32", "f"), "Float64": ("float64", "d")}


def has_field(of, name):
    """False where the program knows a class by name alone."""
    return any(field.name == name for base in bases(gdb.types.get_basic_type(of)) for field in base.fields())


def text_of(string):
    """A std::string, of libstdc++ or of another library."""
    if has_field(string.type, "_M_string_length"):
        length = int(string["_M_string_length"])
        if length > MOST:
            raise ValueError("not a string")
        return string["_M_dataplus"]["_M_p"].string(length=length)
    return string.format_string().strip('"')


def elements(vector):
    """Those of a std::vector."""
    try:
        at, end = vector["_M_impl"]["_M_start"], vector["_M_impl"]["_M_finish"]
    except gdb.error:
        at, end = vector["__begin_"], vector["__end_"]
    if not 0 <= int(end) - int(at) <= MOST * at.type.target().sizeof:
        raise ValueError("not a list")
    while at != end:
        yield at.dereference()
        at += 1


def pointer_of(shared):
    """That of a std::shared_ptr."""
    try:
        return shared["_M_ptr"]
    except gdb.error:
        return shared["__ptr_"]


def dtype_row(dtype):
    """Name and format of an enumerator; of a number that is none, the number."""
    enumerator = str(dtype.format_string(symbols=True, raw=True)).split("::")[-1]
    return FORMATS.get(enumerator, (f"Dtype({int(dtype)})", ""))


def device_text(device):
    cuda = str(device["type_"].format_string(raw=True)).endswith("CUDA")
    return f"cuda:{int(device['index_'])}" if cuda else "cpu"


def dims(value):
    numbers = value["values_"]["_M_elems"] if "_M_elems" in [f.name for f in value["values_"].type.fields()] else value["values_"]["__elems_"]
    size = int(value["size_"])
    if not 0 <= size <= 10:
        raise ValueError("not a shape")
    return [int(numbers[i]) for i in range(size)]


def number(raw, code):
    if code == "H":  # bfloat16: the upper half of a float32
        return struct.unpack("<f", b"\0\0" + raw)[0]
    return struct.unpack("<" + code, raw)[0]


def values_text(array, shape, name, code):
    count = 1
    for size in shape:
        count *= size
    strides = dims(array["strides_"])
    start = int(array["buffer_"]["object_"]["bytes_"])
    width = struct.calcsize(code)
    inferior, texts = gdb.selected_inferior(), []
    for i in range(min(count, FIRST)):
        rest, at = i, int(array["offset_"])
        for size, stride in zip(reversed(shape), reversed(strides)):
            at += rest % size * stride
            rest //= size
        value = number(inferior.read_memory(start + at * width, width).tobytes(), code)
        texts.append(str(bool(value)).lower() if name == "bool" else f"{value:.6g}" if isinstance(value, float) else str(value))
    return "{" + ", ".join(texts) + (", …" if count > FIRST else "") + "}"


def array_text(array):
    if not int(array["buffer_"]["object_"]):
        return "undefined"
    shape, (name, code) = dims(array["shape_"]), dtype_row(array["dtype_"])
    device = device_text(array["buffer_"]["object_"]["device_"])
    text = f"{name} {shape} on {device}"
    if device != "cpu" or not code:
        return text
    try:
        return text + " " + values_text(array, shape, name, code)
    except UNREADABLE as error:
        return f"{text} (values cannot be read: {error})"


def node_name(node):
    """The name of a Node's op, read by its place: gdb itself would warn about the class of each rule."""
    for field in node.type.target().fields():
        if field.name == "name_":
            at = gdb.Value(int(node) + field.bitpos // 8)
            return at.cast(field.type.pointer()).dereference().string()
    return "of unknown name"


def tensor_text(tensor):
    impl = tensor["impl_"]["object_"]
    if not int(impl):
        return "undefined"
    text = array_text(impl["value"])
    node = impl["history"]["node"]["object_"]
    if int(node):
        return f"{text}, grad_fn {node_name(node)}"
    if int(impl["accumulator"]["object_"]):
        grad = int(impl["grad"]["impl_"]["object_"])
        return text + (", requires_grad, has a gradient" if grad else ", requires_grad")
    return text


def kind_of(type_name):
    """ "Linear" for "halftape::nn::LinearImpl". """
    name = type_name.split("<")[0].split("::")[-1]
    return name[:-4] if name.endswith("Impl") else name


class TextPrinter:
    """Prints what `make` says of a value; of a damaged or uninitialised one, that it is."""

    def __init__(self, prefix, make, value):
        self.prefix, self.make, self.value = prefix, make, value

    def to_string(self):
        try:
            return self.prefix + self.make(self.value)
        except UNREADABLE as error:
            return f"{self.prefix}(cannot be read: {error})"


class ModulePrinter:
    """The kind of a module, with its parameters, buffers and submodules as children."""

    def __init__(self, value):
        self.value, self.broken = value, False

    def to_string(self):
        kind = kind_of(str(self.value.type.strip_typedefs()))
        try:
            list(self.children())
            registered = text_of(self.value["place_"]["kind"]) if has_field(self.value.type, "place_") else ""
        except UNREADABLE as error:
            self.broken = True
            return f"{kind} (cannot be read: {error})"
        return registered or kind

    def children(self):
        if self.broken or not has_field(self.value.type, "parameters_"):
            return
        for dictionary in ("parameters_", "buffers_", "children_"):
            for item in elements(self.value[dictionary]["items_"]):
                name, value = text_of(item["pair_"]["first"]), item["pair_"]["second"]
                if dictionary == "children_":
                    pointer = pointer_of(value)
                    value = pointer.cast(pointer.dynamic_type).dereference()
                yield name, value



class HolderPrinter:
    """A ModuleHolder: the module that it holds."""

    def __init__(self, value, contained):
        pointer = pointer_of(value["impl_"])
        self.module = ModulePrinter(pointer.cast(contained.pointer()).dereference()) if int(pointer) else None

    def to_string(self):
        return self.module.to_string() if self.module else "empty"

    def children(self):
        return self.module.children() if self.module else iter(())


def bases(of):
    """A class and all that it derives from."""
    yield of
    if of.code == gdb.TYPE_CODE_STRUCT:
        for field in of.fields():
            if field.is_base_class:
                yield from bases(gdb.types.get_basic_type(field.type))


TEXTS = {
    "halftape::Tensor": ("Tensor ", tensor_text),
    "halftape::TensorBase": ("Tensor ", tensor_text),
    "halftape::Array": ("Array ", array_text),
    "halftape::Dims": ("", lambda value: str(dims(value))),
    "halftape::Dtype": ("", lambda value: dtype_row(value)[0]),
    "halftape::Device": ("", device_text),
}


def lookup(value):
    of = gdb.types.get_basic_type(value.type)
    if of.code not in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_ENUM) or not (of.name or ""):
        return None
    if of.name in TEXTS:
        prefix, make = TEXTS[of.name]
        return TextPrinter(prefix, make, value)
    if of.code != gdb.TYPE_CODE_STRUCT:
        return None
    for base in bases(of):
        if base.name == "halftape::nn::Module":
            return ModulePrinter(value)
        if base.name and base.name.startswith("halftape::nn::ModuleHolder<"):
            return HolderPrinter(value, base.template_argument(0))
    return None


lookup.__name__ = "halftape"
gdb.printing.register_pretty_printer(gdb.current_objfile(), lookup, replace=True)

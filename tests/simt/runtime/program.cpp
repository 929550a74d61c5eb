// Reads the ELF files of the running program: for its symbols, and for the static __shared__
// arrays.
#include "runtime/program.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

#include "threads/sanitizers.h"
#include "threads/shared_arrays.h"

namespace simt {
namespace {

struct Symbol {
  std::uintptr_t begin, end;
  std::string name;
};

/// An executable or shared library of this process that contains kernels.
struct Module {
  std::uintptr_t base;
  std::vector<Symbol> functions;
  struct Range {
    std::size_t offset, size;  // in the module's thread-local storage
  };
  std::vector<Range> shared_arrays;
};

template <class T>
const T* at(const std::vector<char>& file, std::size_t offset, std::size_t count = 1) {
  if (offset > file.size() || count * sizeof(T) > file.size() - offset) return nullptr;
  return reinterpret_cast<const T*>(file.data() + offset);
}

Module read(const dl_phdr_info& info) {
  Module module{.base = info.dlpi_addr, .functions = {}, .shared_arrays = {}};
  const char* path = *info.dlpi_name ? info.dlpi_name : "/proc/self/exe";
  std::error_code unreadable;
  const std::uintmax_t size = std::filesystem::file_size(path, unreadable);
  if (unreadable) return module;
  std::vector<char> file(size);
  std::ifstream(path, std::ios::binary).read(file.data(), std::streamsize(file.size()));
  const auto* header = at<ElfW(Ehdr)>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return module;
  const auto* sections = at<ElfW(Shdr)>(file, header->e_shoff, header->e_shnum);
  if (!sections || header->e_shstrndx >= header->e_shnum) return module;
  const std::size_t names = sections[header->e_shstrndx].sh_offset;
  std::uintptr_t thread_storage = 0;
  for (int i = 0; i < info.dlpi_phnum; ++i)
    if (info.dlpi_phdr[i].p_type == PT_TLS) thread_storage = info.dlpi_phdr[i].p_vaddr;
  for (int i = 0; i < header->e_shnum; ++i) {
    const ElfW(Shdr)& s = sections[i];
    const char* name = at<char>(file, names + s.sh_name);
    if (s.sh_flags & SHF_TLS && name && std::strncmp(name, "simt_shared", 11) == 0)
      module.shared_arrays.push_back({s.sh_addr - thread_storage, s.sh_size});
    if (s.sh_type != SHT_SYMTAB || s.sh_link >= header->e_shnum) continue;
    const std::size_t count = s.sh_size / sizeof(ElfW(Sym));
    const auto* symbols = at<ElfW(Sym)>(file, s.sh_offset, count);
    for (std::size_t k = 0; symbols && k < count; ++k) {
      if (ELF64_ST_TYPE(symbols[k].st_info) != STT_FUNC || !symbols[k].st_value) continue;
      const char* mangled = at<char>(file, sections[s.sh_link].sh_offset + symbols[k].st_name);
      const std::uintptr_t begin = module.base + symbols[k].st_value;
      if (mangled) module.functions.push_back({begin, begin + symbols[k].st_size, mangled});
    }
  }
  return module;
}

/// This program and the shared libraries that have thread-local storage of ours. Read once each.
std::mutex mutex;
std::map<std::uintptr_t, Module>& known_modules() {
  static std::map<std::uintptr_t, Module> modules;
  return modules;
}

const Module& module_of(const dl_phdr_info& info) {
  const std::lock_guard lock(mutex);
  auto [it, fresh] = known_modules().try_emplace(info.dlpi_addr);
  if (fresh) it->second = read(info);
  return it->second;
}

/// System libraries have no kernels, and reading them would take long.
bool may_have_kernels(const dl_phdr_info& info) {
  const std::string name = info.dlpi_name;
  return name.empty() || name.find("halftape") != std::string::npos;
}

std::string without_parameters(std::string name) {
  // "void f<(anonymous namespace)::T>(int)" -> "f<(anonymous namespace)::T>"
  if (!name.ends_with(')')) return name;
  int depth = 0;
  std::size_t i = name.size();
  do {
    --i;
    depth += name[i] == ')' ? 1 : name[i] == '(' ? -1 : 0;
  } while (i && depth);
  name.erase(i);
  if (name.starts_with("void ")) name.erase(0, 5);
  return name;
}

}  // namespace

std::string function_name(const void* address) {
  struct Search {
    std::uintptr_t address;
    std::string name;
  } search{reinterpret_cast<std::uintptr_t>(address), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        if (!may_have_kernels(*info)) return 0;
        auto& wanted = *static_cast<Search*>(data);
        for (const Symbol& s : module_of(*info).functions)
          if (s.begin <= wanted.address && wanted.address < s.end) return wanted.name = s.name, 1;
        return 0;
      },
      &search);
  if (search.name.empty()) return "kernel without a name";
  int status = 0;
  char* readable = abi::__cxa_demangle(search.name.c_str(), nullptr, nullptr, &status);
  std::string name = readable ? readable : search.name;
  std::free(readable);
  return without_parameters(std::move(name));
}

void poison_shared_arrays(unsigned char byte) {
  struct Range {
    char* begin;
    std::size_t size;
  };
  // Where they are in this OS thread is looked up once, the first time it runs a block.
  static thread_local const std::vector<Range> ranges = [] {
    std::vector<Range> found;
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* data) {
          if (!info->dlpi_tls_data || !may_have_kernels(*info)) return 0;
          for (const auto& [offset, size] : module_of(*info).shared_arrays)
            static_cast<std::vector<Range>*>(data)->push_back(
                {static_cast<char*>(info->dlpi_tls_data) + offset, size});
          return 0;
        },
        &found);
    return found;
  }();
  for (const Range& range : ranges) fill_own(range.begin, byte, range.size);
}

}  // namespace simt

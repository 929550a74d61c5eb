// The static __shared__ arrays of all kernels, found through the program's own section table.
#pragma once

// Each array goes to a section of its own: GCC has no section that both a function and an inline
// function put variables into, and leaves the arrays of templates where it likes. Shared memory
// cannot be initialised: see below.
#define SIMT_TEXT_(x) #x
#define SIMT_TEXT(x) SIMT_TEXT_(x)
#define SIMT_SHARED(number) \
  __attribute__((section("simt_shared" SIMT_TEXT(number)))) SIMT_CONSTINIT thread_local

namespace simt {

/// Fills this OS thread's copy of every static __shared__ array with `byte`. Not those of templates
/// where GCC compiled them.
void poison_shared_arrays(unsigned char byte);

}  // namespace simt

// Clang takes a struct without initialisers for one that has no constant one.
#ifdef __clang__
#define SIMT_CONSTINIT
#else
#define SIMT_CONSTINIT constinit
#endif

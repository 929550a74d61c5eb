// Marks variables that a header defines: a program and the shared library have one of them
// together, though the program is compiled with hidden visibility, as plugins and Python's
// extensions are.
#pragma once

#if defined(__ELF__)
#define HALFTAPE_SHARED [[gnu::visibility("default")]]
#else
#define HALFTAPE_SHARED
#endif

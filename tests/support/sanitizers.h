// With which sanitizer the tests are built.
#pragma once

#if defined(__SANITIZE_THREAD__)
#define HALFTAPE_THREAD_SANITIZER 1
#elif defined(__SANITIZE_ADDRESS__)
#define HALFTAPE_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HALFTAPE_THREAD_SANITIZER 1
#elif __has_feature(address_sanitizer)
#define HALFTAPE_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef HALFTAPE_ADDRESS_SANITIZER
#define HALFTAPE_ADDRESS_SANITIZER 0
#endif
#ifndef HALFTAPE_THREAD_SANITIZER
#define HALFTAPE_THREAD_SANITIZER 0
#endif
#define HALFTAPE_SANITIZED (HALFTAPE_ADDRESS_SANITIZER || HALFTAPE_THREAD_SANITIZER)

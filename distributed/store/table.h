// What all stores agree on.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "halftape/distributed/store/store.h"

namespace halftape::distributed {

inline constexpr size_t kLongestKey = 1024, kLongestValue = size_t{1} << 20;

/// Throw Error for a key or value that has a length that none may have.
void check_store_key(const std::string& key);
void check_store_value(const std::string& key, const std::string& value);
/// The number that `key` has, plus `amount`. Throws Error if its value is no number, or the sum is
/// none of 64 bits. An empty value is none.
int64_t sum_in_store(const std::string& key, const std::string& value, int64_t amount);
/// "no value after 60 s: \"a\", \"b\" and 3 more".
std::string without_value(const std::vector<std::string>& keys, milliseconds waited);
/// "60 s", "0.25 s".
std::string seconds_text(milliseconds time);

}  // namespace halftape::distributed

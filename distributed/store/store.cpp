// What all stores agree on, and the store with a prefix.
#include "halftape/distributed/store/store.h"

#include <charconv>
#include <utility>

#include "halftape/core/check.h"
#include "halftape/distributed/store/table.h"

namespace halftape::distributed {

void check_store_key(const std::string& key) {
  HALFTAPE_CHECK(!key.empty() && key.size() <= kLongestKey, "Store: a key has ", key.size(),
                 " bytes: 1 to ", kLongestKey, " are possible");
}

void check_store_value(const std::string& key, const std::string& value) {
  HALFTAPE_CHECK(value.size() <= kLongestValue, "Store: the value of \"", key, "\" has ",
                 value.size(), " bytes: up to ", kLongestValue,
                 " are possible; send larger ones by a collective call");
}

int64_t sum_in_store(const std::string& key, const std::string& value, int64_t amount) {
  int64_t number = 0, sum = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  HALFTAPE_CHECK(error == std::errc() && stop == end, "Store: add() to \"", key,
                 "\", whose value is no number: \"", value.substr(0, 40), "\"");
  HALFTAPE_CHECK(!__builtin_add_overflow(number, amount, &sum), "Store: add() of ", amount,
                 " to \"", key, "\", which has ", number, ": the sum has more than 64 bits");
  return sum;
}

std::string seconds_text(milliseconds time) {
  return detail::str(static_cast<double>(time.count()) / 1000, " s");
}

std::string without_value(const std::vector<std::string>& keys, milliseconds waited) {
  constexpr size_t kNamed = 8;
  std::string text = "no value after " + seconds_text(waited) + ":";
  for (size_t i = 0; i < keys.size() && i < kNamed; ++i)
    text += (i > 0 ? ", \"" : " \"") + keys[i] + "\"";
  if (keys.size() > kNamed) text += " and " + std::to_string(keys.size() - kNamed) + " more";
  return text;
}

milliseconds checked_timeout(const char* call, milliseconds timeout, milliseconds least) {
  constexpr milliseconds longest = std::chrono::hours(24 * 1000);
  HALFTAPE_CHECK(timeout >= least && timeout <= longest, call, ": a timeout of ", timeout.count(),
                 " ms; it must lie from ", least.count(), " ms to 1000 days");
  return timeout;
}

PrefixStore::PrefixStore(std::string prefix, std::shared_ptr<Store> store)
    : prefix_(std::move(prefix) + "/"), store_(std::move(store)) {
  HALFTAPE_CHECK(store_, "PrefixStore: the store is null");
}

void PrefixStore::set(const std::string& key, const std::string& value) {
  store_->set(prefix_ + key, value);
}
std::string PrefixStore::get(const std::string& key) { return store_->get(prefix_ + key); }
int64_t PrefixStore::add(const std::string& key, int64_t amount) {
  return store_->add(prefix_ + key, amount);
}

namespace {
std::vector<std::string> with_prefix(const std::string& prefix, std::vector<std::string> keys) {
  for (std::string& key : keys) key.insert(0, prefix);
  return keys;
}
}  // namespace

bool PrefixStore::check(const std::vector<std::string>& keys) {
  return store_->check(with_prefix(prefix_, keys));
}
void PrefixStore::wait(const std::vector<std::string>& keys) {
  store_->wait(with_prefix(prefix_, keys));
}
milliseconds PrefixStore::timeout() const { return store_->timeout(); }
void PrefixStore::set_timeout(milliseconds timeout) { store_->set_timeout(timeout); }

}  // namespace halftape::distributed

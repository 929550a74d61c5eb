// Does on purpose what each sanitizer is there to report: were one of these not reported, clean
// runs would mean nothing.
#include <climits>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <thread>
#include <vector>

namespace {

volatile int never_zero = 1;  // no compiler sees through it

int beyond_the_heap() {
  const std::vector<int> three(3);
  return three.data()[2 + never_zero];
}
int after_free() {
  const auto* const gone = new int(never_zero);
  delete gone;
  return *gone;
}
int signed_overflow() { return INT_MAX + never_zero; }
int leak() {
  static int* volatile kept;
  kept = new int[100];  // NOLINT: lost in the next line
  kept = nullptr;
  return 0;
}
int race() {
  int shared = 0;
  std::thread other([&] { shared = never_zero; });
  shared = 2;
  other.join();
  return shared;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  int result = 0;
  if (what == "beyond_the_heap") result = beyond_the_heap();
  if (what == "after_free") result = after_free();
  if (what == "signed_overflow") result = signed_overflow();
  if (what == "leak") result = leak();
  if (what == "race") result = race();
  std::cout << "unnoticed: " << what << ", " << result << "\n";
}

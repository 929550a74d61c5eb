// The least that a program does with the library: what it weighs is what every program carries.
#include <halftape/halftape.h>

#include <iostream>

int main() { std::cout << halftape::ones({2, 2}) + 1 << '\n'; }

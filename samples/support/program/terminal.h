// What stdout can do.
#pragma once
#include <string>
#include <string_view>

namespace terminal {

bool is_terminal();
/// Can a line be drawn over? Not in a file, nor where TERM is missing or "dumb"; on Windows, in a
/// console that takes escape codes.
bool can_redraw();
/// The same, and NO_COLOR is not set.
bool can_colour();
/// As the C library would choose it: LC_ALL before LC_CTYPE before LANG.
bool is_utf8();
/// In columns: the terminal's own, or what COLUMNS says; 80 where nobody knows.
int width();
/// `text` in the colour `code` ("36"), where there are colours.
std::string paint(std::string_view text, std::string_view code);
/// A bar of `width` columns, of which the part `done` (0…1) is full.
std::string bar(double done, int width);

}  // namespace terminal

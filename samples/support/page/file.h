// Self-contained HTML pages: inline SVG, no script, nothing loaded from elsewhere, fit to print.
#pragma once

#include <string>
#include <string_view>

#include "page.h"

namespace report {

/// The head of a page with its style, to which `style` is added, and the title, which is HTML, as
/// its first heading. The caller ends it with "</body></html>".
void open_page(Page& page, std::string_view title, std::string_view style = {});

/// Throws what write_page() would if `path` cannot be written; leaves nothing behind.
void check_writable(const std::string& path);
/// Writes a file as halftape::OutputFile does: whole or not at all. Throws halftape::FileError.
void write_page(const std::string& path, const std::string& text);

}  // namespace report

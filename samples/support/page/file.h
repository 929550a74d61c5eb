// Self-contained HTML pages: inline SVG, no script, nothing loaded from elsewhere, fit to print.
#pragma once

#include <string>
#include <string_view>

#include "page.h"

namespace report {

/// The head of a page with its style, to which `style` is added, and the title, which is HTML, as
/// its first heading. The caller ends it with "</body></html>".
void open_page(Page& page, std::string_view title, std::string_view style = {});

/// Throws std::runtime_error, as write_page would, when `path` cannot be written; leaves nothing
/// behind.
void check_writable(const std::string& path);

/// The file appears whole or not at all. Throws std::runtime_error with path and reason.
void write_page(const std::string& path, const std::string& text);

}  // namespace report

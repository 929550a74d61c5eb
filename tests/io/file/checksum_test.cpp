// CRC-32C against its RFC, and quoting for JSON.
#include <doctest/doctest.h>

#include <string>

#include "halftape/io/file/crc.h"
#include "halftape/io/file/json.h"
#include "halftape/tests/support/message.h"

using namespace halftape;

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c("123456789", 9) == 0xe3069283);
  CHECK(crc32c(std::string(32, '\0').data(), 32) == 0x8a9136aa);
  CHECK(crc32c(std::string(32, '\xff').data(), 32) == 0x62a8ab43);
  std::string up, down;
  for (char c = 0; c < 32; ++c) up += c, down += static_cast<char>(31 - c);
  CHECK(crc32c(up.data(), 32) == 0x46dd794e);
  CHECK(crc32c(down.data(), 32) == 0x113fdb5c);
  CHECK(crc32c("", 0) == 0);
}

TEST_CASE("CRC-32 gives the value of zip's and PNG's authors") {
  CHECK(crc32("123456789", 9) == 0xcbf43926);
  CHECK(crc32("IEND", 4) == 0xae426082);
}

TEST_CASE("the CRC-32C of bytes in two pieces is that of all, wherever they are cut") {
  std::string text;
  for (int i = 0; i < 100; ++i) text += static_cast<char>(i * 37);
  const uint32_t whole = crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut)
    CHECK(crc32c(&text[cut], text.size() - cut, crc32c(text.data(), cut)) == whole);
}

TEST_CASE("the CRC-32C of any bytes anywhere is the one that its polynomial defines") {
  std::string text;
  for (int i = 0; i < 70; ++i) text += static_cast<char>(i * 151 + 200);
  for (size_t from = 0; from < 9; ++from)
    for (size_t n = 0; from + n <= text.size(); ++n) {
      uint32_t sum = ~uint32_t{0};
      for (size_t i = 0; i < n; ++i) {
        sum ^= static_cast<uint8_t>(text[from + i]);
        for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0u);
      }
      CHECK(crc32c(&text[from], n) == ~sum);
    }
}

TEST_CASE("JSON strings quote what must be, and only UTF-8 goes through") {
  CHECK(json_quoted("a\"b\\c\n\x1f/\xc3\xa4") == "\"a\\\"b\\\\c\\u000a\\u001f/\xc3\xa4\"");
  CHECK(json_quoted("a\xff") == "\"a\xEF\xBF\xBD\"");
  for (const char* good : {"", "a", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    CHECK_MESSAGE(is_utf8(good), json_quoted(good));
  for (const char* bad :
       {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82", "\xff"})
    CHECK_FALSE_MESSAGE(is_utf8(bad), json_quoted(bad));
  CHECK(testing::has(testing::message([] { (void)json_quoted_exactly("\xff", "the name"); }),
                     "the name \"\xEF\xBF\xBD\" is not UTF-8"));
}

// Text: characters to numbers and back, and windows for language models.
#include "halftape/io/data/sets/text.h"

#include <doctest/doctest.h>

#include <cstdlib>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/autograd/ops/creation/random.h"
#include "halftape/io/data/loader.h"
#include "halftape/io/data/transforms.h"
#include "halftape/io/formats/idx.h"
#include "halftape/tests/io/data/data_files.h"
#include "halftape/tests/support/lists.h"
#include "halftape/tests/support/message.h"

using namespace halftape;
using namespace halftape::data;
using halftape::testing::DataFolder;
using halftape::testing::has;
using halftape::testing::message;
using testing::values;

TEST_CASE("characters are numbered in the order of their code points and come back") {
  const CharVocabulary v("hello, wörld €😀");
  CHECK(v.size() == 12);
  CHECK(v.characters() == " ,dehlorwö€😀");
  const Tensor tokens = v.encode("dö😀");
  CHECK(tokens.dtype() == kInt64);
  CHECK(values(tokens) == std::vector<double>{2, 9, 11});
  CHECK(v.decode(tokens) == "dö😀");
  CHECK(v.decode(v.encode("")).empty());
  const CharVocabulary again(v.characters());
  CHECK(values(again.encode("hello")) == values(v.encode("hello")));
}

TEST_CASE("characters and tokens outside the vocabulary are refused with their place") {
  const CharVocabulary v("abc");
  CHECK(has(message<DataError>([&] { (void)v.encode("abéd"); }),
            "byte 2: the character 'é' is none of the vocabulary's 3"));
  CHECK(has(message([&] {
              (void)v.decode(tensor({0, 3}));
            }),
            "token 3 at 1 is none of the vocabulary's 3"));
  CHECK(has(message([&] { (void)v.decode(tensor({-1})); }), "token -1 at 0"));
  CHECK(has(message([&] { (void)v.decode(ones({2})); }), "of an integer dtype"));
}

TEST_CASE("text that is not UTF-8 is refused with the byte at fault") {
  for (const std::string bad : {"ab\xff", "ab\xc3", "ab\xc3(", "ab\x80", "ab\xc0\xaf", "ab\xe2\x82",
                                "ab\xed\xa0\x80", "ab\xf5\x80\x80\x80"}) {
    CAPTURE(bad);
    CHECK(has(message<DataError>([&] { CharVocabulary v(bad); }), "byte 2: expected UTF-8"));
  }
}

TEST_CASE("every byte is its own token") {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const ByteVocabulary v;
  CHECK(v.size() == 256);
  const Tensor tokens = v.encode(all);
  CHECK(tokens.select(0, 255).item<int64_t>() == 255);
  CHECK(v.decode(tokens) == all);
  CHECK(has(message([&] { (void)v.decode(tensor({256})); }), "token 256"));
}

TEST_CASE("windows have the next token as target, at every place or piece by piece") {
  datasets::TextWindows every(arange(7), 3), pieces(arange(7), 3, 3);
  CHECK(every.size() == 4);
  CHECK(values(every.get(3).data) == std::vector<double>{3, 4, 5});
  CHECK(values(every.get(3).target) == std::vector<double>{4, 5, 6});
  CHECK(pieces.size() == 2);
  CHECK(values(pieces.get(1).data) == std::vector<double>{3, 4, 5});
  CHECK(datasets::TextWindows(arange(9), 3, 3).size() == 2);
  CHECK(datasets::TextWindows(arange(10), 3, 3).size() == 3);
  datasets::TextWindows bytes(arange(5).to(kUInt8), 4);
  CHECK(bytes.size() == 1);
  CHECK(bytes.get(0).target.dtype() == kInt64);
  CHECK(has(message([&] { every.get(4); }), "window 4 of 4"));
  CHECK(has(message([] { datasets::TextWindows(arange(3), 3); }),
            "3 tokens give no window of 3, which takes 4"));
  CHECK(has(message([] { datasets::TextWindows(arange(3), 0); }), "block_size 0"));
  CHECK(has(message([] { datasets::TextWindows(ones({3}), 1); }), "of an integer dtype"));
}

TEST_CASE("windows and strides at the ends of their range give one window or none") {
  const int64_t most = std::numeric_limits<int64_t>::max();
  CHECK(has(message([&] { datasets::TextWindows(arange(5), most); }),
            "give no window of 9223372036854775807, which takes 9223372036854775808"));
  CHECK(has(message([&] { datasets::TextWindows(arange(5), -most - 1); }), "must be at least 1"));
  datasets::TextWindows one(arange(5), 2, most);
  CHECK(one.size() == 1);
  CHECK(one.get(0).target.to_vector<int64_t>() == std::vector<int64_t>{1, 2});
  CHECK(has(message([&] { (void)one.get(~size_t{0}); }), "of 1"));
}

TEST_CASE("a file of text goes to batches for a language model") {
  const DataFolder folder;
  const std::string text = read_text(folder.file("a.txt", "abcabcabcabc\n"));
  const CharVocabulary v(text);
  auto loader =
      make_data_loader(datasets::TextWindows(v.encode(text), 4).map(transforms::Stack<>()),
                       DataLoaderOptions(3).workers(2));
  size_t windows = 0;
  for (auto& batch : *loader) {
    CHECK(batch.data.size(1) == 4);
    windows += static_cast<size_t>(batch.data.size(0));
    CHECK(batch.data.slice(1, 1).equal(batch.target.slice(1, 0, 3)));
  }
  CHECK(windows == 9);
  CHECK(has(message<DataError>([&] { (void)read_text(folder.file("e.txt", "")); }),
            "the file is empty"));
}

TEST_CASE("a text of one's own is read whole where HALFTAPE_TEXT names its file") {
  const char* file = std::getenv("HALFTAPE_TEXT");
  if (!file) {
    MESSAGE("HALFTAPE_TEXT is not set: no real text was read");
    return;
  }
  const std::string text = read_text(file);
  const CharVocabulary v(text);
  const Tensor tokens = v.encode(text);
  CHECK(v.decode(tokens) == text);
  CHECK(ByteVocabulary().decode(ByteVocabulary().encode(text)) == text);
  MESSAGE(tokens.size(0), " characters, ", v.size(), " different ones");
}

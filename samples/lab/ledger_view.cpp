// Where the gradients lie among the numbers that 16 bits have, at any scale.
#include <algorithm>
#include <cmath>
#include <map>

#include "lab_page.h"
#include "script.h"
#include "svg.h"
#include "verdict.h"

using namespace halftape;
using report::Axis;
using report::escape;
using report::Frame;
using report::Page;
using report::power;

namespace lab {
namespace {

constexpr int kLow = -45, kHigh = 25;    // powers of two that are drawn
constexpr int kLeast = -70, kMost = 30;  // and that the script gets: enough for 2^-10 … 2^40
constexpr size_t kMostPictures = 6, kMostMoments = 12;
constexpr size_t kMostData = 110'000;  // characters for the script

/// The gradients of one batch in float32, by module.
struct Moment {
  std::string text;  // "step 40"
  double scale = 1;  // of the training then
  std::map<std::string, amp::ExponentCounts> modules;
};

struct Modules {
  std::vector<std::string> names;  // in the order of their appearance
  std::vector<Moment> moments;
  Dtype dtype = kFloat16;

  void add(Moment& moment, const std::string& module, const amp::ExponentCounts& counts) {
    if (std::find(names.begin(), names.end(), module) == names.end()) names.push_back(module);
    moment.modules[module] += counts;
  }
};

/// Steps that were compared with float32; if there are none, the batches of the trials.
Modules in_backwards_order(const LabRun& run) {
  Modules m;
  m.dtype = run.dtype;
  int64_t last = -1;
  for (const amp::LedgerRow& row : run.rows) {
    const amp::LedgerPlace& place = run.places[row.place];
    if (!row.shadow || !is_16bit(place.dtype)) continue;
    if (row.step != last) m.moments.push_back({fmt::format("step {}", row.step), row.scale, {}});
    last = row.step;
    m.add(m.moments.back(), shown(place.module), *row.shadow);
  }
  if (!m.moments.empty()) return m;
  for (const LabRun::Trials& trials : run.trials) {
    Moment& moment =
        m.moments.emplace_back(Moment{fmt::format("after step {}", trials.step), trials.scale, {}});
    for (size_t i = 0; i < trials.at.places.size(); ++i)
      m.add(moment, shown(trials.at.places[i].module), trials.at.float32[i]);
  }
  return m;
}

Modules modules_of(const LabRun& run) {
  Modules m = in_backwards_order(run);
  std::reverse(m.names.begin(), m.names.end());
  return m;
}

struct Zone {
  std::string_view name, pale, strip, bar;
};
constexpr Zone kZones[] = {{"becomes zero", "#fcefec", "#f3cfc7", "#b5402a"},
                           {"subnormal", "#fdf7e6", "#f5e1ad", "#bd8412"},
                           {"normal", "#f0f7f1", "#cbe3cf", "#3d7f4a"},
                           {"infinite", "#f5f0f9", "#dccbea", "#7a4fa0"}};
constexpr size_t kNames = std::size(kZones);

/// The shares of the numbers that are not zero in each zone.
std::array<double, kNames> shares(const amp::ExponentCounts& counts, int shift, Dtype dtype) {
  const auto all = static_cast<double>(std::max<int64_t>(1, counts.numbers()));
  const int64_t gone = counts.vanishing(shift, dtype), low = counts.subnormal(shift, dtype),
                over = counts.overflowing(shift, dtype);
  const auto share = [&](int64_t n) { return static_cast<double>(n) / all; };
  return {share(gone), share(low), share(counts.numbers() - gone - low - over), share(over)};
}

/// The zone of numbers at 2^e · S, as nearly as powers of two tell.
size_t zone_at(int e, const Borders& b) {
  return e < b.vanishes ? 0 : e < b.least ? 1 : e < b.infinite ? 2 : 3;
}

/// The zones and axes of a histogram; `bars` draws in them.
template <class Bars>
void histogram(Page& page, const Frame& f, std::string_view label, Dtype dtype,
               const std::array<std::string, kNames>& above, const Bars& bars) {
  const Axis x = f.x(kLow, kHigh);
  const Borders b = borders_of(dtype);
  const int edges[] = {kLow, b.vanishes, b.least, b.infinite, kHigh};
  report::open_svg(page, f, label);
  for (size_t z = 0; z < kNames; ++z) {
    const double from = x(std::clamp(edges[z], kLow, kHigh)),
                 to = x(std::clamp(edges[z + 1], kLow, kHigh));
    if (from >= to) continue;
    page.add(
        "<rect x=\"{0:.1f}\" y=\"0\" width=\"{1:.1f}\" height=\"{2:g}\" fill=\"{3}\"/>"
        "<rect x=\"{0:.1f}\" y=\"{2:g}\" width=\"{1:.1f}\" height=\"{4:g}\" fill=\"{5}\"/>",
        from, to - from, f.top - 3, kZones[z].strip, f.height - f.bottom - f.top + 3,
        kZones[z].pale);
    page.add(
        "<text class=\"zone\" x=\"{0:.1f}\" y=\"{3:g}\" text-anchor=\"middle\">{1}</text>"
        "<text class=\"share\" x=\"{0:.1f}\" y=\"{4:g}\" text-anchor=\"middle\"{2}</text>\n",
        (from + to) / 2, kZones[z].name, above[z], 0.38 * f.top, 0.78 * f.top);
  }
  bars(x);
  for (const int e : {-40, -25, -14, 0, 16})
    report::x_label(page, f, x(e), power(std::ldexp(1.0, e), true));
  page.raw("</svg>\n");
}

/// One module's gradients at one moment, as the training scaled them.
void picture(Page& page, const Moment& moment, const std::string& name, Dtype dtype) {
  const amp::ExponentCounts& counts = moment.modules.at(name);
  const int shift = std::ilogb(moment.scale);
  const auto part = shares(counts, shift, dtype);
  std::array<std::string, kNames> above;
  for (size_t z = 0; z < kNames; ++z) above[z] = ">" + report::percent(part[z]);
  const Frame f{.width = 400, .height = 150, .left = 6, .right = 6, .top = 38, .bottom = 24};
  page.add("<figure><figcaption><b>{}</b> {} numbers, {} of them 0 in float32</figcaption>",
           escape(name), counts.total(), counts.zeros());
  const std::string label = fmt::format("{}: {} become zero, {} subnormal, {} normal, {} infinite",
                                        name, percent_number(part[0]), percent_number(part[1]),
                                        percent_number(part[2]), percent_number(part[3])) +
                            " percent";
  histogram(page, f, label, dtype, above, [&](const Axis& x) {
    std::array<int64_t, kHigh - kLow> bars{};
    for (int e = -126; e <= 127; ++e)
      bars[static_cast<size_t>(std::clamp(e + shift, kLow, kHigh - 1) - kLow)] += counts.at(e);
    const auto most =
        static_cast<double>(std::max<int64_t>(1, *std::max_element(bars.begin(), bars.end())));
    std::array<std::string, kNames> paths;
    for (int e = kLow; e < kHigh; ++e) {
      const auto n = static_cast<double>(bars[static_cast<size_t>(e - kLow)]);
      if (n == 0) continue;
      const double bottom = f.height - f.bottom, height = n / most * (bottom - f.top);
      paths[zone_at(e, borders_of(dtype))] +=
          fmt::format("M{:.1f} {:g}v{:.1f}h{:.1f}V{:g}", x(e) + 0.4, bottom, -height,
                      x(e + 1) - x(e) - 0.8, bottom);
    }
    for (size_t z = 0; z < kNames; ++z)
      if (!paths[z].empty()) page.add("<path fill=\"{}\" d=\"{}\"/>", kZones[z].bar, paths[z]);
  });
  page.raw("</figure>\n");
}

/// The modules that lose most at the moment's scale, in their order.
std::vector<std::string> worst(const Modules& m, const Moment& moment) {
  const auto lost = [&](const std::string& name) {
    const auto at = moment.modules.find(name);
    return at == moment.modules.end() ? -1
                                      : shares(at->second, std::ilogb(moment.scale), m.dtype)[0];
  };
  std::vector<std::string> sorted = m.names, result;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](auto& a, auto& b) { return lost(a) > lost(b); });
  sorted.resize(std::min(sorted.size(), kMostPictures));
  for (const std::string& name : m.names)
    if (moment.modules.contains(name) &&
        std::find(sorted.begin(), sorted.end(), name) != sorted.end())
      result.push_back(name);
  return result;
}

std::string base36(int64_t n) {
  std::string digits;
  do digits += "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
  while ((n /= 36) > 0);
  return {digits.rbegin(), digits.rend()};
}

/// `first exponent,"counts from there on"` of all numbers, or of the powers of two alone.
std::string bins(const amp::ExponentCounts& counts, bool powers) {
  std::map<int, int64_t> bins;
  if (!powers && counts.slots[0] > 0) bins[kLeast] += counts.slots[0];
  for (int e = -126; e <= 127; ++e) {
    const int64_t n = powers ? counts.slots[static_cast<size_t>(2 * (e + 127) + 1)] : counts.at(e);
    if (n > 0) bins[std::clamp(e, kLeast, kMost)] += n;
  }
  if (bins.empty()) return "0,\"\"";
  std::string text;
  for (int e = bins.begin()->first; e <= bins.rbegin()->first; ++e) {
    const auto at = bins.find(e);
    text += (text.empty() ? "" : " ") + (at == bins.end() ? "0" : base36(at->second));
  }
  return fmt::format("{},\"{}\"", bins.begin()->first, text);
}

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || c == '"' || c == '\\' || c == '<')
      out += fmt::format("\\u{:04x}", byte);
    else
      out += c;
  }
  return out + '"';
}

std::string json(const Modules& m, const Moment& moment) {
  std::string text = fmt::format("{{\"text\":{},\"scale\":{},\"modules\":[",
                                 json_string(moment.text), std::ilogb(moment.scale));
  for (const std::string& name : m.names) {
    const auto at = moment.modules.find(name);
    if (&name != &m.names.front()) text += ',';
    text += at == moment.modules.end()
                ? "null"
                : fmt::format("[{},{},{},{}]", at->second.total(), at->second.zeros(),
                              bins(at->second, false), bins(at->second, true));
  }
  return text + "]}";
}

/// As many moments as the page has room for.
std::string data(const Modules& m) {
  const Borders b = borders_of(m.dtype);
  std::vector<std::string> all;
  for (const Moment& moment : m.moments) all.push_back(json(m, moment));
  size_t most = kMostMoments, size = 0;
  do {
    size = 0;
    for (const size_t i : spread(all.size(), most)) size += all[i].size();
  } while (size > kMostData && --most > 1);
  std::string text = fmt::format("{{\"borders\":[{},{},{}],\"low\":{},\"high\":{},\"names\":[",
                                 b.vanishes, b.least, b.infinite, kLow, kHigh);
  for (const std::string& name : m.names)
    text += (&name == &m.names.front() ? "" : ",") + json_string(name);
  text += "],\"moments\":[";
  for (bool first = true; const size_t i : spread(all.size(), most)) {
    text += (first ? "\n" : ",\n") + all[i];
    first = false;
  }
  return text + "]}";
}

/// What the script fills; without a script it stays hidden.
void panel(Page& page, const Modules& m) {
  page.raw(
      "<div id=\"panel\" hidden>\n<h3>Move the scale</h3>\n"
      "<p>The bars are the float32 gradients of the chosen step. S moves them to the right by "
      "log<sub>2</sub>&thinsp;S: drag it, or use the arrow keys. Upstream of other losses a "
      "training "
      "loses a little more than the table says, for what is zero above is missing below.</p>\n"
      "<div class=\"controls\"><label>step <select id=\"moment\"></select></label>"
      "<label>picture of <select id=\"module\"></select></label>"
      "<label class=\"slide\"><span>loss scale S = <output id=\"scale_text\" "
      "for=\"scale\"></output>"
      "</span><input id=\"scale\" type=\"range\" min=\"-10\" max=\"40\" "
      "step=\"1\"></label></div>\n");
  const Frame f{.width = 640, .height = 236, .left = 6, .right = 6, .top = 50, .bottom = 30};
  std::array<std::string, kNames> above;
  for (size_t z = 0; z < kNames; ++z) above[z] = fmt::format(" id=\"share{}\">", z);
  histogram(page, f, "gradients by power of two, at the chosen scale", m.dtype, above,
            [&](const Axis&) {
              for (size_t z = 0; z < kNames; ++z)
                page.add("<path id=\"bars{}\" fill=\"{}\"/>", z, kZones[z].bar);
            });
  page.raw("<p id=\"summary\" role=\"status\"></p>\n");
  open_wide(page, "what the chosen scale makes of each module's gradients");
  page.raw(
      "<table class=\"map\"><caption><span>What S makes of each module's activation gradients, in "
      "percent of "
      "those that are not zero in float32</span></caption><thead><tr><th "
      "scope=\"col\">module</th>");
  for (const Zone& zone : kZones) page.add("<th scope=\"col\" class=\"n\">{}</th>", zone.name);
  page.raw(
      "<th scope=\"col\" class=\"n\">numbers</th><th scope=\"col\" class=\"n\">0 in "
      "float32</th></tr>"
      "</thead><tbody id=\"losses\"></tbody></table>");
  close_wide(page);
  page.add(
      "</div>\n<script type=\"application/json\" "
      "id=\"ledger\">{}</script>\n<script>{}</script>\n",
      data(m), kScript);
}

}  // namespace

void ledger_view(Page& page, const LabRun& run) {
  if (run.dtype == kFloat32) return;
  page.raw("<h2>Where the gradients lie</h2>\n");
  const Modules m = modules_of(run);
  if (m.moments.empty()) {
    page.raw("<p>No gradient was stored in 16 bits.</p>\n");
    return;
  }
  const Moment& last = m.moments.back();
  const std::vector<std::string> names = worst(m, last);
  page.add(
      "<p>{} stores the gradient of each op's value in 16 bits. Each bar counts those of a module "
      "between two powers of two, after the loss was multiplied by S. Shown is {}, at the scale "
      "that the training had then, S&nbsp;=&nbsp;{}{}. The shares are of the numbers that are not "
      "zero in float32.</p>\n<div class=\"trio\">\n",
      name(m.dtype), last.text, power(last.scale),
      names.size() < m.names.size()
          ? fmt::format("; of {} modules, the {} that lose most", m.names.size(), names.size())
          : "");
  for (const std::string& name : names) picture(page, last, name, m.dtype);
  page.raw("</div>\n");
  panel(page, m);
}

}  // namespace lab

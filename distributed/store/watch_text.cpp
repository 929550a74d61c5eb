// What a watch says, to people and on its connections.
#include <map>

#include "halftape/distributed/store/table.h"
#include "halftape/distributed/store/watch_sides.h"

namespace halftape::distributed::watch {

wire::Writer note(Note kind) { return wire::Writer(static_cast<uint8_t>(kind)); }

void write_progress(wire::Writer& note, const Progress& progress) {
  note.number64(progress.number).number64(progress.signature).number8(progress.inside);
  note.text(std::string_view(progress.call).substr(0, kLongestCall));
}

Progress read_progress(wire::Reader& note) {
  Progress progress;
  progress.number = note.number64();
  progress.signature = note.number64();
  progress.inside = note.number8() != 0;
  progress.call = note.text(kLongestCall);
  return progress;
}

std::string Address::bytes() const {
  wire::Writer text(1);  // the version
  text.text(host).number8(maybe_here).number32(port).number64(id).number64(token);
  return text.bytes();
}

Address Address::of(const std::string& bytes) {
  wire::Reader text(bytes);
  if (text.number8() != 1) throw wire::Malformed("an address of another version");
  Address address;
  address.host = text.text(kLongestHost);
  address.maybe_here = text.number8() != 0;
  address.port = static_cast<uint16_t>(text.number32());
  address.id = text.number64();
  address.token = text.number64();
  return address;
}

void Member::learn(const Progress& next, milliseconds now) {
  heard = now;
  if (next.number != progress.number || next.inside != progress.inside ||
      next.signature != progress.signature)
    since = now;
  progress = next;
}

std::string who(const Member& member) {
  std::string text = "rank " + std::to_string(member.rank) + " of " + std::to_string(member.size);
  if (member.state != Member::State::Absent)
    text += " (host " + member.host + ", pid " + std::to_string(member.pid) + ")";
  return text;
}

namespace {
std::string at_its_call(const Progress& progress) {
  if (progress.number == 0) return " before its first collective call";
  return (progress.inside ? " during " : " after ") + progress.call;
}
std::string what_it_does(const Progress& progress) {
  if (progress.number == 0) return "has made no collective call";
  return (progress.inside ? "is in " : "has ended ") + progress.call;
}
}  // namespace

std::string has_died(const Member& member) {
  return who(member) + " has died" + at_its_call(member.progress);
}

std::string has_dropped(const Member& member) {
  return who(member) + " has left without goodbye" + at_its_call(member.progress);
}

std::string is_silent(const Member& member, milliseconds timeout) {
  return who(member) + " has been silent for " + seconds_text(timeout) +
         (member.progress.number == 0 ? "; it has made no collective call"
                                      : "; its last known call was " + member.progress.call);
}

std::string is_needed(const Member& left, const Member& inside) {
  return who(left) + " has left the group" + at_its_call(left.progress) + ", and " + who(inside) +
         " is in " + inside.progress.call + ", which needs it";
}

std::string have_parted(const std::vector<Member>& members, milliseconds before) {
  struct Call {
    std::map<uint64_t, std::vector<const Member*>> by_signature;
  };
  std::map<uint64_t, Call> calls;
  for (const Member& m : members)
    if (m.state == Member::State::Here && m.progress.inside && m.since <= before)
      calls[m.progress.number].by_signature[m.progress.signature].push_back(&m);
  for (const auto& [number, call] : calls) {
    if (call.by_signature.size() < 2) continue;
    // The fewer ones stand first: they are more likely the wrong ones.
    std::vector<std::vector<const Member*>> groups;
    for (const auto& [signature, group] : call.by_signature) groups.push_back(group);
    std::sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
      return a.size() != b.size() ? a.size() < b.size() : a[0]->rank > b[0]->rank;
    });
    const Member& odd = *groups.front()[0];
    const Member& usual = *groups.back()[0];
    const bool same_name = odd.progress.call == usual.progress.call;
    return who(odd) + " is in " + odd.progress.call + " and " + who(usual) + " in " +
           usual.progress.call +
           (same_name ? ": the ranks call it with different shapes, dtypes or options"
                      : ": the ranks call different collectives");
  }
  return {};
}

std::string who_is_missing(const std::vector<Member>& members, int asker, uint64_t number,
                           milliseconds now, milliseconds period) {
  constexpr int kNamed = 8;
  std::string text;
  int missing = 0;
  for (const Member& m : members) {
    if (m.rank == asker || (m.progress.inside && m.progress.number == number)) continue;
    if (++missing > kNamed) continue;
    const bool past = m.progress.number >= number;
    text += (missing > 1 ? "; " : "") + who(m);
    text += past ? " is past it: it " : " has not come: it ";
    text += m.state == Member::State::Left ? "has left the group" + at_its_call(m.progress)
                                           : what_it_does(m.progress);
    if (m.state == Member::State::Here && now - m.heard > 4 * period)
      text += ", and was last heard " + seconds_text(now - m.heard) + " ago";
  }
  if (missing > kNamed)
    text += "; and " + std::to_string(missing - kNamed) + " more rank" +
            (missing == kNamed + 1 ? "" : "s");
  return missing > 0 ? text : "all other ranks are in it";
}

std::string ranks_text(const std::vector<int>& ranks) {
  constexpr size_t kNamed = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t n = std::min(ranks.size(), kNamed);
  for (size_t i = 0; i < n; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (ranks.size() > n) text += " and " + std::to_string(ranks.size() - n) + " more";
  return text;
}

void close_all(const std::vector<wire::Channel*>& channels, os::Deadline deadline) {
  for (;;) {
    std::vector<os::PolledSocket> polled;
    for (wire::Channel* channel : channels) {
      channel->flush();
      if (!channel->is_open() || !channel->has_unsent()) continue;
      polled.push_back(channel->polled());
      polled.back().for_reading = false;
    }
    if (polled.empty() || Clock::now() >= deadline) break;
    os::poll_sockets(polled, nullptr, deadline);
  }
  for (wire::Channel* channel : channels) {
    if (!channel->is_open()) continue;
    channel->socket().end_sending();
    // A connection that is closed with bytes unread is reset, and what was sent may be lost.
    char bytes[4096];
    while (channel->socket().receive_some(bytes, sizeof(bytes)) > 0) {
    }
    channel->close();
  }
}

}  // namespace halftape::distributed::watch

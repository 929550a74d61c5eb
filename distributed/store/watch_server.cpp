// Rank 0's end of a watch: it knows all processes, and judges.
#include <random>
#include <utility>

#include "halftape/distributed/store/table.h"
#include "halftape/distributed/store/watch_sides.h"

namespace halftape::distributed::watch {
namespace {

constexpr milliseconds kStrangerTime{10000};  // to say Hello

uint64_t random_number64() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

Server::Server(const WatchOptions& options, std::string host, int64_t pid)
    : Side(options),
      listener_(os::listen_at(0)),
      port_(listener_.port()),
      token_(random_number64()),
      members_(static_cast<size_t>(options.size)) {
  session = random_number64();
  for (size_t r = 0; r < members_.size(); ++r)
    members_[r].rank = static_cast<int>(r), members_[r].size = options.size;
  members_[0].host = std::move(host), members_[0].pid = pid;
  members_[0].state = Member::State::Here;
}

Address Server::address() const {
  Address address;
  address.port = port_, address.id = session, address.token = token_;
  return address;
}

void Server::listen(os::Deadline until) {
  const auto now = Clock::now();
  std::erase_if(guests_, [this, now](const Guest& g) {
    return !g.channel.is_open() || (g.rank < 0 && (all_here || now - g.came > kStrangerTime));
  });
  std::vector<os::PolledSocket> polled(1);
  if (now >= accepts_from_) polled[0].file = listener_.file();
  for (const Guest& guest : guests_) polled.push_back(guest.channel.polled());
  for (const Question& question : questions_) until = std::min(until, question.due);
  os::poll_sockets(polled, &wake_, until);
  clock_.tick();
  size_t i = 1;
  for (Guest& guest : guests_) {
    const os::PolledSocket& state = polled[i++];
    if (state.writable) guest.channel.flush();
    if (state.readable) read(guest);
  }
  if (polled[0].readable) accept_all();
  answer_questions();
}

void Server::accept_all() {
  int error = 0;
  while (os::Socket socket = os::accept_from(listener_, error)) {
    guests_.push_back({wire::Channel(std::move(socket), 1024), Clock::now()});
    wire::Writer greeting = note(Note::Greeting);
    greeting.text(kProtocol).number64(session).text(members_[0].host);
    greeting.number64(static_cast<uint64_t>(members_[0].pid));
    guests_.back().channel.send(greeting.bytes());
  }
  if (error != 0) accepts_from_ = Clock::now() + milliseconds(100);
}

void Server::read(Guest& guest) {
  const bool lives = guest.channel.receive();
  try {
    while (const std::optional<std::string> message = guest.channel.next()) hear(guest, *message);
    if (lives) return;
  } catch (const wire::Malformed&) {
    // A stranger, or a process whose memory is broken.
  }
  guest.channel.close();
  if (guest.rank < 0) return;
  Member& member = members_[static_cast<size_t>(guest.rank)];
  if (member.state != Member::State::Here) return;
  member.state = Member::State::Gone;
  dead_.push_back(guest.rank);
}

void Server::hear(Guest& guest, const std::string& message) {
  wire::Reader text(message);
  const auto kind = static_cast<Note>(text.number8());
  if (kind == Note::Hello && guest.rank < 0) return welcome(guest, text);
  if (guest.rank < 0) throw wire::Malformed("no Hello");
  Member& member = members_[static_cast<size_t>(guest.rank)];
  member.heard = clock_.now();
  switch (kind) {
    case Note::Beat:
      return member.learn(read_progress(text), clock_.now());
    case Note::Goodbye:
      member.learn(read_progress(text), clock_.now());
      member.state = Member::State::Left;
      return;
    case Note::Dropped:
      member.learn(read_progress(text), clock_.now());
      if (member.state == Member::State::Here) member.state = Member::State::Gone;
      member.dropped = clock_.now();
      return;
    case Note::Failed:
      if (told_.empty()) told_ = text.text(kLongestNote);
      return;
    case Note::Ask: {
      const uint64_t id = text.number64();
      return questions_.push_back(
          {guest.rank, id, text.number64(), Clock::now() + options_.period + options_.period / 4});
    }
    default:
      throw wire::Malformed("an unknown note");
  }
}

void Server::welcome(Guest& guest, wire::Reader& hello) {
  if (hello.number64() != token_) throw wire::Malformed("another group");
  const uint32_t rank = hello.number32(), size = hello.number32();
  Member came;
  came.host = hello.text(kLongestHost), came.pid = static_cast<int64_t>(hello.number64());
  came.rank = static_cast<int>(rank), came.size = static_cast<int>(size);
  came.state = Member::State::Here, came.heard = clock_.now();
  if (size != members_.size() || rank >= size) {
    told_ = who(came) + " came to a group of " + std::to_string(members_.size()) +
            ": the processes were started with different sizes of the group";
  } else if (members_[rank].state != Member::State::Absent) {
    told_ = who(came) + " and " + who(members_[rank]) + " have the same rank";
  } else {
    members_[rank] = std::move(came);
    guest.rank = static_cast<int>(rank);
    guest.channel.set_longest(kLongestNote);
    return;
  }
  guest.channel.send(note(Note::Failed).text(told_).bytes());
}

void Server::answer_questions() {
  const auto now = Clock::now();
  for (const Question& q : questions_) {
    if (q.due > now) continue;
    const std::string text =
        who_is_missing(members_, q.rank, q.number, clock_.now(), options_.period);
    if (q.rank == 0) answered = q.id, answer = text;
    for (Guest& guest : guests_)
      if (q.rank != 0 && guest.rank == q.rank)
        guest.channel.send(note(Note::Answer).number64(q.id).text(text).bytes());
  }
  std::erase_if(questions_, [now](const Question& q) { return q.due <= now; });
}

void Server::send_to_all(const wire::Writer& message) {
  for (Guest& guest : guests_)
    if (guest.rank >= 0) guest.channel.send(message.bytes());
}

void Server::beat(const Progress& mine) {
  calls_due_ = true;
  if (members_[0].state == Member::State::Here) members_[0].learn(mine, clock_.now());
  wire::Writer beat = note(Note::Beat);
  write_progress(beat, members_[0].progress);
  for (Guest& guest : guests_)  // one that takes nothing needs no second beat
    if (guest.rank >= 0 && !guest.channel.has_unsent()) guest.channel.send(beat.bytes());
}

std::string Server::judge() {
  if (!told_.empty()) return told_;
  std::string failure = judge_ends();
  if (failure.empty() && !all_here) failure = judge_meeting();
  if (failure.empty()) failure = judge_calls();
  const bool left = std::all_of(members_.begin(), members_.end(),
                                [](const Member& m) { return m.state == Member::State::Left; });
  if (left && !all_left) {
    all_left = true;
    send_to_all(note(Note::AllLeft));
  }
  return failure;
}

std::string Server::judge_ends() const {
  constexpr size_t kNamed = 4;
  std::string text;
  for (size_t i = 0; i < std::min(dead_.size(), kNamed); ++i)
    text += (i > 0 ? "; " : "") + has_died(members_[static_cast<size_t>(dead_[i])]);
  if (dead_.size() > kNamed)
    text += "; and " + std::to_string(dead_.size() - kNamed) +
            (dead_.size() == kNamed + 1 ? " more rank has died" : " more ranks have died");
  if (!text.empty()) return text;
  for (const Member& m : members_) {
    if (m.rank != 0 && m.state == Member::State::Here && clock_.now() - m.heard > options_.timeout)
      return is_silent(m, options_.timeout);
    // Later than a death, which may be the reason why it went.
    if (m.state == Member::State::Gone && clock_.now() - m.dropped >= options_.period)
      return has_dropped(m);
  }
  return {};
}

std::string Server::judge_meeting() {
  std::vector<int> absent;
  for (const Member& m : members_)
    if (m.state == Member::State::Absent) absent.push_back(m.rank);
  if (absent.empty()) {
    all_here = true;
    listener_.close();
    send_to_all(note(Note::AllHere));
  } else if (clock_.now() >= options_.timeout) {
    return ranks_text(absent) + " of " + std::to_string(options_.size) +
           (absent.size() == 1 ? " has" : " have") + " not come within " +
           seconds_text(options_.timeout);
  }
  return {};
}

std::string Server::judge_calls() {
  // Of each message that comes it would be too much in a large group.
  if (!std::exchange(calls_due_, false)) return {};
  const milliseconds before = clock_.now() - 2 * options_.period;
  const Member* left = nullptr;  // the one that made the fewest calls
  for (const Member& m : members_)
    if (m.state == Member::State::Left && (!left || m.progress.number < left->progress.number))
      left = &m;
  for (const Member& m : members_)
    if (left && m.state == Member::State::Here && m.progress.inside && m.since <= before &&
        m.progress.number > left->progress.number)
      return is_needed(*left, m);
  return have_parted(members_, before);
}

void Server::tell(const std::string& failure) {
  send_to_all(note(Note::Failed).text(failure.substr(0, kLongestNote / 2)));
}

void Server::say_goodbye(const Progress& mine) {
  members_[0].learn(mine, clock_.now());
  members_[0].state = Member::State::Left;
  wire::Writer goodbye = note(Note::Goodbye);
  write_progress(goodbye, mine);
  send_to_all(goodbye);
}

void Server::ask(uint64_t question, uint64_t number) {
  questions_.push_back({0, question, number, Clock::now() + options_.period + options_.period / 4});
}

void Server::finish(bool dropped, const Progress& mine) {
  if (dropped) {
    wire::Writer text = note(Note::Dropped);
    write_progress(text, mine);
    send_to_all(text);
  }
  std::vector<wire::Channel*> channels;
  for (Guest& guest : guests_) channels.push_back(&guest.channel);
  close_all(channels, Clock::now() + options_.period);
}

}  // namespace halftape::distributed::watch

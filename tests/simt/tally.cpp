#include "tally.h"

#include <istream>
#include <ostream>
#include <sstream>

namespace simt {
namespace {

constexpr Order kOrders[] = {Order::Forward, Order::Reverse, Order::Random};

}  // namespace

std::string plain_name(std::string name) {
  name.erase(std::min(name.find('<'), name.size()));
  return name.substr(name.rfind(':') + 1);
}

const char* name(Order order) {
  return order == Order::Forward ? "forward" : order == Order::Reverse ? "reverse" : "random";
}

void Tally::add(const std::string& kernel, Order order, Operands operands, std::int64_t launches) {
  launches_[kernel][{order, operands}] += launches;
}

bool Tally::read(std::istream& in) {
  std::string kernel, order, line;
  std::size_t combinations = 0;
  while (std::getline(in, kernel)) {
    if (!(in >> combinations)) return false;
    for (; combinations > 0; --combinations) {
      Operands operands;
      std::int64_t launches = 0;
      if (!(in >> order >> operands.dtypes >> operands.shapes >> launches)) return false;
      for (const Order o : kOrders)
        if (order == name(o)) add(kernel, o, operands, launches);
    }
    std::getline(in, line);
  }
  return true;
}

void Tally::write(std::ostream& out) const {
  for (const auto& [kernel, combinations] : launches_) {
    out << kernel << '\n' << combinations.size() << '\n';
    for (const auto& [c, launches] : combinations)
      out << name(c.order) << ' ' << c.operands.dtypes << ' ' << c.operands.shapes << ' '
          << launches << '\n';
  }
}

std::set<std::string> Tally::kernels(Order order) const {
  std::set<std::string> all;
  for (const auto& [kernel, combinations] : launches_)
    for (const auto& [c, launches] : combinations)
      if (c.order == order) all.insert(plain_name(kernel));
  return all;
}

std::string Tally::line() const {
  std::set<std::string> kernels;
  std::set<std::uint64_t> dtypes, shapes;
  std::set<Order> orders;
  std::size_t combinations = 0;
  std::int64_t launches = 0;
  for (const auto& [kernel, all] : launches_) {
    kernels.insert(plain_name(kernel));
    combinations += all.size();
    for (const auto& [c, n] : all) {
      dtypes.insert(c.operands.dtypes);
      shapes.insert(c.operands.shapes);
      orders.insert(c.order);
      launches += n;
    }
  }
  std::ostringstream text;
  text << "rig: " << kernels.size() << " kernels (" << launches_.size() << " instantiations) x "
       << dtypes.size() << " dtypes of operands x " << shapes.size() << " shapes x "
       << orders.size() << " orders of threads: " << combinations << " of these combinations ran, "
       << launches << " launches";
  return text.str();
}

}  // namespace simt

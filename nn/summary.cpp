#include "halftape/nn/summary.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include "halftape/autograd/ops/creation/create.h"
#include "halftape/core/machine/scoped_value.h"
#include "halftape/core/random/random.h"

namespace halftape::nn {

/// The look of summary() at one model.
class SummaryPass final : detail::ResultWatcher {
 public:
  explicit SummaryPass(Module& model) : model_(model) { visit(model, "", 0); }

  void run(const std::vector<SummaryInput>& inputs, const detail::SummaryForward& forward) {
    const NoGradGuard no_grad;
    const Unchanged unchanged(*this);
    const ScopedValue<detail::ResultWatcher*> watch(detail::result_watcher, this);
    std::vector<Tensor> given;
    given.reserve(inputs.size());
    for (const SummaryInput& input : inputs) given.push_back(tensor_of(input));
    gave(model_, false, forward(given));
    summary.rows.front().calls = 1;  // its own forward() may have told of the same call
    summary.ran = true;
    for (const auto& [module, bytes] : output_bytes_) summary.output_bytes += bytes;
  }

  Summary summary;

 private:
  /// While it lives, the model is in evaluation and has copies of what forward() may change.
  class Unchanged {
   public:
    explicit Unchanged(const SummaryPass& pass) {
      try {
        for (Module* module : pass.modules_) {
          for (const auto& buffer : module->buffers_) lend_copy(buffer.value());
          training_.emplace_back(module, module->training_);
        }
      } catch (...) {
        restore();
        throw;
      }
      for (Module* module : pass.modules_) module->training_ = false;  // no train() of the user's
    }
    ~Unchanged() { restore(); }
    Unchanged(const Unchanged&) = delete;
    Unchanged& operator=(const Unchanged&) = delete;

   private:
    void restore() noexcept {
      for (const auto& [module, training] : training_) module->training_ = training;
      // From the last one: a tensor with two names was lent twice.
      for (auto lent = lent_.rbegin(); lent != lent_.rend(); ++lent)
        lent->first.set_data(lent->second);
    }
    void lend_copy(const Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_leaf()) return;
      const Tensor copy = tensor.detach().clone();
      lent_.emplace_back(tensor, tensor.detach());
      tensor.set_data(copy);
    }

    std::vector<std::pair<Module*, bool>> training_;
    std::vector<std::pair<Tensor, Tensor>> lent_;  // a tensor, and its own values
    RandomScope random_{get_random_state()};
  };

  void visit(Module& module, const std::string& path, int depth) {
    Summary::Row row;
    row.path = path;
    row.kind = module.kind();
    row.depth = depth;
    row.repeated = !row_of_.emplace(&module, summary.rows.size()).second;
    if (row.repeated) {
      summary.rows.push_back(row);
      return;
    }
    modules_.push_back(&module);
    for (const Tensor& parameter : module.parameters(false)) {
      row.parameters += parameter.numel();
      row.bytes += parameter.nbytes();
      if (!first_floating_.defined() && parameter.is_floating_point()) first_floating_ = parameter;
      if (!counted_.insert(parameter.impl()).second) continue;
      summary.parameters += parameter.numel();
      summary.trained += parameter.requires_grad() ? parameter.numel() : 0;
      summary.parameter_bytes += parameter.nbytes();
    }
    for (const Tensor& buffer : module.buffers(false))
      if (counted_.insert(buffer.impl()).second) summary.buffer_bytes += buffer.nbytes();
    summary.rows.push_back(row);
    for (const auto& child : module.named_children())
      visit(*child.value(), detail::joined(path, child.key()), depth + 1);
  }

  Tensor tensor_of(const SummaryInput& input) const {
    if (input.value.defined()) return input.value;
    const bool known = first_floating_.defined();
    const Dtype dtype = input.dtype.value_or(known ? first_floating_.dtype() : kFloat32);
    const Device device = known ? first_floating_.device() : get_default_device();
    return zeros(input.sizes, TensorOptions(dtype).device(device));
  }

  void gave(const Module& module, bool again, const std::vector<Tensor>& results) override {
    const auto at = row_of_.find(&module);
    if (at == row_of_.end()) return;  // not registered
    Summary::Row& row = summary.rows[at->second];
    row.outputs.clear();
    size_t bytes = 0;
    for (const Tensor& t : results) {
      if (!t.defined()) continue;
      row.outputs.push_back({t.sizes(), t.dtype()});
      bytes += t.nbytes();
    }
    if (again || !module.named_children().is_empty()) {
      row.calls += again ? 0 : 1;
      return;
    }
    ++row.calls;
    size_t& sum = output_bytes_[&module];
    sum = (&module == &model_ ? 0 : sum) + bytes;
  }

  Module& model_;
  std::vector<Module*> modules_;
  std::map<const Module*, size_t> row_of_;
  std::map<const Module*, size_t> output_bytes_;
  std::set<const void*> counted_;
  Tensor first_floating_;
};

Summary detail::summarise(Module& model, const std::vector<SummaryInput>& inputs,
                          const SummaryForward& forward) {
  SummaryPass pass(model);
  if (forward) pass.run(inputs, forward);
  return std::move(pass.summary);
}

namespace {

/// 1234567 → "1,234,567".
std::string grouped(size_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

using Cells = std::array<std::string, 4>;

Cells cells_of(const Summary::Row& row) {
  const std::string name = row.path.substr(row.path.rfind('.') + 1);
  Cells cells{std::string(static_cast<size_t>(2 * row.depth), ' ') +
                  (row.path.empty() ? row.kind : name + " (" + row.kind + ")"),
              "", "", ""};
  if (row.repeated) {
    cells[1] = "as above";
    return cells;
  }
  std::ostringstream outputs;
  for (const Summary::Output& o : row.outputs) {
    outputs << (outputs.tellp() > 0 ? ", " : "") << o.sizes;
    if (o.dtype != kFloat32) outputs << ' ' << o.dtype;
  }
  if (row.calls > 1) outputs << " x" << row.calls;
  cells[1] = outputs.str();
  if (row.parameters > 0)
    cells[2] = grouped(static_cast<size_t>(row.parameters)), cells[3] = grouped(row.bytes);
  return cells;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Summary& s) {
  std::vector<Cells> table{{"module", s.ran ? "output" : "", "parameters", "bytes"}};
  for (const Summary::Row& row : s.rows) table.push_back(cells_of(row));
  std::array<size_t, 4> widths{};
  for (const Cells& cells : table)
    for (size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  for (const Cells& cells : table) {
    std::ostringstream line;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (widths[i] == 0) continue;
      line << (i > 0 ? "  " : "") << (i < 2 ? std::left : std::right)
           << std::setw(static_cast<int>(widths[i])) << cells[i];
    }
    const std::string text = line.str();
    out << text.substr(0, text.find_last_not_of(' ') + 1) << '\n';
  }
  const auto parameters = static_cast<size_t>(s.parameters),
             trained = static_cast<size_t>(s.trained);
  out << grouped(parameters) << " parameters";
  if (trained < parameters) out << ", " << grouped(trained) << " of them trained";
  out << "\nbytes: " << grouped(s.parameter_bytes) << " of parameters, " << grouped(s.buffer_bytes)
      << " of buffers";
  if (s.ran) out << ", " << grouped(s.output_bytes) << " of outputs of layers";
  return out << "; " << grouped(s.parameter_bytes + s.buffer_bytes + s.output_bytes) << " in all\n";
}

}  // namespace halftape::nn

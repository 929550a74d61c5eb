// The file holds the tensors "NAME.…" of each part, and as metadata its numbers and text
// "NAME.KEY". The keys of the run itself begin with "run.".
#include "halftape/io/run/train_state.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "halftape/io/file/byte_order.h"
#include "halftape/io/file/file.h"
#include "halftape/io/file/json.h"

namespace halftape {
namespace {

using safetensors::Contents;
using Mismatches = std::vector<std::string>;

constexpr const char *kModule = "module", *kOptimizer = "optimizer", *kAsync = "async_optimizer",
                     *kNumbers = "numbers", *kText = "text", *kNewest = "_newest";
constexpr std::string_view kRun = "run", kPart = "run.part.", kRandom = "run.random.";

template <class T>
T number_of(std::string_view text, const std::string& key) {
  const std::optional<T> number = number_in<T>(text);
  HALFTAPE_CHECK(number, "TrainState: \"", key, "\": expected a number, found \"", text, "\"");
  return *number;
}

constexpr std::string_view kMt19937 = "mt19937";

/// "SEED OFFSET", followed by "mt19937 POSITION NEXT_NORMAL WORD WORD …" for an Mt19937.
std::string generator_text(const Generator& g) {
  std::string text = text_of(g.seed) + ' ' + text_of(g.offset);
  if (const auto& mt = g.mt19937) {
    text.append(" ").append(kMt19937) += ' ' + text_of(mt->position) + ' ';
    text += mt->next_normal ? text_of(*mt->next_normal) : "-";
    for (const uint32_t word : mt->words) text += ' ' + text_of(word);
  }
  return text;
}

Generator generator_of(const std::string& text, const std::string& key) {
  std::string_view rest = text;
  const auto next = [&rest] {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    return word;
  };
  Generator g;
  g.seed = number_of<uint64_t>(next(), key);
  g.offset = number_of<uint64_t>(next(), key);
  if (rest.empty()) return g;
  HALFTAPE_CHECK(next() == kMt19937, "TrainState: \"", key, "\": an unknown kind of generator");
  Mt19937& mt = g.mt19937.emplace();
  mt.position = number_of<uint32_t>(next(), key);
  if (const std::string_view waiting = next(); waiting != "-")
    mt.next_normal = number_of<double>(waiting, key);
  for (uint32_t& word : mt.words) word = number_of<uint32_t>(next(), key);
  HALFTAPE_CHECK(rest.empty(), "TrainState: \"", key, "\": more words than an mt19937 has");
  return g;
}

/// The entries whose keys begin with `prefix`, without it.
std::map<std::string, std::string> below(const safetensors::Metadata& all,
                                         std::string_view prefix) {
  std::map<std::string, std::string> found;
  for (auto it = all.lower_bound(std::string(prefix));
       it != all.end() && it->first.starts_with(prefix); ++it)
    found.emplace(it->first.substr(prefix.size()), it->second);
  return found;
}

TrainState::Numbers numbers_below(const safetensors::Metadata& all, const std::string& prefix) {
  TrainState::Numbers numbers;
  for (const auto& [key, value] : below(all, prefix))
    numbers[key] = number_of<double>(value, prefix + key);
  return numbers;
}

safetensors::Tensors below(const safetensors::Tensors& all, const std::string& prefix) {
  std::vector<safetensors::Tensors::Item> found;
  for (const auto& item : all)
    if (item.key().starts_with(prefix)) found.push_back(item);
  return safetensors::Tensors(std::move(found));
}

std::string group(const std::string& part, size_t i) {
  return part + ".group" + std::to_string(i) + ".";
}

// --- Optimizers: "NAME.PARAMETER.KEY" is a tensor of the state, "NAME.parameter.PARAMETER" the
// parameter's group, and "NAME.group0.lr" an option. "NAME.place.PARAMETER" is the parameter's
// number in the optimizer, if its state is ordered.

using Names = std::map<const detail::TensorImpl*, std::string>;
Names names_of(const std::vector<std::pair<std::string, nn::Module*>>& modules) {
  Names names;
  for (const auto& [name, module] : modules)
    for (const auto& item : module->named_parameters())
      names.emplace(item.value().impl(), name + "." + item.key());
  return names;
}

using Groups = std::vector<optim::OptimizerParamGroup>;
/// The group of each parameter, by name.
std::map<std::string, size_t> groups_of(const std::string& part, const Groups& all,
                                        const Names& names) {
  std::map<std::string, size_t> groups;
  for (size_t g = 0; g < all.size(); ++g) {
    for (const Tensor& p : all[g].params()) {
      const auto name = names.find(p.impl());
      HALFTAPE_CHECK(name != names.end(), "TrainState: a parameter ", p.sizes(), " of \"", part,
                     "\" belongs to none of the modules that were added; add its module, too");
      groups[name->second] = g;
    }
  }
  return groups;
}

void save_optimizer(const std::string& name, const Groups& groups, const Names& names,
                    const optim::OptimizerState& state, Contents& draft) {
  const std::string group_of = name + ".parameter.", state_of = name + ".";
  for (const auto& [parameter, g] : groups_of(name, groups, names))
    draft.metadata[group_of + parameter] = std::to_string(g);
  for (size_t g = 0; g < state.groups.size(); ++g)
    for (const auto& [key, value] : state.groups[g])
      draft.metadata[group(name, g) + key] = text_of(value);
  const std::vector<Tensor> parameters = optim::parameters_of(groups);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string& parameter = names.at(parameters[i].impl());
    if (state.ordered) draft.metadata[(name + ".place.").append(parameter)] = std::to_string(i);
    std::string prefix = state_of + parameter;
    prefix += '.';
    for (const auto& [key, value] : state.state[i])
      draft.tensors.insert(prefix + key, Tensor(value));
  }
}

void compare_optimizer(const std::string& name, const Groups& groups, const Names& names,
                       const Contents& saved, Mismatches& mismatches) {
  const auto here = groups_of(name, groups, names);
  const auto there = below(saved.metadata, name + ".parameter.");
  const auto differ = [&](const std::string& expected, const std::string& parameter,
                          const std::string& found) {
    mismatches.push_back("\"" + name + "\": expected " + expected + " \"" + parameter + "\"" +
                         found);
  };
  for (const auto& [parameter, g] : here) {
    const auto found = there.find(parameter);
    if (found == there.end())
      differ("the parameter", parameter, ", found none of that name");
    else if (const std::string group = std::to_string(g); found->second != group)
      differ("the parameter", parameter,
             " in group " + group + ", found it in group " + found->second);
  }
  for (const auto& [parameter, g] : there)
    if (!here.contains(parameter)) differ("no parameter", parameter, ", found one");
  const std::vector<Tensor> parameters = optim::parameters_of(groups);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string &parameter = names.at(parameters[i].impl()), number = std::to_string(i);
    const auto found = saved.metadata.find((name + ".place.").append(parameter));
    if (found != saved.metadata.end() && found->second != number)
      differ("the parameter", parameter,
             " as number " + number + ", found it as number " + found->second +
                 ", and the state fits one order of the parameters alone");
  }
}

optim::OptimizerState saved_optimizer(const std::string& name, const Groups& all,
                                      const Names& names, const Contents& saved) {
  optim::OptimizerState state;
  for (size_t g = 0; g < all.size(); ++g)
    state.groups.push_back(numbers_below(saved.metadata, group(name, g)));
  std::map<std::string, optim::ParamState> by_name;
  for (const auto& item : below(saved.tensors, name + ".")) {
    const size_t dot = item.key().rfind('.');
    by_name[item.key().substr(name.size() + 1, dot - name.size() - 1)][item.key().substr(dot + 1)] =
        item.value().array();
  }
  for (const Tensor& p : optim::parameters_of(all))
    state.state.push_back(by_name[names.at(p.impl())]);
  return state;
}

// An asynchronous optimizer whose model is one step behind also saves "NAME.PARAMETER._newest", the
// model's next weights. The module's part has the present ones.

void save_async(const std::string& name, optim::AsyncOptimizer& optimizer, const Names& names,
                Contents& draft) {
  const optim::AsyncOptimizerState state = optimizer.state_dict();
  save_optimizer(name, optimizer.param_groups(), names, state.optimizer, draft);
  draft.metadata[name + ".async.steps"] = text_of(state.steps);
  draft.metadata[name + ".async.stale"] = state.stale ? "1" : "0";
  if (!state.stale) return;
  for (size_t i = 0; i < state.newest.size(); ++i)
    draft.tensors.insert(name + "." + names.at(optimizer.parameters()[i].impl()) + "." + kNewest,
                         Tensor(state.newest[i]));
}

void load_async(const std::string& name, optim::AsyncOptimizer& optimizer, const Names& names,
                const Contents& saved) {
  const auto own = numbers_below(saved.metadata, name + ".async.");
  HALFTAPE_CHECK(own.contains("steps") && own.contains("stale"), "no step and no staleness there");
  const double steps = own.at("steps");
  HALFTAPE_CHECK(steps >= 0 && steps <= 0x1p53 && steps == std::floor(steps), "it has ", steps,
                 " steps, expected a whole number from 0 on");
  optim::AsyncOptimizerState state{saved_optimizer(name, optimizer.param_groups(), names, saved),
                                   {},
                                   {},
                                   static_cast<int64_t>(steps),
                                   own.at("stale") != 0};
  for (size_t i = 0; i < optimizer.parameters().size(); ++i) {
    // The model's present weights, which are also the newest ones unless the model is behind.
    state.weights.push_back(optimizer.parameters()[i].array().clone());
    optim::ParamState& of_one = state.optimizer.state[i];
    const auto newest = of_one.find(kNewest);
    HALFTAPE_CHECK((newest != of_one.end()) == state.stale, "a parameter ",
                   state.weights.back().shape(), state.stale ? " lacks its" : " has",
                   " newest weights");
    state.newest.push_back(state.stale ? newest->second : state.weights.back());
    if (state.stale) of_one.erase(newest);
  }
  optimizer.load_state_dict(state);
}

}  // namespace

struct TrainState::Part {
  std::string name;
  std::string kind;
  std::function<void(Contents&)> save;
  std::function<void(const Contents&)> load;
  std::function<void(const Contents&, Mismatches&)> compare = [](const Contents&, Mismatches&) {};
  bool reads_modules = false;  // its load() reads their weights, and is repeated after theirs
};

TrainState::TrainState() = default;
TrainState::~TrainState() = default;

void TrainState::add(Part part) {
  const auto taken = [&](const Part& other) { return other.name == part.name; };
  HALFTAPE_CHECK(!part.name.empty() &&
                     part.name.find_first_of(std::string_view(".\0", 2)) == std::string::npos &&
                     is_utf8(part.name) && part.name != kRun && part.name != "halftape" &&
                     std::none_of(parts_.begin(), parts_.end(), taken),
                 "TrainState::add: a part cannot be called \"", part.name,
                 "\": its name is empty, not UTF-8, has a dot or a zero byte, is \"run\" or "
                 "\"halftape\", or is taken");
  parts_.push_back(std::move(part));
}

void TrainState::add(const std::string& name, nn::Module& module) {
  const auto tensors = [&module, prefix = name + "."] {
    std::vector<safetensors::Tensors::Item> named;
    for (const auto& item : detail::named_tensors(module))
      named.emplace_back(prefix + item.key(), item.value());
    return safetensors::Tensors(std::move(named));
  };
  add({.name = name,
       .kind = kModule,
       .save = [tensors](Contents& draft) { draft.tensors.update(tensors()); },
       .load = [tensors](const Contents& saved) { detail::copy_values(tensors(), saved.tensors); },
       .compare =
           [tensors, prefix = name + "."](const Contents& saved, Mismatches& mismatches) {
             detail::compare(tensors(), below(saved.tensors, prefix), Strict::Yes, mismatches);
           }});
  modules_.emplace_back(name, &module);
}

void TrainState::add(const std::string& name, optim::Optimizer& optimizer) {
  add({.name = name,
       .kind = kOptimizer,
       .save =
           [=, this, &optimizer](Contents& draft) {
             save_optimizer(name, optimizer.param_groups(), names_of(modules_),
                            optimizer.state_dict(), draft);
           },
       .load =
           [=, this, &optimizer](const Contents& saved) {
             optimizer.load_state_dict(
                 saved_optimizer(name, optimizer.param_groups(), names_of(modules_), saved));
           },
       .compare =
           [=, this, &optimizer](const Contents& saved, Mismatches& m) {
             compare_optimizer(name, optimizer.param_groups(), names_of(modules_), saved, m);
           }});
}

void TrainState::add(const std::string& name, optim::AsyncOptimizer& optimizer) {
  add({.name = name,
       .kind = kAsync,
       .save = [=, this, &optimizer](
                   Contents& draft) { save_async(name, optimizer, names_of(modules_), draft); },
       .load =
           [=, this, &optimizer](const Contents& saved) {
             load_async(name, optimizer, names_of(modules_), saved);
           },
       .compare =
           [=, this, &optimizer](const Contents& saved, Mismatches& m) {
             compare_optimizer(name, optimizer.param_groups(), names_of(modules_), saved, m);
           },
       .reads_modules = true});
}

void TrainState::add(const std::string& name, Generator& generator) {
  static constexpr const char* key = "generator";
  add_text(
      name,
      [&generator] {
        return Text{{key, generator_text(generator)}};
      },
      [&generator, name](const Text& saved) {
        const auto found = saved.find(key);
        HALFTAPE_CHECK(found != saved.end(), "TrainState: \"", name, "\" is no generator there");
        generator = generator_of(found->second, name);
      });
}

void TrainState::add_numbers(const std::string& name, std::function<Numbers()> save,
                             std::function<void(const Numbers&)> load) {
  add({.name = name,
       .kind = kNumbers,
       .save =
           [prefix = name + ".", save = std::move(save)](Contents& draft) {
             for (const auto& [key, value] : save()) draft.metadata[prefix + key] = text_of(value);
           },
       .load = [prefix = name + ".", load = std::move(load)](
                   const Contents& saved) { load(numbers_below(saved.metadata, prefix)); }});
}

void TrainState::add_text(const std::string& name, std::function<Text()> save,
                          std::function<void(const Text&)> load) {
  add({.name = name,
       .kind = kText,
       .save =
           [prefix = name + ".", save = std::move(save)](Contents& draft) {
             for (const auto& [key, value] : save()) draft.metadata[prefix + key] = value;
           },
       .load = [prefix = name + ".", load = std::move(load)](
                   const Contents& saved) { load(below(saved.metadata, prefix)); }});
}

// --- The file.

void TrainState::save(const std::filesystem::path& path) const {
  Contents draft;
  for (const Part& part : parts_) {
    draft.metadata[std::string(kPart) + part.name] = part.kind;
    part.save(draft);
  }
  draft.metadata["run.step"] = text_of(step);
  const RandomState random = get_random_state();
  draft.metadata[std::string(kRandom) + "seed"] = text_of(random.seed);
  if (random.cpu_engine == RandomEngine::Mt19937)
    draft.metadata[std::string(kRandom) + "engine"] = kMt19937;
  for (const auto& [device, generator] : random.generators)
    draft.metadata[std::string(kRandom) + device.str()] = generator_text(generator);
  safetensors::save_file(draft.tensors, path, draft.metadata);
}

namespace {

void compare_parts(const auto& parts, const Contents& saved, Mismatches& mismatches) {
  auto there = below(saved.metadata, kPart);
  for (const auto& part : parts) {
    const auto found = there.find(part.name);
    if (found == there.end())
      mismatches.push_back("expected the part \"" + part.name + "\", found none of that name");
    else if (found->second != part.kind)
      mismatches.push_back("expected the part \"" + part.name + "\" to be of the kind " +
                           part.kind + ", found " + found->second);
    else
      part.compare(saved, mismatches);
    there.erase(part.name);
  }
  for (const auto& [name, kind] : there) {
    mismatches.push_back("expected no part \"" + name);
    mismatches.back() += "\", found one of the kind " + kind;
  }
}

/// All parts and the random generators, or none.
void load_parts(const auto& parts, const Contents& saved, const RandomState& random) {
  Contents before, of_modules;
  for (const auto& part : parts) part.save(part.kind == kModule ? of_modules : before);
  for (const auto& item : of_modules.tensors)  // the others gave copies
    before.tensors.insert(item.key(), Tensor(item.value().array().clone()));
  // Modules come after the others, which may refuse their state.
  std::vector<std::pair<decltype(&parts[0]), bool>> order;  // and whether an Error may be a refusal
  for (const auto& part : parts)
    if (part.kind != kModule) order.emplace_back(&part, true);
  for (const auto& part : parts)
    if (part.kind == kModule) order.emplace_back(&part, false);
  for (const auto& part : parts)
    if (part.reads_modules) order.emplace_back(&part, false);

  auto at = order.begin();
  // What looks at the modules comes after them. One that threw has changed nothing.
  const auto undo = [&](bool also_this) {
    const auto end = at + (also_this && at != order.end() && at->first->kind != kModule);
    for (const bool module : {true, false})
      for (auto done = order.begin(); done != end; ++done)
        if ((done->first->kind == kModule) == module) done->first->load(before);
  };
  const auto may_refuse = [&] { return at != order.end() && at->second; };
  try {
    for (; at != order.end(); ++at) at->first->load(saved);
    set_random_state(random);
  } catch (const std::exception& error) {
    const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) ||
                           dynamic_cast<const OutOfMemoryError*>(&error);
    const bool refused = !no_memory && may_refuse();
    undo(!refused);
    if (!refused) throw;
    throw Error("TrainState::load: \"" + at->first->name +
                "\" refuses its state, and nothing was changed: " + error.what());
  } catch (...) {  // a caller's function may throw anything
    undo(!may_refuse());
    throw;
  }
}

}  // namespace

void TrainState::load(const std::filesystem::path& path) {
  const Contents saved = safetensors::read_file(path);
  const auto at = saved.metadata.find("run.step");
  if (at == saved.metadata.end() || !saved.has_checksum)
    fail_file("TrainState", path,
              "expected a checkpoint, found a safetensors file that no TrainState saved");
  Mismatches mismatches;
  compare_parts(parts_, saved, mismatches);
  detail::refuse("TrainState::load: " + path.string() + " does not fit this run", mismatches);
  const auto saved_step = number_of<int64_t>(at->second, "step");
  RandomState random;
  for (const auto& [device, text] : below(saved.metadata, kRandom)) {
    if (device == "seed")
      random.seed = number_of<uint64_t>(text, device);
    else if (device == "engine")
      random.cpu_engine = RandomEngine::Mt19937;
    else
      random.generators.emplace_back(Device(device), generator_of(text, device));
  }
  load_parts(parts_, saved, random);
  step = saved_step;
}

}  // namespace halftape

// One program of calls on small tensors that share memory, beside a plain interpreter of their
// values.
//
// A program is a list of instructions in bytes. Values are whole numbers of at most 512, so that
// every result is exact in float32 and has one right value in each dtype. The library may refuse an
// instruction with an Error, and then must not have changed a value.
#pragma once
#include <cstddef>
#include <functional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "halftape/autograd/tensor.h"
#include "plain.h"
#include "target.h"

namespace halftape::fuzz {

class Program {
 public:
  explicit Program(std::string_view input) : in_(input) {}
  /// True if the library took half of the instructions or more. Throws Finding for a wrong value.
  bool run();

 private:
  struct Register {
    Tensor tensor;
    Plain plain;
  };
  /// What the interpreter finds no meaning in, the library must refuse.
  struct MustRefuse {
    const char* why;
  };
  struct Operation;
  struct Function;

  /// One instruction; false if the library refused it.
  bool step();
  void check(const Register& r, size_t i) const;
  Register& any();
  Dtype any_dtype();
  void keep(Tensor tensor, Plain plain);
  int64_t any_dim(const Plain& p);
  const Operation& operation();
  const Function& function();
  /// Writes f of every index, values of the dtype `from`, into `to`: all are read before one is
  /// written.
  static void write_all(const Plain& to, Dtype from, const std::function<double(const Index&)>& f);
  /// Numbers, some of which lie outside the dimension.
  std::pair<Tensor, Index> positions(int64_t n, int64_t size);
  /// Where nothing is picked, a position does not matter.
  static void check_positions(const Index& at, int64_t size, const Index& picked);

  // The instructions.
  void make();
  void view();
  void binary();
  void assign();
  void unary();
  void reduce();
  void join();
  void indexed();
  void write();
  void product_of_two();

  Reader in_;
  std::vector<Register> registers_;
  std::ostringstream trace_;
};

}  // namespace halftape::fuzz

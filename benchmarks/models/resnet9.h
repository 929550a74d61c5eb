// He et al. 2016, "Deep Residual Learning for Image Recognition", with eight convolutions, as
// D. Page's entry to DAWNBench has it.
#pragma once
#include <halftape/halftape.h>

inline halftape::nn::Sequential convolution(int64_t in, int64_t out, bool pool = false) {
  using namespace halftape::nn;
  Sequential s{Conv2d(Conv2dOptions(in, out, 3).padding(1).bias(false)), BatchNorm2d(out), ReLU()};
  if (pool) s->push_back(MaxPool2d(2));
  return s;
}

struct ResNet9Impl : halftape::nn::Module {
  ResNet9Impl() {
    register_module("stem", stem);
    register_module("first", first);
    register_module("rise", rise);
    register_module("second", second);
    register_module("head", head);
  }
  /// x: (N, 3, 32, 32) → the scores of 10 classes, (N, 10).
  halftape::Tensor forward(const halftape::Tensor& x) {
    halftape::Tensor y = stem->forward(x);
    y = y + first->forward(y);
    y = rise->forward(y);
    y = y + second->forward(y);
    return head->forward(max_pool2d(y, 4).flatten(1));
  }
  halftape::nn::Sequential stem{convolution(3, 64), convolution(64, 128, true)},
      first{convolution(128, 128), convolution(128, 128)},
      rise{convolution(128, 256, true), convolution(256, 512, true)},
      second{convolution(512, 512), convolution(512, 512)};
  halftape::nn::Linear head{512, 10};
};
HALFTAPE_MODULE(ResNet9);

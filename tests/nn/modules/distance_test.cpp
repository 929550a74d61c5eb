// Distances between vectors as modules; their values are the ops'.
#include <doctest/doctest.h>

#include <halftape/halftape.h>

#include <cmath>

using namespace halftape;

TEST_CASE("CosineSimilarity and PairwiseDistance are the functions with their options") {
  const Tensor a = tensor({{3.0, 4.0}, {1.0, 0.0}}, kFloat64);
  const Tensor b = tensor({{4.0, 3.0}, {0.0, 2.0}}, kFloat64);
  CHECK(nn::CosineSimilarity()(a, b).allclose(tensor({0.96, 0.0}, kFloat64)));
  CHECK(nn::CosineSimilarity(nn::CosineSimilarityOptions().dim(0))(a, b).allclose(
      cosine_similarity(a, b, 0)));
  CHECK(nn::PairwiseDistance()(a, b).allclose(tensor({std::sqrt(2.0), std::sqrt(5.0)}, kFloat64),
                                              1e-5));
  const auto l1 = nn::PairwiseDistanceOptions().p(1).keepdim(true);
  CHECK(nn::PairwiseDistance(l1)(a, b).allclose(tensor({{2.0}, {3.0}}, kFloat64), 1e-5));
}

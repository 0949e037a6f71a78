#include <pentad/kernels/adamw.hpp>

#include "arrays.hpp"

#include <vector>

using namespace arrays;

namespace {

/// PyTorch's single-tensor AdamW, step after step, in f64.
struct Reference {
    std::vector<double> weights, first, second;
    void step(std::vector<double> const& gradients, int t, kernels::AdamWSettings const& s) {
        for (std::size_t i = 0; i < weights.size(); ++i) {
            double const g = gradients[i] * s.gradient_scale;
            weights[i] *= 1 - s.learning_rate * s.weight_decay;
            first[i] = s.beta1 * first[i] + (1 - s.beta1) * g;
            second[i] = s.beta2 * second[i] + (1 - s.beta2) * g * g;
            double const step_size = s.learning_rate / (1 - std::pow(s.beta1, t));
            double const denominator = std::sqrt(second[i]) / std::sqrt(1 - std::pow(s.beta2, t)) + s.epsilon;
            weights[i] -= step_size * first[i] / denominator;
        }
    }
};

} // namespace

TEST_CASE_TEMPLATE("adamw follows PyTorch's formula over several steps", T, f64, f32, bf16) {
    using A = accumulator_t<T>;
    kernels::AdamWSettings const settings{.learning_rate = 0.01,
                                          .beta1 = 0.9,
                                          .beta2 = 0.95,
                                          .epsilon = 1e-6,
                                          .weight_decay = 0.1,
                                          .gradient_scale = 0.25};
    for (int const n : {0, 1, 7, 65, 9000}) {
        auto const master = Vector<A>::random(n, 1);
        Vector<T> const used(n);
        Vector<A> const first(n), second(n);
        Reference reference{master.get(), first.get(), second.get()};
        for (int t = 1; t <= 4; ++t) {
            auto const gradients = Vector<A>::random(n, 10 + t, 3);
            kernels::adamw<T>(Exec(), used.view(), master.view(), gradients.view(), first.view(), second.view(), t,
                              settings);
            reference.step(gradients.get(), t, settings);
        }
        double const limit = std::is_same_v<A, f64> ? 1e-14 : 1e-6;
        CHECK(difference(master.get(), reference.weights) <= limit);
        CHECK(difference(first.get(), reference.first) <= limit);
        CHECK(difference(second.get(), reference.second) <= limit);
        auto rounded = master.get();
        for (auto& value : rounded) value = as_double(from_double<T>(value));
        CHECK(used.get() == rounded);
    }
}

TEST_CASE("parameters may be their own masters") {
    auto const alone = Vector<f32>::random(65, 1), master = Vector<f32>::random(65, 1),
               gradients = Vector<f32>::random(65, 2);
    Vector<f32> const used(65), first(65), second(65), first_alone(65), second_alone(65);
    kernels::adamw<f32>(Exec(), used.view(), master.view(), gradients.view(), first.view(), second.view(), 1, {});
    kernels::adamw<f32>(Exec(), alone.view(), alone.view(), gradients.view(), first_alone.view(), second_alone.view(),
                        1, {});
    CHECK(alone.get() == used.get());
    CHECK(alone.get() == master.get());
}

TEST_CASE("a gradient of zero only decays, and nothing is divided by zero") {
    auto const weights = Vector<f64>::random(7, 1);
    Vector<f64> const zeros(7), first(7), second(7);
    auto expected = weights.get();
    for (auto& value : expected) value *= 1 - 1e-3 * 0.5;
    kernels::adamw<f64>(Exec(), weights.view(), weights.view(), zeros.view(), first.view(), second.view(), 1,
                        {.weight_decay = 0.5});
    CHECK(difference(weights.get(), expected) <= 1e-15);
}

TEST_CASE("steps count from 1") {
    Vector<f32> const x(1);
    CHECK_THROWS_WITH_AS(kernels::adamw<f32>(Exec(), x.view(), x.view(), x.view(), x.view(), x.view(), 0, {}),
                         "adamw: step is 0, it must be at least 1", std::invalid_argument);
}

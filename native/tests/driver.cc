// Every variant of the kernel that this processor runs, without Python: for the sanitizers.
//
// Rings of four and eleven nodes with a slack, a node that holds its magnitude and two loads, lanes that cannot be solved among
// those that can, and a last tile that is not full. Each variant must find what the first one found.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <vector>

#include "kernel.h"

using namespace powerzoo;

namespace {

// Ring 0-1-..-0 of n nodes, each branch with series admittance g + j b and a charging susceptance.
struct Ring {
  const int n;
  std::vector<int32_t> order, unknown, y_row{0}, y_col, l_row{0}, l_col, u_row{0}, u_col, ends;
  std::vector<double> y_off, y_own, v_base, branch;
  std::vector<float> lower, upper, inverse;
  Network net;

  explicit Ring(int n) : n(n), inverse(4 * n) {
    const double g = 2, b = -8, c = 0.05;
    for (int i = 0; i < n; i++) {
      const int next = (i + 1) % n, before = (i + n - 1) % n;
      order.push_back(i), unknown.insert(unknown.end(), {i > 0, i > 1});
      y_col.insert(y_col.end(), {std::min(next, before), std::max(next, before)}), y_row.push_back(2 * i + 2);
      // a node that is eliminated joins the next one and the last
      for (int k = i + 1 < n ? i - 1 : 0; k >= 0 && k < i; k++) l_col.push_back(k);
      if (i + 1 < n) u_col.push_back(i + 1);
      if (i + 2 < n) u_col.push_back(n - 1);
      l_row.push_back(int(l_col.size())), u_row.push_back(int(u_col.size()));
      ends.insert(ends.end(), {i, next, 2 * i + (next > before), 2 * next + (i > (next + 1) % n)});
      y_off.insert(y_off.end(), {-g, -b, -g, -b}), y_own.insert(y_own.end(), {2 * g, 2 * (b + c)});
      v_base.insert(v_base.end(), {1, 0}), branch.insert(branch.end(), {g, b + c, -g, -b, -g, -b, g, b + c, g, b, 1, 0});
    }
    lower.resize(4 * l_col.size()), upper.resize(4 * u_col.size());
    net = {n, n, order.data(), unknown.data(), y_row.data(), y_col.data(), l_row.data(), l_col.data(), u_row.data(),
           u_col.data(), ends.data(), y_off.data(), y_own.data(), v_base.data(), branch.data(), lower.data(),
           upper.data(), inverse.data()};
  }
};

template <class Real>
int check(const Kernel &kernel, const Solvers<Real> &solvers, Ring &ring, bool by_lane, bool bounded) {
  constexpr int batch = 37;
  const int n = ring.n;
  const Real nan = std::numeric_limits<Real>::quiet_NaN(), inf = std::numeric_limits<Real>::infinity();
  std::vector<Real> p(batch * n), q(batch * n), v_set(batch * n, Real(1.02)), on(batch * n, 1), e(batch * n), f(batch * n), d(batch * n), g(batch * n);
  std::vector<Real> residual(batch), x(batch * n), y(batch * n), flow(6 * batch * n), left(4 * batch * n, 1);
  std::vector<int32_t> steps(batch), status(batch), holds(batch * n);
  for (int k = 0; k < batch; k++) {
    p[k * n + 1] = Real(0.3), p[k * n + 2] = Real(-0.01) * k, p[k * n + 3] = Real(-0.2), q[k * n + 3] = Real(-0.1);
    holds[k * n] = holds[k * n + 1] = 1, on[k * n + k % 4] = k % 3 ? 1 : 0;
  }
  p[5 * n + 2] = nan, q[7 * n + 3] = inf, p[9 * n + 3] = Real(1e30), p[11 * n + 2] = -500, v_set[13 * n + 1] = 0;
  Given<Real> in{batch, p.data(), q.data(), v_set.data(), by_lane ? on.data() : nullptr, by_lane ? holds.data() : nullptr};
  void *work = std::aligned_alloc(64, kernel.work_bytes(ring.net));
  kernel.factor(ring.net, ring.lower.data(), ring.upper.data(), ring.inverse.data(), work);
  const int64_t tiles = (batch + LANES - 1) / LANES;
  const bool floats = sizeof(Real) == 4;
  const Solution<Real> out{e.data(), f.data(), floats ? d.data() : nullptr, floats ? g.data() : nullptr,
                           residual.data(), steps.data(), status.data()};
  if (bounded) {
    const int32_t bus[1] = {1};
    const Real low[1] = {Real(-0.1)}, high[1] = {Real(0.05)};
    std::vector<int32_t> at(batch), rounds(batch), settled(batch);
    solvers.bounded(ring.net, in, {1, bus, low, high, at.data(), rounds.data(), settled.data()}, out, {1e-6, 20, 10}, 9, 0,
                    tiles, work);
    for (int k = 0; k < batch; k++)  // a node at a limit gives it
      holds[k * n + 1] = !at[k], q[k * n + 1] += at[k] > 0 ? high[0] : at[k] < 0 ? low[0] : 0;
    in.holds = holds.data();
  } else {
    solvers.solve(ring.net, in, out, {1e-6, 20, 10}, 0, tiles, work);
  }
  Rest<Real> rest{};
  if (!floats) rest.d_re = &left[0], rest.d_im = &left[batch * n];
  rest.p_left = &left[2 * batch * n], rest.q_left = &left[3 * batch * n];
  for (int k = 0; k < 6; k++) rest.ends[k] = &flow[k * batch * n];
  const Real *const state[4] = {e.data(), f.data(), out.d_re, out.d_im};
  solvers.rest(ring.net, in, state, status.data(), rest, 0, tiles, work);
  std::vector<Real> half(n, Real(0.05)), r(n, Real(2.0 / 68)), shunt(2 * n), result(8 * batch * n), sums(4 * batch);
  std::vector<int32_t> held(n);
  const int32_t slack = 0;
  held[0] = held[1] = 1;
  Rest<Real> flows{};
  flows.p_left = &result[6 * batch * n], flows.q_left = &result[7 * batch * n], flows.shunt = shunt.data();
  flows.half_charging = half.data(), flows.r = r.data(), flows.holds = held.data(), flows.slack = &slack;
  for (int k = 0; k < 6; k++) flows.ends[k] = &result[k * batch * n];
  for (int k = 0; k < 4; k++) flows.sums[k] = &sums[k * batch];
  solvers.rest(ring.net, in, state, status.data(), flows, 0, tiles, work);
  const Real *given[4] = {e.data(), f.data(), p.data(), q.data()};
  Real *found[2] = {x.data(), y.data()};
  for (bool transposed : {false, true}) solvers.linear(ring.net, in, given, found, transposed, 0, tiles, work);
  std::free(work);
  int wrong = 0;
  for (int k = 0; k < batch; k++) {
    const bool bad = k == 5 || k == 7 || k == 13, lost = k == 9 || k == 11;
    wrong += bad ? status[k] != BAD_INPUT : lost ? status[k] == CONVERGED : status[k] != CONVERGED;
    // what enters the branches is lost in them
    double lost_p = -sums[k];
    for (int i = 0; i < n; i++) lost_p += result[(2 * batch + k) * n + i] + result[(4 * batch + k) * n + i];
    wrong += !bad && !lost && !(std::fabs(lost_p) < 1e-5 && sums[k] >= 0);
    for (int i = 0; i < n; i++) {
      wrong += !std::isfinite(e[k * n + i]) || !std::isfinite(f[k * n + i]);
      // nothing is left at a node with a load
      if (!bad && !lost && i > 1) wrong += !(std::fabs(left[(2 * batch + k) * n + i]) < 1e-6);
    }
  }
  return wrong;
}

// The ring with two busbars at every bus, a unit at the first two, a load at the others and a shunt at the last.
template <class Real>
int check_split(const Kernel &kernel, const Solvers<Real> &solvers, const Ring &ring, bool dc) {
  constexpr int batch = 531, buses = 4, branches = 4, elements = 13, nodes = 2 * buses;
  const std::vector<int32_t> at{0, 1, 2, 3, 1, 2, 3, 0, 0, 1, 2, 3, 3}, holds{1, 1};
  const std::vector<double> push{0.12, 0, 0.12, 0.01, 0.12, 0, 0.12, 0}, shunt{0.01, 0.05}, v_set{1, 1.01, 1, 1};
  const Substations sub{buses, branches, 2, 1, elements, 0, 32, ring.order.data(), at.data(), holds.data(),
                        ring.branch.data(), push.data(), shunt.data(), ring.v_base.data(), v_set.data()};
  std::vector<int8_t> topology(batch * elements, 1);
  std::vector<Real> p(batch * nodes), q(batch * nodes), x(6 * batch * nodes), flow(6 * batch * branches), residual(batch);
  std::vector<int32_t> steps(batch), status(batch);
  std::unique_ptr<bool[]> in_use(new bool[batch * nodes]);
  unsigned draw = 1;
  for (int k = 0; k < batch; k++)
    for (int e = 0; e < elements; e++) {
      draw = draw * 1664525u + 1013904223u;
      if (k % 3 && draw >> 28 < 5) topology[k * elements + e] = int8_t(draw >> 24 & 3);  // 3 is no busbar
    }
  for (int k = 0; k < batch; k++) {
    for (int i = 0; i < nodes; i++) p[k * nodes + i] = Real(i % buses == 1 ? 0.3 : i % buses == 0 ? 0 : -0.1);
    if (k % 50 == 7) p[k * nodes + 2] = std::numeric_limits<Real>::quiet_NaN();
    if (k % 50 == 9) q[k * nodes + 3] = -500;
  }
  const Split<Real> in{batch, topology.data(), p.data(), q.data(), nullptr, dc};
  Real *part[6], *end[6];
  for (int h = 0; h < 6; h++) part[h] = &x[h * batch * nodes], end[h] = &flow[h * batch * branches];
  const SplitState<Real> out{{nullptr, nullptr, nullptr, nullptr, residual.data(), steps.data(), status.data()},
                             part[0], part[1], part[2], part[3], in_use.get(),
                             {end[0], end[1], end[2], end[3], end[4], end[5]}};
  const int64_t tiles = (batch + LANES - 1) / LANES;
  void *work = std::aligned_alloc(64, (kernel.split_bytes(sub) + 63) / 64 * 64);
  solvers.split(sub, in, out, {1e-8, 0, 10}, 0, tiles, work);
  const Real *given[4] = {part[0], part[1], part[2], part[3]};
  Real *found[2] = {part[4], part[5]};
  for (bool transposed : {false, true}) solvers.split_linear(sub, in, given, found, transposed, 0, tiles, work);
  std::free(work);
  int wrong = 0, solved = 0;
  for (int k = 0; k < batch; k++) {
    bool odd = false;
    for (int e = 0; e < elements; e++) odd |= topology[k * elements + e] > 2;
    solved += status[k] == CONVERGED;
    wrong += odd != (status[k] == BAD_INPUT && odd) || (k % 3 == 0 && k % 50 != 7 && k % 50 != 9 && status[k] != CONVERGED);
    for (int i = 0; i < nodes; i++) {
      for (int h = 0; h < 6; h++) wrong += !std::isfinite(part[h][k * nodes + i]);
      // what is given is injected where nothing is held
      if (status[k] == CONVERGED && i % buses > 1 && in_use[k * nodes + i])
        wrong += !(std::fabs(part[2][k * nodes + i] - p[k * nodes + i]) < (sizeof(Real) == 4 ? 1e-6 : 1.1e-8));
    }
  }
  return wrong + (solved < batch / 3);
}

}  // namespace

int main() {
  int wrong = 0;
  for (const Kernel *const *each = kernels(); *each; ++each)
    for (int way = 0; way < 3; way++) {
      const bool by_lane = way == 1, bounded = way == 2;
      int found = 0;
      for (int n : {4, 11}) {  // rows below and above a run of eight
        Ring ring(n);
        found += check(**each, (*each)->of_floats, ring, by_lane, bounded);
        found += check(**each, (*each)->of_doubles, ring, by_lane, bounded);
      }
      std::printf("%s%s: %d wrong\n", (*each)->name, by_lane ? ", topology by lane" : bounded ? ", limits" : "", found);
      wrong += found;
    }
  for (const Kernel *const *each = kernels(); *each; ++each)
    for (bool dc : {false, true}) {
      const Ring ring(4);
      const int found = check_split(**each, (*each)->of_floats, ring, dc) + check_split(**each, (*each)->of_doubles, ring, dc);
      std::printf("%s, busbars%s: %d wrong\n", (*each)->name, dc ? " from DC angles" : "", found);
      wrong += found;
    }
  return wrong != 0;
}

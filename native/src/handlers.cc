// Handlers of XLA's foreign function interface: operands are checked here, at every call, and handed to the kernel.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernel.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

namespace powerzoo {
namespace {

constexpr size_t TABLES = 16;  // operands of a network

ffi::Error refused(const char *why) { return ffi::Error::InvalidArgument(std::string("powerzoo_jax_native: ") + why); }

// Operand `index` of one type; its number of elements in `count`. Doubles come as pairs of 32-bit words, so that they
// are what they are in programs without 64-bit numbers too.
template <ffi::DataType type>
const ffi::NativeType<type> *operand(const ffi::RemainingArgs &args, size_t index, size_t &count) {
  auto found = args.get<ffi::Buffer<type>>(index);
  count = found.has_value() ? found->element_count() : SIZE_MAX;
  return found.has_value() ? found->typed_data() : nullptr;
}

// Whether rows begin at rising places from 0 to `count` and columns lie in [low(row), high(row)).
template <class Low, class High>
bool fits(const int32_t *row, const int32_t *col, int n, size_t count, Low low, High high) {
  if (row[0] != 0 || row[n] < 0 || size_t(row[n]) != count) return false;
  for (int i = 0; i < n; i++)
    if (row[i + 1] < row[i]) return false;
  for (int i = 0; i < n; i++)
    for (int k = row[i]; k < row[i + 1]; k++)
      if (col[k] < low(i) || col[k] >= high(i) || (k > row[i] && col[k] <= col[k - 1])) return false;
  return true;
}

// The network of the first operands; nullptr where all is well, else what is wrong.
const char *read(const ffi::RemainingArgs &args, Network &net) {
  size_t size[TABLES];
  const int32_t *whole[9];
  const double *real[4];
  const float *part[3];
  for (size_t k = 0; k < 9; k++) whole[k] = operand<ffi::S32>(args, k, size[k]);
  for (size_t k = 0; k < 4; k++)
    real[k] = reinterpret_cast<const double *>(operand<ffi::U32>(args, 9 + k, size[9 + k]));
  for (size_t k = 0; k < 3; k++) part[k] = operand<ffi::F32>(args, 13 + k, size[13 + k]);
  for (size_t k = 0; k < TABLES; k++)
    if (size[k] == SIZE_MAX) return "a table of the network has another type";
  const size_t n = size[0], branches = size[8] / 4, cells = size[3];
  if (n < 1 || n > 1u << 24 || size[1] != 2 * n || size[2] != n + 1 || size[4] != n + 1 || size[6] != n + 1)
    return "the tables of the network do not belong together";
  if (size[8] != 4 * branches || size[9] != 4 * cells || size[10] != 4 * n || size[11] != 4 * n ||
      size[12] != 24 * branches || size[13] != 4 * size[5] || size[14] != 4 * size[7] || size[15] != 4 * n)
    return "the numbers of the network do not belong to its tables";
  net = {int(n), int(branches), whole[0], whole[1], whole[2], whole[3], whole[4], whole[5], whole[6],
         whole[7], whole[8], real[0], real[1], real[2], real[3], part[0], part[1], part[2]};
  const int last = net.n;
  const auto none = [](int) { return 0; };
  const auto every = [last](int) { return last; };
  const auto own = [](int i) { return i; };
  const auto next = [](int i) { return i + 1; };
  if (!fits(net.y_row, net.y_col, last, cells, none, every) || !fits(net.l_row, net.l_col, last, size[5], none, own) ||
      !fits(net.u_row, net.u_col, last, size[7], next, every))
    return "a place in the tables of the network is out of range";
  for (int i = 0; i < last; i++)
    if (net.order[i] < 0 || net.order[i] >= last) return "a place in the order of the network is out of range";
  for (size_t k = 0; k < 4 * branches; k++)
    if (net.ends[k] < 0 || size_t(net.ends[k]) >= (k % 4 < 2 ? n : cells + 1)) return "an end of a branch is out of range";
  return nullptr;
}

// Tiles in parallel on the pool: the caller works too, and waits only for tiles that somebody works at.
template <class Part>
ffi::Error in_parallel(ffi::ThreadPool pool, int64_t batch, size_t bytes, Part part) {
  struct Shared {
    std::atomic<int64_t> next{0}, done{0};
    std::atomic<bool> failed{false};
  };
  const int64_t tiles = (batch + LANES - 1) / LANES;
  const int64_t threads = std::max<int64_t>(1, std::min<int64_t>(pool.num_threads(), tiles));
  const int64_t chunk = threads == 1 ? tiles : std::max<int64_t>(1, tiles / (4 * threads));
  auto shared = std::make_shared<Shared>();
  auto work = [=] {
    std::unique_ptr<void, decltype(&std::free)> memory(nullptr, std::free);
    for (int64_t first; (first = shared->next.fetch_add(chunk)) < tiles;) {
      const int64_t last = std::min(first + chunk, tiles);
      if (!memory) memory.reset(std::aligned_alloc(64, (bytes + 63) / 64 * 64));
      if (memory) part(first, last, memory.get());
      else shared->failed = true;
      shared->done += last - first;
    }
  };
  for (int64_t k = 1; k < threads; k++) pool.Schedule(decltype(work)(work));
  work();
  while (shared->done < tiles) std::this_thread::yield();
  return shared->failed ? refused("out of memory") : ffi::Error::Success();
}

// A network, then the operands of a batch: p, q, v_set, in_service, holds; the last three may be empty.
template <class Real>
const char *read(const ffi::RemainingArgs &args, Network &net, Given<Real> &in, size_t batch) {
  if (const char *wrong = read(args, net)) return wrong;
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  size_t size[5];
  in = {int64_t(batch), operand<type>(args, TABLES, size[0]), operand<type>(args, TABLES + 1, size[1]),
        operand<type>(args, TABLES + 2, size[2]), operand<type>(args, TABLES + 3, size[3]),
        operand<ffi::S32>(args, TABLES + 4, size[4])};
  const size_t of_nodes = batch * net.n, of_branches = batch * net.branches;
  if (size[0] != of_nodes || size[1] != of_nodes || (size[2] && size[2] != of_nodes) ||
      (size[3] && size[3] != of_branches) || (size[4] && size[4] != of_nodes))
    return "the numbers of a batch do not belong to the network";
  if (!size[2]) in.v_set = nullptr;
  if (!size[3]) in.in_service = nullptr;
  if (!size[4]) in.holds = nullptr;
  return nullptr;
}

// Results of one type and size; nullptr for one that is not.
template <ffi::DataType type>
ffi::NativeType<type> *result(const ffi::RemainingRets &rets, size_t index, size_t count) {
  auto found = rets.get<ffi::Buffer<type>>(index);
  return found.has_value() && (*found)->element_count() == count ? (*found)->typed_data() : nullptr;
}

// The first results of a solve: e, of floats also what they round off it, then residual, steps and status. Their number
// is in `next`, 0 where one has another shape.
template <class Real>
Solution<Real> solution(const ffi::RemainingRets &rets, size_t batch, size_t nodes, size_t &next) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Solution<Real> out{result<type>(rets, 0, nodes), result<type>(rets, 1, nodes), nullptr, nullptr, nullptr, nullptr, nullptr};
  next = 2;
  if (sizeof(Real) == 4) out.d_re = result<type>(rets, 2, nodes), out.d_im = result<type>(rets, 3, nodes), next = 4;
  out.residual = result<type>(rets, next, batch), out.steps = result<ffi::S32>(rets, next + 1, batch);
  out.status = result<ffi::S32>(rets, next + 2, batch);
  const bool fits = out.e_re && out.e_im && (next == 2 || (out.d_re && out.d_im)) && out.residual && out.steps && out.status;
  next = fits ? next + 3 : 0;
  return out;
}

const Solvers<float> &solvers(float) { return kernels()[0]->of_floats; }
const Solvers<double> &solvers(double) { return kernels()[0]->of_doubles; }

template <class Real>
ffi::Error solve(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch, double tol,
                 int64_t chord_steps, int64_t newton_steps) {
  Network net;
  Given<Real> in;
  if (const char *wrong = read(args, net, in, batch)) return refused(wrong);
  const size_t nodes = batch * net.n;
  size_t next;
  const Solution<Real> out = solution<Real>(rets, batch, nodes, next);
  if (!next) return refused("a result has another shape");
  const Limits limits{tol, int(chord_steps), int(newton_steps)};
  return in_parallel(pool, batch, kernels()[0]->work_bytes(net), [=](int64_t first, int64_t last, void *work) {
    solvers(Real()).solve(net, in, out, limits, first, last, work);
  });
}

template <class Real>
ffi::Error bounded(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch, double tol,
                   int64_t newton_steps) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Network net;
  Given<Real> in;
  if (const char *wrong = read(args, net, in, batch)) return refused(wrong);
  const size_t nodes = batch * net.n;
  size_t size[4];
  Bounds<Real> bounds;
  bounds.bus = operand<ffi::S32>(args, TABLES + 5, size[0]);
  bounds.low = operand<type>(args, TABLES + 6, size[1]), bounds.high = operand<type>(args, TABLES + 7, size[2]);
  const int32_t *rounds = operand<ffi::S32>(args, TABLES + 8, size[3]);
  if (size[0] > size_t(net.n) || size[1] != size[0] || size[2] != size[0] || size[3] != 1) return refused("limits have another shape");
  for (size_t j = 0; j < size[0]; j++)
    if (bounds.bus[j] < 0 || bounds.bus[j] >= net.n) return refused("a bus with limits is out of range");
  bounds.count = int(size[0]);
  size_t next;
  const Solution<Real> out = solution<Real>(rets, batch, nodes, next);
  bounds.at_limit = result<ffi::S32>(rets, next, batch * size[0]);
  bounds.rounds = result<ffi::S32>(rets, next + 1, batch), bounds.settled = result<ffi::S32>(rets, next + 2, batch);
  if (!next || (size[0] && !bounds.at_limit) || !bounds.rounds || !bounds.settled)
    return refused("a result has another shape");
  const Limits limits{tol, 0, int(newton_steps)};
  return in_parallel(pool, batch, kernels()[0]->work_bytes(net), [=](int64_t first, int64_t last, void *work) {
    solvers(Real()).bounded(net, in, bounds, out, limits, *rounds, first, last, work);
  });
}

template <class Real>
ffi::Error rest(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch, bool flows) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Network net;
  Given<Real> in;
  if (const char *wrong = read(args, net, in, batch)) return refused(wrong);
  const size_t nodes = batch * net.n, branches = batch * net.branches;
  size_t size[5], next = 0, count = sizeof(Real) == 4 ? 4 : 2, at = TABLES + 5;
  struct { const Real *at[4]; } state = {};
  for (size_t k = 0; k < count; k++) {
    state.at[k] = operand<type>(args, at++, size[0]);
    if (size[0] != nodes) return refused("a state has another shape");
  }
  const int32_t *status = operand<ffi::S32>(args, at++, size[0]);
  if (size[0] != size_t(batch)) return refused("a state has another shape");
  Rest<Real> out{};
  bool fits = true;
  if (flows) {
    out.half_charging = operand<type>(args, at, size[0]), out.r = operand<type>(args, at + 1, size[1]);
    out.shunt = operand<type>(args, at + 2, size[2]), out.holds = operand<ffi::S32>(args, at + 3, size[3]);
    out.slack = operand<ffi::S32>(args, at + 4, size[4]);
    const size_t n = net.n;
    if (size[0] != size_t(net.branches) || size[1] != size[0] || size[2] != 2 * n || size[3] != n || size[4] != 1)
      return refused("the numbers of flows do not belong to the network");
  } else if (sizeof(Real) == 8) {
    out.d_re = result<type>(rets, 0, nodes), out.d_im = result<type>(rets, 1, nodes), next = 2;
    fits = out.d_re && out.d_im;
  }
  out.p_left = result<type>(rets, next, nodes), out.q_left = result<type>(rets, next + 1, nodes), next += 2;
  fits &= out.p_left && out.q_left;
  for (Real *&end : out.ends) fits &= (end = result<type>(rets, next++, branches)) != nullptr;
  for (size_t k = 0; flows && k < 4; k++) fits &= (out.sums[k] = result<type>(rets, next++, batch)) != nullptr;
  if (!fits) return refused("a result has another shape");
  return in_parallel(pool, batch, kernels()[0]->work_bytes(net), [=](int64_t first, int64_t last, void *work) {
    solvers(Real()).rest(net, in, state.at, status, out, first, last, work);
  });
}

template <class Real>
ffi::Error linear(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch, bool transposed) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Network net;
  Given<Real> in;
  if (const char *wrong = read(args, net, in, batch)) return refused(wrong);
  const size_t nodes = batch * net.n;
  const Real *given[4];
  size_t size;
  for (size_t k = 0; k < 4; k++) {
    given[k] = operand<type>(args, TABLES + 5 + k, size);
    if (size != nodes) return refused("a right side has another shape");
  }
  Real *x[2] = {result<type>(rets, 0, nodes), result<type>(rets, 1, nodes)};
  if (!x[0] || !x[1]) return refused("a result has another shape");
  return in_parallel(pool, batch, kernels()[0]->work_bytes(net), [&](int64_t first, int64_t last, void *work) {
    solvers(Real()).linear(net, in, given, x, transposed, first, last, work);
  });
}

ffi::Error factor(ffi::RemainingArgs args, ffi::RemainingRets rets) {
  Network net;
  if (const char *wrong = read(args, net)) return refused(wrong);
  float *lower = result<ffi::F32>(rets, 0, 4 * size_t(net.l_row[net.n]));
  float *upper = result<ffi::F32>(rets, 1, 4 * size_t(net.u_row[net.n])), *own = result<ffi::F32>(rets, 2, 4 * size_t(net.n));
  if (!lower || !upper || !own) return refused("a result has another shape");
  std::unique_ptr<void, decltype(&std::free)> work(std::aligned_alloc(64, kernels()[0]->work_bytes(net)), std::free);
  if (!work) return refused("out of memory");
  kernels()[0]->factor(net, lower, upper, own, work.get());
  return ffi::Error::Success();
}

// Blocks of the factors where both busbars of every bus are joined with all that they may be: a bound for any topology.
size_t most_fill(const Substations &sub) {
  std::vector<std::vector<int32_t>> after(sub.buses);
  for (int b = 0; b < sub.branches; b++) {
    const int32_t i = sub.at[b], j = sub.at[b + sub.branches];
    if (i != j) after[std::min(i, j)].push_back(std::max(i, j));
  }
  size_t found = 0;
  for (int i = 0; i < sub.buses; i++) {
    std::vector<int32_t> &own = after[i];
    std::sort(own.begin(), own.end());
    own.erase(std::unique(own.begin(), own.end()), own.end());
    found += 4 * own.size() + 1;
    // eliminating i joins all that are left of its neighbours; the first of them passes that on
    if (!own.empty()) after[own[0]].insert(after[own[0]].end(), own.begin() + 1, own.end());
  }
  return found;
}

constexpr size_t BUSBAR_TABLES = 9;  // operands of substations

// Substations of the first operands, then topology, p, q, v_set of a batch; the last may be empty.
template <class Real>
const char *read(const ffi::RemainingArgs &args, Substations &sub, Split<Real> &in, size_t batch) {
  size_t size[BUSBAR_TABLES + 4];
  const int32_t *whole[4];
  const double *real[5];
  for (size_t k = 0; k < 4; k++) whole[k] = operand<ffi::S32>(args, k, size[k]);
  for (size_t k = 0; k < 5; k++)
    real[k] = reinterpret_cast<const double *>(operand<ffi::U32>(args, 4 + k, size[4 + k]));
  for (size_t k = 0; k < BUSBAR_TABLES; k++)
    if (size[k] == SIZE_MAX) return "a table of the substations has another type";
  const size_t buses = size[0], elements = size[1], units = size[2], branches = size[4] / 24, shunts = size[6] / 4;
  if (buses < 1 || buses > 1u << 22 || size[3] != 1 || size[4] != 24 * branches || size[5] != 4 * branches ||
      size[6] != 4 * shunts || size[7] != 4 * buses || size[8] != 2 * buses || elements < 2 * branches + units + shunts)
    return "the tables of the substations do not belong together";
  sub = {int(buses), int(branches), int(units), int(shunts), int(elements), whole[3][0], 0, whole[0], whole[1], whole[2],
         real[0], real[1], real[2], real[3], real[4]};
  std::vector<bool> seen(buses);
  for (size_t i = 0; i < buses; i++) {
    if (sub.order[i] < 0 || size_t(sub.order[i]) >= buses || seen[sub.order[i]]) return "the order of the buses is no order";
    seen[sub.order[i]] = true;
  }
  for (size_t e = 0; e < elements; e++)
    if (sub.at[e] < 0 || size_t(sub.at[e]) >= buses) return "the bus of an element is out of range";
  if (sub.slack < 0 || size_t(sub.slack) >= buses) return "the bus of the reference is out of range";
  const size_t fill = most_fill(sub);
  if (fill > 1u << 30) return "the factors are too large";
  sub.most_fill = int(fill);
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  const size_t *count = size + BUSBAR_TABLES;
  in = {int64_t(batch), operand<ffi::S8>(args, BUSBAR_TABLES, size[BUSBAR_TABLES]),
        operand<type>(args, BUSBAR_TABLES + 1, size[BUSBAR_TABLES + 1]),
        operand<type>(args, BUSBAR_TABLES + 2, size[BUSBAR_TABLES + 2]),
        operand<type>(args, BUSBAR_TABLES + 3, size[BUSBAR_TABLES + 3]), false};
  if (count[0] != batch * elements || count[1] != 2 * batch * buses || count[2] != count[1] ||
      (count[3] && count[3] != batch * buses))
    return "the numbers of a batch do not belong to the substations";
  if (!count[3]) in.v_set = nullptr;
  return nullptr;
}

template <class Real>
ffi::Error split(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch, double tol,
                 int64_t newton_steps, bool dc) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Substations sub;
  Split<Real> in;
  if (const char *wrong = read(args, sub, in, batch)) return refused(wrong);
  in.dc = dc;
  const size_t nodes = 2 * batch * sub.buses;
  SplitState<Real> out{};
  out.e_re = result<type>(rets, 0, nodes), out.e_im = result<type>(rets, 1, nodes);
  out.p = result<type>(rets, 2, nodes), out.q = result<type>(rets, 3, nodes);
  out.in_use = result<ffi::PRED>(rets, 4, nodes);
  out.solution.residual = result<type>(rets, 5, batch), out.solution.steps = result<ffi::S32>(rets, 6, batch);
  out.solution.status = result<ffi::S32>(rets, 7, batch);
  bool fits = out.e_re && out.e_im && out.p && out.q && out.in_use && out.solution.residual && out.solution.steps &&
              out.solution.status;
  for (size_t k = 0; k < 6; k++) fits &= (out.ends[k] = result<type>(rets, 8 + k, batch * sub.branches)) != nullptr;
  if (!fits) return refused("a result has another shape");
  const Limits limits{tol, 0, int(newton_steps)};
  return in_parallel(pool, batch, kernels()[0]->split_bytes(sub), [=](int64_t first, int64_t last, void *work) {
    solvers(Real()).split(sub, in, out, limits, first, last, work);
  });
}

template <class Real>
ffi::Error split_linear(ffi::ThreadPool pool, ffi::RemainingArgs args, ffi::RemainingRets rets, int64_t batch,
                        bool transposed) {
  constexpr ffi::DataType type = sizeof(Real) == 4 ? ffi::F32 : ffi::F64;
  Substations sub;
  Split<Real> in;
  if (const char *wrong = read(args, sub, in, batch)) return refused(wrong);
  const size_t nodes = 2 * batch * sub.buses;
  size_t size;
  struct { const Real *at[4]; } given = {{in.p, in.q, nullptr, nullptr}};  // the deviation stands where injections do
  for (size_t k = 2; k < 4; k++) {
    given.at[k] = operand<type>(args, BUSBAR_TABLES + 2 + k, size);
    if (size != nodes) return refused("a right side has another shape");
  }
  struct { Real *at[2]; } x = {{result<type>(rets, 0, nodes), result<type>(rets, 1, nodes)}};
  if (!x.at[0] || !x.at[1]) return refused("a result has another shape");
  return in_parallel(pool, batch, kernels()[0]->split_bytes(sub), [=](int64_t first, int64_t last, void *work) {
    solvers(Real()).split_linear(sub, in, given.at, x.at, transposed, first, last, work);
  });
}

}  // namespace
}  // namespace powerzoo

// Name of the instructions in use: "v4", "v3" or "base".
POWERZOO_EXPORT const char *powerzoo_variant() { return powerzoo::kernels()[0]->name; }

#define HANDLER(name, function, binding)                        \
  POWERZOO_EXPORT XLA_FFI_Error *name(XLA_FFI_CallFrame *);     \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function, binding)
#define BATCH ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().RemainingArgs().RemainingRets().Attr<int64_t>("batch")
#define STEPS BATCH.Attr<double>("tol").Attr<int64_t>("chord_steps").Attr<int64_t>("newton_steps")
HANDLER(powerzoo_solve32, powerzoo::solve<float>, STEPS);
HANDLER(powerzoo_solve64, powerzoo::solve<double>, STEPS);
#define ROUNDS BATCH.Attr<double>("tol").Attr<int64_t>("newton_steps")
HANDLER(powerzoo_bounded32, powerzoo::bounded<float>, ROUNDS);
HANDLER(powerzoo_bounded64, powerzoo::bounded<double>, ROUNDS);
HANDLER(powerzoo_rest32, powerzoo::rest<float>, BATCH.Attr<bool>("flows"));
HANDLER(powerzoo_rest64, powerzoo::rest<double>, BATCH.Attr<bool>("flows"));
HANDLER(powerzoo_linear32, powerzoo::linear<float>, BATCH.Attr<bool>("transposed"));
HANDLER(powerzoo_linear64, powerzoo::linear<double>, BATCH.Attr<bool>("transposed"));
HANDLER(powerzoo_factor, powerzoo::factor, ffi::Ffi::Bind().RemainingArgs().RemainingRets());
HANDLER(powerzoo_split32, powerzoo::split<float>, ROUNDS.Attr<bool>("dc"));
HANDLER(powerzoo_split64, powerzoo::split<double>, ROUNDS.Attr<bool>("dc"));
HANDLER(powerzoo_split_linear32, powerzoo::split_linear<float>, BATCH.Attr<bool>("transposed"));
HANDLER(powerzoo_split_linear64, powerzoo::split_linear<double>, BATCH.Attr<bool>("transposed"));

// Power flow of 16 lanes at a time: what the numerics need, and the variants that they are compiled in.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(_MSC_VER)
#define POWERZOO_EXPORT extern "C" __declspec(dllexport)
#else
#define POWERZOO_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace powerzoo {

constexpr int LANES = 16;

// Status codes of `powerzoo_jax.powerflow.Status`.
enum Status : int32_t { CONVERGED = 0, OUT_OF_STEPS = 1, SINGULAR = 2, BAD_INPUT = 3, ISLANDED = 4 };

// A network of n nodes in the order of elimination. Rows of matrices are given by the places where they begin and by
// their columns, rising. A block has four numbers: d active / d angle, d active / d ln|V|, the same of reactive power.
struct Network {
  int n, branches;
  const int32_t *order;                      // (n) place of a node in the case
  const int32_t *unknown;                    // (n, 2) 1 where the angle, the magnitude is unknown
  const int32_t *y_row, *y_col;              // admittances off the diagonal
  const int32_t *l_row, *l_col, *u_row, *u_col;  // factors of the Jacobian, fill included
  const int32_t *ends;                       // (branches, 4) from node, to node, cells (from, to) and (to, from)
  const double *y_off, *y_own, *v_base;      // (.., 2) [pu]
  const double *branch;                      // (branches, 12) y_ff, y_ft, y_tf, y_tt, series admittance, 1 / ratio
  const float *lower, *upper, *inverse;      // (.., 4) factors at v_base, rows over |v_base|^2
};

// Numbers of a batch, lanes first: (batch, n) in case order.
template <class Real>
struct Given {
  int64_t batch;
  const Real *p, *q, *v_set;                 // v_set null: held magnitudes are those of v_base
  const Real *in_service;                    // (batch, branches), null: as in the network
  const int32_t *holds;                      // (batch, n) nodes that hold their magnitude, null: as in the network
};

template <class Real>
struct Solution {
  Real *e_re, *e_im, *d_re, *d_im, *residual;  // d: what Real rounds off e; null where e is a double
  int32_t *steps, *status;
};

// What follows from a solution e + d: the injection left there and the ends of the branches. Of doubles d is a last
// correction, and a result; it is null of floats.
template <class Real>
struct Rest {
  Real *d_re, *d_im, *p_left, *q_left;
  Real *ends[6];                             // (batch, branches): series current, voltage behind the ratio, at the end
  // Where `slack` is given, flows in place of these: p_left and q_left take the active power that the slack adds and the
  // injection of nodes that hold their magnitude, ends the series current, p_from, q_from, p_to and q_to.
  const Real *half_charging, *r, *shunt;     // (branches), (branches), (n, 2) [pu], in case order as what follows
  const int32_t *holds, *slack;              // (n) as the network has it, (1) place of the slack
  Real *sums[4];                             // (batch): losses, then consumption of the shunts
};

struct Limits {
  double tol;                                // [pu] largest mismatch of a solution
  int chord_steps, newton_steps;
};

// Reactive power that the units of some nodes may give, (count) each, and which limits hold, (batch, count): -1, 0 or 1.
template <class Real>
struct Bounds {
  int count;
  const int32_t *bus;                        // place in the case
  const Real *low, *high;
  int32_t *at_limit, *rounds, *settled;      // the last two (batch)
};

// Buses with two busbars each, in the order of elimination. Elements: ends of branches, from and to; units; what only
// injects; shunts.
struct Substations {
  int buses, branches, units, shunts, elements;
  int slack;                                 // place of the bus with the reference
  int most_fill;                             // blocks of L, or of U, where every busbar is joined with all that it may be
  const int32_t *order;                      // (buses) place of a bus in the case
  const int32_t *at;                         // (elements) place of its bus
  const int32_t *unit_holds;                 // (units) 1 where it holds the magnitude of its busbar
  const double *branch;                      // (branches, 12) as in Network
  const double *dc;                          // (branches, 2) 1 / (x ratio), the same times the phase shift [pu]
  const double *shunt;                       // (shunts, 2) [pu]
  const double *v_base, *v_set;              // (buses, 2), (buses), in case order [pu]
};

// Numbers of a batch, lanes first: busbar of every element (0: out), injections by node (busbar, bus) in case order.
template <class Real>
struct Split {
  int64_t batch;
  const int8_t *topology;                    // (batch, elements)
  const Real *p, *q;                         // (batch, 2, buses)
  const Real *v_set;                         // (batch, buses), null: that of the substations
  bool dc;                                   // start from the angles of the DC power flow
};

template <class Real>
struct SplitState {
  Solution<Real> solution;                   // residual, steps and status of it
  Real *e_re, *e_im, *p, *q;                 // (batch, 2, buses) deviation from the base voltage, injection
  bool *in_use;                              // (batch, 2, buses)
  Real *ends[6];                             // (batch, branches) P, Q from, P, Q to, series current
};

// Functions of one variant on tiles first..last - 1 of 16 lanes; `work` is 64-byte aligned and has work_bytes(network) bytes.
template <class Real>
struct Solvers {
  void (*solve)(const Network &, const Given<Real> &, const Solution<Real> &, Limits, int64_t first, int64_t last, void *work);
  void (*bounded)(const Network &, const Given<Real> &, const Bounds<Real> &, const Solution<Real> &, Limits,
                  int most_rounds, int64_t first, int64_t last, void *work);
  // state: e_re, e_im, d_re, d_im as above
  void (*rest)(const Network &, const Given<Real> &, const Real *const *state, const int32_t *status,
               const Rest<Real> &, int64_t first, int64_t last, void *work);
  // given: deviation e_re, e_im, right sides of active and reactive rows; x: angles, ln|V|; all (batch, n)
  void (*linear)(const Network &, const Given<Real> &, const Real *const *given, Real *const *x, bool transposed,
                 int64_t first, int64_t last, void *work);
  void (*split)(const Substations &, const Split<Real> &, const SplitState<Real> &, Limits, int64_t first, int64_t last,
                void *work);
  void (*split_linear)(const Substations &, const Split<Real> &, const Real *const *given, Real *const *x, bool transposed,
                       int64_t first, int64_t last, void *work);
};

struct Kernel {
  const char *name;
  size_t (*work_bytes)(const Network &);
  size_t (*split_bytes)(const Substations &);
  void (*factor)(const Network &, float *lower, float *upper, float *inverse, void *work);
  Solvers<float> of_floats;
  Solvers<double> of_doubles;
};

// kernel.cc, compiled once for each of them
extern const Kernel kernel_base, kernel_v3, kernel_v4;

// Those that this processor runs, the widest first; nullptr ends them.
const Kernel *const *kernels();

}  // namespace powerzoo

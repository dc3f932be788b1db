// Power flow of 16 lanes at a time, lanes innermost: chord with constant factors, Newton's method with factors by lane.
//
// V is the complex voltage of a node, S its injection, Y_ij an admittance, T_ij = V_i conj(Y_ij V_j); x has the angle and
// ln|V| of every node. Compiled once for every instruction set: no template or inline function of a library is used here,
// of which the linker might keep the copy that an older processor cannot run.
#include "kernel.h"

#include <string.h>

#ifndef POWERZOO_VARIANT
#define POWERZOO_VARIANT base
#endif
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define JOIN_OF(x, y) x##y
#define JOIN(x, y) JOIN_OF(x, y)
#define INLINE static inline __attribute__((always_inline))

namespace powerzoo {
namespace {

typedef double double8 __attribute__((vector_size(64), may_alias));
typedef long long long8 __attribute__((vector_size(64), may_alias));
typedef float float8 __attribute__((vector_size(32), may_alias));
typedef float float16 __attribute__((vector_size(64), may_alias));
typedef int int16 __attribute__((vector_size(64), may_alias));
typedef double any_double8 __attribute__((vector_size(64), aligned(8), may_alias));  // at any place
typedef float any_float8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef int any_int8 __attribute__((vector_size(32), aligned(4), may_alias));

// ---- numbers of 16 lanes -------------------------------------------------------------------------------------------

struct D {
  double8 a, b;
  typedef double scalar;
};
struct F {
  float16 a;
  typedef float scalar;
};
struct S {  // one lane, for the factors that all lanes share
  double a;
  typedef double scalar;
};

#define BOTH(op)                                                                   \
  INLINE D operator op(D x, D y) { return {x.a op y.a, x.b op y.b}; }              \
  INLINE D operator op(double x, D y) { return {x op y.a, x op y.b}; }             \
  INLINE F operator op(F x, F y) { return {x.a op y.a}; }                          \
  INLINE F operator op(float x, F y) { return {x op y.a}; }                        \
  INLINE S operator op(S x, S y) { return {x.a op y.a}; }                          \
  INLINE S operator op(double x, S y) { return {x op y.a}; }
BOTH(+) BOTH(-) BOTH(*) BOTH(/)
#undef BOTH
INLINE D all(double x, D *) { return {x - double8{}, x - double8{}}; }
INLINE F all(float x, F *) { return {x - float16{}}; }
INLINE S all(double x, S *) { return {x}; }
template <class T>
INLINE T all(typename T::scalar x) { return all(x, (T *)0); }

INLINE D load(const double *p, D *) { return {*(const double8 *)p, *(const double8 *)(p + 8)}; }
INLINE F load(const float *p, F *) { return {*(const float16 *)p}; }
INLINE S load(const double *p, S *) { return {*p}; }
template <class T>
INLINE T load(const typename T::scalar *p) { return load(p, (T *)0); }
INLINE void store(double *p, D x) { *(double8 *)p = x.a, *(double8 *)(p + 8) = x.b; }
INLINE void store(float *p, F x) { *(float16 *)p = x.a; }
INLINE void store(double *p, S x) { *p = x.a; }

// Conversions between the two widths go through memory, where each half is one load or store.
INLINE D widen(const double *p) { return load<D>(p); }
INLINE D widen(const float *p) {
  return {__builtin_convertvector(*(const float8 *)p, double8), __builtin_convertvector(*(const float8 *)(p + 8), double8)};
}
INLINE void narrow(float *p, D x) {
  *(float8 *)p = __builtin_convertvector(x.a, float8), *(float8 *)(p + 8) = __builtin_convertvector(x.b, float8);
}
INLINE void narrow(double *p, D x) { store(p, x); }
INLINE void narrow(double *p, S x) { store(p, x); }

INLINE double8 size_of(double8 x) { return (double8)((long8)x & 0x7fffffffffffffffLL); }
// The larger magnitude by the order of the bits, in which a NaN is above infinity: none is lost.
INLINE double8 larger(double8 x, double8 y) {
  long8 a = (long8)size_of(x), b = (long8)size_of(y);
  return (double8)(a > b ? a : b);
}
INLINE D larger(D x, D y) { return {larger(x.a, y.a), larger(x.b, y.b)}; }
INLINE S larger(S x, S) { return x; }
INLINE F larger(F x, F y) {
  int16 a = (int16)x.a & 0x7fffffff, b = (int16)y.a & 0x7fffffff;
  return {(float16)(a > b ? a : b)};
}

// 1 / x of numbers near one: a division of floats, then two steps of Newton's method.
INLINE double8 inverse(double8 x) {
  double8 y = __builtin_convertvector(1.0f / __builtin_convertvector(x, float8), double8);
  y = y * (2.0 - x * y);
  return y * (2.0 - x * y);
}
INLINE D inverse(D x) { return {inverse(x.a), inverse(x.b)}; }
INLINE S inverse(S x) { return {1.0 / x.a}; }
INLINE F inverse(F x) { return 1.0f / x; }

// ---- rows of a batch ------------------------------------------------------------------------------------------------

#if defined(__clang__) || __GNUC__ > 11
#define MIX(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define MIX(x, y, ...) __builtin_shuffle(x, y, long8{__VA_ARGS__})
#endif

INLINE void transpose(double8 *r) {
  double8 s[8];
  for (int k = 0; k < 8; k += 2) {
    s[k] = MIX(r[k], r[k + 1], 0, 8, 2, 10, 4, 12, 6, 14), s[k + 1] = MIX(r[k], r[k + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  for (int h = 0; h < 4; h++) {
    const int k = h + (h & 2);
    r[k] = MIX(s[k], s[k + 2], 0, 1, 8, 9, 4, 5, 12, 13), r[k + 2] = MIX(s[k], s[k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
  }
  for (int k = 0; k < 4; k++) {
    s[k] = MIX(r[k], r[k + 4], 0, 1, 2, 3, 8, 9, 10, 11), s[k + 4] = MIX(r[k], r[k + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
  for (int k = 0; k < 8; k++) r[k] = s[k];
}

INLINE double8 eight(const double *p) { return *(const any_double8 *)p; }
INLINE double8 eight(const float *p) { return __builtin_convertvector(*(const any_float8 *)p, double8); }
INLINE double8 eight(const int32_t *p) { return __builtin_convertvector(*(const any_int8 *)p, double8); }
INLINE void eight(double *p, double8 x) { *(any_double8 *)p = x; }
INLINE void eight(float *p, double8 x) { *(any_float8 *)p = __builtin_convertvector(x, any_float8); }

// Columns of a row in runs of 8: part(first, many); the last run begins earlier where the columns are no multiple of 8.
template <class Part>
INLINE void in_eights(int columns, Part part) {
  for (int k = 0; k < columns; k += 8) part(k + 8 <= columns || columns < 8 ? k : columns - 8, columns < 8 ? columns : 8);
}

// Columns first .. first + many - 1 of (batch, columns) in the rows of 16 lanes, and back in those that are wanted.
template <class Number>
INLINE void fetch(const Number *from, int columns, const int64_t *lane, int first, int many, D *to) {
  for (int h = 0; h < 2; h++) {
    double8 r[8] = {};
    for (int k = 0; k < 8; k++) {
      const Number *row = from + lane[8 * h + k] * columns + first;
      if (many == 8) r[k] = eight(row);
      else for (int c = 0; c < many; c++) r[k][c] = row[c];
    }
    transpose(r);
    for (int c = 0; c < 8; c++) (h ? to[c].b : to[c].a) = r[c];
  }
}
template <class Real>
INLINE void put(Real *to, int columns, const int64_t *lane, const bool *wanted, int first, int many, const D *from) {
  for (int h = 0; h < 2; h++) {
    double8 r[8];
    for (int c = 0; c < 8; c++) r[c] = h ? from[c].b : from[c].a;
    transpose(r);
    for (int k = 0; k < 8; k++) {
      Real *row = to + lane[8 * h + k] * columns + first;
      if (!wanted[8 * h + k]) continue;
      if (many == 8) eight(row, r[k]);
      else for (int c = 0; c < many; c++) row[c] = (Real)r[k][c];
    }
  }
}

// Lanes as masks: all bits where it holds.
struct Lanes {
  long8 a, b;
};
INLINE Lanes finite(D x) { return {x.a - x.a == 0.0, x.b - x.b == 0.0}; }
INLINE Lanes above(D x, double y) { return {x.a > y, x.b > y}; }
INLINE Lanes operator&(Lanes x, Lanes y) { return {x.a & y.a, x.b & y.b}; }
INLINE Lanes operator|(Lanes x, Lanes y) { return {x.a | y.a, x.b | y.b}; }
INLINE Lanes operator~(Lanes x) { return {~x.a, ~x.b}; }
INLINE D choose(Lanes on, D x, D y) { return {on.a ? x.a : y.a, on.b ? x.b : y.b}; }
INLINE D in_use(D x) { return choose({x.a != 0.0, x.b != 0.0}, all<D>(1), all<D>(0)); }
INLINE Lanes mask(const bool *on) {
  Lanes x;
  for (int k = 0; k < 8; k++) x.a[k] = -(long long)on[k], x.b[k] = -(long long)on[8 + k];
  return x;
}
INLINE bool at(Lanes x, int k) { return (k < 8 ? x.a[k] : x.b[k - 8]) != 0; }

template <class T>
constexpr int width() { return sizeof(T) / sizeof(typename T::scalar); }

template <class T>
struct Block {
  T a, b, c, d;
};
template <class T>
INLINE Block<T> load_block(const typename T::scalar *p) {
  constexpr int w = width<T>();
  return {load<T>(p), load<T>(p + w), load<T>(p + 2 * w), load<T>(p + 3 * w)};
}
template <class T>
INLINE void store_block(typename T::scalar *p, Block<T> x) {
  constexpr int w = width<T>();
  store(p, x.a), store(p + w, x.b), store(p + 2 * w, x.c), store(p + 3 * w, x.d);
}
template <class T>
INLINE Block<T> operator*(Block<T> x, Block<T> y) {
  return {x.a * y.a + x.b * y.c, x.a * y.b + x.b * y.d, x.c * y.a + x.d * y.c, x.c * y.b + x.d * y.d};
}
template <class T>
INLINE Block<T> operator-(Block<T> x, Block<T> y) { return {x.a - y.a, x.b - y.b, x.c - y.c, x.d - y.d}; }
template <class T>
INLINE Block<T> flipped(Block<T> x) { return {x.a, x.c, x.b, x.d}; }
template <class T>
INLINE Block<T> inverse(Block<T> x) {
  T over = all<T>(1) / (x.a * x.d - x.b * x.c);
  return {x.d * over, all<T>(0) - x.b * over, all<T>(0) - x.c * over, x.a * over};
}

// ---- memory of a tile ----------------------------------------------------------------------------------------------

// Arrays of a tile, (.., 16); T is the type of factors and corrections.
template <class T>
struct Tile {
  typedef typename T::scalar scalar;
  double *v, *s, *now;            // (n, 2) voltage, injection wanted, injection at v
  double *y_off, *y_own;          // (.., 2) admittances by lane
  double *free;                   // (n, 2) 1 where unknown, by lane
  scalar *x, *cells;              // (n, 2) right side, then correction; (y_off, 2) T_ij
  scalar *lower, *upper, *diag;   // factors by lane
  scalar **at;                    // (n) block of a column in the row that is eliminated
  int32_t *place;                 // (n) node of a place in the case
};

template <class P>
INLINE P *cut(char *&rest, size_t count) {
  P *found = (P *)rest;
  rest += (count * sizeof(P) + 63) / 64 * 64;
  return found;
}

// With `work` null only the size is counted.
template <class T>
static size_t lay_out(size_t n, size_t cells, size_t lower, size_t upper, Tile<T> &t, char *work) {
  typedef typename T::scalar scalar;
  const size_t w = width<T>();
  char *rest = work;
  t.v = cut<double>(rest, 2 * n * w), t.s = cut<double>(rest, 2 * n * w), t.now = cut<double>(rest, 2 * n * w);
  t.x = cut<scalar>(rest, 2 * n * w);
  t.free = cut<double>(rest, 2 * n * w);
  t.y_off = cut<double>(rest, 2 * cells * w), t.y_own = cut<double>(rest, 2 * n * w);
  t.cells = cut<scalar>(rest, 2 * cells * w);
  t.lower = cut<scalar>(rest, 4 * lower * w), t.upper = cut<scalar>(rest, 4 * upper * w);
  t.diag = cut<scalar>(rest, 4 * n * w);
  t.at = cut<scalar *>(rest, n), t.place = cut<int32_t>(rest, n);
  return rest - work;
}
template <class T>
static size_t lay_out(const Network &net, Tile<T> &t, char *work) {
  const size_t size = lay_out(net.n, net.y_row[net.n], net.l_row[net.n], net.u_row[net.n], t, work);
  for (int i = 0; work && net.order && i < net.n; i++) t.place[net.order[i]] = i;
  return size;
}

// ---- equations -----------------------------------------------------------------------------------------------------

template <class T>
INLINE T number(const double *p) { return all<T>(*p); }

// Mismatch at v into x, rows over |V|^2 where SCALED, and the largest of each lane; LEVEL 1 keeps S too, 2 also T_ij.
// BY_LANE: admittances and unknowns of each lane, else those of the network.
template <bool BY_LANE, int LEVEL, bool SCALED, class R, class T>
INLINE R mismatch(const Network &net, const Tile<T> &t) {
  constexpr int w = width<R>();
  R big = all<R>(0);
  for (int i = 0; i < net.n; i++) {
    const R e = load<R>(t.v + 2 * i * w), f = load<R>(t.v + (2 * i + 1) * w);
    R g = BY_LANE ? load<R>(t.y_own + 2 * i * w) : number<R>(net.y_own + 2 * i);
    R b = BY_LANE ? load<R>(t.y_own + (2 * i + 1) * w) : number<R>(net.y_own + 2 * i + 1);
    R re = g * e - b * f, im = g * f + b * e;
    for (int k = net.y_row[i]; k < net.y_row[i + 1]; k++) {
      const double *far = t.v + 2 * (size_t)net.y_col[k] * w;
      const R c = load<R>(far), d = load<R>(far + w);
      g = BY_LANE ? load<R>(t.y_off + 2 * (size_t)k * w) : number<R>(net.y_off + 2 * k);
      b = BY_LANE ? load<R>(t.y_off + (2 * (size_t)k + 1) * w) : number<R>(net.y_off + 2 * k + 1);
      if (LEVEL > 1) {
        const R u = g * c - b * d, z = g * d + b * c;
        narrow(t.cells + 2 * (size_t)k * w, e * u + f * z), narrow(t.cells + (2 * (size_t)k + 1) * w, f * u - e * z);
        re = re + u, im = im + z;
      } else {
        re = re + g * c, im = im + g * d;
        re = re - b * d, im = im + b * c;
      }
    }
    const R p = e * re + f * im, q = f * re - e * im;
    if (LEVEL) store(t.now + 2 * i * w, p), store(t.now + (2 * i + 1) * w, q);
    R left_p = load<R>(t.s + 2 * i * w) - p, left_q = load<R>(t.s + (2 * i + 1) * w) - q;
    if (BY_LANE) {
      left_p = load<R>(t.free + 2 * i * w) * left_p, left_q = load<R>(t.free + (2 * i + 1) * w) * left_q;
    } else {
      left_p = (double)net.unknown[2 * i] * left_p, left_q = (double)net.unknown[2 * i + 1] * left_q;
    }
    big = larger(big, larger(left_p, left_q));
    narrow(t.x + 2 * i * w, left_p), narrow(t.x + (2 * i + 1) * w, left_q);
    if constexpr (SCALED) {
      alignas(64) float square[w];
      narrow(square, e * e + f * f);
      const F over = 1.0f / load<F>(square);
      float *x = (float *)t.x + 2 * i * w;
      store(x, load<F>(x) * over), store(x + w, load<F>(x + w) * over);
    }
  }
  return big;
}

// Voltages turned by a correction: (1 + ln|V|) (1 + j t)^2 / (1 + t^2) with t half the angle, which keeps a magnitude.
template <class T>
INLINE void turn(int n, const Tile<T> &t, const double *part) {
  constexpr int w = LANES;
  const D share = load<D>(part);
  for (int i = 0; i < n; i++) {
    const D half = 0.5 * (share * widen(t.x + 2 * i * w)), grow = share * widen(t.x + (2 * i + 1) * w);
    const D square = half * half, h = (1.0 + grow) * inverse(1.0 + square);
    const D c = h * (1.0 - square), s = 2.0 * (half * h);
    const D e = load<D>(t.v + 2 * i * w), f = load<D>(t.v + (2 * i + 1) * w);
    store(t.v + 2 * i * w, e * c - f * s), store(t.v + (2 * i + 1) * w, e * s + f * c);
  }
}

// ---- linear systems ------------------------------------------------------------------------------------------------

// x becomes the solution with the constant factors of the network.
INLINE void solve_shared(const Network &net, float *x) {
  constexpr int w = LANES;
  for (int i = 0; i < net.n; i++) {
    float *own = x + 2 * i * w;
    F a = load<F>(own), b = load<F>(own + w);
    for (int k = net.l_row[i]; k < net.l_row[i + 1]; k++) {
      const float *far = x + 2 * (size_t)net.l_col[k] * w, *m = net.lower + 4 * (size_t)k;
      const F c = load<F>(far), d = load<F>(far + w);
      a = a - m[0] * c, b = b - m[2] * c;
      a = a - m[1] * d, b = b - m[3] * d;
    }
    store(own, a), store(own + w, b);
  }
  for (int i = net.n - 1; i >= 0; i--) {
    float *own = x + 2 * i * w;
    const float *m = net.inverse + 4 * (size_t)i;
    const F c = load<F>(own), d = load<F>(own + w);
    F a = m[0] * c + m[1] * d, b = m[2] * c + m[3] * d;
    for (int k = net.u_row[i]; k < net.u_row[i + 1]; k++) {
      const float *far = x + 2 * (size_t)net.u_col[k] * w, *u = net.upper + 4 * (size_t)k;
      const F y = load<F>(far), z = load<F>(far + w);
      a = a - u[0] * y, b = b - u[2] * y;
      a = a - u[1] * z, b = b - u[3] * z;
    }
    store(own, a), store(own + w, b);
  }
}

// Block of the diagonal from the injections and the voltage, with an identity row where nothing is unknown.
template <bool BY_LANE, class R>
INLINE Block<R> diagonal(const Network &net, const double *v, const double *now, const double *y_own, const double *free,
                         int i) {
  constexpr int w = width<R>();
  const R e = load<R>(v + 2 * i * w), f = load<R>(v + (2 * i + 1) * w), square = e * e + f * f;
  const R p = load<R>(now + 2 * i * w), q = load<R>(now + (2 * i + 1) * w);
  const R g = square * (BY_LANE ? load<R>(y_own + 2 * i * w) : number<R>(net.y_own + 2 * i));
  const R b = square * (BY_LANE ? load<R>(y_own + (2 * i + 1) * w) : number<R>(net.y_own + 2 * i + 1));
  const R on_p = BY_LANE ? load<R>(free + 2 * i * w) : all<R>(net.unknown[2 * i]);
  const R on_q = BY_LANE ? load<R>(free + (2 * i + 1) * w) : all<R>(net.unknown[2 * i + 1]);
  const R one = all<R>(1);
  return {one - on_p * (one + q + b), on_p * (p + g), on_q * (p - g), one - on_q * (one - q + b)};
}

// Factors by lane of the Jacobian of the last `mismatch` of LEVEL 2, row by row; x becomes the solution of L z = x.
// A row of L is used at once, and kept where KEEP.
template <bool BY_LANE, bool KEEP, class R, class T>
INLINE void eliminate(const Network &net, const Tile<T> &t) {
  constexpr int w = width<T>();
  typedef typename T::scalar scalar;
  for (int i = 0; i < net.n; i++) {
    const int l_begin = net.l_row[i], l_end = net.l_row[i + 1], u_begin = net.u_row[i], u_end = net.u_row[i + 1];
    scalar *low = t.lower + (KEEP ? 4 * (size_t)l_begin * w : 0), *own = t.diag + 4 * (size_t)i * w;
    scalar *up = t.upper + 4 * (size_t)u_begin * w;
    for (int k = l_begin; k < l_end; k++) t.at[net.l_col[k]] = low + 4 * (size_t)(k - l_begin) * w;
    for (int k = u_begin; k < u_end; k++) t.at[net.u_col[k]] = up + 4 * (size_t)(k - u_begin) * w;
    t.at[i] = own;
    memset(low, 0, sizeof(scalar) * 4 * w * (l_end - l_begin));
    memset(up, 0, sizeof(scalar) * 4 * w * (u_end - u_begin));
    const Block<R> diag = diagonal<BY_LANE, R>(net, t.v, t.now, t.y_own, t.free, i);
    narrow(own, diag.a), narrow(own + w, diag.b), narrow(own + 2 * w, diag.c), narrow(own + 3 * w, diag.d);
    T on_p, on_q;
    if (BY_LANE) {
      alignas(64) scalar on[2 * w];
      narrow(on, load<R>(t.free + 2 * i * w)), narrow(on + w, load<R>(t.free + (2 * i + 1) * w));
      on_p = load<T>(on), on_q = load<T>(on + w);
    } else {
      on_p = all<T>(net.unknown[2 * i]), on_q = all<T>(net.unknown[2 * i + 1]);
    }
    for (int k = net.y_row[i]; k < net.y_row[i + 1]; k++) {
      const T re = load<T>(t.cells + 2 * (size_t)k * w), im = load<T>(t.cells + (2 * (size_t)k + 1) * w);
      store_block<T>(t.at[net.y_col[k]], {on_p * im, on_p * re, all<T>(0) - on_q * re, on_q * im});
    }
    T a = load<T>(t.x + 2 * i * w), b = load<T>(t.x + (2 * i + 1) * w);
    for (int k = l_begin; k < l_end; k++) {
      const int j = net.l_col[k];
      const Block<T> m = load_block<T>(t.at[j]) * load_block<T>(t.diag + 4 * (size_t)j * w);
      if (KEEP) store_block<T>(t.at[j], m);
      const T c = load<T>(t.x + 2 * j * w), d = load<T>(t.x + (2 * j + 1) * w);
      a = a - m.a * c - m.b * d, b = b - m.c * c - m.d * d;
      for (int h = net.u_row[j]; h < net.u_row[j + 1]; h++) {
        scalar *to = t.at[net.u_col[h]];
        store_block<T>(to, load_block<T>(to) - m * load_block<T>(t.upper + 4 * (size_t)h * w));
      }
    }
    store(t.x + 2 * i * w, a), store(t.x + (2 * i + 1) * w, b);
    store_block<T>(own, inverse(load_block<T>(own)));
  }
}

constexpr float LONGEST = 0.3f;  // [-] largest ln|V| of a Newton step: it stays on the branch of solutions it began on
constexpr float ANGLES = 0.3f;   // of an angle, beside a magnitude: angles of large networks move far with the schedule

// x becomes the solution of U x = z; returns the largest entry of each lane, angles at ANGLES of their size.
template <class T>
INLINE T substitute(const Network &net, const Tile<T> &t) {
  constexpr int w = width<T>();
  T big = all<T>(0);
  for (int i = net.n - 1; i >= 0; i--) {
    T a = load<T>(t.x + 2 * i * w), b = load<T>(t.x + (2 * i + 1) * w);
    for (int k = net.u_row[i]; k < net.u_row[i + 1]; k++) {
      const Block<T> u = load_block<T>(t.upper + 4 * (size_t)k * w);
      const typename T::scalar *far = t.x + 2 * (size_t)net.u_col[k] * w;
      const T y = load<T>(far), z = load<T>(far + w);
      a = a - u.a * y - u.b * z, b = b - u.c * y - u.d * z;
    }
    const Block<T> m = load_block<T>(t.diag + 4 * (size_t)i * w);
    const T c = m.a * a + m.b * b, d = m.c * a + m.d * b;
    big = larger(big, larger((typename T::scalar)ANGLES * c, d));
    store(t.x + 2 * i * w, c), store(t.x + (2 * i + 1) * w, d);
  }
  return big;
}

// x becomes the solution of the transposed system with the factors of `eliminate` that kept L.
template <class T>
INLINE void solve_transposed(const Network &net, const Tile<T> &t) {
  constexpr int w = width<T>();
  typedef typename T::scalar scalar;
  const auto subtract = [&](scalar *to, Block<T> m, T c, T d) __attribute__((always_inline)) {
    store(to, load<T>(to) - m.a * c - m.b * d), store(to + w, load<T>(to + w) - m.c * c - m.d * d);
  };
  for (int i = 0; i < net.n; i++) {
    scalar *own = t.x + 2 * i * w;
    const Block<T> m = flipped(load_block<T>(t.diag + 4 * (size_t)i * w));
    const T a = load<T>(own), b = load<T>(own + w), c = m.a * a + m.b * b, d = m.c * a + m.d * b;
    store(own, c), store(own + w, d);
    for (int k = net.u_row[i]; k < net.u_row[i + 1]; k++)
      subtract(t.x + 2 * (size_t)net.u_col[k] * w, flipped(load_block<T>(t.upper + 4 * (size_t)k * w)), c, d);
  }
  for (int i = net.n - 1; i >= 0; i--) {
    const T c = load<T>(t.x + 2 * i * w), d = load<T>(t.x + (2 * i + 1) * w);
    for (int k = net.l_row[i]; k < net.l_row[i + 1]; k++)
      subtract(t.x + 2 * (size_t)net.l_col[k] * w, flipped(load_block<T>(t.lower + 4 * (size_t)k * w)), c, d);
  }
}

// ---- lanes in and out ----------------------------------------------------------------------------------------------

// What is wrong with the input of a lane is kept beside the numbers that take its place.
INLINE bool finite(double x) { return x - x == 0; }

// Injections and start voltages of 16 lanes; bad[k] tells of a number that is not finite where it counts.
template <class Real, class T>
static void read_lanes(const Network &net, const Given<Real> &in, const int64_t *lane, const Tile<T> &t, bool *bad) {
  constexpr int w = LANES;
  Lanes wrong = {};
  in_eights(net.n, [&](int first, int many) __attribute__((always_inline)) {
    D p[8], q[8], set[8], holds[8];
    fetch(in.p, net.n, lane, first, many, p), fetch(in.q, net.n, lane, first, many, q);
    if (in.v_set) fetch(in.v_set, net.n, lane, first, many, set);
    if (in.v_set && in.holds) fetch(in.holds, net.n, lane, first, many, holds);
    for (int h = 0; h < many; h++) {
      const int i = t.place[first + h];
      const D none = all<D>(0), c = all<D>(net.v_base[2 * i]), d = all<D>(net.v_base[2 * i + 1]);
      double *s = t.s + 2 * i * w, *v = t.v + 2 * i * w;
      const Lanes sound_p = finite(p[h]), sound_q = finite(q[h]);
      store(s, choose(sound_p, p[h], none)), store(s + w, choose(sound_q, q[h], none));
      if (net.unknown[2 * i]) wrong = wrong | ~sound_p;
      if (net.unknown[2 * i + 1]) wrong = wrong | ~sound_q;
      store(v, c), store(v + w, d);
      if (!in.v_set || (!in.holds && net.unknown[2 * i + 1])) continue;
      const double e = net.v_base[2 * i], f = net.v_base[2 * i + 1];
      const D over = set[h] / all<D>(__builtin_sqrt(e * e + f * f));
      const Lanes fine = finite(over) & above(over, 0), held = in.holds ? above(holds[h], 0) : ~Lanes{};
      wrong = wrong | (held & ~fine);
      store(v, choose(held & fine, c * over, c)), store(v + w, choose(held & fine, d * over, d));
    }
  });
  for (int k = 0; k < w; k++) bad[k] = at(wrong, k);
}

template <class Real>
INLINE D rounded(D x) {
  if (sizeof(Real) == 8) return x;
  return {__builtin_convertvector(__builtin_convertvector(x.a, float8), double8),
          __builtin_convertvector(__builtin_convertvector(x.b, float8), double8)};
}

// Deviation e from the base voltages, V = V_b (1 + e), of the lanes that are asked for, and what Real rounds off it.
template <class Real, class T>
static void write_lanes(const Network &net, const Tile<T> &t, const int64_t *lane, const bool *wanted,
                        const Solution<Real> &out) {
  constexpr int w = LANES;
  in_eights(net.n, [&](int first, int many) __attribute__((always_inline)) {
    D e[8], f[8];
    for (int h = 0; h < many; h++) {
      const int i = t.place[first + h];
      const double c = net.v_base[2 * i], d = net.v_base[2 * i + 1], over = 1 / (c * c + d * d);
      const D x = load<D>(t.v + 2 * i * w), y = load<D>(t.v + (2 * i + 1) * w);
      e[h] = over * (c * x + d * y) - all<D>(1), f[h] = over * (c * y - d * x);
    }
    put(out.e_re, net.n, lane, wanted, first, many, e), put(out.e_im, net.n, lane, wanted, first, many, f);
    if (!out.d_re) return;
    for (int h = 0; h < many; h++) e[h] = e[h] - rounded<Real>(e[h]), f[h] = f[h] - rounded<Real>(f[h]);
    put(out.d_re, net.n, lane, wanted, first, many, e), put(out.d_im, net.n, lane, wanted, first, many, f);
  });
}

// Admittances and unknowns of 16 lanes.
template <class Real, class T>
static void read_topology(const Network &net, const Given<Real> &in, const int64_t *lane, const Tile<T> &t) {
  constexpr int w = LANES;
  const auto add = [&](double *to, const double *y, D share) __attribute__((always_inline)) {
    store(to, load<D>(to) + y[0] * share), store(to + w, load<D>(to + w) + y[1] * share);
  };
  for (int k = 0; k < 2 * net.y_row[net.n]; k++) store(t.y_off + (size_t)k * w, all<D>(in.in_service ? 0 : net.y_off[k]));
  for (int i = 0; i < 2 * net.n; i++) {
    store(t.y_own + i * w, all<D>(net.y_own[i]));
    store(t.free + i * w, all<D>(net.unknown[i]));
  }
  if (in.in_service) {
    D service[8] = {};
    for (int b = 0; b < net.branches; b++) {
      const int32_t *at = net.ends + 4 * (size_t)b;
      const double *y = net.branch + 12 * (size_t)b;
      const int ahead = net.branches - b;
      if (b % 8 == 0) fetch(in.in_service, net.branches, lane, b, ahead < 8 ? ahead : 8, service);
      const D on = in_use(service[b % 8]), off = on - all<D>(1);
      add(t.y_own + 2 * at[0] * w, y, off), add(t.y_own + 2 * at[1] * w, y + 6, off);
      if (at[0] == at[1]) {  // both ends at one node
        add(t.y_own + 2 * at[0] * w, y + 2, off), add(t.y_own + 2 * at[0] * w, y + 4, off);
        continue;
      }
      add(t.y_off + 2 * (size_t)at[2] * w, y + 2, on), add(t.y_off + 2 * (size_t)at[3] * w, y + 4, on);
    }
  }
  if (in.holds)
    in_eights(net.n, [&](int first, int many) __attribute__((always_inline)) {
      D holds[8];
      fetch(in.holds, net.n, lane, first, many, holds);
      for (int h = 0; h < many; h++) {
        const int i = t.place[first + h];
        const double varies = net.unknown[2 * i] | net.unknown[2 * i + 1];
        store(t.free + (2 * i + 1) * w, varies * (all<D>(1) - in_use(holds[h])));
      }
    });
}

// Voltages V_b (1 + e + d) of 16 lanes from deviations; d may be null.
template <class Real, class T>
static void read_deviation(const Network &net, const Real *const *state, const int64_t *lane, const Tile<T> &t) {
  constexpr int w = LANES;
  in_eights(net.n, [&](int first, int many) __attribute__((always_inline)) {
    D x[4][8] = {};
    for (int h = 0; h < 4; h++)
      if (state[h]) fetch(state[h], net.n, lane, first, many, x[h]);
    for (int h = 0; h < many; h++) {
      const int i = t.place[first + h];
      const double c = net.v_base[2 * i], d = net.v_base[2 * i + 1];
      const D a = 1.0 + (x[0][h] + x[2][h]), b = x[1][h] + x[3][h];
      store(t.v + 2 * i * w, c * a - d * b), store(t.v + (2 * i + 1) * w, d * a + c * b);
    }
  });
}

template <class Real>
INLINE Real floor_of() { return sizeof(Real) == 4 ? (Real)1.1920929e-7 : (Real)2.220446049250313e-16; }

// ---- iterations ----------------------------------------------------------------------------------------------------

constexpr double FAR = 1e6;      // [pu] mismatch beyond which an iterate does not come back

// How far the lanes of a tile are.
struct Progress {
  alignas(64) double left[LANES];  // [pu] largest mismatch
  alignas(64) double part[LANES];  // of a correction that is taken
  int32_t steps[LANES] = {};
  bool lost[LANES] = {};           // the iterate left the finite numbers

  // Whether a lane goes on; one that is done, lost or not `open` keeps its numbers.
  bool ask(double tol, const bool *open, bool force) {
    bool going = false;
    for (int k = 0; k < LANES; k++) {
      lost[k] |= !(left[k] < FAR);
      const bool moves = open[k] && !lost[k] && (force || !(left[k] <= tol));
      part[k] = moves, steps[k] += moves, going |= moves;
    }
    return going;
  }
};

// What does not move must be finite all the same, for zero times it.
template <class T>
INLINE void hold_still(const Network &net, const Tile<T> &t, const Progress &of) {
  for (int k = 0; k < LANES; k++)
    if (of.lost[k])
      for (int i = 0; i < 2 * net.n; i++) t.x[i * LANES + k] = 0, t.v[i * LANES + k] = net.v_base[i];
}

constexpr int TRIED = 4;         // steps that show how fast a lane gets on

// Chord steps of the lanes that are open, `least` of them at least; a lane that would not be done by `most` stops early.
template <int LEVEL>
static void chord(const Network &net, const Tile<F> &t, Progress &of, const bool *open, double tol, int least, int most) {
  bool on[LANES];
  alignas(64) double before[LANES];
  memcpy(on, open, sizeof on);
  store(of.left, mismatch<false, LEVEL, true, D>(net, t));
  for (int step = 0; step < most && of.ask(tol, on, step < least); step++) {
    hold_still(net, t, of);
    memcpy(before, of.left, sizeof before);
    solve_shared(net, t.x);
    turn(net.n, t, of.part);
    store(of.left, mismatch<false, LEVEL, true, D>(net, t));
    if (step + 1 != TRIED) continue;
    for (int k = 0; k < LANES; k++) {
      double ahead = of.left[k];
      for (int h = TRIED; h < most; h++) ahead *= of.left[k] / before[k];
      on[k] &= ahead <= tol;
    }
  }
}

// Newton steps of the lanes that are open, factorised anew in every lane.
template <bool BY_LANE, class T>
static void newton(const Network &net, const Tile<T> &t, Progress &of, const bool *open, double tol, int most) {
  alignas(64) typename T::scalar size[LANES];
  store(of.left, mismatch<BY_LANE, 2, false, D>(net, t));
  for (int step = 0; step < most && of.ask(tol, open, false); step++) {
    eliminate<BY_LANE, false, D>(net, t);
    store(size, substitute(net, t));
    for (int k = 0; k < LANES; k++) {
      of.lost[k] |= of.part[k] != 0 && !finite(size[k]);
      if (of.lost[k]) of.part[k] = 0;
      else if (size[k] > LONGEST) of.part[k] *= LONGEST / size[k];
    }
    hold_still(net, t, of);
    // a lane that stands still may have a singular matrix
    for (int k = 0; k < LANES; k++)
      if (of.part[k] == 0)
        for (int i = 0; i < 2 * net.n; i++) t.x[i * LANES + k] = 0;
    turn(net.n, t, of.part);
    store(of.left, mismatch<BY_LANE, 2, false, D>(net, t));
  }
}

// Verdict on a lane and its residual, which a state rounded to Real cannot keep below its precision.
template <class Real>
INLINE void judge(const Solution<Real> &out, const Progress &of, int k, int64_t lane, bool bad, double tol) {
  const double left = of.left[k] < 1e30 ? of.left[k] : 1e30, least = floor_of<Real>();
  const bool done = of.left[k] <= tol && !of.lost[k];
  out.status[lane] = bad ? BAD_INPUT : done ? CONVERGED : of.lost[k] ? SINGULAR : OUT_OF_STEPS;
  out.residual[lane] = (Real)(left > least ? left : least);
  out.steps[lane] += of.steps[k];
}

// ---- solvers -------------------------------------------------------------------------------------------------------

// Lanes that wait for Newton's method, until there are 16 or no more come: first in floats, then what is left in doubles.
template <bool BY_LANE, class Real>
struct Waiting {
  const Network &net;
  const Given<Real> &in;
  const Solution<Real> &out;
  const Limits limits;
  char *const work;
  int64_t lane[2][2 * LANES];
  int count[2];

  void add(int64_t more, int try_) {
    lane[try_][count[try_]++] = more;
    if (count[try_] == LANES) run(try_);
  }
  void run(int try_) { try_ ? run<D>(try_) : run<F>(try_); }

  template <class T>
  void run(int try_) {
    const int mine = count[try_];
    int64_t at[LANES];
    bool open[LANES], bad[LANES], written[LANES];
    for (int k = 0; k < LANES; k++) at[k] = lane[try_][k < mine ? k : 0], open[k] = k < mine;
    count[try_] = 0;
    Tile<T> t;
    lay_out(net, t, work);
    read_lanes(net, in, at, t, bad);
    if (BY_LANE) read_topology(net, in, at, t);
    Progress of;
    newton<BY_LANE>(net, t, of, open, limits.tol, limits.newton_steps << try_);
    int64_t again[LANES];
    int left = 0;
    for (int k = 0; k < LANES; k++) {
      written[k] = open[k] && (try_ || (of.left[k] <= limits.tol && !of.lost[k]));
      if (written[k]) judge(out, of, k, at[k], bad[k], limits.tol);
      else if (open[k]) out.steps[at[k]] += of.steps[k], again[left++] = at[k];
    }
    write_lanes(net, t, at, written, out);
    for (int k = 0; k < left; k++) add(again[k], 1);
  }
  void flush() {
    for (int try_ = 0; try_ < 2; try_++)
      if (count[try_]) run(try_);
  }
};

template <class Real>
static void solve(const Network &net, const Given<Real> &in, const Solution<Real> &out, Limits limits, int64_t first,
                  int64_t last, void *work) {
  constexpr int w = LANES;
  const int64_t end = last * w < in.batch ? last * w : in.batch;
  for (int64_t lane = first * w; lane < end; lane++) out.steps[lane] = 0;
  if (in.in_service || in.holds) {
    Waiting<true, Real> waiting{net, in, out, limits, (char *)work, {}, {}};
    for (int64_t lane = first * w; lane < end; lane++) waiting.add(lane, 0);
    return waiting.flush();
  }
  Waiting<false, Real> waiting{net, in, out, limits, (char *)work, {}, {}};
  Tile<F> t;
  lay_out(net, t, (char *)work);
  for (int64_t lane = first * w; lane < end; lane += w) {
    int64_t at[w];
    bool open[w], bad[w], done[w];
    for (int k = 0; k < w; k++) open[k] = lane + k < end, at[k] = open[k] ? lane + k : lane;
    read_lanes(net, in, at, t, bad);
    Progress of;
    chord<0>(net, t, of, open, limits.tol, 0, limits.chord_steps);
    for (int k = 0; k < w; k++) {
      done[k] = open[k] && of.left[k] <= limits.tol && !of.lost[k];
      if (done[k]) judge(out, of, k, at[k], bad[k], limits.tol);
    }
    write_lanes(net, t, at, done, out);
    for (int k = 0; k < w; k++)
      if (open[k] && !done[k]) out.steps[at[k]] += of.steps[k], waiting.add(at[k], 0);
  }
  waiting.flush();
}

constexpr double BEYOND = 1e-9;   // [pu] excess over a limit, or over a set-point from the far side, that counts
constexpr int CAREFUL = 6;        // rounds after which a lane changes one bus at a time: together they may turn for ever

// Power flow with reactive power within limits: a node at a limit gives it and lets its magnitude go, until the magnitude
// passes the set-point on the far side. A lane without a power flow at its limits goes back to the last one and is not
// settled; one that has none at all has failed. Lanes that are `tried` are written.
template <class T, class Real>
static void bounded_tile(const Network &net, const Given<Real> &in, const Bounds<Real> &bounds, const Solution<Real> &out,
                         Limits limits, int most_rounds, const int64_t *lane, const bool *tried, const int *node, char *work,
                         bool *failed) {
  constexpr int w = LANES;
  Tile<T> t;
  double *known = (double *)(work + lay_out(net, t, work));  // (n, 2) voltages of the last power flow, (count) its limits
  double *limit = known + 2 * net.n * w;
  bool bad[w], open[w];
  read_lanes(net, in, lane, t, bad);
  read_topology(net, in, lane, t);
  Progress of;
  int32_t rounds[w] = {};
  bool settled[w] = {}, back[w] = {};
  const auto keep = [&](int k, bool back) {  // what was found, or back to it
    for (int i = 0; i < 2 * net.n; i++) (back ? t.v : known)[i * w + k] = (back ? known : t.v)[i * w + k];
    for (int j = 0; j < bounds.count; j++) {
      int32_t &now = bounds.at_limit[lane[k] * bounds.count + j];
      if (back) now = (int32_t)limit[j * w + k];
      else limit[j * w + k] = now;
    }
  };
  for (int k = 0; k < w; k++) {
    open[k] = tried[k];
    for (int j = 0; tried[k] && j < bounds.count; j++) {
      bounds.at_limit[lane[k] * bounds.count + j] = 0;
      bad[k] |= !finite(in.q[lane[k] * net.n + bounds.bus[j]]);
    }
  }
  for (int round = 0; round < most_rounds; round++) {
    newton<true>(net, t, of, open, limits.tol, limits.newton_steps);
    bool going = false;
    for (int k = 0; k < w; k++) {
      if (!open[k]) continue;
      rounds[k]++, open[k] = of.left[k] <= limits.tol && !of.lost[k];
      if (!open[k] && round) keep(k, true), of.left[k] = limits.tol, of.lost[k] = false, back[k] = true;
      if (!open[k]) continue;
      keep(k, false);
      const auto wish = [&](int j, double &size) {  // limit that should hold, and by how much it is asked for
        const int i = node[j], now = bounds.at_limit[lane[k] * bounds.count + j];
        const int64_t at = lane[k] * net.n + bounds.bus[j];
        const double *v = t.v + 2 * i * w + k, c = net.v_base[2 * i], d = net.v_base[2 * i + 1];
        if (now) {
          const double held = in.v_set ? (double)in.v_set[at] : __builtin_sqrt(c * c + d * d);
          size = now * (__builtin_sqrt(v[0] * v[0] + v[w] * v[w]) - held);
          return size > BEYOND ? 0 : now;
        }
        const double q = t.now[(2 * i + 1) * w + k] - in.q[at], above = q - bounds.high[j], below = bounds.low[j] - q;
        size = above > below ? above : below;
        return size > BEYOND ? (above > below ? 1 : -1) : 0;
      };
      int worst = -1, changes = 0;
      double most = 0, size = 0;
      for (int j = 0; j < bounds.count; j++)
        if (wish(j, size) != bounds.at_limit[lane[k] * bounds.count + j]) {
          changes++;
          if (size > most) most = size, worst = j;
        }
      settled[k] = !changes, open[k] = changes != 0, going |= open[k];
      for (int j = 0; j < bounds.count && changes && round + 1 < most_rounds; j++) {
        if (round >= CAREFUL && j != worst) continue;
        int32_t &now = bounds.at_limit[lane[k] * bounds.count + j];
        const int next = wish(j, size), i = node[j];
        if (next == now) continue;
        now = next;
        t.free[(2 * i + 1) * w + k] = next != 0;
        const int64_t at = lane[k] * net.n + bounds.bus[j];
        t.s[(2 * i + 1) * w + k] = in.q[at] + (next > 0 ? bounds.high[j] : next < 0 ? bounds.low[j] : 0);
        if (next) continue;
        const double c = net.v_base[2 * i], d = net.v_base[2 * i + 1];
        const double held = in.v_set ? (double)in.v_set[at] : __builtin_sqrt(c * c + d * d);
        double *v = t.v + 2 * i * w + k;
        const double over = held / __builtin_sqrt(v[0] * v[0] + v[w] * v[w]);
        v[0] *= over, v[w] *= over;
      }
    }
    if (!going) break;
  }
  for (int k = 0; k < w; k++) {
    if (back[k]) of.left[k] = limits.tol;
    failed[k] = tried[k] && !(of.left[k] <= limits.tol && !of.lost[k]);
    if (!tried[k]) continue;
    out.steps[lane[k]] = 0;
    judge(out, of, k, lane[k], bad[k], limits.tol);
    bounds.rounds[lane[k]] = rounds[k], bounds.settled[lane[k]] = settled[k] && !bad[k];
  }
  write_lanes(net, t, lane, tried, out);
}

template <class Real>
static void bounded(const Network &net, const Given<Real> &in, const Bounds<Real> &bounds, const Solution<Real> &out,
                    Limits limits, int most_rounds, int64_t first, int64_t last, void *work) {
  constexpr int w = LANES;
  int *node = (int *)work, *place = node + bounds.count;
  char *rest = (char *)work + (sizeof(int) * (bounds.count + net.n) + 63) / 64 * 64;
  for (int i = 0; i < net.n; i++) place[net.order[i]] = i;
  for (int j = 0; j < bounds.count; j++) node[j] = place[bounds.bus[j]];
  for (int64_t tile = first; tile < last; tile++) {
    int64_t lane[w];
    bool tried[w], failed[w], any = false;
    for (int k = 0; k < w; k++) tried[k] = tile * w + k < in.batch, lane[k] = tried[k] ? tile * w + k : tile * w;
    bounded_tile<F>(net, in, bounds, out, limits, most_rounds, lane, tried, node, rest, failed);
    for (int k = 0; k < w; k++) any |= failed[k];
    if (any) bounded_tile<D>(net, in, bounds, out, limits, most_rounds, lane, failed, node, rest, tried);
  }
}

constexpr double FINE = 1e-10;  // [pu] mismatch at which branches are read
constexpr int FINER = 12, FINEST = 4;  // steps of the chord, then of Newton's method, on the way there

template <bool BY_LANE, class Real>
static void rest_of(const Network &net, const Given<Real> &in, const Real *const *state, const int32_t *status,
                    const Rest<Real> &out, int64_t first, int64_t last, void *work) {
  constexpr int w = LANES;
  const int64_t end = last * w < in.batch ? last * w : in.batch;
  Tile<F> t;
  lay_out(net, t, (char *)work);
  for (int64_t lane = first * w; lane < end; lane += w) {
    int64_t at[w];
    bool open[w], bad[w], solved[w];
    for (int k = 0; k < w; k++) {
      open[k] = lane + k < end, at[k] = open[k] ? lane + k : lane;
      solved[k] = open[k] && status[at[k]] == CONVERGED;
    }
    const Lanes known = mask(solved);
    read_lanes(net, in, at, t, bad);
    if (BY_LANE) read_topology(net, in, at, t);
    read_deviation(net, state, at, t);
    if (sizeof(Real) == 8) {
      Progress of;
      bool todo[w], any = BY_LANE;
      if (!BY_LANE) chord<1>(net, t, of, solved, FINE, 1, FINER);
      for (int k = 0; k < w; k++) any |= todo[k] = solved[k] && (BY_LANE || !(of.left[k] <= FINE));
      if (any) newton<BY_LANE>(net, t, of, todo, FINE, FINEST);
    } else {
      mismatch<BY_LANE, 1, false, D>(net, t);
    }
    D sums[4] = {};
    int done = 0;  // columns that are counted: the last run begins before
    in_eights(net.n, [&](int first, int many) __attribute__((always_inline)) {
      D x[4][8];
      if (out.d_re) fetch(state[0], net.n, at, first, many, x[2]), fetch(state[1], net.n, at, first, many, x[3]);
      for (int h = 0; h < many; h++) {
        const int i = t.place[first + h];
        const double c = net.v_base[2 * i], d = net.v_base[2 * i + 1], over = 1 / (c * c + d * d);
        const double *v = t.v + 2 * i * w, *s = t.s + 2 * i * w, *now = t.now + 2 * i * w;
        const D a = load<D>(v), b = load<D>(v + w), none = all<D>(0);
        x[0][h] = load<D>(s) - load<D>(now), x[1][h] = load<D>(s + w) - load<D>(now + w);
        if (out.slack) {
          const int bus = first + h;
          x[0][h] = bus == *out.slack ? none - x[0][h] : none;
          x[1][h] = load<D>((out.holds[bus] ? now : s) + w);
          if (bus < done) continue;
          const D square = a * a + b * b;
          sums[2] = sums[2] + (double)out.shunt[2 * bus] * square, sums[3] = sums[3] - (double)out.shunt[2 * bus + 1] * square;
        }
        if (!out.d_re) continue;
        x[2][h] = choose(known, over * (c * a + d * b) - all<D>(1) - x[2][h], none);
        x[3][h] = choose(known, over * (c * b - d * a) - x[3][h], none);
      }
      put(out.p_left, net.n, at, open, first, many, x[0]), put(out.q_left, net.n, at, open, first, many, x[1]);
      done = first + many;
      if (!out.d_re) return;
      put(out.d_re, net.n, at, open, first, many, x[2]), put(out.d_im, net.n, at, open, first, many, x[3]);
    });
    done = 0;
    in_eights(net.branches, [&](int first, int many) __attribute__((always_inline)) {
      D x[6][8], service[8];
      if (BY_LANE && in.in_service) fetch(in.in_service, net.branches, at, first, many, service);
      for (int h = 0; h < many; h++) {
        const int32_t *ends = net.ends + 4 * (size_t)(first + h);
        const double *y = net.branch + 12 * (size_t)(first + h) + 8;
        const double *f = t.v + 2 * (size_t)ends[0] * w, *g = t.v + 2 * (size_t)ends[1] * w;
        const D fr = load<D>(f), fi = load<D>(f + w), gr = load<D>(g), gi = load<D>(g + w);
        const D ur = y[2] * fr - y[3] * fi, ui = y[2] * fi + y[3] * fr;
        D dr = ur - gr, di = ui - gi;
        if (BY_LANE && in.in_service) dr = in_use(service[h]) * dr, di = in_use(service[h]) * di;
        const D ir = y[0] * dr - y[1] * di, ii = y[0] * di + y[1] * dr;
        x[0][h] = ir, x[1][h] = ii, x[2][h] = ur, x[3][h] = ui, x[4][h] = gr, x[5][h] = gi;
        if (!out.slack) continue;
        const double half = out.half_charging[first + h], r = out.r[first + h];
        x[2][h] = ur * ir + ui * ii, x[3][h] = ui * ir - ur * ii - half * (ur * ur + ui * ui);
        x[4][h] = all<D>(0) - (gr * ir + gi * ii), x[5][h] = gr * ii - gi * ir - half * (gr * gr + gi * gi);
        if (first + h < done) continue;
        sums[0] = sums[0] + r * (ir * ir + ii * ii), sums[1] = sums[1] + (x[3][h] + x[5][h]);
      }
      done = first + many;
      for (int h = 0; h < 6; h++) put(out.ends[h], net.branches, at, open, first, many, x[h]);
    });
    for (int h = 0; out.slack && h < 4; h++) {
      alignas(64) double sum[w];
      store(sum, sums[h]);
      for (int k = 0; k < w; k++)
        if (open[k]) out.sums[h][at[k]] = (Real)sum[k];
    }
  }
}

template <class Real>
static void rest(const Network &net, const Given<Real> &in, const Real *const *state, const int32_t *status,
                 const Rest<Real> &out, int64_t first, int64_t last, void *work) {
  if (in.in_service || in.holds) return rest_of<true>(net, in, state, status, out, first, last, work);
  rest_of<false>(net, in, state, status, out, first, last, work);
}

template <bool BY_LANE, class Real>
static void linear_of(const Network &net, const Given<Real> &in, const Real *const *given, Real *const *x, bool transposed,
                      int64_t first, int64_t last, void *work) {
  constexpr int w = LANES;
  const int64_t end = last * w < in.batch ? last * w : in.batch;
  Tile<D> t;
  lay_out(net, t, (char *)work);
  for (int64_t lane = first * w; lane < end; lane += w) {
    int64_t at[w];
    for (int k = 0; k < w; k++) at[k] = lane + k < end ? lane + k : lane;
    if (BY_LANE) read_topology(net, in, at, t);
    const Real *const state[4] = {given[0], given[1], nullptr, nullptr};
    read_deviation(net, state, at, t);
    memset(t.s, 0, sizeof(double) * 2 * net.n * w);
    mismatch<BY_LANE, 2, false, D, D>(net, t);
    const auto each = [&](auto part) __attribute__((always_inline)) {
      for (int i = 0; i < net.n; i++)
        for (int h = 0; h < 2; h++)
          for (int k = 0; k < w; k++) {
            const double on = BY_LANE ? t.free[(2 * i + h) * w + k] : net.unknown[2 * i + h];
            part(t.x[(2 * i + h) * w + k], at[k] * net.n + net.order[i], h, on != 0, lane + k < end);
          }
    };
    const auto right = [&] {
      each([&](double &to, int64_t from, int h, bool on, bool) { to = on ? given[2 + h][from] : 0; });
    };
    if (!transposed) right();
    eliminate<BY_LANE, true, D>(net, t);
    if (transposed) right(), solve_transposed(net, t);
    else substitute(net, t);
    each([&](double &from, int64_t to, int h, bool on, bool mine) {
      if (mine) x[h][to] = on && finite(from) ? (Real)from : 0;
    });
  }
}

template <class Real>
static void linear(const Network &net, const Given<Real> &in, const Real *const *given, Real *const *x, bool transposed,
                   int64_t first, int64_t last, void *work) {
  if (in.in_service || in.holds) return linear_of<true>(net, in, given, x, transposed, first, last, work);
  linear_of<false>(net, in, given, x, transposed, first, last, work);
}

// Factors at the base voltages, of rows over |V|^2: L, D^-1 U and D^-1.
static void factor(const Network &net, float *lower, float *upper, float *inverse, void *work) {
  Tile<S> t;
  lay_out(net, t, (char *)work);
  memcpy(t.v, net.v_base, sizeof(double) * 2 * net.n);
  memset(t.s, 0, sizeof(double) * 2 * net.n);
  mismatch<false, 2, false, S>(net, t);
  eliminate<false, true, S>(net, t);
  const auto square = [&](int i) {
    return net.v_base[2 * i] * net.v_base[2 * i] + net.v_base[2 * i + 1] * net.v_base[2 * i + 1];
  };
  for (int i = 0; i < net.n; i++) {
    const Block<S> own = load_block<S>(t.diag + 4 * (size_t)i);
    for (int h = 0; h < 4; h++) inverse[4 * (size_t)i + h] = (float)(t.diag[4 * (size_t)i + h] * square(i));
    for (size_t k = net.l_row[i]; k < (size_t)net.l_row[i + 1]; k++)
      for (int h = 0; h < 4; h++) lower[4 * k + h] = (float)(t.lower[4 * k + h] * square(net.l_col[k]) / square(i));
    for (size_t k = net.u_row[i]; k < (size_t)net.u_row[i + 1]; k++) {
      const Block<S> u = own * load_block<S>(t.upper + 4 * k);
      const double whole[4] = {u.a.a, u.b.a, u.c.a, u.d.a};
      for (int h = 0; h < 4; h++) upper[4 * k + h] = (float)whole[h];
    }
  }
}

#include "busbars.h"

static size_t work_bytes(const Network &net) {
  Tile<D> t;
  const size_t more = sizeof(int) * 2 * net.n + 3 * sizeof(double) * LANES * net.n;  // of power flows within limits
  return lay_out(net, t, (char *)0) + (more + 127) / 64 * 64;
}

}  // namespace

extern const Kernel JOIN(kernel_, POWERZOO_VARIANT) = {
    TEXT(POWERZOO_VARIANT), work_bytes, split_bytes, factor,
    {solve<float>, bounded<float>, rest<float>, linear<float>, split<float>, split_linear<float>},
    {solve<double>, bounded<double>, rest<double>, linear<double>, split<double>, split_linear<double>}};

}  // namespace powerzoo

// Substations with two busbars, elements assigned anew in every lane: part of kernel.cc.
//
// A node is a busbar of a bus; what no lane of a tile uses is left out of its matrices, whose pattern is worked out here.

typedef uint16_t Mask;  // a bit for each lane

// 1 in the lanes of a mask, 0 in the others.
INLINE D flags(Mask mask) {
  const long8 low = {1, 2, 4, 8, 16, 32, 64, 128}, every = (long long)mask - long8{};
  const long8 one = (long8)(1.0 - double8{});
  return {(double8)(((every & low) != 0) & one), (double8)(((every & (low << 8)) != 0) & one)};
}

// Elements of a tile by the busbar that they stand on, and the network of the nodes in use.
struct Busbars {
  Mask *one, *two;            // (elements) lanes in which it stands on busbar 1, 2
  Mask *used, *reached, *holds, *refers;  // (2 buses) by node, 2 place + busbar: what stands there
  int32_t *node, *local;      // node of each row, row of each node
  int32_t *place;             // of each row among the nodes of the case, (busbar, bus)
  char *rows;                 // what is written of a tile
  int32_t *y_row, *y_col, *l_row, *l_col, *u_row, *u_col, *from, *to, *mark, *child, *next;
  double *v_base;
  float *angle;               // (rows, 16) of the DC power flow [rad]
  Network net;
  Mask islanded, bad;
};

static char *lay_out(const Substations &sub, Busbars &t, char *work) {
  const size_t nodes = 2 * sub.buses, cells = 8 * (size_t)sub.branches;
  char *rest = work;
  t.one = cut<Mask>(rest, sub.elements), t.two = cut<Mask>(rest, sub.elements);
  t.used = cut<Mask>(rest, nodes), t.reached = cut<Mask>(rest, nodes), t.holds = cut<Mask>(rest, nodes);
  t.refers = cut<Mask>(rest, nodes);
  t.place = cut<int32_t>(rest, nodes);
  t.rows = cut<char>(rest, sizeof(double) * LANES * (4 * nodes + 6 * (size_t)sub.branches));
  t.node = cut<int32_t>(rest, nodes), t.local = cut<int32_t>(rest, nodes), t.mark = cut<int32_t>(rest, nodes + 1);
  t.child = cut<int32_t>(rest, nodes), t.next = cut<int32_t>(rest, nodes);
  t.y_row = cut<int32_t>(rest, nodes + 1), t.l_row = cut<int32_t>(rest, nodes + 1), t.u_row = cut<int32_t>(rest, nodes + 1);
  t.y_col = cut<int32_t>(rest, cells), t.from = cut<int32_t>(rest, cells), t.to = cut<int32_t>(rest, cells);
  t.l_col = cut<int32_t>(rest, sub.most_fill), t.u_col = cut<int32_t>(rest, sub.most_fill);
  t.v_base = cut<double>(rest, 2 * nodes), t.angle = cut<float>(rest, LANES * nodes);
  return rest;
}

// Lanes in which the ends of a branch in service stand on busbars 1 and 2.
struct Standing {
  Mask end[2][2];
};
INLINE Standing standing(const Substations &sub, const Busbars &t, int b) {
  const int far = b + sub.branches;
  const Mask on = (t.one[b] | t.two[b]) & (t.one[far] | t.two[far]);
  return {{{Mask(on & t.one[b]), Mask(on & t.two[b])}, {Mask(on & t.one[far]), Mask(on & t.two[far])}}};
}

// Who stands where in the lanes that are tried, and which lanes hold together.
static void assign(const Substations &sub, const int8_t *topology, const int64_t *lane, Mask tried, Busbars &t) {
  memset(t.one, 0, sizeof(Mask) * sub.elements), memset(t.two, 0, sizeof(Mask) * sub.elements);
  const size_t nodes = sizeof(Mask) * 2 * sub.buses;
  memset(t.used, 0, nodes), memset(t.reached, 0, nodes), memset(t.holds, 0, nodes), memset(t.refers, 0, nodes);
  t.bad = t.islanded = 0;
  for (int k = 0; k < LANES; k++) {
    if (!(tried >> k & 1)) continue;
    const int8_t *on = topology + lane[k] * sub.elements;
    int8_t odd = 0;
    for (int e = 0; e < sub.elements; e++) {
      t.one[e] |= Mask((on[e] == 1) << k), t.two[e] |= Mask((on[e] == 2) << k);
      odd |= (on[e] < 0) | (on[e] > 2);
    }
    if (odd) t.bad |= Mask(1 << k);
  }
  for (int b = 0; b < sub.branches; b++) {
    const Standing s = standing(sub, t, b);
    for (int h = 0; h < 2; h++)
      for (int a = 0; a < 2; a++) t.used[2 * sub.at[b + h * sub.branches] + a] |= s.end[h][a];
  }
  for (int e = 2 * sub.branches; e < sub.elements; e++) {
    t.used[2 * sub.at[e]] |= t.one[e], t.used[2 * sub.at[e] + 1] |= t.two[e];
    const int unit = e - 2 * sub.branches;
    if (unit >= sub.units || !sub.unit_holds[unit]) continue;
    t.holds[2 * sub.at[e]] |= t.one[e], t.holds[2 * sub.at[e] + 1] |= t.two[e];
  }
  // the first unit in service of the reference bus, or its busbar 1 where it has none at all
  Mask found = 0;
  bool any = false;
  Mask *refers = t.refers + 2 * sub.slack;
  for (int unit = 0; unit < sub.units; unit++) {
    const int e = 2 * sub.branches + unit;
    if (sub.at[e] != sub.slack) continue;
    refers[0] |= t.one[e] & ~found, refers[1] |= t.two[e] & ~found, found |= t.one[e] | t.two[e], any = true;
  }
  if (!any) refers[0] = tried, t.used[2 * sub.slack] |= tried;
  for (int a = 0; a < 2; a++) t.reached[2 * sub.slack + a] = refers[a], t.holds[2 * sub.slack + a] |= refers[a];
  for (bool more = true; more;) {
    more = false;
    const auto pass = [&](int b) __attribute__((always_inline)) {
      const Standing s = standing(sub, t, b);
      Mask *f = t.reached + 2 * sub.at[b], *g = t.reached + 2 * sub.at[b + sub.branches];
      const Mask both = (s.end[0][0] & f[0]) | (s.end[0][1] & f[1]) | (s.end[1][0] & g[0]) | (s.end[1][1] & g[1]);
      for (int a = 0; a < 2; a++) {
        const Mask new_f = both & s.end[0][a] & ~f[a], new_g = both & s.end[1][a] & ~g[a];
        more |= new_f || new_g;
        f[a] |= new_f, g[a] |= new_g;
      }
    };
    for (int b = 0; b < sub.branches; b++) pass(b);
    for (int b = sub.branches; b-- > 0;) pass(b);
  }
  t.islanded = tried & ~(t.refers[2 * sub.slack] | t.refers[2 * sub.slack + 1]);
  for (int i = 0; i < 2 * sub.buses; i++) t.islanded |= t.used[i] & ~t.reached[i];
  t.islanded &= ~t.bad;
}

INLINE void sort(int32_t *x, int count) {
  for (int i = 1; i < count; i++) {
    const int32_t now = x[i];
    int j = i;
    for (; j && x[j - 1] > now; j--) x[j] = x[j - 1];
    x[j] = now;
  }
}

// Rows and columns of the nodes that some of the lanes `going` use, and of the factors of their matrix.
static void outline(const Substations &sub, Busbars &t, Mask going) {
  int n = 0, pairs = 0, fill = 0;
  for (int i = 0; i < 2 * sub.buses; i++) {
    t.local[i] = t.used[i] & going ? n : -1;
    if (t.local[i] < 0) continue;
    t.node[n] = i, t.place[n] = i % 2 * sub.buses + sub.order[i / 2];
    for (int h = 0; h < 2; h++) t.v_base[2 * n + h] = sub.v_base[2 * sub.order[i / 2] + h];
    n++;
  }
  memset(t.y_row, 0, sizeof(int32_t) * (n + 1)), memset(t.l_row, 0, sizeof(int32_t) * (n + 1));
  for (int b = 0; b < sub.branches; b++) {
    const Standing s = standing(sub, t, b);
    for (int a = 0; a < 4; a++) {
      if (!(s.end[0][a & 1] & s.end[1][a >> 1] & going)) continue;
      const int i = t.local[2 * sub.at[b] + (a & 1)], j = t.local[2 * sub.at[b + sub.branches] + (a >> 1)];
      if (i == j) continue;
      t.from[pairs] = i, t.to[pairs++] = j, t.from[pairs] = j, t.to[pairs++] = i;
    }
  }
  for (int k = 0; k < pairs; k++) t.y_row[t.from[k] + 1]++;
  for (int i = 0; i < n; i++) t.y_row[i + 1] += t.y_row[i], t.mark[i] = t.y_row[i];
  for (int k = 0; k < pairs; k++) t.y_col[t.mark[t.from[k]]++] = t.to[k];
  int kept = 0;
  for (int i = 0, begin = 0; i < n; i++) {
    const int end = t.y_row[i + 1], first = kept;
    sort(t.y_col + begin, end - begin);
    for (int k = begin; k < end; k++)
      if (kept == first || t.y_col[k] != t.y_col[kept - 1]) t.y_col[kept++] = t.y_col[k];
    begin = end, t.y_row[i + 1] = kept;
  }
  for (int i = 0; i < n; i++) t.mark[i] = t.child[i] = t.next[i] = -1;
  t.u_row[0] = 0;
  for (int i = 0; i < n; i++) {
    int32_t *own = t.u_col + fill;
    int count = 0;
    t.mark[i] = i;
    const auto add = [&](int j) __attribute__((always_inline)) {
      if (j > i && t.mark[j] != i) t.mark[j] = i, own[count++] = j;
    };
    for (int k = t.y_row[i]; k < t.y_row[i + 1]; k++) add(t.y_col[k]);
    for (int c = t.child[i]; c >= 0; c = t.next[c])
      for (int k = t.u_row[c]; k < t.u_row[c + 1]; k++) add(t.u_col[k]);
    sort(own, count);
    if (count) t.next[i] = t.child[own[0]], t.child[own[0]] = i;
    t.u_row[i + 1] = fill += count;
    for (int k = 0; k < count; k++) t.l_row[own[k] + 1]++;
  }
  for (int i = 0; i < n; i++) t.l_row[i + 1] += t.l_row[i], t.mark[i] = t.l_row[i];
  for (int i = 0; i < n; i++)
    for (int k = t.u_row[i]; k < t.u_row[i + 1]; k++) t.l_col[t.mark[t.u_col[k]]++] = i;
  t.net = Network{};
  t.net.n = n, t.net.v_base = t.v_base, t.net.y_row = t.y_row, t.net.y_col = t.y_col;
  t.net.l_row = t.l_row, t.net.l_col = t.l_col, t.net.u_row = t.u_row, t.net.u_col = t.u_col;
}

// Admittances by lane: of the branches where they stand, and of the shunts; or those of the DC power flow, without losses.
template <bool DC, class T>
static void admit(const Substations &sub, const Busbars &of, const Tile<T> &t) {
  constexpr int w = LANES;
  memset(t.y_own, 0, sizeof(double) * 2 * of.net.n * w);
  memset(t.y_off, 0, sizeof(double) * 2 * of.y_row[of.net.n] * w);
  const auto add = [&](double *to, double re, double im, D on) __attribute__((always_inline)) {
    if (!DC) store(to, load<D>(to) + re * on);
    store(to + w, load<D>(to + w) + im * on);
  };
  const auto cell = [&](int i, int j) __attribute__((always_inline)) {
    int k = of.y_row[i];
    while (of.y_col[k] != j) k++;
    return t.y_off + 2 * (size_t)k * w;
  };
  for (int b = 0; b < sub.branches; b++) {
    const Standing s = standing(sub, of, b);
    const double *y = sub.branch + 12 * (size_t)b, dc = sub.dc[2 * b];
    for (int a = 0; a < 4; a++) {
      const int i = of.local[2 * sub.at[b] + (a & 1)], j = of.local[2 * sub.at[b + sub.branches] + (a >> 1)];
      const Mask mask = s.end[0][a & 1] & s.end[1][a >> 1];
      if (!mask || i < 0 || j < 0) continue;
      const D on = flags(mask);
      add(t.y_own + 2 * i * w, y[0], DC ? -dc : y[1], on), add(t.y_own + 2 * j * w, y[6], DC ? -dc : y[7], on);
      if (i == j) {
        add(t.y_own + 2 * i * w, y[2] + y[4], DC ? 2 * dc : y[3] + y[5], on);
        continue;
      }
      add(cell(i, j), y[2], DC ? dc : y[3], on), add(cell(j, i), y[4], DC ? dc : y[5], on);
    }
  }
  for (int h = 0; h < sub.shunts && !DC; h++) {
    const int e = sub.elements - sub.shunts + h;
    for (int a = 0; a < 2; a++) {
      const int i = of.local[2 * sub.at[e] + a];
      if (i >= 0) add(t.y_own + 2 * i * w, sub.shunt[2 * h], sub.shunt[2 * h + 1], flags(a ? of.two[e] : of.one[e]));
    }
  }
}

// Injections, unknowns and start voltages of 16 lanes: of the base state, with magnitudes at their set-points where they
// are held, or of the DC power flow. Lanes that are not `going` keep still.
template <class Real, class T>
static void read_nodes(const Substations &sub, const Split<Real> &in, const int64_t *lane, Mask going, bool dc, Busbars &of,
                       const Tile<T> &t) {
  constexpr int w = LANES;
  const int buses = sub.buses;
  const double *slack = sub.v_base + 2 * sub.order[sub.slack];
  const double size = __builtin_sqrt(slack[0] * slack[0] + slack[1] * slack[1]);
  for (int i = 0; i < of.net.n; i++) {
    const int node = of.node[i], bus = sub.order[node / 2];
    const int64_t at = of.place[i];
    const double *base = sub.v_base + 2 * bus, own = __builtin_sqrt(base[0] * base[0] + base[1] * base[1]);
    const Mask used = of.used[node] & going, angle = used & ~of.refers[node], size_of = used & ~of.holds[node];
    double *s = t.s + 2 * i * w, *v = t.v + 2 * i * w;
    store(t.free + 2 * i * w, flags(angle)), store(t.free + (2 * i + 1) * w, flags(size_of));
    for (int k = 0; k < w; k++) {
      double p = in.p[lane[k] * 2 * buses + at], q = in.q[lane[k] * 2 * buses + at];
      if (!finite(p)) p = 0, of.bad |= angle & Mask(1 << k);
      if (!finite(q)) q = 0, of.bad |= size_of & Mask(1 << k);
      s[k] = p, s[w + k] = q;
      double held = in.v_set ? (double)in.v_set[lane[k] * buses + bus] : sub.v_set[bus];
      const Mask mine = used & of.holds[node] & Mask(1 << k);
      if (mine && !(finite(held) && held > 0)) held = own, of.bad |= mine;
      const bool moves = dc && (used >> k & 1);
      const double now = mine ? held : moves ? 1.0 : own;
      v[k] = base[0] * (now / own), v[w + k] = base[1] * (now / own);
      if (!moves) continue;
      const double x = 0.5 * of.angle[i * w + k], y = x * x;
      const double half = x * (1 + y * (1.0 / 3 + y * (2.0 / 15 + y * (17.0 / 315 + y * (62.0 / 2835)))));  // tangent
      const double over = 1 / (1 + half * half), c = (1 - half * half) * over, d = 2 * half * over;
      v[k] = now / size * (slack[0] * c - slack[1] * d), v[w + k] = now / size * (slack[0] * d + slack[1] * c);
    }
  }
}

// Angles of the DC power flow: active power alone, with what shunts take at 1 pu and what phase shifts push.
template <class Real>
static void dc_angles(const Substations &sub, const Split<Real> &in, const int64_t *lane, Mask going, Busbars &of,
                      const Tile<F> &t) {
  constexpr int w = LANES;
  read_nodes(sub, in, lane, going, false, of, t);
  for (int i = 0; i < of.net.n; i++) {
    store(t.v + 2 * i * w, all<D>(1)), store(t.v + (2 * i + 1) * w, all<D>(0)), store(t.free + (2 * i + 1) * w, all<D>(0));
  }
  const auto add = [&](int node, double p, Mask mask) __attribute__((always_inline)) {
    double *s = t.s + 2 * of.local[node] * w;
    if (of.local[node] >= 0) store(s, load<D>(s) + p * flags(mask));
  };
  for (int b = 0; b < sub.branches; b++) {
    const double pushed = sub.dc[2 * b + 1];
    if (pushed == 0) continue;
    const Standing s = standing(sub, of, b);
    for (int a = 0; a < 2; a++) {
      add(2 * sub.at[b] + a, pushed, s.end[0][a]), add(2 * sub.at[b + sub.branches] + a, -pushed, s.end[1][a]);
    }
  }
  for (int h = 0; h < sub.shunts; h++) {
    const int e = sub.elements - sub.shunts + h;
    add(2 * sub.at[e], -sub.shunt[2 * h], of.one[e]), add(2 * sub.at[e] + 1, -sub.shunt[2 * h], of.two[e]);
  }
  admit<true>(sub, of, t);
  mismatch<true, 2, false, D>(of.net, t);
  eliminate<true, false, D>(of.net, t);
  substitute(of.net, t);
  for (int i = 0; i < of.net.n; i++) memcpy(of.angle + i * w, t.x + 2 * i * w, sizeof(float) * w);
}

// Rows (count, 16) into results with lanes first: row r is number place[r], or r, of the `width` that a lane has.
template <class Number>
static void spread(const Number *rows, int count, const int32_t *place, int width, const int64_t *lane, Mask wanted,
                   Number *out) {
  for (int k = 0; k < LANES; k++) {
    if (!(wanted >> k & 1)) continue;
    Number *to = out + lane[k] * width;
    if (!place) {
      for (int r = 0; r < count; r++) to[r] = rows[r * LANES + k];
      continue;
    }
    memset(to, 0, sizeof(Number) * width);
    for (int r = 0; r < count; r++) to[place[r]] = rows[r * LANES + k];
  }
}


INLINE double8 finite_part(double8 x) { return (double8)((long8)x & (long8)(x - x == 0)); }
INLINE D finite_part(D x) { return {finite_part(x.a), finite_part(x.b)}; }

// State of the lanes `wanted` at the nodes, and powers and currents of the branches.
template <class Real, class T>
static void write_nodes(const Substations &sub, const Busbars &of, const Tile<T> &t, const int64_t *lane, Mask wanted,
                        const SplitState<Real> &out) {
  constexpr int w = LANES;
  const int n = of.net.n, nodes = 2 * sub.buses;
  Real *const rows = (Real *)of.rows;
  bool *const use = (bool *)of.rows;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < w; k++) use[i * w + k] = of.used[of.node[i]] >> k & 1;
  spread(use, n, of.place, nodes, lane, wanted, out.in_use);
  for (int i = 0; i < n; i++) {
    const D on = flags(of.used[of.node[i]] & wanted), a = load<D>(t.v + 2 * i * w), b = load<D>(t.v + (2 * i + 1) * w);
    const double c = of.v_base[2 * i], d = of.v_base[2 * i + 1], over = 1 / (c * c + d * d);
    narrow(rows + i * w, on * finite_part(over * (c * a + d * b) - all<D>(1)));
    narrow(rows + (n + i) * w, on * finite_part(over * (c * b - d * a)));
    narrow(rows + (2 * n + i) * w, on * finite_part(load<D>(t.now + 2 * i * w)));
    narrow(rows + (3 * n + i) * w, on * finite_part(load<D>(t.now + (2 * i + 1) * w)));
  }
  Real *const found[4] = {out.e_re, out.e_im, out.p, out.q};
  for (int h = 0; h < 4; h++) spread(rows + h * n * w, n, of.place, nodes, lane, wanted, found[h]);
  const int branches = sub.branches;
  for (int b = 0; b < branches; b++) {
    const Standing s = standing(sub, of, b);
    const double *y = sub.branch + 12 * (size_t)b;
    D e[2], f[2], end[6];
    for (int h = 0; h < 2; h++) {
      e[h] = all<D>(0), f[h] = all<D>(0);
      for (int a = 0; a < 2; a++) {
        const int i = of.local[2 * sub.at[b + h * branches] + a];
        if (!s.end[h][a] || i < 0) continue;
        if (s.end[h][a] == Mask(~0)) {
          e[h] = load<D>(t.v + 2 * i * w), f[h] = load<D>(t.v + (2 * i + 1) * w);
          break;
        }
        const D on = flags(s.end[h][a]);
        e[h] = e[h] + on * load<D>(t.v + 2 * i * w), f[h] = f[h] + on * load<D>(t.v + (2 * i + 1) * w);
      }
    }
    for (int h = 0; h < 2; h++) {
      const double *own = y + 6 * h, *far = y + (h ? 4 : 2);  // y_ff and y_ft, y_tt and y_tf
      const D re = own[0] * e[h] - own[1] * f[h] + far[0] * e[1 - h] - far[1] * f[1 - h];
      const D im = own[0] * f[h] + own[1] * e[h] + far[0] * f[1 - h] + far[1] * e[1 - h];
      end[2 * h] = e[h] * re + f[h] * im, end[2 * h + 1] = f[h] * re - e[h] * im;
    }
    const D u = y[10] * e[0] - y[11] * f[0] - e[1], z = y[10] * f[0] + y[11] * e[0] - f[1];
    end[4] = y[8] * u - y[9] * z, end[5] = y[8] * z + y[9] * u;
    for (int h = 0; h < 6; h++) narrow(rows + ((size_t)h * branches + b) * w, finite_part(end[h]));
  }
  for (int h = 0; h < 6; h++)
    spread(rows + (size_t)h * branches * w, branches, (const int32_t *)nullptr, branches, lane, wanted, out.ends[h]);
}

constexpr double NEAR = 1e-2;  // [pu] mismatch from which factors in doubles may bring a lane to its solution
constexpr int EARLY = 5;       // steps after which slow lanes are gathered, so that others need not wait for them

enum Try { FIRST, SLOW, DOUBLES };

// Newton's method in the lanes that are tried; returns those that are left to the next try, which begins anew.
template <class T, class Real>
static Mask split_tile(const Substations &sub, const Split<Real> &in, const SplitState<Real> &out, Limits limits,
                       const int64_t *lane, Mask tried, Try turn, char *work) {
  Busbars of;
  char *rest = lay_out(sub, of, work);
  assign(sub, in.topology, lane, tried, of);
  const Mask going = tried & ~(of.islanded | of.bad);
  outline(sub, of, going);
  Tile<T> t;
  if (in.dc) {
    Tile<F> flat;
    lay_out(of.net, flat, rest);
    dc_angles(sub, in, lane, going, of, flat);
  }
  lay_out(of.net, t, rest);
  read_nodes(sub, in, lane, going, in.dc, of, t);
  admit<false>(sub, of, t);
  Progress progress;
  bool open[LANES];
  for (int k = 0; k < LANES; k++) open[k] = (going & ~of.bad) >> k & 1;
  const int most = turn == FIRST && limits.newton_steps > EARLY ? EARLY : limits.newton_steps;
  newton<true>(of.net, t, progress, open, limits.tol, most);
  Mask left = 0;
  for (int k = 0; k < LANES; k++) {
    if (!(tried >> k & 1)) continue;
    const bool goes_on = open[k] && !progress.lost[k] && progress.left[k] > limits.tol;
    if (goes_on && (turn == FIRST || (turn == SLOW && progress.left[k] < NEAR))) left |= Mask(1 << k);
    else out.solution.steps[lane[k]] = 0, judge(out.solution, progress, k, lane[k], of.bad >> k & 1, limits.tol);
    if (of.islanded >> k & 1) out.solution.status[lane[k]] = ISLANDED;
  }
  write_nodes(sub, of, t, lane, tried & ~left, out);
  return left;
}

// Lanes that wait for a try, until there are 16 or no more come.
template <class Real>
struct Queue {
  const Substations &sub;
  const Split<Real> &in;
  const SplitState<Real> &out;
  const Limits limits;
  char *const work;
  int64_t lane[3][LANES];
  int count[3];

  void add(int64_t more, int turn) {
    lane[turn][count[turn]++] = more;
    if (count[turn] == LANES) run(turn);
  }
  void run(int turn) {
    int64_t now[LANES];
    const int mine = count[turn];
    for (int k = 0; k < LANES; k++) now[k] = lane[turn][k < mine ? k : 0];
    count[turn] = 0;
    const Mask tried = Mask((1u << mine) - 1);
    const Mask left = turn == DOUBLES ? split_tile<D>(sub, in, out, limits, now, tried, DOUBLES, work)
                                      : split_tile<F>(sub, in, out, limits, now, tried, Try(turn), work);
    for (int k = 0; k < mine; k++)
      if (turn < DOUBLES && (left >> k & 1)) add(now[k], turn + 1);
  }
};

constexpr int WINDOW = 64 * LANES;

// Lanes begin..begin + count - 1 in the order of the first bus that they split: those of a tile then have the same nodes.
static void gather(const Substations &sub, const int8_t *topology, int64_t begin, int count, int32_t *places, int64_t *order) {
  int32_t key[WINDOW];
  memset(places, 0, sizeof(int32_t) * (sub.buses + 1));
  for (int k = 0; k < count; k++) {
    const int8_t *own = topology + (begin + k) * sub.elements, *end = own + sub.elements;
    key[k] = sub.buses;
    for (const int8_t *at = own; at < end && (at = (const int8_t *)memchr(at, 2, end - at)); at++)
      if (sub.at[at - own] < key[k]) key[k] = sub.at[at - own];
    places[key[k]]++;
  }
  for (int i = 0, total = 0; i <= sub.buses; i++) {
    const int here = places[i];
    places[i] = total, total += here;
  }
  for (int k = 0; k < count; k++) order[places[key[k]]++] = begin + k;
}

template <class Real>
static void split(const Substations &sub, const Split<Real> &in, const SplitState<Real> &out, Limits limits, int64_t first,
                  int64_t last, void *work) {
  Queue<Real> queue{sub, in, out, limits, (char *)work, {}, {}};
  Busbars of;
  lay_out(sub, of, (char *)work);
  const int64_t end = last * LANES < in.batch ? last * LANES : in.batch;
  for (int64_t lane = first * LANES; lane < end; lane += WINDOW) {
    int64_t order[WINDOW];
    const int count = int(end - lane < WINDOW ? end - lane : WINDOW);
    gather(sub, in.topology, lane, count, of.mark, order);
    for (int k = 0; k < count; k++) queue.add(order[k], FIRST);
  }
  for (int turn = FIRST; turn <= DOUBLES; turn++)
    if (queue.count[turn]) queue.run(turn);
}

// Linear systems with the Jacobian at deviations `given` 0 and 1, right sides 2 and 3 by node; x has angles and ln|V|.
template <class Real>
static void split_linear(const Substations &sub, const Split<Real> &in, const Real *const *given, Real *const *x,
                         bool transposed, int64_t first, int64_t last, void *work) {
  constexpr int w = LANES;
  const int buses = sub.buses;
  for (int64_t tile = first; tile < last; tile++) {
    int64_t lane[w];
    Mask tried = 0;
    for (int k = 0; k < w; k++) {
      const bool mine = tile * w + k < in.batch;
      lane[k] = tile * w + (mine ? k : 0), tried |= Mask(mine << k);
    }
    Busbars of;
    char *rest = lay_out(sub, of, (char *)work);
    assign(sub, in.topology, lane, tried, of);
    const Mask going = tried & ~(of.islanded | of.bad);
    outline(sub, of, going);
    Tile<D> t;
    lay_out(of.net, t, rest);
    admit<false>(sub, of, t);
    for (int i = 0; i < of.net.n; i++) {
      const Mask used = of.used[of.node[i]] & going;
      store(t.free + 2 * i * w, flags(used & ~of.refers[of.node[i]]));
      store(t.free + (2 * i + 1) * w, flags(used & ~of.holds[of.node[i]]));
      for (int k = 0; k < w; k++) {
        const int64_t at = lane[k] * 2 * buses + of.place[i];
        const double a = 1.0 + given[0][at], b = given[1][at], c = of.v_base[2 * i], d = of.v_base[2 * i + 1];
        t.v[2 * i * w + k] = c * a - d * b, t.v[(2 * i + 1) * w + k] = d * a + c * b;
      }
    }
    memset(t.s, 0, sizeof(double) * 2 * of.net.n * w);
    mismatch<true, 2, false, D, D>(of.net, t);
    const auto right = [&] {
      for (int i = 0; i < 2 * of.net.n; i++)
        for (int k = 0; k < w; k++)
          t.x[i * w + k] = t.free[i * w + k] != 0 ? (double)given[2 + i % 2][lane[k] * 2 * buses + of.place[i / 2]] : 0.0;
    };
    if (!transposed) right();
    eliminate<true, true, D>(of.net, t);
    if (transposed) right(), solve_transposed(of.net, t);
    else substitute(of.net, t);
    for (int h = 0; h < 2; h++) {
      Real *rows = (Real *)of.rows;
      for (int i = 0; i < of.net.n; i++)
        narrow(rows + i * w, finite_part(load<D>(t.free + (2 * i + h) * w) * load<D>(t.x + (2 * i + h) * w)));
      spread(rows, of.net.n, of.place, 2 * buses, lane, tried, x[h]);
    }
  }
}

static size_t split_bytes(const Substations &sub) {
  Busbars of;
  Tile<D> t;
  char *const none = nullptr;
  const size_t own = lay_out(sub, of, none) - none, fill = sub.most_fill;
  return own + lay_out(2 * (size_t)sub.buses, 8 * (size_t)sub.branches, fill, fill, t, none);
}

"""A module that holds every node of the IR, as text."""

EVERYTHING = """\
struct Pair(a: f32 at 0, v: vec<f32, 2> at 8) size 16 align 8

kernel k(x: array<f32, 2>, p: array<struct<Pair>, 1>, n: i64 weak in [-8, 8], s: f32) grid (2, 4) with checked, debug:
    local i, j: i64
    local t: f32
    local b: bool
    local w: struct<Pair>
    local v: vec<f32, 2>
    shared tile: f32[2, 4]
    private own: u8[3]
    i = global_id(1) + block_id(0) * 2
    t = fma(s, x[i, 0], -x[i, n - 1]) / sqrt(2.0f32)
    b = not isnan(t) & ((i < n) | (i >= x.shape[1]))
    w = p[i]
    p[i].v.1 = w.a * (p[j]).v.0 + p[j].a
    v = vec<f32, 2>(t, f32(n))
    w = struct<Pair>(t, select(b, v, w.v))
    tile[local_id(0), 0] = bitcast<f32>(-5i32 // 2i32)
    barrier
    t = subgroup.shuffle(t, subgroup_lane(0) ^ 1)
    j = call f(&x, i)
    t = atomic.add(x[i, j], 1.0f32)
    atomic.compare_exchange(x[i, j], t, -0.0f32)
    for j in range(0, n, 1):
        if b:
            continue
        elif (i == j) == b:
            break
        else:
            i = 0
    loop:
        own[i % 3] = u8(min(i, 255)) << 1u8
        print[1] i, t
        breakpoint
        assert[2] max(i, ~j) <= 7
        return

func f(a: array<f32, 2>, i: i64) -> (i64):
    return a.shape[0] - i
"""

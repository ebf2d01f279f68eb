/* The kernels of docs/examples/cooperation.py in OpenCL C. Axis 0 is the fastest here. */

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void reduction(__global const float *x, __global float *sums, long n) {
    __local float part[256];
    long i = get_global_id(0);
    int thread = get_local_id(0);
    part[thread] = i < n ? x[i] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int width = 128; width > 0; width /= 2) {
        if (thread < width)
            part[thread] += part[thread + width];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (thread == 0)
        sums[get_group_id(0)] = part[0];
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void prefix_sum(__global const int *x, __global int *out, long n) {
    __local int part[256];
    long i = get_global_id(0);
    int thread = get_local_id(0);
    int value = i < n ? x[i] : 0;
    for (int step = 1; step < 256; step *= 2) {
        part[thread] = value;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (thread >= step)
            value += part[thread - step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (i < n)
        out[i] = value;
}

__kernel __attribute__((reqd_work_group_size(32, 8, 1)))
void transpose(__global const float *x, __global float *out, long rows, long columns) {
    __local float tile[32][33];
    int y = get_local_id(1), lane = get_local_id(0);
    long column = get_group_id(0) * 32 + lane;
    for (int k = 0; k < 32; k += 8) {
        long row = get_group_id(1) * 32 + y + k;
        if (row < rows && column < columns)
            tile[y + k][lane] = x[row * columns + column];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    column = get_group_id(1) * 32 + lane;
    for (int k = 0; k < 32; k += 8) {
        long row = get_group_id(0) * 32 + y + k;
        if (row < columns && column < rows)
            out[row * rows + column] = tile[lane][y + k];
    }
}

__kernel __attribute__((reqd_work_group_size(16, 16, 1)))
void matmul(__global const float *a, __global const float *b, __global float *out, long n, long inner, long m) {
    __local float left[16][16], right[16][16];
    int y = get_local_id(1), lane = get_local_id(0);
    long row = get_global_id(1), column = get_global_id(0);
    float total = 0.0f;
    for (long first = 0; first < inner; first += 16) {
        left[y][lane] = row < n && first + lane < inner ? a[row * inner + first + lane] : 0.0f;
        right[y][lane] = first + y < inner && column < m ? b[(first + y) * m + column] : 0.0f;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < 16; k++)
            total += left[y][k] * right[k][lane];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (row < n && column < m)
        out[row * m + column] = total;
}

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void histogram(__global const uchar *x, __global int *counts, long n) {
    __local int own[256];
    int thread = get_local_id(0);
    own[thread] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (long i = get_global_id(0); i < n; i += get_global_size(0))
        atomic_inc(&own[x[i]]);
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_add(&counts[thread], own[thread]);
}

__kernel __attribute__((reqd_work_group_size(512, 1, 1)))
void bitonic(__global float *x, long n) {
    __local float own[512];
    long i = get_global_id(0);
    int thread = get_local_id(0);
    own[thread] = i < n ? x[i] : INFINITY;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int size = 2; size <= 512; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            int other = thread ^ stride;
            if (other > thread) {
                float mine = own[thread], its = own[other];
                if (mine != its && (its < mine) == ((thread & size) == 0)) {
                    own[thread] = its;
                    own[other] = mine;
                }
            }
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    if (i < n)
        x[i] = own[thread];
}

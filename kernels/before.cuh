// Exclusive prefix sum over a block of 256 threads; `total` gets the sum.
template <class T> INLINE T before_in_block(T mine, T& total) {
    __shared__ T warps[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    T sum = mine;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const T below = __shfl_up_sync(FULL_WARP, sum, delta);
        if (lane >= delta) sum += below;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    T front = 0;
    total = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        if (i == warp) front = total;
        total += warps[i];
    }
    return front + sum - mine;
}

// Places of elements by digits of eight bits, in blocks of 256 threads.

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

// The number of elements with a digit that come before this lane's in its warp; `counts` has those of earlier calls.
template <class Count> INLINE u32 rank_in_warp(u32 digit, Count* counts, u32 lane, u32 lanes_below) {
    u32 peers = FULL_WARP;
#pragma unroll
    for (int bit = 0; bit < 8; bit++) {
        const bool set = digit >> bit & 1;
        const u32 votes = __ballot_sync(FULL_WARP, set);
        peers &= set ? votes : ~votes;
    }
    const u32 leader = __ffs(peers) - 1;
    u32 before = 0;
    if (lane == leader) {
        before = counts[digit];
        counts[digit] = (Count)(before + __popc(peers));
    }
    return __shfl_sync(FULL_WARP, before, leader) + __popc(peers & lanes_below);
}

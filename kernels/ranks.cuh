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

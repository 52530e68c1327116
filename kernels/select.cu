// The element of a rank in rows, or the elements up to it, without sorting the rows. Digits of the key of that rank are found from the
// highest one on: blocks count each digit among the elements that share those above.
//
// p.w: 0 input, 1 its row stride, 2 elements of a row, 3 the bits of a key to flip, 4 parts of a row, 5 elements of a part, 6 cuts, 7
// counts of digits, 8 shift of the digit, 9 mask of the digits above, 10 whether this is the first digit, and 2 more if a nan is the
// element to find instead, 11 tallies: one more than parts for each row, 12 values, 13 positions, 14 the row strides of values and 15
// positions, 16 elements to keep of a row, 0 for the element of the rank alone, 17 infinity, 0 for integers, 18 the rank, 19 whether
// `collect` only makes tallies.

struct SelectParams { u64 w[20]; };
typedef @KEY@ Key;
#define THREADS 256
#define BINS 2048
// Counts of a digit in a block, so that lanes with the same digit rarely wait for each other.
#define COPIES 2
// Elements read at a time by a thread, and by a block.
#define READ 4
#define TILE (THREADS * READ)

// Unsigned numbers in sort order, as in kernel/cuda/order.rs. Elements are no bools here.
INLINE Key key_of(const SelectParams& p, Key k) {
    const Key sign = (Key)1 << (8 * sizeof(Key) - 1), size = k & ~sign, infinity = (Key)p.w[17];
    const Key place = size > infinity ? ~(Key)0 : size == 0 ? sign : (k & sign) ? ~k : k | sign;
    return (infinity ? place : k) ^ (Key)p.w[3];
}
// Where a row is cut: the key so far, the rank among the elements that share its digits, the number of nans, and in the end the number of
// elements before the key.
struct Cut { Key key; u32 rank, nans, before; };
// How many elements of a part, later of those before it, are before the key, and how many have it.
struct Tally { u32 before, equal; };

// Exclusive prefix sum over a block; `total` gets the sum.
INLINE u32 before_in_block(u32 mine, u32& total) {
    __shared__ u32 warps[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 sum = mine;
#pragma unroll
    for (int delta = 1; delta < 32; delta *= 2) {
        const u32 below = __shfl_up_sync(FULL_WARP, sum, delta);
        if (lane >= delta) sum += below;
    }
    __syncthreads();
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    u32 front = 0;
    total = 0;
#pragma unroll 1
    for (int i = 0; i < THREADS / 32; i++) {
        if (i == warp) front = total;
        total += warps[i];
    }
    return front + sum - mine;
}
// A block's part of a row.
struct Part {
    const Key* in;
    u32 row, begin, end;
};
INLINE Part own_part(const SelectParams& p) {
    const u32 row = blockIdx.x / (u32)p.w[4];
    const u32 begin = (blockIdx.x - row * (u32)p.w[4]) * (u32)p.w[5], end = begin + (u32)p.w[5];
    return {memory<const Key>(p.w[0]) + row * p.w[1], row, begin, end < (u32)p.w[2] ? end : (u32)p.w[2]};
}

extern "C" __global__ void __launch_bounds__(THREADS) digits(const __grid_constant__ SelectParams p) {
    __shared__ u32 own[COPIES * BINS + 1];
    const Part part = own_part(p);
    Cut* cut = memory<Cut>(p.w[6]) + part.row;
    const u32 shift = (u32)p.w[8];
    const Key mask = (Key)p.w[9], known = p.w[10] ? (Key)0 : cut->key;
    const bool counts_nans = p.w[10] == 3;
#pragma unroll 1
    for (u32 i = threadIdx.x; i <= COPIES * BINS; i += THREADS) own[i] = 0;
    __syncthreads();
#pragma unroll 1
    for (u32 tile = part.begin + threadIdx.x; tile < part.end; tile += TILE) {
        Key read[READ];
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const u32 i = tile + n * THREADS;
            read[n] = i < part.end ? part.in[i] : (Key)0;
        }
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const Key key = key_of(p, read[n]);
            if (tile + n * THREADS >= part.end || (key & mask) != known) continue;
            atomicAdd(own + (((u32)(key >> shift) & (BINS - 1)) * COPIES + threadIdx.x % COPIES), 1u);
            if (counts_nans && key == ~(Key)0) atomicAdd(own + COPIES * BINS, 1u);
        }
    }
    __syncthreads();
    u32* counts = memory<u32>(p.w[7]) + (u64)part.row * BINS;
#pragma unroll 1
    for (u32 bin = threadIdx.x; bin < BINS; bin += THREADS) {
        u32 sum = 0;
#pragma unroll
        for (u32 copy = 0; copy < COPIES; copy++) sum += own[bin * COPIES + (copy + threadIdx.x / 8) % COPIES];
        if (sum != 0) atomicAdd(counts + bin, sum);
    }
    if (threadIdx.x == 0 && own[COPIES * BINS] != 0) atomicAdd(&cut->nans, own[COPIES * BINS]);
}

// A block per row: the digit, and the rank among the elements that have it. Clears the counts.
extern "C" __global__ void __launch_bounds__(THREADS) choose(const __grid_constant__ SelectParams p) {
    Cut* cut = memory<Cut>(p.w[6]) + blockIdx.x;
    u32* counts = memory<u32>(p.w[7]) + (u64)blockIdx.x * BINS + threadIdx.x * (BINS / THREADS);
    const bool first = p.w[10] != 0;
    const Key known = first ? (Key)0 : cut->key;
    const u32 rank = !first ? cut->rank : p.w[10] == 3 && cut->nans != 0 ? (u32)p.w[2] - 1 : (u32)p.w[18];
    u32 sum = 0, total;
#pragma unroll 1
    for (u32 i = 0; i < BINS / THREADS; i++) sum += counts[i];
    u32 before = before_in_block(sum, total);
#pragma unroll 1
    for (u32 i = 0; i < BINS / THREADS; i++) {
        const u32 count = counts[i];
        // True for one digit of one thread; where nothing is found, the number wraps.
        if (rank - before < count) {
            cut->key = known | (Key)(threadIdx.x * (BINS / THREADS) + i) << (u32)p.w[8];
            cut->rank = rank - before;
        }
        before += count;
        counts[i] = 0;
    }
}

// The element of the rank; or the elements before the cut, then those with its key, each in the order of their positions. A thread reads
// adjacent elements.
extern "C" __global__ void __launch_bounds__(THREADS) collect(const __grid_constant__ SelectParams p) {
    const Part part = own_part(p);
    const Cut cut = memory<const Cut>(p.w[6])[part.row];
    Tally* tally = memory<Tally>(p.w[11]) + part.row + blockIdx.x;
    const bool counts = p.w[19] != 0, is_one = p.w[16] == 0;
    Tally seen = {0, 0};
    if (!counts) {
        seen = tally[0];
        if (is_one && cut.rank - seen.equal >= tally[1].equal - seen.equal) return;
    }
    // The place of the first element with the key, modulo 2^32, and the end of places.
    const u32 first = is_one ? 0 - cut.rank : cut.before, kept = counts ? 0 : is_one ? 1 : (u32)p.w[16];
#pragma unroll 1
    for (u32 tile = part.begin; tile < part.end; tile += TILE) {
        Key read[READ];
        // Elements before the key and, in the high half, with it.
        u32 one[READ], sum = 0, total;
        const u32 own = tile + threadIdx.x * READ;
#pragma unroll
        for (u32 n = 0; n < READ; n++) read[n] = own + n < part.end ? part.in[own + n] : (Key)0;
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const Key key = key_of(p, read[n]);
            one[n] = own + n >= part.end || key > cut.key ? 0 : key == cut.key ? 1 << 16 : 1;
            sum += one[n];
        }
        const u32 before = before_in_block(sum, total);
        u32 low = seen.before + (before & 0xffff), equal = seen.equal + (before >> 16);
#pragma unroll
        for (u32 n = 0; n < READ; n++) {
            const u32 at = one[n] >> 16 ? first + equal++ : one[n] == 0 || is_one ? kept : low++;
            if (at < kept) {
                memory<Key>(p.w[12])[part.row * p.w[14] + at] = read[n];
                memory<i64>(p.w[13])[part.row * p.w[15] + at] = (i64)(own + n);
            }
        }
        seen.before += total & 0xffff;
        seen.equal += total >> 16;
    }
    if (counts && threadIdx.x == 0) *tally = seen;
}

// A block per row: the tallies of the parts before each part, and of all after the last one.
extern "C" __global__ void __launch_bounds__(THREADS) offsets(const __grid_constant__ SelectParams p) {
    Tally* tallies = memory<Tally>(p.w[11]) + (u64)blockIdx.x * (p.w[4] + 1);
    Tally carry = {0, 0};
#pragma unroll 1
    for (u32 base = 0; base < (u32)p.w[4]; base += THREADS) {
        const u32 at = base + threadIdx.x;
        Tally own = {0, 0}, total;
        if (at < (u32)p.w[4]) own = tallies[at];
        own.before = carry.before + before_in_block(own.before, total.before);
        own.equal = carry.equal + before_in_block(own.equal, total.equal);
        if (at < (u32)p.w[4]) tallies[at] = own;
        carry.before += total.before;
        carry.equal += total.equal;
    }
    if (threadIdx.x == 0) {
        tallies[p.w[4]] = carry;
        memory<Cut>(p.w[6])[blockIdx.x].before = carry.before;
    }
}

// From pretokens to ids: the second half of byte-level BPE on a GPU. `starts.cu` is the first.
//
// Stages, each a kernel or two, with the bytes that each moves per byte of text (English, 4.5 bytes per pretoken):
//   compact    start bits -> the place of each pretoken                      reads 1/8, writes 0.9
//   look_up    pretokens up to 15 bytes are their own exact 128-bit key in the table of the vocabulary. All others get a slot in
//              the table of merged words, by a 64-bit hash; the first to claim a slot is merged     reads 1 + 0.9, writes 0.9
//   merge      one thread merges one new word of at most SHORT bytes, by ranks; its ids and bytes go to arenas
//   merge_medium   one warp merges one new word of at most MEDIUM bytes
//   check      every word with a slot is compared with the bytes of the word that claimed it: hashes never decide
//   long_...   words longer than MEDIUM, all together, in rounds: see below
//   count, gather   ids per pretoken, their places by prefix sums, the ids themselves          reads 2 x 0.9, writes 0.9 + ids
//
// The table of merged words and its arenas live on between batches; the host clears them when they are half full.

// This file follows starts.cu, after `#define PATTERN_FLAGS`.

typedef unsigned long long u64;
typedef unsigned int u32;
typedef unsigned char u8;

constexpr u32 NONE = 0xFFFFFFFFu;
constexpr int SHORT = 40;                 // bytes of a word that one thread merges
constexpr int MEDIUM = 2048;              // that one warp merges
constexpr u32 SLOT = 0x80000000u;         // result of a word: a slot of the table,
constexpr u32 LONG = 0xC0000000u;         // the number of a long word,
constexpr u32 LEFT_OUT = 0xFFFFFFFEu;     // a word that is left to the reference,
constexpr u32 EMPTY = 0xFFFFFFFFu;        // or the border of a document, which has no id; what is below SLOT is an id
constexpr int HASH_LOG = 13, HASHES = 1 << HASH_LOG;  // of the names of added tokens
constexpr int PROBES = 64;                // slots that are tried before the table counts as full

struct Entry { u64 low, high; u32 id, pad[3]; };         // of the vocabulary: a word of at most 15 bytes and its length
struct Pair { u64 key; u32 rank, id; };                  // of the merges: two ids, the rank, and the id they become
struct Info { u32 bytes, length, ids, count; };          // of a slot: where its bytes (in units of 8) and ids are
struct Counters { u32 mediums, fresh, longs, ids, bytes, full, differ, pad; };

__device__ __forceinline__ u64 mixed(u64 x) {
  x ^= x >> 32; x *= 0xd6e8feb86659fd93ull; x ^= x >> 32; x *= 0xd6e8feb86659fd93ull; return x ^ x >> 32;
}

// Eight bytes from any place. The text has at least 16 bytes behind its end.
__device__ __forceinline__ u64 eight_at(const u8* __restrict__ text, u64 at) {
  const u64* words = (const u64*)(text + (at & ~7ull));
  u32 shift = (at & 7) * 8;
  u64 low = words[0];
  return shift ? low >> shift | words[1] << (64 - shift) : low;
}

__device__ __forceinline__ u64 first_bytes(u64 word, u32 count) { return count < 8 ? word & ((1ull << count * 8) - 1) : word; }

__device__ __forceinline__ u64 hash_of(const u8* __restrict__ text, u64 at, u32 length, u64 seed) {
  u64 hash = mixed(length * 0x9e3779b97f4a7c15ull + seed);
  for (u32 done = 0; done < length; done += 8) hash = mixed(hash ^ first_bytes(eight_at(text, at + done), length - done));
  return hash;
}

__device__ __forceinline__ u32 length_of(const u32* __restrict__ start, u32 word, u32 words, u32 bytes) {
  return (word + 1 < words ? start[word + 1] : bytes) - start[word];
}

// The lowest of the values of a warp.
__device__ __forceinline__ u32 lowest_of_warp(u32 value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_min_sync(~0u, value);
#else
  for (int d = 16; d; d >>= 1) { u32 other = __shfl_xor_sync(~0u, value, d); if (other < value) value = other; }
  return value;
#endif
}

// The documents with a border byte behind each, as starts.cu reads them. `places` is where each begins there; 32 bytes per thread.
extern "C" __global__ void separate(const u8* __restrict__ raw, const u32* __restrict__ offsets, const u32* __restrict__ places, u32 documents,
    u32 parts, u8* __restrict__ text) {
  u32 part = blockIdx.x * blockDim.x + threadIdx.x;
  if (part >= parts) return;
  u32 at = part * 32;
  u32 low = 0, high = documents;
  while (high - low > 1) { u32 middle = (low + high) / 2; if (places[middle] <= at) low = middle; else high = middle; }
  u32 d = low;
  u64* out = (u64*)(text + at);
  for (int k = 0; k < 4; k++, at += 8) {
    while (d + 1 < documents && places[d + 1] <= at) d++;
    u32 begin = places[d], length = offsets[d + 1] - offsets[d];
    if (at >= begin && at + 8 <= begin + length) { out[k] = eight_at(raw, (u64)offsets[d] + at - begin); continue; }
    u64 eight = 0;
    u32 here = d;
    for (u32 i = 0; i < 8; i++) {
      while (here + 1 < documents && places[here + 1] <= at + i) here++;
      u32 from = places[here], size = offsets[here + 1] - offsets[here], byte = 0xFF;
      if (at + i >= from && at + i < from + size) byte = raw[offsets[here] + at + i - from];
      eight |= (u64)byte << i * 8;
    }
    out[k] = eight;
  }
}

__device__ __forceinline__ u32 document_of(u32 at, const u32* __restrict__ places, u32 documents) {
  u32 low = 0, high = documents;  // the last document that begins at or before this place
  while (high - low > 1) { u32 middle = (low + high) / 2; if (places[middle] <= at) low = middle; else high = middle; }
  return low;
}

// A bit for each byte at which a pretoken or a border starts. Documents with unsure places are left to the reference.
extern "C" __global__ void mark(const u8* __restrict__ text, u32 parts, const u8* __restrict__ roles, const u8* __restrict__ rules,
    u32* __restrict__ mask, const u32* __restrict__ places, u32 documents, u8* __restrict__ refused) {
  __shared__ u8 near[128 + pretokens::STEPS + 64];
  for (u32 k = threadIdx.x; k < 128; k += blockDim.x) near[k] = roles[k];
  for (u32 k = threadIdx.x; k < pretokens::STEPS + 64; k += blockDim.x) near[128 + k] = rules[k];
  __syncthreads();
  u32 part = blockIdx.x * blockDim.x + threadIdx.x;
  if (part >= parts) return;
  pretokens::Tables tables = {near, roles, near + 128};
  pretokens::Marks marks = pretokens::mark_word<PATTERN_FLAGS>(text, part, tables);
  u32 borders = 0;
  const uint4* words = (const uint4*)(text + (u64)part * 32);
  for (int half = 0; half < 2; half++) {
    uint4 four = words[half];
    u32 each[4] = {four.x, four.y, four.z, four.w};
    for (int k = 0; k < 4; k++) {
      u32 equal = __vcmpeq4(each[k], ~0u);
      borders |= ((equal & 1) | (equal >> 7 & 2) | (equal >> 14 & 4) | (equal >> 21 & 8)) << (half * 16 + k * 4);
    }
  }
  mask[part] = marks.starts | borders;
  for (u32 rest = marks.unsure; rest; rest &= rest - 1) refused[document_of(part * 32 + __ffs(rest) - 1, places, documents)] = 1;
}

// The pretokens of each 1,024 bytes, counted. One warp for 32 words of the mask.
extern "C" __global__ void count_starts(const u32* __restrict__ mask, u32 parts, u32* __restrict__ counts) {
  u32 w = blockIdx.x * blockDim.x + threadIdx.x;
  u32 sum = w < parts ? __popc(mask[w]) : 0;
  for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
  if ((threadIdx.x & 31) == 0 && w < parts) counts[w >> 5] = sum;
}

extern "C" __global__ void compact(const u32* __restrict__ mask, u32 parts, const u32* __restrict__ before, u32* __restrict__ start) {
  u32 w = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
  u32 bits = w < parts ? mask[w] : 0, own = __popc(bits), sum = own;
  for (int d = 1; d < 32; d <<= 1) { u32 other = __shfl_up_sync(~0u, sum, d); if (lane >= d) sum += other; }
  if (w >= parts) return;
  u32 at = before[w >> 5] + sum - own;
  for (; bits; bits &= bits - 1) start[at++] = (w << 5) + __ffs(bits) - 1;
}

extern "C" __global__ void look_up(const u8* __restrict__ text, const u32* __restrict__ start, u32 words, u32 bytes,
    const Entry* __restrict__ vocabulary, u32 vocabulary_mask, u64* __restrict__ tags, u32 table_mask, u64 tag_mask, u64 seed,
    u32* __restrict__ result, u32* __restrict__ fresh_slot, u32* __restrict__ fresh_word, u32* __restrict__ mediums,
    u32* __restrict__ longs, u32 most_longs,
    Counters* __restrict__ counters) {
  u32 w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w >= words) return;
  u64 at = start[w];
  if (text[at] == pretokens::BORDER_BYTE) { result[w] = EMPTY; return; }
  u32 length = length_of(start, w, words, bytes);
  u64 hash;
  if (length < 16) {
    u64 low = first_bytes(eight_at(text, at), length), high = (u64)length << 56;
    if (length > 8) high |= first_bytes(eight_at(text, at + 8), length - 8);
    hash = mixed(low ^ mixed(high));
    for (u32 s = hash & vocabulary_mask;; s = (s + 1) & vocabulary_mask) {
      ulonglong2 key = *(const ulonglong2*)&vocabulary[s];
      if (key.x == low && key.y == high) { result[w] = vocabulary[s].id; return; }
      if (key.y == 0) break;
    }
    hash = mixed(low ^ mixed(high ^ seed));
  } else if (length > MEDIUM) {
    u32 number = atomicAdd(&counters->longs, 1);
    if (number < most_longs) longs[number] = w;
    result[w] = number < most_longs ? LONG | number : LEFT_OUT;
    return;
  } else hash = hash_of(text, at, length, seed);
  u64 tag = (hash & tag_mask) | 1;
  u32 s = (hash >> 24) & table_mask;
  for (int probe = 0; probe < PROBES; probe++, s = (s + 1) & table_mask) {
    u64 seen = tags[s];
    if (seen == 0) {
      seen = atomicCAS(&tags[s], 0ull, tag);
      if (seen == 0) {
        u32 f = atomicAdd(&counters->fresh, 1);
        fresh_slot[f] = s; fresh_word[f] = w; result[w] = SLOT | s;
        if (length > SHORT) mediums[atomicAdd(&counters->mediums, 1)] = f;
        return;
      }
    }
    if (seen == tag) { result[w] = SLOT | s; return; }  // `check` compares the bytes
  }
  result[w] = SLOT;
  atomicAdd(&counters->full, 1);
}

__device__ __forceinline__ u32 rank_of(u32 left, u32 right, const Pair* __restrict__ pairs, u32 mask, u32* id) {
  u64 key = (u64)left << 32 | right;
  for (u32 p = mixed(key + 1) & mask;; p = (p + 1) & mask) {
    ulonglong2 pair = *(const ulonglong2*)&pairs[p];
    if (pair.x == key) { *id = pair.y >> 32; return (u32)pair.y; }
    if (pair.x == ~0ull) return NONE;
  }
}

// Room in the arenas for a word; if there is none, a length that no word has.
__device__ __forceinline__ Info room_for(u32 length, u32 count, u32 id_room, u32 byte_room, Counters* __restrict__ counters) {
  u32 units = (length + 7) / 8, ids = atomicAdd(&counters->ids, count), place = atomicAdd(&counters->bytes, units);
  if (ids + count <= id_room && place + units <= byte_room) return {place, length, ids, count};
  atomicAdd(&counters->full, 1);
  return {0, NONE, 0, 0};
}

extern "C" __global__ void merge(const u8* __restrict__ text, const u32* __restrict__ start, u32 words, u32 bytes,
    const u32* __restrict__ fresh_slot, const u32* __restrict__ fresh_word, u32 fresh, const u32* __restrict__ byte_ids,
    const Pair* __restrict__ pairs, u32 pair_mask, Info* __restrict__ info, u32* __restrict__ id_arena, u32 id_room,
    u64* __restrict__ byte_arena, u32 byte_room, Counters* __restrict__ counters) {
  u32 f = blockIdx.x * blockDim.x + threadIdx.x;
  if (f >= fresh) return;
  u32 w = fresh_word[f], length = length_of(start, w, words, bytes), count = length, unused;
  if (length > SHORT) return;
  u64 at = start[w];
  u32 id[SHORT], rank[SHORT];
  for (u32 k = 0; k < length; k++) id[k] = byte_ids[text[at + k]];
  for (u32 k = 0; k + 1 < count; k++) rank[k] = rank_of(id[k], id[k + 1], pairs, pair_mask, &unused);
  while (count > 1) {
    u32 best = NONE, place = 0;
    for (u32 k = 0; k + 1 < count; k++) if (rank[k] < best) { best = rank[k]; place = k; }
    if (best == NONE) break;
    rank_of(id[place], id[place + 1], pairs, pair_mask, &id[place]);
    count--;
    for (u32 k = place + 1; k < count; k++) { id[k] = id[k + 1]; rank[k] = rank[k + 1]; }
    if (place + 1 < count) rank[place] = rank_of(id[place], id[place + 1], pairs, pair_mask, &unused);
    if (place > 0) rank[place - 1] = rank_of(id[place - 1], id[place], pairs, pair_mask, &unused);
  }
  Info own = room_for(length, count, id_room, byte_room, counters);
  if (own.length == length) {
    for (u32 k = 0; k < count; k++) id_arena[own.ids + k] = id[k];
    for (u32 k = 0; k * 8 < length; k++) byte_arena[own.bytes + k] = first_bytes(eight_at(text, at + k * 8), length - k * 8);
  }
  info[fresh_slot[f]] = own;
}

// The same for a word of up to MEDIUM bytes, by one warp. Its parts are a linked list in shared memory.
extern "C" __global__ void merge_medium(const u8* __restrict__ text, const u32* __restrict__ start, u32 words, u32 bytes,
    const u32* __restrict__ mediums, const u32* __restrict__ fresh_slot, const u32* __restrict__ fresh_word, const u32* __restrict__ byte_ids,
    const Pair* __restrict__ pairs, u32 pair_mask, Info* __restrict__ info, u32* __restrict__ id_arena, u32 id_room,
    u64* __restrict__ byte_arena, u32 byte_room, Counters* __restrict__ counters) {
  __shared__ u32 id[MEDIUM], rank[MEDIUM], made[MEDIUM];  // of each part: its id; the rank of it and the next one, and what they make
  __shared__ unsigned short next[MEDIUM], previous[MEDIUM];
  u32 lane = threadIdx.x, f = mediums[blockIdx.x], w = fresh_word[f], length = length_of(start, w, words, bytes);
  u64 at = start[w];
  for (u32 k = lane; k < length; k += 32) { id[k] = byte_ids[text[at + k]]; next[k] = k + 1; previous[k] = k - 1; }
  __syncwarp();
  for (u32 k = lane; k < length; k += 32) rank[k] = k + 1 < length ? rank_of(id[k], id[k + 1], pairs, pair_mask, &made[k]) : NONE;
  __syncwarp();
  u32 count = length;
  for (;; count--) {
    u32 best = NONE, place = NONE;
    for (u32 k = lane; k < length; k += 32) if (rank[k] < best) { best = rank[k]; place = k; }
    u32 lowest = lowest_of_warp(best);
    if (lowest == NONE) break;
    place = lowest_of_warp(best == lowest ? place : NONE);
    u32 right = next[place], after = next[right], left = previous[place], own = made[place];
    __syncwarp();
    if (lane == 0) {
      id[place] = own; id[right] = NONE; rank[right] = NONE; next[place] = after;
      if (after < length) previous[after] = place;
    } else if (lane == 1) rank[place] = after < length ? rank_of(own, id[after], pairs, pair_mask, &made[place]) : NONE;
    else if (lane == 2 && left < length) rank[left] = rank_of(id[left], own, pairs, pair_mask, &made[left]);
    __syncwarp();
  }
  Info own = {0, 0, 0, 0};
  if (lane == 0) own = room_for(length, count, id_room, byte_room, counters);
  own.bytes = __shfl_sync(~0u, own.bytes, 0); own.length = __shfl_sync(~0u, own.length, 0);
  own.ids = __shfl_sync(~0u, own.ids, 0); own.count = __shfl_sync(~0u, own.count, 0);
  if (lane == 0) info[fresh_slot[f]] = own;
  if (own.length != length) return;
  u32 done = 0;
  for (u32 base = 0; base < length; base += 32) {
    bool is_part = base + lane < length && id[base + lane] != NONE;
    u32 parts = __ballot_sync(~0u, is_part);
    if (is_part) id_arena[own.ids + done + __popc(parts & ((1u << lane) - 1))] = id[base + lane];
    done += __popc(parts);
  }
  for (u32 k = lane; k * 8 < length; k += 32) byte_arena[own.bytes + k] = first_bytes(eight_at(text, at + k * 8), length - k * 8);
}

// Hashes may be equal where words are not: then the documents are left to the reference. Such words get no ids: those of the other
// word may be more than this one has bytes, and the buffers have room for as many ids as bytes.
extern "C" __global__ void check(const u8* __restrict__ text, const u32* __restrict__ start, u32 words, u32 bytes,
    u32* __restrict__ result, const Info* __restrict__ info, const u64* __restrict__ byte_arena,
    const u32* __restrict__ documents, u32 document_count, u8* __restrict__ refused, Counters* __restrict__ counters) {
  u32 w = blockIdx.x * blockDim.x + threadIdx.x;
  if (w >= words) return;
  u32 found = result[w];
  if (found < SLOT || (found >= LONG && found != LEFT_OUT)) return;
  u64 at = start[w];
  if (found == LEFT_OUT) { refused[document_of(at, documents, document_count)] = 1; return; }
  Info own = info[found & ~SLOT];
  u32 length = length_of(start, w, words, bytes);
  bool same = own.length == length;
  for (u32 k = 0; same && k < length; k += 8) same = first_bytes(eight_at(text, at + k), length - k) == byte_arena[own.bytes + k / 8];
  if (same) return;
  atomicAdd(&counters->differ, 1);
  result[w] = LEFT_OUT;
  refused[document_of(at, documents, document_count)] = 1;
}

// The ids of each pretoken, counted; and summed for each 1,024 of them.
__device__ __forceinline__ u32 ids_of(u32 found, const Info* __restrict__ info, const u32* __restrict__ long_counts) {
  return found < SLOT ? 1 : found < LONG ? info[found & ~SLOT].count : found >= LEFT_OUT ? 0 : long_counts[found & ~LONG];
}

extern "C" __global__ void count(const u32* __restrict__ result, u32 words, const Info* __restrict__ info,
    const u32* __restrict__ long_counts, u32* __restrict__ sums) {
  u32 w = blockIdx.x * 1024 + threadIdx.x, sum = 0;
  for (int r = 0; r < 4; r++, w += 256) if (w < words) sum += ids_of(result[w], info, long_counts);
  for (int d = 16; d; d >>= 1) sum += __shfl_down_sync(~0u, sum, d);
  __shared__ u32 total;
  if (threadIdx.x == 0) total = 0;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) atomicAdd(&total, sum);
  __syncthreads();
  if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

template <typename Id>
__device__ void gather_ids(const u32* __restrict__ result, u32 words, const Info* __restrict__ info, const u32* __restrict__ id_arena,
    const u32* __restrict__ long_counts, const u32* __restrict__ long_places, const u32* __restrict__ long_ids,
    const u64* __restrict__ before, Id* __restrict__ ids, u32* __restrict__ places) {
  __shared__ u32 sums[8];
  u64 base = before[blockIdx.x];
  u32 lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  for (int r = 0; r < 4; r++) {
    u32 w = blockIdx.x * 1024 + r * 256 + threadIdx.x;
    u32 found = w < words ? result[w] : 0, own = w < words ? ids_of(found, info, long_counts) : 0, sum = own;
    for (int d = 1; d < 32; d <<= 1) { u32 other = __shfl_up_sync(~0u, sum, d); if (lane >= d) sum += other; }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    u32 earlier = 0, all = 0;
    for (int k = 0; k < 8; k++) { if (k < warp) earlier += sums[k]; all += sums[k]; }
    u64 at = base + earlier + sum - own;
    if (w < words) {
      places[w] = (u32)at;
      if (found < SLOT) ids[at] = (Id)found;
      else if (found < LONG) { u32 from = info[found & ~SLOT].ids; for (u32 k = 0; k < own; k++) ids[at + k] = (Id)id_arena[from + k]; }
      else if (found < LEFT_OUT) { u32 from = long_places[found & ~LONG]; for (u32 k = 0; k < own; k++) ids[at + k] = (Id)long_ids[from + k]; }
    }
    base += all;
    __syncthreads();
  }
}
#define GATHER(NAME, TYPE)                                                                                                       \
  extern "C" __global__ void NAME(const u32* result, u32 words, const Info* info, const u32* id_arena, const u32* long_counts,   \
      const u32* long_places, const u32* long_ids, const u64* before, TYPE* ids, u32* places) {                                 \
    gather_ids<TYPE>(result, words, info, id_arena, long_counts, long_places, long_ids, before, ids, places);                    \
  }
GATHER(gather_16, unsigned short)
GATHER(gather_32, u32)

// Where the ids of each document begin: those of the first pretoken at or after its first byte.
extern "C" __global__ void document_places(const u32* __restrict__ documents, u32 count, u32 bytes, const u32* __restrict__ mask,
    const u32* __restrict__ before, const u32* __restrict__ places, u32 words, u64 total, u64* __restrict__ out) {
  u32 d = blockIdx.x * blockDim.x + threadIdx.x;
  if (d >= count) return;
  u32 at = documents[d];
  if (at >= bytes) { out[d] = total; return; }
  u32 part = at >> 5, w = before[part >> 5];
  for (u32 p = part & ~31u; p < part; p++) w += __popc(mask[p]);
  w += __popc(mask[part] & ((1u << (at & 31)) - 1));
  out[d] = w < words ? places[w] : total;
}

__device__ bool has_name(const u8* __restrict__ text, u32 from, u32 to, const u32* __restrict__ name_starts, const u8* __restrict__ names) {
  for (u32 k = from; k < to; k++) {
    u32 length = name_starts[k + 1] - name_starts[k], j = 0;
    const u8* name = names + name_starts[k];
    while (j < length && text[j] == name[j]) j++;  // behind the text are borders, which no name has
    if (j == length) return true;
  }
  return false;
}

// Documents that hold the name of an added token are left to the reference. `buckets` has the numbers of the names in two lists: the
// short ones by their first byte (257 places), then those of eight bytes and more by a hash of their first eight.
extern "C" __global__ void find_names(const u8* __restrict__ text, u32 bytes, const unsigned short* __restrict__ buckets,
    const u32* __restrict__ name_starts, const u8* __restrict__ names, const u32* __restrict__ documents, u32 document_count,
    u8* __restrict__ refused) {
  __shared__ unsigned short first[257 + HASHES + 1];
  for (u32 k = threadIdx.x; k < 257 + HASHES + 1; k += blockDim.x) first[k] = buckets[k];
  __syncthreads();
  for (u32 part = blockIdx.x * blockDim.x + threadIdx.x; part * 8 < bytes; part += gridDim.x * blockDim.x) {
    u32 base = part * 8;
    u64 low = *(const u64*)(text + base), high = *(const u64*)(text + base + 8);
    for (u32 i = 0; i < 8; i++) {
      u64 eight = i ? low >> i * 8 | high << (64 - i * 8) : low;
      u32 byte = eight & 255, hash = 257 + (u32)(eight * 0x9e3779b97f4a7c15ull >> (64 - HASH_LOG));
      bool found = first[byte] < first[byte + 1] && has_name(text + base + i, first[byte], first[byte + 1], name_starts, names);
      found = found || (first[hash] < first[hash + 1] && has_name(text + base + i, first[hash], first[hash + 1], name_starts, names));
      if (found) refused[document_of(base + i, documents, document_count)] = 1;
    }
  }
}

// Words longer than MEDIUM, all at once, in rounds. In a list of merges whose parts are made by earlier merges, a merge reveals only
// pairs of higher rank, so equal pairs are merged from left to right, and a pair may be merged as soon as no lower rank can come
// near it: if no pair within `window` places has a lower rank, where the window is the length of the longest token. What is
// further away cannot reach it before, because a chain of merges from there to here would be one token. So thousands of pairs are
// merged in a round, and a word of a million letters takes some hundred rounds. Of overlapping equal pairs, as in aaaa, every
// second one is merged, from the first on; which is the first is known if nothing of lower rank is near it.
extern "C" __global__ void long_bytes(const u8* __restrict__ text, const u32* __restrict__ start, u32 words, u32 bytes, const u32* __restrict__ longs,
    const u64* __restrict__ before, u32 count, const u32* __restrict__ byte_ids, u32* __restrict__ ids, u32* __restrict__ owner) {
  // one block per word
  u32 w = longs[blockIdx.x], length = length_of(start, w, words, bytes);
  for (u32 k = threadIdx.x; k < length; k += blockDim.x) {
    ids[before[blockIdx.x] + k] = byte_ids[text[start[w] + k]];
    owner[before[blockIdx.x] + k] = blockIdx.x;
  }
}

extern "C" __global__ void long_ranks(const u32* __restrict__ ids, const u32* __restrict__ owner, u64 count, const Pair* __restrict__ pairs,
    u32 pair_mask, u32* __restrict__ ranks) {
  u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= count) return;
  u32 unused;
  ranks[k] = k + 1 < count && owner[k] == owner[k + 1] ? rank_of(ids[k], ids[k + 1], pairs, pair_mask, &unused) : NONE;
}

// 1 where the rank differs from the one before: there a run of equal ranks begins.
extern "C" __global__ void long_changes(const u32* __restrict__ ranks, u64 count, u32* __restrict__ changes) {
  u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count) changes[k] = k == 0 || ranks[k] != ranks[k - 1];
}

// Where each run begins, and whether that is final.
extern "C" __global__ void long_runs(const u32* __restrict__ ranks, const u32* __restrict__ changes, const u32* __restrict__ run, u64 count,
    u32 window, u32* __restrict__ run_starts) {
  u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= count || !changes[k]) return;
  bool is_final = true;
  if (k + 1 < count && ranks[k + 1] == ranks[k] && ranks[k] != NONE)
    for (u32 j = 1; is_final && j <= window && j <= k; j++) is_final = ranks[k - j] >= ranks[k];
  run_starts[run[k] - 1] = is_final ? (u32)k : NONE;
}

// keep[k] becomes 0 for the right half of a pair that is merged in this round.
extern "C" __global__ void long_choose(const u32* __restrict__ ranks, u64 count, u32 window, const u32* __restrict__ run,
    const u32* __restrict__ run_starts, const u32* __restrict__ ids, const Pair* __restrict__ pairs, u32 pair_mask,
    u32* __restrict__ new_ids, u32* __restrict__ keep, u32* __restrict__ merged) {
  extern __shared__ u32 near[];  // the ranks from `window` before this block to `window` behind it
  long long base = (long long)blockIdx.x * blockDim.x - window;
  for (u32 j = threadIdx.x; j < blockDim.x + 2 * window; j += blockDim.x) {
    long long k = base + j;
    near[j] = k >= 0 && k < (long long)count ? ranks[k] : NONE;
  }
  __syncthreads();
  u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (k >= count) return;
  u32 at = threadIdx.x + window, rank = near[at], id = ids[k];
  u32 first = run_starts[run[k] - 1];
  bool chosen = rank != NONE && first != NONE && ((k - first) & 1) == 0;
  for (u32 j = 1; chosen && j <= window; j++) chosen = near[at - j] >= rank && near[at + j] >= rank;
  if (chosen) { rank_of(ids[k], ids[k + 1], pairs, pair_mask, &id); keep[k + 1] = 0; atomicAdd(merged, 1); }
  new_ids[k] = id;
}

extern "C" __global__ void long_move(const u32* __restrict__ new_ids, const u32* __restrict__ owner, const u32* __restrict__ keep,
    const u32* __restrict__ place, u64 count, u32* __restrict__ ids, u32* __restrict__ owners) {
  u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  if (k < count && keep[k]) { ids[place[k] - 1] = new_ids[k]; owners[place[k] - 1] = owner[k]; }
}

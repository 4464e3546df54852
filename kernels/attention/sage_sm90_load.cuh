// What surrounds the arithmetic of sage_sm90: the list of items, shared memory, and the two warps
// that fill it.
#pragma once
#include <cuda.h>

#include <cstdint>

#include "attention/sage_sm90_tiles.h"
#include "device/tma.cuh"
#include "sage/attention.h"

namespace sage {

using namespace device;

constexpr int kUnbounded = 1 << 29;  // causal shift of a full mask

// The list of items, made on the device from the lengths.
struct Plan {
  int next;   // item that the next free CTA takes
  int items;  // in all
};
__device__ __host__ inline int* plan_order(Plan* plan) {
  return reinterpret_cast<int*>(plan + 1);
}

struct Args {
  CUtensorMap q_map, k_map, v_map;
  AttentionParams params;
  Plan* plan;
  float log2_scale;  // sm_scale * 8 * log2(e): codes per unit of a real score
  int64_t q_scale_rows, k_scale_rows;
};

// What a CTA works on.
struct Item {
  int q_row;              // packed row of the tile's first query
  int rows;               // live query rows
  int keys_of_first_row;  // row i of the tile sees min(kv_len, that + i) keys
  int kv_start;           // packed row of the sequence's first key
  int kv_len;
  int kv_block;  // of its first tile of V
  int kv_tiles;  // -1: no more items
  int head, kv_head;
};

constexpr int kScaleGroups = 4;           // of a tile of K
constexpr int kReleasers = kScaleGroups;  // lanes of a warp that say that it has read a stage

template <class C>
struct alignas(1024) Shared {
  struct Stage {
    int8_t k[kTileKeys * C::kHeadDim];
    uint8_t v[(C::kHeadDimV + 8) * kTileKeys];  // the last eight rows are ones
  } stage[C::kStages];
  int8_t q[C::kRows * C::kHeadDim];
  float k_scale[C::kStages][kScaleGroups];
  float q_scale[C::kRows / 2];
  float v_scale[2][C::kHeadDimV];
  float v_offset[2][C::kHeadDimV];
  Item item[2];  // two slots, as of v_scale: the next is filled while one is worked on
  uint64_t full[C::kStages], empty[C::kStages], item_full, item_empty;
};

// Heads whose K and V of this sequence should stay in L2 together.
__device__ inline int heads_together(int kv_len, int head_bytes, int num_kv_heads) {
  const int64_t bytes = static_cast<int64_t>(max(kv_len, 1)) * head_bytes;
  return static_cast<int>(min(max(kL2Bytes / bytes, int64_t{1}), int64_t{num_kv_heads}));
}

// Longest sequences first; equal ones in their own order. One CTA.
__global__ void plan_kernel(AttentionParams p, int tile_rows, int first_free, Plan* plan) {
  launch_dependents();
  int* order = plan_order(plan);
  int* end = order + p.batch;
  for (int i = threadIdx.x; i < p.batch; i += blockDim.x) {
    const int length = p.cu_seqlens_kv[i + 1] - p.cu_seqlens_kv[i];
    int rank = 0, items = 0;
    for (int j = 0; j < p.batch; ++j) {
      const int other = p.cu_seqlens_kv[j + 1] - p.cu_seqlens_kv[j];
      const int tiles = (p.cu_seqlens_q[j + 1] - p.cu_seqlens_q[j] + tile_rows - 1) / tile_rows;
      const bool before = other > length || (other == length && j < i);
      rank += before;
      items += before || j == i ? tiles * p.num_qo_heads : 0;
    }
    order[rank] = i;
    end[rank] = items;
    if (rank == p.batch - 1) plan->items = items;
  }
  if (threadIdx.x == 0) plan->next = first_free;
}

// The sequence that holds an item: the first whose items end after it.
__device__ inline int find_sequence(const int* end, int batch, int index) {
  int low = 0;
  for (int high = batch - 1; low < high;) {
    const int middle = (low + high) / 2;
    if (end[middle] > index) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// One warp: takes items, says what they are, and loads what is loaded once per item.
template <class C>
__device__ void produce_items(Shared<C>& shared, const Args& args) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  wait_for_prerequisites();
  const int* order = plan_order(args.plan);
  const int items = args.plan->items;
  int index = blockIdx.x;
  for (uint32_t turn = 0;; ++turn) {
    const int slot = turn & 1;
    barrier_wait(&shared.item_empty, slot ^ 1);
    if (index >= items) {
      if (lane == 0) {
        shared.item[slot].kv_tiles = -1;
        barrier_arrive_expect(&shared.item_full, 0);
      }
      barrier_arrive_after_copies(&shared.item_full);
      return;
    }
    int claimed = 0;
    if (lane == 0) claimed = atomicAdd(&args.plan->next, 1);
    const int* end = order + p.batch;
    const int rank = find_sequence(end, p.batch, index);
    const int sequence = order[rank];
    int rest = index - (rank ? end[rank - 1] : 0);
    const int q_start = p.cu_seqlens_q[sequence];
    const int q_len = p.cu_seqlens_q[sequence + 1] - q_start;
    const int kv_start = p.cu_seqlens_kv[sequence];
    const int kv_len = p.cu_seqlens_kv[sequence + 1] - kv_start;

    const int tiles = (q_len + C::kRows - 1) / C::kRows;
    const int group_size = p.num_qo_heads / p.num_kv_heads;
    const int section_heads =
        group_size * heads_together(kv_len, C::kHeadDim + C::kHeadDimV, p.num_kv_heads);
    const int section = rest / (tiles * section_heads);
    rest -= section * tiles * section_heads;
    const int heads_here = min(section_heads, p.num_qo_heads - section * section_heads);
    const int tile = rest / heads_here;
    const int head = section * section_heads + rest - tile * heads_here;
    const int kv_head = head / group_size;
    const int tile_row = (tiles - 1 - tile) * C::kRows;  // causal: the longest first
    const int rows = min(C::kRows, q_len - tile_row);
    if (lane == 0) {
      const int shift = p.mask == Mask::kFull                ? kUnbounded
                        : p.mask == Mask::kCausalBottomRight ? kv_len - q_len
                                                             : 0;
      const int keys = max(0, min(kv_len, tile_row + shift + rows));
      Item& item = shared.item[slot];
      item.q_row = q_start + tile_row;
      item.rows = rows;
      item.keys_of_first_row = tile_row + shift + 1;
      item.kv_start = kv_start;
      item.kv_len = kv_len;
      item.kv_block = static_cast<int>(first_block(kv_start, sequence, kTileKeys));
      item.kv_tiles = (keys + kTileKeys - 1) / kTileKeys;
      item.head = head;
      item.kv_head = kv_head;
      barrier_arrive_expect(&shared.item_full, C::kRows * C::kHeadDim);
      tma_load_3d(shared.q, args.q_map, &shared.item_full, 0, head, q_start + tile_row);
    }
    const int q_groups = p.layout.q_groups.groups_per_block;
    const int64_t q_block = first_block(q_start, sequence, kQueryBlock) + tile_row / kQueryBlock;
    const float* q_scales = p.q_scales + head * args.q_scale_rows + q_block * q_groups;
    for (int i = lane; i < C::kRows / kQueryBlock * q_groups; i += 32) {
      copy_float_async(&shared.q_scale[i], q_scales + i, i / q_groups * kQueryBlock < rows);
    }
    const int64_t channels =
        (static_cast<int64_t>(sequence) * p.num_kv_heads + kv_head) * C::kHeadDimV;
    for (int i = lane; i < C::kHeadDimV; i += 32) {
      copy_float_async(&shared.v_scale[slot][i], p.v_scales + channels + i, kv_len > 0);
      copy_float_async(&shared.v_offset[slot][i], p.v_offset + channels + i,
                       kv_len > 0 && p.v_offset);
    }
    barrier_arrive_after_copies(&shared.item_full);
    index = __shfl_sync(~0u, claimed, 0);
  }
}

// Another warp: streams the K and V of the items.
template <class C>
__device__ void produce_tiles(Shared<C>& shared, const Args& args) {
  const AttentionParams& p = args.params;
  const int lane = threadIdx.x % 32;
  const int k_groups = p.layout.k_groups.groups_per_block;
  uint32_t phases = 0;
  for (uint32_t turn = 0;; ++turn) {
    barrier_wait(&shared.item_full, turn & 1);
    const Item item = shared.item[turn & 1];
    barrier_arrive(&shared.item_empty);
    if (item.kv_tiles < 0) return;
    const float* k_scales = p.k_scales + item.kv_head * args.k_scale_rows +
                            int64_t{item.kv_block} * k_groups + (k_groups == 4 ? lane % 4 : 0);
    float next_scales = 0.0f;  // of eight tiles: lane 4 i + j has group j of the i-th
    for (int t = 0, s = 0; t < item.kv_tiles; ++t, s = s + 1 == C::kStages ? 0 : s + 1) {
      if (t % 8 == 0 && t + lane / 4 < item.kv_tiles) {
        next_scales = k_scales[int64_t{t + lane / 4} * k_groups];
      }
      barrier_wait(&shared.empty[s], ((phases >> s) & 1) ^ 1);
      phases ^= 1u << s;
      if (lane == 0) {
        barrier_arrive_expect(&shared.full[s], kTileKeys * (C::kHeadDim + C::kHeadDimV));
        tma_load_3d(shared.stage[s].k, args.k_map, &shared.full[s], 0, item.kv_head,
                    item.kv_start + t * kTileKeys);
        tma_load_3d(shared.stage[s].v, args.v_map, &shared.full[s], 0, 0,
                    (item.kv_block + t) * p.num_kv_heads + item.kv_head);
      }
      const float scale = __shfl_sync(~0u, next_scales, t % 8 * 4 + lane % 4);
      if (lane < kScaleGroups) {
        shared.k_scale[s][lane] = scale;
        barrier_arrive(&shared.full[s]);
      }
    }
  }
}

}  // namespace sage

#!/usr/bin/env bash
# Plants one bug at a time in a copy of the CUDA kernels and expects the tests on the
# host driver to see each of them, in one scheduling order or the other. Called by
# "scripts/test_gpu.sh --mutants", which sets the environment.
set -euo pipefail
source "$(dirname "$0")/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go test -tags gpu -c -o "$work/cuda.test" ./kernels/cuda

run() { # DRIVER OPERATION LOG: in kernels/cuda, as go test would
  (cd kernels/cuda && GLIMPSE_CUDA_DRIVER=$1 GLIMPSE_CUBLASLT=$1 GOMAXPROCS=1 timeout 120 "$work/cuda.test" -test.run "$2" >"$3" 2>&1)
}
# Without this, a broken set-up would look like every bug being seen.
run "$root/kernels/cuda/build/libhostcuda.so" 'TestBackendsConform/cuda/(RMSNorm|Linear|Gather)$' "$work/log" || { cat "$work/log"; die "the tests fail without a planted bug"; }

plant() { # FILE OPERATION PROGRAM WHAT: prints the verdict
  local file=$1 operation=$2 program=$3 what=$4 order dir
  dir=$(mktemp -d "$work/XXXXXX")
  cp -a kernels/cuda "$dir/cuda"
  sed -i "$program" "$dir/cuda/$file"
  if cmp -s "$dir/cuda/$file" "kernels/cuda/$file"; then
    echo "NO CHANGE  $what"
  elif ! make -s -C "$dir/cuda" HOSTFLAGS="-O1 -march=x86-64-v3 -ffp-contract=off" host >"$dir/log" 2>&1; then
    cat "$dir/log"
    echo "NO BUILD   $what"
  else
    [ "${operation#Test}" != "$operation" ] || operation="TestBackendsConform/cuda/($operation)\$"
    for order in forward reverse; do
      HOSTCUDA_ORDER=$order run "$dir/cuda/build/libhostcuda.so" "$operation" "$dir/log" || { echo "seen       $what"; break; }
      [ $order = forward ] || echo "SURVIVED   $what"
    done
  fi
  rm -rf "$dir"
}

plant_all() {
  local file operation program what
  while IFS='|' read -r file operation program what; do
    [ -n "$file" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
    plant "$file" "$operation" "$program" "$what" &
  done
  wait
}

plant_all <<'END' | tee "$work/verdicts"
elements.cu|Fill|s/if (i >= (n)) return/if (i > (n)) return/|one element too many
elements.cu|Add|s/y\[i\] = a\[i\] + b\[i\]/if (i + 1 < n) y[i] = a[i] + b[i]/|one element too few
elements.cu|Gather|s/ids\[i . width\] . width + i % width\]);/ids[i \/ width] * width + i % (width - 1)]);/|gather: wrong column
elements.cu|RoPE|s/(size_t)pos\[head . heads\]/(size_t)pos[head % heads]/|rope: position of another row
elements.cu|Linear|s/rest -= __bfloat162float(v);//|linear: the parts are not what is left
adamw.h|AdamW|s/ - decay . .p)/)/|adamw: no weight decay
elements.cu|MergeScores|s/top == -INFINITY ? top : //|merge: nothing seen by either side
rows.cu|RMSNorm|s/d += blockDim.x) put(y + d, row.x\[d\] . inv/d += blockDim.x + 1) put(y + d, row.x[d] * inv/|rms norm: columns left out
prims.h|LayerNorm|s/__syncthreads();$/;/|block sums: no barriers
prims.h|RMSNormGrad|s/for (int d = 16; d > 0; d .= 2) v += __shfl_xor_sync/for (int d = 8; d > 0; d \/= 2) v += __shfl_xor_sync/|sums over half a warp
rows.cu|TestCUDAFused|s/return x\[d\] = x\[d\] + delta\[d\];/return x[d] + delta[d];/|sum and norm: the sum is not stored
rows.cu|TestCUDAFused|s/AddedRow{x + row, delta + row}/AddedRow{x + row, delta}/|sum and norm: every row gets the first one
prims.h|TestCUDARounded|s/\*y = __float2bfloat16(v);/unsigned u; memcpy(\&u, \&v, 4); y->bits = u >> 16;/|rounding norms: cut off instead of rounded
elements.cu|TestCUDARounded|s/silu_mul_bf16\(.*\)gate, up, n); }$/silu_mul_bf16\1gate, gate, n); }/|rounding activation: without the other input
thin.cu|TestCUDAThin|/the tiles are there/d|thin: no barrier
thin.cu|TestCUDAThin|s/s < splits;/s < splits - 1;/|thin: the last split is left out
thin.cu|TestCUDAThin|s/min((int)THIN_DEPTH, k - begin)/THIN_DEPTH/|thin: columns past the end
pairs.cu|TestCUDACopyPairs|s/to\[heads + head\]/to[head]/|pairs: values over keys
pairs.cu|TestCUDACopyPairs|s/i . dim % heads/i \/ dim \/ heads % heads/|pairs: another head
thin.cu|TestCUDALowRank|/the factor.s rows are there/d|low rank: no barrier
thin.cu|TestCUDALowRank|s/t\[r . rank + d\]/t[d]/|low rank: every row is the first one
thin.cu|TestCUDALowRank|s/r < m; r +=/r < m - 1; r +=/|low rank: without the last row
rows.cu|ScoreKL|s/if (q > 0) kl/kl/|score_kl: columns without a target
rows.cu|ScoreKL|s/(add ? .total : 0)/0/|losses are not added up
attention.h|Attention|s/r < count ? to_float(src\[(index ? index\[r\] : r) . stride + d\]) : 0/to_float(src[r * stride + d])/|tiles read past the last entry
attention.h|Attention|s/entries - (rows - 1 - r)/entries - (rows - r)/|causal: one entry too few
attention.h|Attention|s/v.from = from_past ? .*;/v.from = 0;/|no sliding window
attention.cu|Attention|/the tile and the weights are free/d|attention: no barrier before the tile is filled
attention.cu|Attention|/the keys have been read/d|attention: no barrier before the values replace the keys
attention.cu|Attention|s/out\[i\]\[e\] .= shrink;/;/|attention: the output is not rescaled
attention.cu|Attention|s/z + 1 < (int)gridDim.z/false/|attention: own pairs in every split
attention.cu|Attention|s/expf(m - top);$/1;/|attention: splits merged without their maxima
attention.cu|ObservedScores|s/sum = sum . expf(top - m) + expf(x - m)/sum += expf(x - m)/|scores: the sum is not rescaled
attention.cu|ObservedScores|s/ - logf((float)rows)//|scores: a sum instead of a mean
attention_grad.cu|AttentionGrad|s/- share . keys + sum/+ sum/|gradient: scores do not see the softmax
attention_grad.cu|AttentionGrad|s/if (own_from\[r\] > j) last = r;/;/|gradient: rows outside the window
attention_grad.cu|AttentionGrad|/slopes and weights have been read/d|gradient: no barrier before the slopes are replaced
attention_grad.cu|AttentionGrad|/slopes and weights are there/d|gradient: slopes are read before they are there
attention_grad.cu|AttentionGrad|/ the slopes are there/d|gradient: slopes of a query are read before they are there
attention_mma.cu|TestCUDAPrefillAttention|s/cp_async_wait<1>();/cp_async_wait<2>();/|prefill: a tile is used before it is there
attention_mma.cu|TestCUDAPrefillAttention|/all warps are done with the stage/d|prefill: no barrier before the stage is refilled
attention_mma.cu|TestCUDAPrefillAttention|s/acc\[n\]\[e\] .= shrink\[e . 2\];/;/|prefill: the output is not rescaled
steps.cu|TestCUDASteps|s/(head.entries - 1)/head.entries/|steps: the pair is one entry too late
steps.cu|TestCUDASteps|s/if (i < sequences) pos\[i\]++;/;/|steps: the position stands still
steps.cu|TestCUDASteps|s/if (i < heads) past/if (i + 1 < heads) past/|steps: the last head is not counted
steps.cu|TestCUDASteps|s/const Past<T> head = past\[i . dim\];/const Past<T> head = past[0];/|steps: all pairs go to the first head
steps.cu|TestCUDASteps|s/\*at = __float2bfloat16(v)/at->bits = 0/|steps: zeros in caches in bf16
steps_choose.cu|TestCUDAStepsObserved|s/(head.entries - 1)/head.entries/|steps that choose: the pair is one entry too late
steps_choose.cu|TestCUDAStepsObserved|s/const Past<T> head = past\[i . dim\];/const Past<T> head = past[0];/|steps that choose: all pairs go to the first head
steps_choose.cu|TestCUDAStepsObserved|s/if (i < queries) to/if (i < queries \&\& i < n) to/|steps that choose: queries beyond the keys stay behind
attention.cu|ObservedScores|s/if (c >= head.entries) return;/if (c + COLUMNS > head.entries) return;/|observed rows: the last entries of a head have no score
select.cu|TestCUDALayersTogether|s/scores += (size_t)blockIdx.y \* heads \* width;/;/|selection: all layers get the first one's mean
host/driver.cpp|TestCUDAGraph|s/return graph_execs\[exec\] = graphs\[graph\], SUCCESS;/return SUCCESS;/|graphs: an update that changes nothing
attention_mma.cu|TestCUDAPrefillAttention|s/column < see\[e . 2\].to/column < see[0].to/|prefill: the mask of another row
elements.cu|TestCUDAArenas|s/if (i >= (n)) return/if (i > (n)) return/|arenas: one element past a tensor
attention_decode.cu|TestCUDAStep|s/cp_async_wait<STAGES - 2>();/cp_async_wait<STAGES - 1>();/|step: a tile is used before it is there
attention_decode.cu|TestCUDAStep|s/top\[i\] = m;/top[i] = m, moved = false;/|step: the output is not rescaled
attention_decode.cu|TestCUDAStep|s/const int begin = max(z . chunk, from_past ? from_past\[sequence . stride + g\] : 0)/const int begin = z * chunk/|step: entries before the window
attention_decode.cu|TestCUDAStep|s/ && at < chunks;/;/|step: lanes past the end of a row
attention_decode.cu|TestCUDAStep|s/for (int o = 16; o >= LANES; o .= 2)/for (int o = 16; o > LANES; o \/= 2)/|step: rows of a tile that the merge leaves out
attention_decode.cu|TestCUDAStep|s/const float own_top = shared.top\[warp\]\[i\], share = .*/const float share = 1;/|step: warps merged as if they had one maximum
attention_decode.cu|TestCUDAStep|s/sum += part_sum\[(size_t)z . total + h\] . w;/sum += part_sum[(size_t)z * total + h];/|step: sums of parts without their maxima
attention_decode.cu|TestCUDASelected|s/names\[u\] = head.index .*/names[u] = j;/|step: entries other than the chosen ones
attention_decode.cu|TestCUDAStep|s/look_up(t + STAGES);/look_up(t + STAGES - 1);/|step: a tile is fetched twice
select.cu|TestCUDASelect|s/tied < ties)/tied <= ties)/|select: one of the equal scores too many
topk.h|TestCUDASelect|/the digits are zero/d|select: no barrier before the digits are counted
topk.h|TestCUDASelect|/the digit is known/d|select: no barrier before the digit is read
order.h|TestCUDASelect|s/if (v == 0) v = 0;/;/|select: zeros of two signs
sample.cu|TestCUDADraw|s/now.end = now.at;/;/|sampling: top-k and top-p do not cut
sample.cu|TestCUDADraw|/the warps. sums and the counts are there/d|sampling: no barrier before the sums of a block
sample.cu|TestCUDADraw|/the lists are there/d|sampling: no barrier before the sums of a row
sample.cu|TestCUDADraw|/the totals are there/d|sampling: no barrier before the totals
sample.cu|TestCUDADraw|s/seen + rank.first == now.at.ties - 1/rank.first == now.at.ties - 1/|sampling: equal logits beyond the first round
sample.cu|TestCUDADraw|s/seen += more;/;/|sampling: equal logits beyond the first segment
sample.cu|TestCUDADraw|s/part.first = first;/part.first = first - from;/|sampling: the largest logit of another segment
order.h|TestCUDASelect|/the warps. counts are there/d|ranks: no barrier
select.cu|TestCUDAScores|s/if (how == 0) s .= (float)group;/;/|scores: a sum instead of a mean over the group
select.cu|TestCUDAScores|s/int end = max(0, n - tail);/int end = n;/|scores: the window leaks into the pool
select.cu|TestCUDASums|s/j < known\[g\] ? .sum : 0/*sum/|sums: what was there before new entries
select.cu|TestCUDAShareBudget|s/if (last == threshold) equal += left\[h\];/;/|share: candidates as good as a head's own
select.cu|TestCUDACompact|s/m.back == 2 ? (size_t)j/m.back == 2 ? (size_t)id/|compaction: rows back from the wrong place
select.cu|TestCUDACompact|s/base\[h\] + id - known\[h\]/base[h] + id/|composition: new entries
select.cu|TestCUDACompact|s/if (i >= (size_t)m.rows . row) return/if (i > (size_t)m.rows * row) return/|compaction: one unit too many
attention_hopper.cu|TestCUDAHopper|/mbarrier_wait(&shared.keys_there/d|hopper: keys are used before they are there
attention_hopper.cu|TestCUDAHopper|/mbarrier_wait(&shared.values_there/d|hopper: values are used before they are there
attention_hopper.cu|TestCUDAHopper|/mbarrier_wait(unused/d|hopper: a stage is refilled while it is used
attention_hopper.cu|TestCUDAHopper|/wgmma_wait<1>/{s/.*/release(\&shared.keys_free[i % STAGES]); wgmma_wait<1>();/;n;n;d}|hopper: a stage is given back before its products are done
attention_hopper.cu|TestCUDAHopper|s/wgmma_wait<1>();/wgmma_wait<2>();/|hopper: logits are read before they are there
attention_hopper.cu|TestCUDAHopper|s/wgmma_wait<0>(); .. the values/wgmma_wait<1>();/|hopper: the output is rescaled while it is summed
attention_hopper.cu|TestCUDAHopper|/wgmma_fence();/d|hopper: no fence before products
attention_hopper.cu|TestCUDAHopper|/shared_store_fence();/d|hopper: queries are not fenced
attention_hopper.cu|TestCUDAHopper|/tensor_map_acquire(values)/d|hopper: a tensor map is not fenced
attention_hopper.cu|TestCUDAHopper|/mbarrier_init_fence();/d|hopper: barriers are not fenced
attention_hopper.cu|TestCUDAHopper|s/mbarrier_arrive_expect(there, L::KEY_BYTES)/mbarrier_arrive_expect(there, L::KEY_PANEL)/|hopper: fewer bytes announced than copied
attention_hopper.cu|TestCUDAHopper|s/chunk % 8 ^ r % 8/chunk % 8/|hopper: queries without swizzle
attention_hopper.cu|TestCUDAHopper|s/k . 16 . ROW, L::KEY_PANEL/k * 16 * ROW, L::QUERY_PANEL/|hopper: values in panels of another size
attention_hopper.cu|TestCUDAHopper|s/i . STAGES % 2 ^ 1/1/|hopper: the producer waits for the first phase alone
attention_hopper.cu|TestCUDAHopper|s/acc\[e\] .= shrink\[e . 2 % 2\];/;/|hopper: the output is not rescaled
attention_hopper.cu|TestCUDAHopper|s/column >= see\[e . 2 % 2\].to/column >= see[0].to/|hopper: the mask of another row
attention_hopper.cu|TestCUDAHopper|s/claim_registers<240>/claim_registers<248>/|hopper: more registers than there are
sparse.cu|TestCUDASparseEstimate|s/p < known ? pool\[p\] : base + p - known/p < known ? pool[p] : base + p/|pages: rows after the pool
sparse.cu|TestCUDASparseEstimate|s/for (p++; p < end; p++)/for (p++; p < end - 1; p++)/|pages: the last key of a page
sparse.cu|TestCUDASparseEstimate|s/sizes\[j\] == size \&\& j < i/sizes[j] == size/|estimate: equal components
sparse.cu|TestCUDASparseEstimate|/sizes are there/d|estimate: no barrier before sizes are compared
sparse.cu|TestCUDASparseEstimate|s/sum < 0;$/sum > 0;/|estimate: the bound of the other sign
sparse.cu|TestCUDASparseEstimate|s/if (chosen\[j\]) some += v/some += v/|estimate: the temperature of a whole product
logs.h|TestCUDASparseEstimate|s/sum . (float)n/sum/|estimate: a sum instead of a mean over the group
logs.h|TestCUDAScores|s/top + logf/logf/|logarithms: without the largest of them
select.cu|TestCUDAScores|s/log_mean(scores + j, width, heads)/log_mean(scores + j, width, heads - 1)/|logarithms: a mean without the last head
sparse.cu|TestCUDASparseSelect|s/ids\[h.want + i\] = /ids[i] = /|choice: the last positions over the best
sparse.cu|TestCUDASparseSelect|s/(with_first ? missing : 0) - (with_last/- (with_last/;s/n . h.size - - (with/n * h.size - (with/|choice: a first page that is short counts as whole
sparse.cu|TestCUDASparseSelect|s/else if (tied >= ties) at -= total - h.want;/;/|choice: a gap after the page that is cut
sparse.cu|TestCUDASparseSelect|s/equal <= ties)/equal < ties)/|choice: the last page among equal ones
sparse.cu|TestCUDASparseMean|s/for (int p = h.first; p < h.entries; p++) sum/for (int p = 0; p < h.entries; p++) sum/|mean: values that are summed already
sparse.cu|TestCUDASparseMean|s/probabilities\[(size_t)blockIdx.x . width/probabilities[(size_t)g * width/|mean: the share of another query
attention.h|TestCUDASelected|s/(index ? index\[r\] : r)/r/|selected: the first entries instead of the chosen ones
attention.h|TestCUDASelected|s/head.index + c)/head.index)/|selected: every tile is the first one
attention.cu|TestCUDASelected|s/load_entries(tile, head, head.v, c/load_entries(tile, head, head.v, 0/|selected: values of other entries
attention_observe.cu|TestCUDAObserve|s/const int begin = max(z . chunk/const int begin = max(z * chunk + 1/|observed rows: a split without its first entry
attention_observe.cu|TestCUDAObserve|s/ \&\& column < to ? x/ ? x/|observed rows: entries of the next split
attention_observe.cu|TestCUDAObserve|/cp_async_wait<1>();/d|observed rows: tiles are used before they are there
attention_observe.cu|TestCUDAObserve|/all warps are done with the stage/d|observed rows: no barrier before a stage is refilled
attention_observe.cu|TestCUDAObserve|s/for (int p = PARTS - 1; p >= 0; p--) { .. the small/for (int p = 0; p >= 0; p--) { \/\/ the small/|observed rows: queries rounded to bf16
attention_observe.cu|TestCUDAObserve|/mma_bf16_16816(acc\[2 . n\], low, left/d|observed rows: probabilities rounded to bf16
attention_observe.cu|TestCUDAObserve|s/acc\[n\]\[half . 2\] .= shrink, .*;/;/|observed rows: the output is not rescaled
attention_observe.cu|TestCUDAObserve|s/if (t % row_tiles == 0) .. a head/if (t == 0) \/\/ a head/|observed rows: scores of one head after the other are added
attention_observe.cu|TestCUDAObserve|s/sum\[i\] = sum\[i\] . expf(top\[i\] - m) + /sum[i] += /|observed rows: the sum of scores is not rescaled
attention_observe.cu|TestCUDAObserve|s/for (int d = 4; d < 32; d .= 2) {/for (int d = 4; d < 16; d *= 2) {/|observed rows: scores of half the rows
attention_observe.cu|TestCUDAObserve|s/if (r >= rows) continue;/;/|observed rows: rows past the last
moments.cu|TestCUDAMoments|s/if (!positions) return min(rows, entries - j);/if (!positions) return rows;/|moments: rows before the entry
moments.cu|TestCUDAMoments|s/rows_seeing(positions . positions + (size_t)g . width/rows_seeing(positions ? positions/|moments: positions of the first head
moments.cu|TestCUDAMoments|s/!= -INFINITY) {/!= 1) {/|moments: rows that do not see an entry
moments.cu|TestCUDAMoments|s/if (j < known\[g\]) rows = moments/if (true) rows = moments/|moments: what was there before new entries
moments.cu|TestCUDAMoments|s/size_t row = (size_t)blockIdx.z . gridDim.y + g;/size_t row = g;/|moments: rows in the place of sums
moments.cu|TestCUDASelectSpread|/all scores are copied/d|spread: no barrier before scores are raised
merge.cu|TestCUDAVariances|/the terms are there/d|variance: no barrier before the sum
merge.cu|TestCUDAVariances|s/from += SERIAL) {/from += SERIAL - 1) {/|variance: terms counted twice
merge.cu|TestCUDAMergeEvicted|s/if (ids\[mid\] - mid > e) to = mid;/if (ids[mid] - mid >= e) to = mid;/|merge: rows of other entries
merge.cu|TestCUDAMergeEvicted|s/s.tops\[t\]\[i\] == top \&\& s.places\[t\]\[i\] < at/s.tops[t][i] == top/|merge: the last of equal keys
merge.cu|TestCUDAMergeEvicted|/the products are there/d|merge: products are used before they are there
merge.cu|TestCUDAMergeEvicted|s/TILE . PARTS), h.kept - from); i++/TILE \/ PARTS), TILE); i++/;s/= h.ids\[min(from + t, h.kept - 1)\]/= h.ids[0]/|merge: the first kept key alone
merge.cu|TestCUDAMergeEvicted|/ids are there, and the tiles before have been read/d|merge: no barrier before a tile is refilled
merge.cu|TestCUDAMergeEvicted|/the tiles are there/d|merge: tiles are used before they are there
merge.cu|TestCUDAMergeEvicted|/the names are there/d|merge: names are used before they are there
merge.cu|TestCUDAMergeEvicted|s/if (!(similar\[e\] >= threshold)) continue;/;/|merge: what is less similar, too
merge.cu|TestCUDAMergeEvicted|s/(T .)(blockIdx.z == 0 ? h.k : h.v)/(T *)h.k/|merge: keys twice and no values
merge.cu|TestCUDAMergeStep|s/__dadd_rn(__dmul_rn(beta, best), __dmul_rn(1 - beta, threshold))/__dadd_rn(__dmul_rn(beta, threshold), __dmul_rn(1 - beta, best))/|merge: the threshold follows itself
merge.cu|TestCUDAMergeStep|s/j == out ? NAN : cosine/cosine/|merge: an entry into itself
merge.cu|TestCUDAMergeStep|/the old threshold has been read/d|merge: no barrier before the threshold is replaced
merge.cu|TestCUDAMergeRecent|s/max(0, h.entries - h.recent) + threadIdx.x/threadIdx.x/|draws: the mean of all
merge.cu|TestCUDAMergeRecent|s/if (merges\[out\]) store/store/|draws: every value is merged
attention_observe.cu|TestCUDAObserve|s/first_tile = unseeing . TILE/first_tile = (unseeing + TILE) \/ TILE/|observed rows: rows that see the entries are left out
attention_grad_mma.cu|TestCUDAGradHalf|s/cp_async_wait<1>();/cp_async_wait<2>();/|gradient: a tile is used before it is there
attention_grad_mma.cu|TestCUDAGradHalf|/all warps are done with the stage/d|gradient: no barrier before a stage is refilled
attention_grad_mma.cu|TestCUDAGradHalf|/the tiles have been read/d|gradient: results overwrite tiles that are in use
attention_grad_mma.cu|TestCUDAGradHalf|/the results are there/d|gradient: results of other warps are read before they are there
attention_grad_mma.cu|TestCUDAGradHalf|s/for (int p = PARTS - 1; p >= 0; p--)/for (int p = 0; p >= 0; p--)/|gradient: queries and dOut rounded to bf16
attention_grad_mma.cu|TestCUDAGradHalf|/mma_bf16_16816(main\[2 . n\], d_low, left/d|gradient: slopes rounded to bf16
attention_grad_mma.cu|TestCUDAGradHalf|/mma_bf16_16816(keys_sum\[2 . n + 1\], p_low, right/d|gradient: probabilities rounded to bf16
attention_grad_mma.cu|TestCUDAGradHalf|s/ \&\& column < to) {/) {/|gradient: entries of the next split
attention_grad_mma.cu|TestCUDAGradHalf|s/share_sum\[half\] += slope;/;/|gradient: shares are not summed
attention_grad_mma.cu|TestCUDAGradHalf|s/(d\[j\]\[e\] - row_dot\[half\])/d[j][e]/|gradient: the softmax of the output
attention_grad_mma.cu|TestCUDAGradHalf|s/other < sharers; other++/other + 1 < sharers; other++/|gradient: one of the warps that share queries is left out
attention_grad_mma.cu|TestCUDAGradHalf|s/const int begin = max(z . chunk,/const int begin = max(z * chunk + 1,/|gradient: a split without its first entry
attention_grad_mma.cu|TestCUDAGradHalf|s/h = g . group + query % group;$/h = g * group;/|gradient: softmax and scores of another head
attention_rounded.cu|TestCUDAObserveRounded|s/(row . kv_heads + g) . dim + d/row * kv_heads * dim + d/|many rows: own pairs of another head
attention_rounded.cu|TestCUDAObserveRounded|s/(values ? head.v : head.k) + i/head.k + i/|many rows: keys for values
attention_rounded.cu|TestCUDAObserveRounded|s/cp_async_wait<1>();/cp_async_wait<2>();/|many rows: queries are used before they are there
attention_rounded.cu|TestCUDAObserveRounded|/all warps are done with the stage/d|many rows: no barrier before a stage is refilled
attention_rounded.cu|TestCUDAObserveRounded|s/sums\[i\].sum . exp2f(sums\[i\].base - x)/sums[i].sum/|many rows: the sum is not rescaled
attention_rounded.cu|TestCUDAObserveRounded|s/first_tile = unseeing . TILE/first_tile = (unseeing + TILE) \/ TILE/|many rows: rows that see the entries are left out
attention_rounded.cu|TestCUDAObserveRounded|s/.from >= c + WARPS . SPAN;/.from >= c;/|many rows: entries that some rows see
attention_rounded.cu|TestCUDAObserveRounded|s/for (int d = 4; d < 32; d .= 2) all/for (int d = 4; d < 16; d *= 2) all/|many rows: scores of half the rows
attention_rounded.cu|TestCUDAObserveRounded|s/if (t % row_tiles == 0) .. a head/if (t == 0) \/\/ a head/|many rows: scores of one head after the other are added
attention_rounded.cu|TestCUDAObserveRounded|s/entry < head.entries \&\& d < dim/d < dim/|many rows: keys past the last entry
training.cu|TestLowRank|/the warps. sums are there/d|low rank: no barrier
training.cu|TestLowRank|s/m += first . row;/;/|low rank: the first ranks again
training.cu|TestLowRank|s/products\[i\] + (products\[n + i\] + products\[2 . n + i\])/products[i]/|low rank: the product of the first part alone
split.h|TestLowRank|s/v -= __bfloat162float(high);/;/|low rank: the parts are not what is left
attention_grad_mma.cu|TestCUDAGradHalf|s/split_three(q_parts + at + d, n, q\[at + d\])/q_parts[at + d] = q_parts[n + at + d] = q_parts[2 * n + at + d] = __float2bfloat16(q[at + d])/|gradient: parts of queries
training.cu|TestSeveral|s/i < piece.n; i += blockDim.x/i + 1 < piece.n; i += blockDim.x/|pieces: the last element
training.cu|TestSeveral|s/i < (int)piece.n; i += blockDim.x/i < 16384; i += blockDim.x/|pieces: elements of the next tensor
few_rows.cu|TestCUDAFewRows$|s/if (at < left) w/w/|few rows: weights past the end of k
few_rows.cu|TestCUDAFewRows$|s/int column = min(\(.*\), part.n - 1);/int column = \1;/|few rows: columns past the last
few_rows.cu|TestCUDAFewRows$|s/r < rows \&\& at < k/at < k/|few rows: rows past the last
few_rows.cu|TestCUDAFewRows$|/the chunk is there/d|few rows: no barrier before a chunk is used
few_rows.cu|TestCUDAFewRows$|/cp_async_wait<0>();/d|few rows: a chunk is used before it is there
few_rows.cu|TestCUDAFewRows$|/the sums of all ways are there/d|few rows: no barrier before the sums are added
few_rows.cu|TestCUDAFewRows$|s/end = i + (1 << part.split)/end = i + 1/|few rows: the sum of one warp
few_rows.cu|TestCUDAFewRows$|s/give = upper ? v\[i\] : v\[i + N . 2\]/give = v[i]/|few rows: sums of other values
few_rows.cu|TestCUDAFewRows$|s/part ? u.w : u.y/u.w/|few rows: the second weights twice
few_rows.cu|TestCUDAFewRowsBits|s/block -= part.blocks();/;/|few rows: later weights begin at another column
few_rows.cu|TestCUDAFewRowsBits|s/v . sigmoid(v) . up_sum/v * up_sum/|few rows: a gate without its sigmoid
few_rows.cu|TestCUDAFewRowsBits|s/if (up_bias) up_sum/if (false) up_sum/|few rows: no bias of what is gated
heads.cu|TestCUDAHeads|s/w\[d + half\]/w[d]/|heads: the norm of the other half
heads.cu|TestCUDAStepHeads|s/row . stride + g/g/|heads: all pairs go to the first sequence
heads.cu|TestCUDAStepHeads|s/ \&\& row < sequences//|heads: pairs of rows without a sequence
heads.cu|TestCUDAStepHeads|s/head.v) + (size_t)(head.entries - 1)/head.v) + (size_t)head.entries/|heads: the value is one entry too late
pointwise.h|RoPE|s/-(sine . b)/sine * b/|rope: turned by another angle
few_norms.cu|TestCUDAFewNorms|s/if (d >= width) continue;/;/|few norms: past the end of a row
few_norms.cu|TestCUDAFewNorms|s/if (delta) \*reinterpret/if (false) *reinterpret/|few norms: the sum is not stored
few_norms.cu|TestCUDAFewNorms|s/(size_t)blockIdx.x . width/0/|few norms: every row is the first one
attention_decode.cu|TestCUDAStepAttentions|s/v . inverse; .. of a single part/v \/ sum; \/\//|step: the merge of a single part has other bits
END
! grep -qv '^seen ' "$work/verdicts"

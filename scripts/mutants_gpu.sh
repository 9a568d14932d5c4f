#!/usr/bin/env bash
# Plants one bug at a time in a copy of the CUDA kernels and expects the tests on the
# host driver to see each of them, in one scheduling order or the other. Called by
# "scripts/test_gpu.sh --mutants", which sets the environment.
set -euo pipefail
source "$(dirname "$0")/common.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
go test -tags gpu -c -o "$work/kernels.test" ./kernels

run() { # DRIVER OPERATION: in kernels/, as go test would
  (cd kernels && GLIMPSE_CUDA_DRIVER=$1 GLIMPSE_CUBLASLT=$1 timeout 120 "$work/kernels.test" -test.run "$2" >"$work/log" 2>&1)
}
# Without this, a broken set-up would look like every bug being seen.
run "$root/kernels/cuda/build/libhostcuda.so" 'TestBackendsConform/cuda/(RMSNorm|Linear|Gather)$' || { cat "$work/log"; die "the tests fail without a planted bug"; }

survivors=0
while IFS='|' read -r file operation program what; do
  [ -n "$file" ] || continue
  rm -rf "$work/cuda"
  cp -a kernels/cuda "$work/cuda"
  sed -i "$program" "$work/cuda/$file"
  if cmp -s "$work/cuda/$file" "kernels/cuda/$file"; then echo "NO CHANGE  $what"; survivors=1; continue; fi
  if ! make -s -C "$work/cuda" host >"$work/log" 2>&1; then cat "$work/log"; echo "NO BUILD   $what"; survivors=1; continue; fi
  by=
  for order in forward reverse; do
    HOSTCUDA_ORDER=$order run "$work/cuda/build/libhostcuda.so" "$([ "${operation#Test}" != "$operation" ] && echo "$operation" || echo "TestBackendsConform/cuda/($operation)\$")" || { by=$order; break; }
  done
  if [ -n "$by" ]; then echo "seen       $what"; else echo "SURVIVED   $what"; survivors=1; fi
done <<'END'
elements.cu|Fill|s/if (i >= (n)) return/if (i > (n)) return/|one element too many
elements.cu|Add|s/y\[i\] = a\[i\] + b\[i\]/if (i + 1 < n) y[i] = a[i] + b[i]/|one element too few
elements.cu|Gather|s/ids\[i . width\] . width + i % width\]);/ids[i \/ width] * width + i % (width - 1)]);/|gather: wrong column
elements.cu|RoPE|s/(size_t)pos\[head . heads\]/(size_t)pos[head % heads]/|rope: position of another row
elements.cu|Linear|s/rest -= __bfloat162float(v);//|linear: the parts are not what is left
elements.cu|AdamW|s/- decay . p\[i\]//|adamw: no weight decay
elements.cu|MergeScores|s/top == -INFINITY ? top : //|merge: nothing seen by either side
rows.cu|RMSNorm|s/d += blockDim.x) y\[d\] = x\[d\] . inv/d += blockDim.x + 1) y[d] = x[d] * inv/|rms norm: columns left out
prims.h|LayerNorm|s/__syncthreads();$/;/|block sums: no barriers
prims.h|RMSNormGrad|s/for (int d = 16; d > 0; d .= 2) v += __shfl_xor_sync/for (int d = 8; d > 0; d \/= 2) v += __shfl_xor_sync/|sums over half a warp
rows.cu|ScoreKL|s/if (q > 0) kl/kl/|score_kl: columns without a target
rows.cu|ScoreKL|s/(add ? .total : 0)/0/|losses are not added up
attention.h|Attention|s/r < count ? to_float(src\[r . stride + d\]) : 0/to_float(src[r * stride + d])/|tiles read past the last entry
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
attention_mma.cu|TestCUDAPrefillAttention|s/cp_async_wait<1>();/cp_async_wait<2>();/|prefill: a tile is used before it is there
attention_mma.cu|TestCUDAPrefillAttention|/all warps are done with the stage/d|prefill: no barrier before the stage is refilled
attention_mma.cu|TestCUDAPrefillAttention|s/acc\[n\]\[e\] .= shrink\[e . 2\];/;/|prefill: the output is not rescaled
steps.cu|TestCUDASteps|s/(head.entries - 1)/head.entries/|steps: the pair is one entry too late
steps.cu|TestCUDASteps|s/if (i < sequences) pos\[i\]++;/;/|steps: the position stands still
steps.cu|TestCUDASteps|s/if (i < heads) past/if (i + 1 < heads) past/|steps: the last head is not counted
steps.cu|TestCUDASteps|s/const Past<T> head = past\[i . dim\];/const Past<T> head = past[0];/|steps: all pairs go to the first head
steps.cu|TestCUDASteps|s/\*at = __float2bfloat16(v)/at->bits = 0/|steps: zeros in caches in bf16
host/driver.cpp|TestCUDAGraph|s/return graph_execs\[exec\] = graphs\[graph\], SUCCESS;/return SUCCESS;/|graphs: an update that changes nothing
attention_mma.cu|TestCUDAPrefillAttention|s/column < see\[e . 2\].to/column < see[0].to/|prefill: the mask of another row
END
exit $survivors

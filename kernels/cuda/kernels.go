//go:build gpu && linux && amd64

package cuda

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unsafe"

	"glimpse/internal/cudadriver"
	"glimpse/internal/fatbin"
	"glimpse/kernels"

	"gorgonia.org/cu"
)

// kernelNames lists the kernels of every fat binary.
var kernelNames = map[string][]string{
	"elements": {
		"fill_f32", "fill_f64", "fill_b16", "gather_f32", "gather_f64", "gather_bf16", "gather_f16", "gather_b16", "copy_head_f32", "copy_head_bf16",
		"to_bf16", "split_bf16", "join_parts", "from_bf16", "from_f16", "add_bias", "scale", "add", "axpy", "rope", "silu_mul", "silu_mul_bf16", "silu_mul_grad", "gelu", "gelu_bf16", "gelu_grad",
		"merge_scores", "adamw",
	},
	"select": {
		"group_scores", "pool_scores", "mean_scores", "add_scores", "carry_scores", "max_scores", "key_scores_f32", "key_scores_bf16",
		"select_top", "share_budget", "move_rows_16", "move_rows_2", "pick_f32", "pick_ids",
	},
	"sample": {"draw_top", "draw_digit", "draw_pick"},
	"sparse": {
		"page_bounds_f32", "page_bounds_bf16", "sparse_factors", "page_logits", "page_probabilities", "select_pages",
		"add_rows_f32", "add_rows_bf16", "share_mean",
	},
	"rows": {
		"rms_norm", "rms_norm_bf16", "rms_norm_grad", "add_rms_norm", "add_rms_norm_bf16",
		"layer_norm", "layer_norm_bf16", "layer_norm_grad", "add_layer_norm", "add_layer_norm_bf16", "sum_squares", "sum_parts", "score_kl", "score_mse",
	},
	"pairs":         {"copy_pairs_f32", "copy_pairs_bf16"},
	"thin":          {"thin_linear_f32", "thin_linear_bf16", "thin_matmul_f32", "thin_matmul_bf16", "thin_merge", "low_rank_update"},
	"attention":     {"attend_merge", "observe_rows_f32", "observe_rows_bf16", "attend_rows_f32_4", "attend_rows_f32_8", "attend_rows_bf16_8"},
	"attention_mma": {"attend_mma_64", "attend_mma_128", "attend_mma_256"},
	"attention_observe": {
		"observe_attend_64", "observe_attend_128", "observe_attend_256",
		"observe_scores_64", "observe_scores_128", "observe_scores_256",
	},
	"attention_decode": {
		"attend_step_bf16_128_4", "attend_step_bf16_256_4", "attend_step_bf16_512_4", "attend_step_bf16_128_8", "attend_step_bf16_256_8", "attend_step_bf16_512_8",
		"attend_step_f32_256_4", "attend_step_f32_512_4", "attend_step_f32_1024_4", "merge_step_f32", "merge_step_bf16", "step_scores_f32", "step_scores_bf16",
	},
	"attention_grad_mma": {"grad_prepare", "grad_past_mma_64", "grad_past_mma_128"},
	"attention_rounded":  {"join_pairs", "rounded_scores_64", "rounded_scores_128"},
	"attention_hopper":   {"attend_hopper_64", "attend_hopper_128", "attend_hopper_256"},
	"attention_grad":     {"grad_dots", "grad_query", "grad_own", "grad_past_f32_4", "grad_past_f32_8", "grad_past_bf16_8"},
	"training":           {"low_rank_down", "low_rank_up", "low_rank_grads", "rotate", "fill_pieces", "axpy_pieces", "square_pieces", "adamw_pieces"},
	"steps":              {"start_step", "append_pairs_f32", "append_pairs_bf16"},
	"moments":            {"score_moments", "start_moments", "add_moments", "carry_moments", "pick_moments", "raise_scores"},
	"merge": {
		"score_columns", "column_variance", "mean_similarity", "draw_merges", "key_norms_f32", "key_norms_bf16", "nearest_keys_f32", "nearest_keys_bf16",
		"merge_pairs_f32", "merge_pairs_bf16", "step_similar_f32", "step_similar_bf16", "merge_one_f32", "merge_one_bf16", "merge_recent_f32", "merge_recent_bf16",
	},
	"steps_choose": {"append_step_f32", "append_step_bf16"},
	"few_rows":     {"few_rows_f32_8", "few_rows_f16_8", "few_rows_bf16_1", "few_rows_bf16_4", "few_rows_bf16_8"},
	"few_norms":    {"few_rms_norm"},
	"heads":        {"rotate_heads_f32", "rotate_heads_bf16"},
}

// loadKernels loads all fat binaries, and every kernel for good: a driver that loads
// lazily would do so at the first launch, which may be one that is being captured.
func (b *cuda) loadKernels() {
	missing := maps.Clone(kernelNames)
	b.try("load kernels", eachFatBinary(func(file string, data []byte) error {
		names, ok := kernelNames[file]
		delete(missing, file)
		if !ok || file == "attention_hopper" && !b.sm90a {
			return nil // machine code that other devices refuse
		}
		b.loadFatBinary(file, names, data)
		return nil
	}))
	delete(missing, "attention_hopper")
	if len(missing) > 0 {
		b.try("load kernels", fmt.Errorf("fat binaries are missing: %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", ")))
	}
}

func (b *cuda) loadFatBinary(file string, names []string, data []byte) {
	op := "load " + file + ".fatbin"
	images, err := fatbin.Parse(data)
	b.try(op, err)
	module, err := cu.LoadData(string(data))
	if err != nil {
		b.try(op, fmt.Errorf("%w: it has %v", err, images))
	}
	for _, name := range names {
		f, err := module.Function(name)
		if err != nil {
			b.try(op, fmt.Errorf("kernel %s: %w", name, err))
		}
		b.try(op+": kernel "+name, cudadriver.Load(f))
		// The attention kernels hold tiles of a size that heads decide, others their rows.
		if strings.HasPrefix(file, "attention") || strings.HasPrefix(file, "few_") {
			static, err := f.Attribute(cu.SharedSizeBytes)
			b.try(op+": kernel "+name, err)
			b.try(op+": kernel "+name, cudadriver.AllowShared(f, b.shared-static))
		}
		b.functions[name] = f
	}
	b.images[file], err = use(images, b.functions[names[0]])
	b.try(op, err)
}

// maxSharedAttribute is the dynamic shared memory that a block may ask for: 99 KB or
// more from compute capability 8.0 on. Attention of heads of 128 elements needs 52 KB
// and of 256 elements 103 KB.
const maxSharedAttribute cu.DeviceAttribute = 97

// size is an argument of type size_t.
type size uint64

// launch queues a kernel. Arguments are device addresses (cu.DevicePtr), int, size,
// float32 and float64 values.
func (b *cuda) launch(name string, grid [3]int, threads, shared int, args ...any) {
	if grid[0] == 0 || grid[1] == 0 || grid[2] == 0 {
		return
	}
	f, ok := b.functions[name]
	if !ok {
		panic("kernels: no kernel " + name)
	}
	slots := make([]uint64, len(args))
	pointers := make([]unsafe.Pointer, len(args))
	for i, a := range args {
		at := unsafe.Pointer(&slots[i])
		pointers[i] = at
		switch a := a.(type) {
		case cu.DevicePtr:
			slots[i] = uint64(a)
		case int:
			if int(int32(a)) != a {
				panic(fmt.Sprintf("kernels: %s: argument %d is %d", name, i, a))
			}
			*(*int32)(at) = int32(a)
		case size:
			slots[i] = uint64(a)
		case float32:
			*(*float32)(at) = a
		case float64:
			*(*float64)(at) = a
		default:
			panic(fmt.Sprintf("kernels: %s: argument %d of type %T", name, i, a))
		}
	}
	if b.part != nil {
		b.part.ops = append(b.part.ops, operation{name, f, grid, threads, shared, slots})
		return
	}
	b.try(name, f.Launch(grid[0], grid[1], grid[2], threads, 1, 1, shared, b.queue(), pointers))
	b.note(name)
}

// elementThreads are the threads of a block where each has one element.
const elementThreads = 256

// each queues a kernel with one thread for each of n elements.
func (b *cuda) each(name string, n int, args ...any) {
	b.launch(name, [3]int{(n + elementThreads - 1) / elementThreads, 1, 1}, elementThreads, 0, args...)
}

// upload copies host data into temporary memory.
func upload[T any](b *cuda, op string, data []T) cu.DevicePtr {
	if len(data) == 0 {
		return 0
	}
	bytes := int64(len(data)) * int64(unsafe.Sizeof(data[0]))
	list := unsafe.Slice((*byte)(unsafe.Pointer(&data[0])), bytes)
	if b.part != nil {
		return b.part.upload(b, op, list)
	} else if b.rec != nil {
		return b.rec.upload(b, op, list)
	}
	at := b.temporary(op, bytes)
	b.copyIn(op, at, list)
	return at
}

// at is the address of a tensor of the given type, 0 for nil.
func (b *cuda) at(op string, t *kernels.Tensor, d kernels.DType) cu.DevicePtr {
	if t == nil {
		return 0
	}
	if t.DType != d {
		panic(fmt.Sprintf("kernels: %s: %s tensor %v, want %s", op, t.DType, t.Shape, d))
	}
	return b.address(op, t)
}

func (b *cuda) address(op string, t *kernels.Tensor) cu.DevicePtr {
	block, offset := t.Block()
	m, ok := block.(*cudaBlock)
	if !ok || m.b.cudaDevice != b.cudaDevice {
		panic(fmt.Sprintf("kernels: %s: tensor %v is not in the memory of %s", op, t.Shape, b.device))
	}
	if b.part != nil {
		b.part.keep = append(b.part.keep, m)
	} else if b.rec != nil {
		b.rec.keep = append(b.rec.keep, m)
	}
	return m.at + cu.DevicePtr(offset)
}

// f32 are the addresses of F32 tensors as kernel arguments.
func (b *cuda) f32(op string, t *kernels.Tensor) cu.DevicePtr { return b.at(op, t, kernels.F32) }

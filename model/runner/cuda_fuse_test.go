//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"fmt"
	"os"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// apart is a device whose operations are a kernel each: nothing is fused, rounded once for several
// products, or recorded.
type apart struct{ kernels.Backend }

func (b apart) Norm(y, x, add *kernels.Tensor, n kernels.Norm) {
	if add != nil {
		b.Add(x, x, add)
	}
	b.Backend.Norm(y, x, nil, n)
}
func (b apart) LinearGroup(x *kernels.Tensor, layers ...kernels.LinearRows) {
	kernels.Decompose(b).LinearGroup(x, layers...)
}
func (b apart) GatedLinear(y, x *kernels.Tensor, gate, up kernels.LinearRows, temp kernels.Allocator) {
	kernels.Decompose(b).GatedLinear(y, x, gate, up, temp)
}
func (b apart) RotateHeads(q, k *kernels.Tensor, norms kernels.HeadNorms, pos []int32, table *kernels.RoPETable) {
	kernels.Decompose(b).RotateHeads(q, k, norms, pos, table)
}
func (b apart) RoundsToBF16(int, *kernels.Tensor) bool { return false }
func (b apart) NewGraph() kernels.Graph                { return nil }

// TestCUDAFusedLaunches: sums and norms in one kernel take one launch less for every
// norm that follows a sum in prefill, probes, decoding steps and batches;
// few rows, as those of steps, take one launch for three projections, for the heads
// of queries and keys, and for a gate with what it gates; and no bit changes, recorded or not.
func TestCUDAFusedLaunches(t *testing.T) {
	modeltest.NeedCUDA(t)
	for name, blocks := range map[string]int{"llama3.1": 2, "falcon": 1} { // norms of a layer
		t.Run(name, func(t *testing.T) {
			m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), "cuda")
			device := m.Backend
			calls := func() int64 { return modeltest.Calls(device) }
			layers := m.Config.Layers
			prompt := modeltest.Tokens(m, 1, 10)
			// measured is the launches of every part and what they computed.
			measured := func() (launches map[string]int, numbers [][]float32) {
				launches = make(map[string]int)
				r, single := runner.New(m), kvcache.New(m)
				caches := []*kvcache.Cache{kvcache.New(m), kvcache.New(m)}
				count := func(part string, f func() ([][]float32, error)) {
					before := calls()
					got, err := f()
					if err != nil {
						t.Fatal(err)
					}
					launches[part] = int(calls() - before)
					numbers = append(numbers, got...)
				}
				prefill := func(cache *kvcache.Cache, opt runner.PrefillOptions) func() ([][]float32, error) {
					return func() ([][]float32, error) {
						l, err := r.Prefill(background, cache, prompt, opt)
						return [][]float32{l}, err
					}
				}
				count("first", prefill(kvcache.New(m), runner.PrefillOptions{})) // memory for the others
				count("prefill", prefill(single, runner.PrefillOptions{}))
				count("two chunks", prefill(caches[0], runner.PrefillOptions{Chunk: 5}))
				count("caches alone", prefill(caches[1], runner.PrefillOptions{CacheOnly: true}))
				for _, c := range append(caches, single) {
					runner.Reserve(c, 8)
				}
				count("probe", func() (scores [][]float32, err error) {
					err = r.Probe(background, single, model.TokenRows(prompt[:3]), false, func(o *runner.Observation) error {
						scores = append(scores, o.Probes[0].Float32s())
						return nil
					})
					return scores, err
				})
				t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
				step := func() ([][]float32, error) {
					l, err := r.Step(background, single, 3, runner.Capture{}, nil)
					return [][]float32{l}, err
				}
				batch := func() ([][]float32, error) { return r.StepBatch(background, caches, prompt[:2], 3) }
				count("step", step)
				count("batch", batch)
				t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
				record := func(part string, f func() ([][]float32, error)) {
					r = runner.New(m)
					count("before a recorded "+part, f)
					count("recording a "+part, f)
				}
				record("step", step)
				record("batch", batch)
				return launches, numbers
			}
			got, numbers := measured()
			m.Backend = apart{device}
			want, wantNumbers := measured()
			all := blocks * layers
			const projections, heads = 2, 2 // less in a layer; of the heads a launch and a list, or a launch and the pairs
			gate := 0
			if m.Network.Layers[0].Linear(model.GateProj) != nil {
				gate = 2
			}
			few := projections + heads + gate
			for part, less := range map[string]int{
				"prefill": all + gate, // of the last row, the only one of the last layer
				"step":    all + layers*few, "batch": all + layers*few,
				// Only the last row's sums precede the norm of another layer.
				"two chunks":   2*(blocks-1)*(layers-1) + blocks + 2*(layers-1)*few + gate,
				"caches alone": blocks * (layers - 1),
				"probe":        (blocks+few)*(layers-1) + heads, // the last layer has queries and keys alone
			} {
				if want[part] == 0 || want[part]-got[part] != less {
					t.Errorf("%s: %d launches, %d with sums and norms apart; want %d less", part, got[part], want[part], less)
				}
			}
			t.Logf("launches of a step of %d layers: %d, %d apart", layers, got["step"], want["step"])
			for i := range wantNumbers {
				compare.Close(t, fmt.Sprintf("numbers %d", i), numbers[i], wantNumbers[i], 0)
			}
		})
	}
}

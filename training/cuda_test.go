//go:build gpu && linux && (amd64 || arm64)

package training_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

func onCUDA(t *testing.T) *model.Model {
	t.Helper()
	modeltest.NeedCUDA(t)
	return modeltest.OpenShallow(t, "cuda", 3)
}

// small is a run of both kinds that takes little time where no GPU is.
func small(steps int) training.Config {
	c := both(steps)
	c.Batch, c.MaxResponse, c.Workers = 2, 4, 1
	return c
}

// TestCUDATrainsLikeTheCPU: the losses of the first steps, of which the later ones
// depend on the updates before. AdamW makes a whole step of a gradient that is rounding alone,
// which is another on every processor: with an epsilon above that it makes none.
func TestCUDATrainsLikeTheCPU(t *testing.T) {
	c := small(3)
	c.Epsilon = 1e-5
	_, want := run(t, shallow(t), c, stream(t, 40))
	_, got := run(t, onCUDA(t), c, stream(t, 40))
	compare.Close(t, "losses", got, want, 1e-3)
}

// TestCUDAResumeHasTheSameBits: a run that is stopped, saved and taken up again ends
// with the bits of one that was not, and so does the same run twice.
func TestCUDAResumeHasTheSameBits(t *testing.T) {
	m, c := onCUDA(t), small(2)
	want, _ := run(t, m, c, stream(t, 40))
	hash, err := m.SHA256(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	first, err := training.New(m, c, stream(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := first.Run(ctx, func(training.StepResult) error { stop(); return nil }); err == nil || first.Done() != 1 {
		t.Fatalf("%d steps done, error %v; want one and a stop", first.Done(), err)
	}
	if err := first.Save(state, hash); err != nil {
		t.Fatal(err)
	}
	second, err := training.New(m, c, stream(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Resume(state, hash); err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background(), func(training.StepResult) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var got []float32
	for i := range c.Adapters {
		for _, p := range second.Adapter(i).Parameters() {
			got = append(got, p.Tensor.Float32s()...)
		}
	}
	if !sameBits(got, want) {
		t.Error("a resumed run has other bits than one that was not stopped")
	}
	if again, _ := run(t, m, c, stream(t, 40)); !sameBits(again, want) {
		t.Error("the same run twice has different bits")
	}
}

// TestCUDAGraphsChangeNoBit: a run whose passes start as graphs ends with the bits of
// one whose operations start one by one, on prompts of different lengths, with samples
// that are kept, with several workers and with caches in bf16; and it takes fewer
// calls of the driver.
func TestCUDAGraphsChangeNoBit(t *testing.T) {
	for dtype, workers := range map[string]int{"float32": 1, "bf16": 2} {
		m := onCUDA(t)
		if err := m.SetCacheDType(dtype); err != nil {
			t.Fatal(err)
		}
		train := func(workers int) ([]float32, int64) {
			c := small(2)
			c.Workers, c.CacheMemory = workers, 1<<20
			calls := func() int64 { return modeltest.Calls(m.Backend) }
			before := calls()
			params, _ := run(t, m, c, pairs(t, m, 3, 40))
			return params, calls() - before
		}
		got, with := train(workers)
		t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
		want, without := train(1)
		t.Setenv("GLIMPSE_CUDA_GRAPHS", "")
		if !sameBits(got, want) {
			t.Errorf("%s, %d workers: other bits with graphs", dtype, workers)
		}
		// Every list is a copy of its own here, and the first pass of a worker no graph.
		if t.Logf("%s: %d calls of the driver, %d without graphs", dtype, with, without); workers == 1 && with*3 > without*2 {
			t.Errorf("%s: %d calls of the driver, %d without graphs", dtype, with, without)
		}
	}
}

// TestCUDATrainsOverHalfCaches: with keys and values in bf16 the losses are close to
// the CPU's over the same caches, samples survive a stay on disk, and a run with
// caches of another type does not take up the checkpoint.
func TestCUDATrainsOverHalfCaches(t *testing.T) {
	half := func(m *model.Model) *model.Model {
		if err := m.SetCacheDType("bf16"); err != nil {
			t.Fatal(err)
		}
		return m
	}
	cpu, cuda, c := half(shallow(t)), half(onCUDA(t)), small(2)
	_, want := run(t, cpu, c, pairs(t, cpu, 2, 40))
	params, got := run(t, cuda, c, pairs(t, cpu, 2, 40))
	compare.Close(t, "losses", got, want, 2e-2)
	t.Setenv("TMPDIR", t.TempDir())
	c.CacheDisk = 1 << 24
	if again, _ := run(t, cuda, c, pairs(t, cpu, 2, 40)); !sameBits(again, params) {
		t.Error("other bits with samples on disk")
	}
	tr, err := training.New(cuda, c, pairs(t, cpu, 2, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	state := filepath.Join(t.TempDir(), "state")
	if err := tr.Save(state, "hash"); err != nil {
		t.Fatal(err)
	}
	if err := tr.Resume(state, "hash"); err != nil {
		t.Fatal(err)
	}
	if err := cuda.SetCacheDType("float32"); err != nil {
		t.Fatal(err)
	}
	wanted := "type of the cache: the checkpoint has BF16, this run float32"
	if err := tr.Resume(state, "hash"); err == nil || !strings.Contains(fmt.Sprint(err), wanted) {
		t.Errorf("error %v, want %q", err, wanted)
	}
}

// TestCUDATrainsOverBlocks: losses over weights in blocks are those over the same weights in bf16,
// but for products of few rows, which do not round them, and have the same bits without graphs.
func TestCUDATrainsOverBlocks(t *testing.T) {
	stored, err := kernels.ParseStored("Q8_0")
	if err != nil {
		t.Fatal(err)
	}
	losses := func(hold func(blocks *kernels.Tensor) *kernels.Tensor) []float64 {
		m := onCUDA(t)
		inBlocks(m, stored, func(b *kernels.Tensor) *kernels.Tensor { return m.Backend.Place(hold(b)) })
		if got := m.Network.Layers[0].Linear(model.QProj).Weight.DType; got != hold(kernels.NewTensor(stored, 1, 32)).DType {
			t.Fatalf("weights are in %s", got)
		}
		_, losses := run(t, m, small(2), stream(t, 40))
		return losses
	}
	asTheyAre := func(b *kernels.Tensor) *kernels.Tensor { return b }
	got, want := losses(asTheyAre), losses(kernels.Widened)
	compare.Close(t, "losses", got, want, 2e-2, compare.Floor(want[0]))
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
	compare.Close(t, "losses without graphs", losses(asTheyAre), got, 0)
}

//go:build gpu && linux && amd64

package train_test

import (
	"context"
	"path/filepath"
	"testing"

	"glimpse/internal/compare"
	"glimpse/internal/train"
	"glimpse/model"
	"glimpse/model/modeltest"
)

func onCUDA(t *testing.T) *model.Model {
	t.Helper()
	modeltest.NeedCUDA(t)
	m, err := model.Open("", model.Options{Device: "cuda"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// small is a run of both kinds that takes little time where no GPU is.
func small(steps int) train.Config {
	c := both(steps)
	c.Batch, c.MaxResponse, c.Workers = 2, 4, 1
	return c
}

// TestCUDATrainsLikeTheCPU: the losses of the first steps, of which the later ones
// depend on the updates before.
func TestCUDATrainsLikeTheCPU(t *testing.T) {
	c := small(3)
	_, want := run(t, reference(t), c, stream(t, 40))
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
	first, err := train.New(m, c, stream(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := first.Run(ctx, func(train.StepResult) error { stop(); return nil }); err == nil || first.Done() != 1 {
		t.Fatalf("%d steps done, error %v; want one and a stop", first.Done(), err)
	}
	if err := first.Save(state, hash); err != nil {
		t.Fatal(err)
	}
	second, err := train.New(m, c, stream(t, 40))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := second.Resume(state, hash); err != nil {
		t.Fatal(err)
	}
	if err := second.Run(context.Background(), func(train.StepResult) error { return nil }); err != nil {
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

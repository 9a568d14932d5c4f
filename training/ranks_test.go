package training_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"glimpse/datasets"
	"glimpse/internal/collective"
	"glimpse/internal/collective/collectivetest"
	"glimpse/model"
	"glimpse/training"
)

// uneven is a run of two adapters with validations, whose batch and held-out samples no
// number of ranks but 1 divides.
func uneven() training.Config {
	c := both(4)
	c.Batch, c.Workers = 5, 1
	c.Validation.Every, c.Validation.Samples = 2, 3
	return c
}

// ranked is what a rank has at the end of a run.
type ranked struct {
	params []float32
	steps  []training.StepResult
	err    error
}

// onRanks runs c on n ranks of this process, each with a trainer of its own. Every rank is
// given to each before its first step; it may be nil.
func onRanks(t *testing.T, m *model.Model, c training.Config, n int, source func() training.Source, each func(tr *training.Trainer, g collective.Group) error, onStep func(tr *training.Trainer, r training.StepResult) error) []ranked {
	t.Helper()
	return onRanksOf(t, slices.Repeat([]*model.Model{m}, n), c, source, each, onStep)
}

// onRanksOf is onRanks with a model for each rank, which may be on a device of its own.
func onRanksOf(t *testing.T, models []*model.Model, c training.Config, source func() training.Source, each func(tr *training.Trainer, g collective.Group) error, onStep func(tr *training.Trainer, r training.StepResult) error) []ranked {
	t.Helper()
	out := make([]ranked, len(models))
	var wg sync.WaitGroup
	for rank, g := range collectivetest.InProcess(len(models)) {
		m, own, validation := models[rank], source(), stream(t, 64)
		wg.Go(func() {
			r := &out[rank]
			var tr *training.Trainer
			defer func() {
				if r.err != nil && (tr == nil || !tr.Met()) {
					g.Fail(r.err)
				}
			}()
			c := c
			c.Adapters = slices.Clone(c.Adapters) // each rank is a process
			if tr, r.err = training.New(m, c, own); r.err != nil {
				return
			}
			defer tr.Close()
			if each != nil {
				if r.err = each(tr, g); r.err != nil {
					return
				}
			}
			if r.err = tr.Join(t.Context(), g, "hash"); r.err != nil {
				return
			}
			if c.Validation.Samples > 0 {
				if r.err = tr.HoldOut(t.Context(), validation); r.err != nil {
					return
				}
			}
			r.err = tr.Run(t.Context(), func(s training.StepResult) error {
				s.Seconds = 0
				if s.Validation != nil {
					s.Validation.Seconds = 0
				}
				r.steps = append(r.steps, s)
				if onStep != nil {
					return onStep(tr, s)
				}
				return nil
			})
			for i := range c.Adapters {
				for _, p := range tr.Adapter(i).Parameters() {
					r.params = append(r.params, p.Tensor.Float32s()...)
				}
			}
		})
	}
	wg.Wait()
	return out
}

// Any number of ranks gives the bits of one process: parameters, losses, norms and
// validations.
func TestRanksHaveTheBitsOfOneProcess(t *testing.T) {
	m := shallow(t)
	source := func() training.Source { return stream(t, 64) }
	want := onRanks(t, m, uneven(), 1, source, nil, nil)[0]
	if want.err != nil || len(want.steps) != 4 || want.steps[3].Validation == nil {
		t.Fatalf("one process: %+v", want.err)
	}
	if alone, _ := run(t, m, uneven(), source()); !sameBits(alone, want.params) {
		t.Error("a trainer that joined no ranks has other parameters")
	}
	for _, n := range []int{2, 4, 8} {
		for rank, got := range onRanks(t, m, uneven(), n, source, nil, nil) {
			if got.err != nil {
				t.Fatalf("rank %d of %d: %v", rank, n, got.err)
			}
			if !sameBits(got.params, want.params) {
				t.Errorf("rank %d of %d has other parameters than one process", rank, n)
			}
			if a, b := fmt.Sprintf("%+v", texts(got.steps)), fmt.Sprintf("%+v", texts(want.steps)); a != b {
				t.Errorf("rank %d of %d: steps\n%s\nwant\n%s", rank, n, a, b)
			}
		}
	}
}

// texts are steps with what their pointers point to.
func texts(steps []training.StepResult) (out []any) {
	for _, s := range steps {
		v := s.Validation
		s.Validation = nil
		out = append(out, s)
		if v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// A checkpoint of 4 ranks goes on with 1 or 8, and one of a single process with 2.
func TestRanksResumeAnyNumberOfRanks(t *testing.T) {
	m := shallow(t)
	source := func() training.Source { return stream(t, 64) }
	c := uneven()
	want := onRanks(t, m, c, 1, source, nil, nil)[0]
	stop := errors.New("stopped here")
	for _, change := range [][2]int{{4, 1}, {4, 8}, {1, 2}} {
		state := filepath.Join(t.TempDir(), "state")
		told := func(tr *training.Trainer, g collective.Group) error {
			if g.Rank() == g.Size()-1 {
				tr.Stopping = func() bool { return tr.Done() == 2 }
			}
			return nil
		}
		for rank, got := range onRanks(t, m, c, change[0], source, told, func(tr *training.Trainer, r training.StepResult) error {
			if r.Step < 3 {
				return nil
			}
			if tr.Writes() {
				if err := tr.Save(state, "hash"); err != nil {
					return err
				}
			}
			return stop
		}) {
			if !errors.Is(got.err, stop) {
				t.Fatalf("rank %d: %v", rank, got.err)
			}
		}
		resume := func(tr *training.Trainer, g collective.Group) error {
			if g.Rank() > 0 { // which need not have the file
				return nil
			}
			return tr.Resume(state, "hash")
		}
		for rank, got := range onRanks(t, m, c, change[1], source, resume, nil) {
			if got.err != nil || len(got.steps) != 1 {
				t.Fatalf("%v ranks: rank %d: %d steps, %v", change, rank, len(got.steps), got.err)
			}
			if !sameBits(got.params, want.params) {
				t.Errorf("%v ranks: rank %d has other parameters than a run that was not stopped", change, rank)
			}
			if fmt.Sprint(texts(got.steps)) != fmt.Sprint(texts(want.steps[3:])) {
				t.Errorf("%v ranks: rank %d: last step %+v, want %+v", change, rank, texts(got.steps), texts(want.steps[3:]))
			}
		}
	}
}

// failing is a source one of whose samples cannot be read, on one rank.
type failing struct {
	training.Source
	at int
}

func (f failing) At(i int) (training.Sample, error) {
	if i == f.at {
		return training.Sample{}, errors.New("the disk is gone")
	}
	return f.Source.At(i)
}

// What goes wrong on one rank ends all of them, and is named.
func TestRanksEndTogether(t *testing.T) {
	m := shallow(t)
	c := both(3)
	c.Batch, c.Validation.Samples = 4, 0
	t.Run("data of one rank", func(t *testing.T) {
		calls := 0
		for rank, got := range onRanks(t, m, c, 3, func() training.Source {
			calls++
			if calls == 2 {
				return failing{stream(t, 64), 4}
			}
			return stream(t, 64)
		}, nil, nil) {
			if got.err == nil || !strings.Contains(got.err.Error(), "the disk is gone") {
				t.Errorf("rank %d: %v", rank, got.err)
			}
			if rank != 1 && !strings.Contains(got.err.Error(), "rank 1 (") {
				t.Errorf("rank %d: %v, want the rank", rank, got.err)
			}
		}
	})
	t.Run("another run", func(t *testing.T) {
		calls := 0
		for rank, got := range onRanks(t, m, c, 2, func() training.Source {
			calls++
			if calls == 2 {
				return pairs(t, m, 4, 64)
			}
			return stream(t, 64)
		}, nil, nil) {
			if got.err == nil || !strings.Contains(got.err.Error(), "rank 1 does not have the run of rank 0") {
				t.Errorf("rank %d: %v", rank, got.err)
			}
		}
	})
	t.Run("parameters that differ", func(t *testing.T) {
		for rank, got := range onRanks(t, m, c, 3, func() training.Source { return stream(t, 64) }, nil, func(tr *training.Trainer, r training.StepResult) error {
			if r.Step == 1 && !tr.Writes() {
				x := tr.Adapter(0).Parameters()[0].Tensor.F32()
				x[0] = math.Nextafter32(x[0], 10)
			}
			return nil
		}) {
			if got.err == nil || !strings.Contains(got.err.Error(), "rank 1 has other parameters than rank 0 after step 1") {
				t.Errorf("rank %d: %v", rank, got.err)
			}
		}
	})
	t.Run("loss of one sample", func(t *testing.T) {
		bad := c
		bad.Adapters = bad.Adapters[:1]
		bad.Adapters[0].LearningRate = 10
		bad.Clip, bad.Warmup = 0, 0
		one := onRanks(t, m, bad, 1, func() training.Source { return stream(t, 64) }, nil, nil)[0]
		for rank, got := range onRanks(t, m, bad, 4, func() training.Source { return stream(t, 64) }, nil, nil) {
			if fmt.Sprint(got.err) != fmt.Sprint(one.err) || fmt.Sprint(texts(got.steps)) != fmt.Sprint(texts(one.steps)) {
				t.Errorf("rank %d: %v %v\nwant %v %v", rank, got.err, texts(got.steps), one.err, texts(one.steps))
			}
		}
	})
	t.Run("told to stop", func(t *testing.T) {
		stopped := errors.New("stopped")
		for rank, got := range onRanks(t, m, c, 3, func() training.Source { return stream(t, 64) }, func(tr *training.Trainer, g collective.Group) error {
			if g.Rank() == 2 {
				tr.Stopping = func() bool { return tr.Done() == 1 }
			}
			return nil
		}, func(tr *training.Trainer, _ training.StepResult) error {
			if tr.Interrupted() {
				return stopped
			}
			return nil
		}) {
			if !errors.Is(got.err, stopped) || len(got.steps) != 2 {
				t.Errorf("rank %d: %d steps, %v; want all to stop after step 2", rank, len(got.steps), got.err)
			}
		}
	})
}

// TestRanksOfOtherData: ranks whose files of one name are others are refused, with the file's name.
func TestRanksOfOtherData(t *testing.T) {
	m := shallow(t)
	each := func(tr *training.Trainer, g collective.Group) error {
		sum := strings.Repeat(string(rune('a'+g.Rank())), 64)
		tr.Contents = datasets.Contents{{File: "common.jsonl", SHA256: strings.Repeat("0", 64)}, {File: "pairs.jsonl", SHA256: sum}}
		return nil
	}
	source := func() training.Source { return pairs(t, m, 5, 64) }
	for rank, got := range onRanks(t, m, both(1), 2, source, each, nil) {
		if want := `rank 1 does not have the data of rank 0: "pairs.jsonl" has SHA-256 bbbbbbbbbbbb…, want aaaaaaaaaaaa…`; got.err == nil || !strings.HasSuffix(got.err.Error(), want) {
			t.Errorf("rank %d: %v, want %s", rank, got.err, want)
		}
	}
}

package training_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/training"
)

// scorerFolder writes an adapter of rows that select for others.
func scorerFolder(t testing.TB, m *model.Model) string {
	t.Helper()
	c := both(1)
	c.Adapters = c.Adapters[:1]
	tr, err := training.New(m, c, pairs(t, m, 1, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	sum, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	a, err := tr.Export(0, sum, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.InvocationTokens = []int{1}
	dir := filepath.Join(t.TempDir(), "scorer")
	if err := checkpoints.WriteAdapter(dir, a, false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// labelled is a configuration of adapters with different labels and weights of heads, and of rows that stay, beside what they select and what
// those of the folder scorer do.
func labelled(m *model.Model, scorer string, steps int) training.Config {
	c := both(steps)
	weighed := c.Adapters[0]
	weighed.Name, weighed.Label, weighed.HeadWeights = "weighed", "context", eviction.LearnedHeads
	c.Adapters[1].Label = "context-mean"
	stays := c.Adapters[0]
	stays.Name, stays.Kind = "stays", "restorekv"
	beside := stays
	beside.Name, beside.Label, beside.Scorer = "beside", "context-mean", scorer
	c.Adapters = append(c.Adapters, weighed, stays, beside)
	c.HeadBudgets = eviction.EqualHeads(m)
	c.HeadBudgets.Budgets[0].Heads[0][0] = 0.1
	return c
}

// TestLabels: adapters that learn different labels in one pass have the bits of those that learn alone, however samples are
// kept, and after a stop; each is judged by its own label.
func TestLabels(t *testing.T) {
	m := shallow(t)
	scorer := scorerFolder(t, m)
	const steps, adapters = 4, 5
	want, losses := run(t, m, labelled(m, scorer, steps), pairs(t, m, 5, 64))
	if losses[0] == losses[2] || losses[1] == 0 {
		t.Errorf("losses %v of different labels", losses)
	}
	t.Run("alone", func(t *testing.T) {
		var apart []float32
		for i := range adapters {
			c := labelled(m, scorer, steps)
			c.Adapters = c.Adapters[i : i+1]
			p, _ := run(t, m, c, pairs(t, m, 5, 64))
			apart = append(apart, p...)
		}
		if !sameBits(apart, want) {
			t.Error("adapters trained in one pass differ from those trained alone")
		}
	})
	t.Run("cached", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		for _, disk := range []bool{false, true} {
			c := labelled(m, scorer, steps)
			if c.CacheMemory = 1 << 30; disk {
				c.CacheMemory, c.CacheDisk = 0, 1<<30
			}
			if got, _ := run(t, m, c, pairs(t, m, 5, 64)); !sameBits(got, want) {
				t.Errorf("on disk %v: parameters differ from those without a cache", disk)
			}
		}
	})
	t.Run("resumed", func(t *testing.T) {
		path, enough := filepath.Join(t.TempDir(), "state"), errors.New("enough")
		first, err := training.New(m, labelled(m, scorer, steps), pairs(t, m, 5, 64))
		if err != nil {
			t.Fatal(err)
		}
		err = first.Run(t.Context(), func(r training.StepResult) error {
			return errors.Join(first.Save(path, "hash"), enough)
		})
		first.Close()
		if err == nil || !errors.Is(err, enough) {
			t.Fatal(err)
		}
		second, err := training.New(m, labelled(m, scorer, steps), pairs(t, m, 5, 64))
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if err := errors.Join(second.Resume(path, "hash"), second.Run(t.Context(), nil)); err != nil {
			t.Fatal(err)
		}
		var got []float32
		for i := range adapters {
			for _, p := range second.Adapter(i).Parameters() {
				got = append(got, p.Tensor.Float32s()...)
			}
		}
		if !sameBits(got, want) {
			t.Error("a run that was stopped ends with other bits")
		}
	})
	t.Run("validated", func(t *testing.T) {
		c := labelled(m, scorer, steps)
		c.Validation.Samples, c.Validation.Budgets = 2, eviction.Budgets{eviction.Pairs(16)}
		tr, err := training.New(m, c, pairs(t, m, 5, 64))
		if err != nil {
			t.Fatal(err)
		}
		defer tr.Close()
		if err := tr.HoldOut(t.Context(), pairs(t, m, 2, 64)); err != nil {
			t.Fatal(err)
		}
		v, err := tr.Validate(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(v.By) != 3 || v.By[0].Label != "context-mean" || v.By[1].Label != "context" || v.Adapters[1].Label != "context-mean" || v.SnapKV.Label != "" || v.Adapters[4].HitRate[0] != 1 || v.By[2].HitRate[0] == 1 {
			t.Errorf("labels: SnapKV %q and %+v, adapters %+v", v.SnapKV.Label, v.By, v.Adapters)
		}
		if v.SnapKV.HitRate[0] == v.By[0].HitRate[0] || v.Metrics(1)["snapkv_hit_rate_16"] != float64(v.By[0].HitRate[0]) {
			t.Errorf("SnapKV has %v and %v, told of the second adapter %v", v.SnapKV, v.By, v.Metrics(1))
		}
		var table strings.Builder
		if err := v.WriteTable(&table); err != nil || !strings.Contains(table.String(), "snapkv, context-mean") {
			t.Errorf("%s, %v", table.String(), err)
		}
	})
}

// unanswered are samples without a response.
type unanswered struct{ training.Source }

func (u unanswered) At(i int) (training.Sample, error) {
	s, err := u.Source.At(i)
	s.Response = nil
	return s, err
}

// TestContextLabelsNeedNoResponse: none is generated, and a sample whose response ended at once counts.
func TestContextLabelsNeedNoResponse(t *testing.T) {
	m := shallow(t)
	scorer := scorerFolder(t, m)
	c := labelled(m, scorer, 2)
	c.Adapters = c.Adapters[1:3]
	want, _ := run(t, m, c, pairs(t, m, 5, 64))
	if got, _ := run(t, m, c, unanswered{pairs(t, m, 5, 64)}); !sameBits(got, want) {
		t.Error("without responses the parameters are others")
	}
	c.Validation.Samples = 1
	tr, err := training.New(m, c, unanswered{pairs(t, m, 5, 64)})
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := errors.Join(tr.HoldOut(context.Background(), unanswered{pairs(t, m, 2, 64)}), tr.Run(t.Context(), nil)); err != nil {
		t.Fatal(err)
	}
	if v, err := tr.Validate(t.Context()); err != nil || tr.Skipped() != 0 || v.Samples != 1 {
		t.Errorf("%+v, %v, %d skipped", v, err, tr.Skipped())
	}
	for want, change := range map[string]func(c *training.Config){
		"unknown label":               func(c *training.Config) { c.Adapters[0].Label = "contex" },
		"head weights: got \"some\"":  func(c *training.Config) { c.Adapters[0].HeadWeights = "some" },
		"it is for rows that stay":    func(c *training.Config) { c.Adapters[0].Loss = "distil" },
		"no learned budgets of heads": func(c *training.Config) { c.HeadBudgets = nil },
		"runs nothing on what it":     func(c *training.Config) { c.Adapters[0].Scorer = scorer },
		"scorer nowhere":              func(c *training.Config) { c.Adapters[0].Kind, c.Adapters[0].Scorer = "restorekv", "nowhere" },
	} {
		c := labelled(m, scorer, 2)
		change(&c)
		if _, err := training.New(m, c, pairs(t, m, 5, 64)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

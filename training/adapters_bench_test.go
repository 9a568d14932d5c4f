package training_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// BenchmarkAdapters is the time of a step of 4 adapters, three of LookaheadKV and one of
// Judge Q, over that of the first alone, at 2048 prompt tokens: at most 1.35. Steps of
// both alternate, on a model with random weights, whose context is long enough.
func BenchmarkAdapters(b *testing.B) {
	shapes, err := model.OpenShapes(filepath.Join("testdata", "bench"), "cpu")
	if err != nil {
		b.Fatal(err)
	}
	m := modeltest.WithDummyWeights(shapes, shapes.Config.Layers, shapes.Config.Vocab)
	const prompt, response = 2048, 32
	pair := datasets.Pair{ID: "p", PromptIDs: make([]int32, prompt), ResponseIDs: make([]int32, response)}
	for i := range pair.PromptIDs {
		pair.PromptIDs[i] = int32(i * 7 % m.Config.Vocab)
	}
	lookahead, _ := training.Presets.Lookup("lookaheadkv")
	judge, _ := training.Presets.Lookup("judgeq")
	adapters := []training.AdapterConfig{lookahead.Adapter, lookahead.Adapter, lookahead.Adapter, judge.Adapter}
	adapters[1].Modules = []model.Module{model.QProj, model.VProj}
	step := func(n int) func() time.Duration {
		c := training.DefaultConfig()
		c.Steps, c.Batch, c.Validation = 1e6, 1, training.ValidationConfig{}
		for i, a := range adapters[:n] {
			a.Name, a.LearningRate, a.InitToken = fmt.Sprint(i), 1e-4*float64(i+1), -1
			c.Adapters = append(c.Adapters, a)
		}
		t, err := training.New(m, c, &training.Pairs{Pairs: []datasets.Pair{pair}, Name: "one"})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { t.Close() })
		return func() time.Duration {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			start := time.Now()
			t.Run(ctx, func(training.StepResult) error { cancel(); return nil })
			return time.Since(start)
		}
	}
	one, four := step(1), step(4)
	one()
	four()
	var sumOne, sumFour time.Duration
	for b.Loop() {
		sumOne += one()
		sumFour += four()
	}
	b.ReportMetric(float64(sumOne.Milliseconds())/float64(b.N), "one-ms")
	b.ReportMetric(float64(sumFour.Milliseconds())/float64(b.N), "four-ms")
	b.ReportMetric(float64(sumFour)/float64(sumOne), "four/one")
}

package runner_test

import (
	"encoding/json"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// samplingGolden is testdata/sampling.json (lab/golden/golden_sampling.py).
type samplingGolden struct {
	Steps []struct {
		Name          string
		Config        json.RawMessage
		Prompt, Said  []int32
		Logits        []float32
		Scores        []*float32
		Probabilities []float64
	}
	Responses []struct {
		Name, Model string
		Config      json.RawMessage
		Tokens      []int32
	}
}

func readSamplingGolden(t *testing.T) (g samplingGolden) {
	t.Helper()
	modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "sampling.json"), &g)
	if len(g.Steps) < 29 || len(g.Responses) < 15 {
		t.Fatalf("%d steps and %d responses", len(g.Steps), len(g.Responses))
	}
	return g
}

// ofModel resolves the sampling of a model that has this generation_config.json.
func ofModel(t *testing.T, config []byte) (model.Sampling, *model.Model) {
	t.Helper()
	files, err := modeltest.Llama{}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	files["generation_config.json"] = &fstest.MapFile{Data: config, Mode: 0o644}
	m, err := model.OpenFS(files, "sampling", model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	s, err := (&model.SamplingChoice{From: model.SamplingOfModel}).Resolve(m)
	if err != nil {
		t.Fatal(err)
	}
	return s, m
}

// TestSamplingAgainstTransformers: scores after the processors, and the probabilities
// that tokens are drawn with, are those of transformers' generate.
func TestSamplingAgainstTransformers(t *testing.T) {
	worst := 0.0
	near := func(got, want float64) bool {
		e := math.Abs(got - want)
		if math.IsInf(got, -1) && math.IsInf(want, -1) {
			e = 0
		}
		worst = max(worst, e)
		return e <= 2e-6
	}
	for _, c := range readSamplingGolden(t).Steps {
		t.Run(c.Name, func(t *testing.T) {
			s, _ := ofModel(t, c.Config)
			for i, got := range runner.Scores(s, c.Prompt, c.Said, c.Logits) {
				want := math.Inf(-1)
				if c.Scores[i] != nil {
					want = float64(*c.Scores[i])
				}
				if !near(float64(got), want) {
					t.Errorf("score %d: %v, want %v", i, got, want)
				}
			}
			if (s.Temperature > 0) != (c.Probabilities != nil) {
				t.Fatalf("sampling %v", s)
			}
			if c.Probabilities == nil {
				return
			}
			for i, got := range runner.Probabilities(s, c.Prompt, c.Said, c.Logits) {
				if !near(got, c.Probabilities[i]) {
					t.Errorf("probability %d: %v, want %v", i, got, c.Probabilities[i])
				}
			}
		})
	}
	t.Logf("largest difference %.2g", worst)
}

// TestResponsesAgainstTransformers: greedy responses under processors.
func TestResponsesAgainstTransformers(t *testing.T) {
	for _, device := range []string{"cpu", "reference"} {
		for _, c := range readSamplingGolden(t).Responses {
			compareResponse(t, device, c.Model, c.Name, c.Config, c.Tokens)
		}
	}
}

func compareResponse(t *testing.T, device, folder, name string, config []byte, want []int32) {
	t.Run(device+"/"+folder+"/"+name, func(t *testing.T) {
		g, dir := modeltest.GoldenNamed(t, folder), t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(g.Folder)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "generation_config.json"), config, 0o600); err != nil {
			t.Fatal(err)
		}
		m, err := model.Open(dir, model.Options{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		s, err := (&model.SamplingChoice{From: model.SamplingOfModel}).Resolve(m)
		if err != nil {
			t.Fatal(err)
		}
		r, cache, prompt := runner.New(m), kvcache.New(m), g.Prompts[1].IDs
		logits, err := r.Forward(t.Context(), cache, prompt, runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, ended, err := r.Continue(t.Context(), cache, logits, runner.GenerateOptions{MaxNew: len(want), Sampling: s, Prompt: prompt})
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			got = append(got, m.Config.EOS[0])
		}
		if !slices.Equal(got, want) {
			t.Errorf("tokens %v, want %v", got, want)
		}
	})
}

// TestAllBanned: there is no token to draw.
func TestAllBanned(t *testing.T) {
	all := make([]int32, 40)
	for i := range all {
		all[i] = int32(i)
	}
	m := modeltest.Llama{}.Open(t, "cpu")
	for _, temperature := range []float64{0, 1} {
		cache := kvcache.New(m)
		logits, err := runner.New(m).Forward(t.Context(), cache, []int32{1, 2}, runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = runner.New(m).Continue(t.Context(), cache, logits, runner.GenerateOptions{MaxNew: 2,
			Sampling: model.Sampling{Temperature: temperature, Processors: model.Processors{Suppress: all}}})
		if err == nil || !strings.Contains(err.Error(), "all tokens that there are") {
			t.Errorf("temperature %v: error %v", temperature, err)
		}
	}
}

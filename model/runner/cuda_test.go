//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func needCUDA(t *testing.T) {
	t.Helper()
	if !slices.Contains(kernels.Backends.Names(), "cuda") {
		t.Skipf("no CUDA device: %v", kernels.Devices().Usable())
	}
}

// TestCUDASampling: from the same logits and the same seed the device draws the tokens
// that the host draws, sequences of several settings side by side too.
func TestCUDASampling(t *testing.T) {
	needCUDA(t)
	b, err := kernels.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	const vocab, draws = 300, 25
	rng := rand.New(rand.NewPCG(3, 4))
	for i, s := range []model.Sampling{
		{}, {Temperature: 1}, {Temperature: 0.7, TopK: 5}, {Temperature: 1.3, TopP: 0.8}, {Temperature: 1, TopK: 40, TopP: 0.9},
		{Temperature: 1, TopK: 1000}, {Temperature: 1, TopP: 1}, {Temperature: 2, TopP: 1e-9},
		{Temperature: 1, MinP: 0.1}, {MinP: 0.1}, {Processors: model.Processors{RepetitionPenalty: 1.5}},
		{Temperature: 1, TopK: 60, TopP: 0.95, MinP: 0.01, Processors: model.Processors{RepetitionPenalty: 1.2, NoRepeatNGram: 2, BadWords: [][]int32{{7}, {1, 2}},
			MinNew: 9, End: []int32{3}, Suppress: []int32{4}, BeginSuppress: []int32{5}}},
	} {
		s.Seed = uint64(i)
		logits := make([]float32, vocab)
		for j := range logits {
			if logits[j] = float32(2 * rng.NormFloat64()); i%2 == 1 {
				logits[j] = float32(math.Round(float64(logits[j]))) // plateaus
			}
		}
		prompt := []int32{1, 2, 3, 1, 2}
		onHost, err := runner.NewSampler(s, prompt)
		if err != nil {
			t.Fatal(err)
		}
		onDevice, _ := runner.NewSampler(s, prompt)
		host, device := runner.HostLogits(logits), runner.DeviceLogits(b.Place(kernels.FromF32(slices.Clone(logits), 1, vocab)), b)
		for n := range draws {
			want, err := onHost.Next(host)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := onDevice.Next(device); err != nil || got != want {
				t.Fatalf("%+v: draw %d is %d (%v) on the device, %d on the host", s, n, got, err, want)
			}
		}
	}
}

// TestCUDABatches: sequences of a batch, each with its own seed, get the tokens that
// they get on the processor.
func TestCUDABatches(t *testing.T) {
	needCUDA(t)
	run := func(device string, from, to int) (all [][]int32) {
		m := modeltest.Llama{Seed: 4}.Open(t, device)
		r := runner.New(m)
		var caches []*kvcache.Cache
		var samplers []*runner.Sampler
		var tokens []int32
		for i, s := range []model.Sampling{{}, {Temperature: 1, Seed: 5}, {Temperature: 0.8, TopK: 9, TopP: 0.9, Seed: 6},
			{Temperature: 1, Seed: 7, MinP: 0.2, Processors: model.Processors{NoRepeatNGram: 1}}}[from:to] {
			prompt := modeltest.Tokens(m, uint64(i), 5+i)
			sampler, err := runner.NewSampler(s, prompt)
			if err != nil {
				t.Fatal(err)
			}
			caches, samplers = append(caches, kvcache.New(m)), append(samplers, sampler)
			logits, err := r.Forward(context.Background(), caches[i], prompt, runner.PrefillOptions{})
			if err != nil {
				t.Fatal(err)
			}
			id, err := sampler.Next(logits)
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, id)
		}
		for range 6 {
			all = append(all, slices.Clone(tokens))
			next, err := r.NextBatch(context.Background(), caches, tokens, 4, samplers)
			if err != nil {
				t.Fatal(err)
			}
			tokens = next
		}
		return all
	}
	for _, part := range [][2]int{{0, 3}, {0, 4}} { // drawn on the device, and on the host
		if got, want := run("cuda", part[0], part[1]), run("cpu", part[0], part[1]); !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("sequences %v: tokens %v, on the processor %v", part, got, want)
		}
	}
}

// TestCUDAResponses: greedy responses under processors are those of transformers.
func TestCUDAResponses(t *testing.T) {
	needCUDA(t)
	for i, c := range readSamplingGolden(t).Responses {
		if i%4 == 0 { // one or two of every family: each launch takes its time
			compareResponse(t, "cuda", c.Model, c.Name, c.Config, c.Tokens)
		}
	}
}

// TestCUDANonFiniteLogits: they are an error of whoever asks for a token.
func TestCUDANonFiniteLogits(t *testing.T) {
	needCUDA(t)
	m := modeltest.Llama{Seed: 4}.Open(t, "cuda")
	m.Backend.Fill(m.Network.FinalNorm.Weight, math.Inf(1))
	cache := kvcache.New(m)
	logits, err := runner.New(m).Forward(context.Background(), cache, []int32{1, 2, 3}, runner.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := logits.CheckFinite(); err == nil {
		t.Error("Check finds nothing")
	}
	if _, err := logits.Float32s(); err == nil {
		t.Error("Float32s finds nothing")
	}
	if _, _, err := runner.New(m).Continue(context.Background(), cache, logits, runner.GenerateOptions{MaxNew: 2, Sampling: model.Sampling{Temperature: 1}}); err == nil {
		t.Error("Continue goes on")
	}
}

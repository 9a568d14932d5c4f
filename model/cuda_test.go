//go:build gpu && linux && amd64

package model_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
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
	} {
		s.Seed = uint64(i)
		logits := make([]float32, vocab)
		for j := range logits {
			if logits[j] = float32(2 * rng.NormFloat64()); i%2 == 1 {
				logits[j] = float32(math.Round(float64(logits[j]))) // plateaus
			}
		}
		onHost, err := model.NewSampler(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		onDevice, _ := model.NewSampler(s, nil)
		host, device := model.HostLogits(logits), model.DeviceLogits(kernels.Place(b, kernels.FromF32(slices.Clone(logits), 1, vocab)), b)
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
	run := func(device string) (all [][]int32) {
		m := modeltest.Llama{Seed: 4}.Open(t, device)
		r := m.NewRunner()
		var caches []*model.Cache
		var samplers []*model.Sampler
		var tokens []int32
		for i, s := range []model.Sampling{{}, {Temperature: 1, Seed: 5}, {Temperature: 0.8, TopK: 9, TopP: 0.9, Seed: 6}} {
			sampler, err := model.NewSampler(s, nil)
			if err != nil {
				t.Fatal(err)
			}
			caches, samplers = append(caches, m.NewCache()), append(samplers, sampler)
			logits, err := r.Forward(context.Background(), caches[i], modeltest.Tokens(m, uint64(i), 5+i), model.PrefillOptions{})
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
	if got, want := run("cuda"), run("cpu"); !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("tokens %v, on the processor %v", got, want)
	}
}

// TestCUDANonFiniteLogits: they are an error of whoever asks for a token.
func TestCUDANonFiniteLogits(t *testing.T) {
	needCUDA(t)
	m := modeltest.Llama{Seed: 4}.Open(t, "cuda")
	m.Backend.Fill(m.Network.FinalNorm.Weight, math.Inf(1))
	cache := m.NewCache()
	logits, err := m.NewRunner().Forward(context.Background(), cache, []int32{1, 2, 3}, model.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := logits.Check(); err == nil {
		t.Error("Check finds nothing")
	}
	if _, err := logits.Float32s(); err == nil {
		t.Error("Float32s finds nothing")
	}
	if _, _, err := m.NewRunner().Continue(context.Background(), cache, logits, model.GenerateOptions{MaxNew: 2, Sampling: model.Sampling{Temperature: 1}}); err == nil {
		t.Error("Continue goes on")
	}
}

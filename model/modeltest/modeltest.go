// Package modeltest makes tiny random models for tests.
package modeltest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
)

// Llama is the shape of a random Llama model. Zero fields get small defaults.
type Llama struct {
	Hidden, Layers, Heads, KVHeads, HeadDim, Intermediate, Vocab, MaxPositions int
	Tied                                                                       bool
	Seed                                                                       uint64
}

func (s *Llama) fill() {
	for _, f := range []struct {
		field *int
		value int
	}{{&s.Hidden, 16}, {&s.Layers, 2}, {&s.Heads, 4}, {&s.KVHeads, 2}, {&s.HeadDim, 4}, {&s.Intermediate, 24}, {&s.Vocab, 40}, {&s.MaxPositions, 4096}} {
		if *f.field == 0 {
			*f.field = f.value
		}
	}
}

// Folder is a Hugging Face folder of the model, weights in f32, without a
// tokenizer.
func (s Llama) Folder() (fstest.MapFS, error) {
	s.fill()
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	var tensors []checkpoints.TensorView
	add := func(name string, scale, mean float64, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		v := make([]float32, n)
		for i := range v {
			v[i] = float32(mean + scale*rng.NormFloat64())
		}
		tensors = append(tensors, checkpoints.F32Tensor(name, shape, v))
	}
	matrix := func(name string, out, in int) { add(name, 1/math.Sqrt(float64(in)), 0, out, in) }
	norm := func(name string) { add(name, 0.1, 1, s.Hidden) }
	add("model.embed_tokens.weight", 1, 0, s.Vocab, s.Hidden)
	for l := range s.Layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		norm(at + "input_layernorm.weight")
		matrix(at+"self_attn.q_proj.weight", s.Heads*s.HeadDim, s.Hidden)
		matrix(at+"self_attn.k_proj.weight", s.KVHeads*s.HeadDim, s.Hidden)
		matrix(at+"self_attn.v_proj.weight", s.KVHeads*s.HeadDim, s.Hidden)
		matrix(at+"self_attn.o_proj.weight", s.Hidden, s.Heads*s.HeadDim)
		norm(at + "post_attention_layernorm.weight")
		matrix(at+"mlp.gate_proj.weight", s.Intermediate, s.Hidden)
		matrix(at+"mlp.up_proj.weight", s.Intermediate, s.Hidden)
		matrix(at+"mlp.down_proj.weight", s.Hidden, s.Intermediate)
	}
	norm("model.norm.weight")
	if !s.Tied {
		matrix("lm_head.weight", s.Vocab, s.Hidden)
	}
	var weights bytes.Buffer
	if err := checkpoints.WriteSafetensors(&weights, tensors, map[string]string{"format": "pt"}); err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "hidden_size": s.Hidden, "num_hidden_layers": s.Layers,
		"num_attention_heads": s.Heads, "num_key_value_heads": s.KVHeads, "head_dim": s.HeadDim,
		"intermediate_size": s.Intermediate, "vocab_size": s.Vocab, "max_position_embeddings": s.MaxPositions,
		"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": s.Tied, "hidden_act": "silu",
		"eos_token_id": 1,
	})
	if err != nil {
		return nil, err
	}
	file := func(data []byte) *fstest.MapFile { return &fstest.MapFile{Data: data, Mode: 0o644} }
	return fstest.MapFS{"config.json": file(config), "model.safetensors": file(weights.Bytes())}, nil
}

// Open opens the model on the named device and closes it with the test.
func (s Llama) Open(t testing.TB, device string) *model.Model {
	t.Helper()
	folder, err := s.Folder()
	if err != nil {
		t.Fatal(err)
	}
	return OpenFolder(t, folder, device)
}

// OpenFolder opens a model folder on the named device and closes it with the
// test.
func OpenFolder(t testing.TB, folder fs.FS, device string) *model.Model {
	t.Helper()
	return open(t, device, func() (*model.Model, error) { return model.OpenFS(folder, "tiny", model.Options{Device: device}) })
}

// open opens a model on a device, whose memory must hold no more tensors when the test is
// over than it does now.
func open(t testing.TB, device string, from func() (*model.Model, error)) *model.Model {
	t.Helper()
	devices, err := kernels.OpenList(device)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range devices {
		if !b.OwnMemory() {
			continue
		}
		before := b.Memory().Live
		t.Cleanup(func() {
			if after := b.Memory().Live; after > before && !t.Failed() {
				t.Errorf("%d bytes of device memory are in use after the test, %d before", after, before)
			}
		})
	}
	m, err := from()
	if err != nil {
		t.Fatal(err)
	}
	open := m
	t.Cleanup(func() {
		open.Close()
		open = nil // testing keeps this function
	})
	return m
}

// Tokens are n random token ids.
func Tokens(m *model.Model, seed uint64, n int) []int32 {
	rng := rand.New(rand.NewPCG(seed, 2))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(m.Config.Vocab))
	}
	return ids
}

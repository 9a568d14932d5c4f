package model_test

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// shapesOf reads a config.json.
func shapesOf(t *testing.T, config []byte) (*model.Model, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	return model.OpenShapes(dir, "cpu")
}

// TestConfigsAgainstTransformers: keys that are absent, null or of another name mean what
// they mean to transformers (lab/golden/golden_configs.py).
func TestConfigsAgainstTransformers(t *testing.T) {
	var golden struct {
		Cases []struct {
			Name   string
			Config json.RawMessage
			Want   struct {
				Architecture                               string
				Hidden, Layers, Heads, Intermediate, Vocab int
				KVHeads                                    int `json:"kv_heads"`
				HeadDim                                    int `json:"head_dim"`
				MaxPositions                               int `json:"max_positions"`
				Eps, Theta                                 float64
				Tied                                       bool
				BOS, EOS                                   any // a token id, or a list of them
				Windows                                    []int
				Rotary                                     int       // dimensions of a head
				WithoutRotation                            []int     `json:"without_rotation"`
				Granite                                    []float64 // multipliers: embedding, attention, residual, logits
				Parameters                                 int64
			}
		}
	}
	modeltest.ReadJSON(t, filepath.Join("testdata", "configs.json"), &golden)
	if len(golden.Cases) < 90 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	for _, c := range golden.Cases {
		t.Run(c.Name, func(t *testing.T) {
			m, err := shapesOf(t, c.Config)
			if err != nil {
				t.Fatal(err)
			}
			got, w := m.Config, c.Want
			architecture := w.Architecture
			if architecture == "MinistralForCausalLM" && strings.HasPrefix(c.Name, "mistral:") { // config.json says mistral
				architecture = "MistralForCausalLM"
			}
			if got.Architecture != architecture {
				t.Errorf("architecture %s, want %s", got.Architecture, architecture)
			}
			for _, f := range []struct {
				key       string
				got, want int
			}{
				{"hidden_size", got.Hidden, w.Hidden}, {"num_hidden_layers", got.Layers, w.Layers}, {"num_attention_heads", got.Heads, w.Heads},
				{"num_key_value_heads", got.KVHeads, w.KVHeads}, {"head_dim", got.HeadDim, w.HeadDim}, {"intermediate_size", got.Intermediate, w.Intermediate},
				{"vocab_size", got.Vocab, w.Vocab}, {"max_position_embeddings", got.MaxPositions, w.MaxPositions},
			} {
				if f.got != f.want {
					t.Errorf("%s: %d, want %d", f.key, f.got, f.want)
				}
			}
			scale := 1.0
			if g := w.Granite; g != nil { // folded away
				w.Eps /= g[0] * g[0]
				scale = math.Sqrt(g[1] * math.Sqrt(float64(w.HeadDim)))
				if got.BlockScale != g[2]/g[0] || got.LogitScale != 1/g[3] {
					t.Errorf("blocks times %v, logits times %v, want %v and %v", got.BlockScale, got.LogitScale, g[2]/g[0], 1/g[3])
				}
			}
			if got.RMSNormEps != w.Eps || got.TieEmbeddings != w.Tied || !slices.Equal(got.RoPEFreqs, model.PlainRoPE(w.Theta, w.Rotary)) || math.Abs(got.RoPEScale-scale) > 1e-12 {
				t.Errorf("epsilon %v, tied %t, rotations times %v, want %v, %t and %v, and rope_theta %v", got.RMSNormEps, got.TieEmbeddings, got.RoPEScale, w.Eps, w.Tied, scale, w.Theta)
			}
			if bos := append(tokensOf(w.BOS, w.Vocab), -1)[0]; got.BOS != bos || !slices.Equal(got.EOS, tokensOf(w.EOS, w.Vocab)) {
				t.Errorf("first token %d, end tokens %v, want %v and %v", got.BOS, got.EOS, w.BOS, w.EOS)
			}
			// Biases, norms and tied weights are in it.
			if n := m.WeightBytes() / 4; n != w.Parameters {
				t.Errorf("%d parameters, want %d", n, w.Parameters)
			}
			for l := range got.Layers {
				if got.Rotates(l) == slices.Contains(w.WithoutRotation, l) {
					t.Errorf("layer %d: rotates %t", l, got.Rotates(l))
				}
			}
			for l, want := range w.Windows {
				if got.Window(l) != want {
					t.Errorf("layer %d: window %d, want %d", l, got.Window(l), want)
				}
			}
		})
	}
}

// tokensOf are the token ids of a JSON value that a vocabulary has.
func tokensOf(v any, vocab int) (out []int32) {
	list, ok := v.([]any)
	if !ok && v != nil {
		list = []any{v}
	}
	for _, id := range list {
		if id := int32(id.(float64)); int(id) < vocab {
			out = append(out, id)
		}
	}
	return out
}

// TestArchitectureByModelType: a config.json without architectures means the one of its
// model_type, for every family.
func TestArchitectureByModelType(t *testing.T) {
	for _, g := range modeltest.Goldens(t) {
		var config map[string]any
		modeltest.ReadJSON(t, filepath.Join(g.Folder, "config.json"), &config)
		want := config["architectures"].([]any)[0]
		for _, absent := range []any{nil, []string{}} {
			config["architectures"] = absent
			data, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			if m, err := shapesOf(t, data); err != nil {
				t.Errorf("%s: %v", g.Name, err)
			} else if m.Config.Architecture != want {
				t.Errorf("%s: architecture %s, want %s", g.Name, m.Config.Architecture, want)
			}
		}
	}
	for config, want := range map[string]string{
		`{"model_type": "gpt2"}`: `model_type: unknown "gpt2"`,
		`{}`:                     "architectures: got none, and no model_type",
		`{"model_type": "llama", "architectures": ["GPT"]}`: `unknown architecture "GPT"`,
	} {
		if _, err := shapesOf(t, []byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", config, err, want)
		}
	}
}

// TestSlidingLayersWithoutWindow: layers that slide over nothing are refused, as
// transformers does when it makes their mask.
func TestSlidingLayersWithoutWindow(t *testing.T) {
	for name, config := range map[string]string{
		"null": `"use_sliding_window": true, "sliding_window": null`,
		"off":  `"use_sliding_window": false, "sliding_window": 12`,
	} {
		_, err := shapesOf(t, []byte(`{"model_type": "qwen3", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"], `+config+`}`))
		if err == nil || !strings.Contains(err.Error(), "layer_types: got sliding_attention without a sliding_window") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

package model

import (
	"strings"
	"testing"

	"glimpse/kernels"
)

// apart is a device with memory of its own.
type apart struct{ kernels.Backend }

func (apart) OwnMemory() bool { return true }
func (apart) Device() string  { return "cuda:0" }

// TestComputable: what no device computes is refused there by name, and not on a processor.
func TestComputable(t *testing.T) {
	host, err := kernels.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config Config
		binder Binder
		layer  Layer
		want   string
	}{
		"plain":         {},
		"attention cap": {config: Config{AttentionCap: 50}},
		"logit cap":     {config: Config{LogitCap: 30}},
		"gate":          {layer: Layer{Gate: kernels.GELUTanh}},
		"KV shapes":     {config: Config{Mixers: []Mixer{{KV: KVShape{Heads: 1, Dim: 128}}, {KV: KVShape{Heads: 2, Dim: 256}}}}},
		"wide heads":    {config: Config{Mixers: []Mixer{{KV: KVShape{Heads: 1, Dim: 256}}, {KV: KVShape{Heads: 1, Dim: 512}}}}, want: "heads of 512 numbers"},
		"delta net":     {layer: Layer{Recurrent: &DeltaNet{DeltaShape: &DeltaShape{}}}, want: "gated delta nets"},
		"output gate":   {binder: Binder{gated: true}, want: "gates of what attention gives"},
		"shared caches": {config: Config{Mixers: []Mixer{{}, {Back: 1}}}, want: "layers that share a KV cache"},
		"layer inputs":  {layer: Layer{Input: &LayerInput{}}, want: "embeddings of layers"},
	} {
		c.config.Architecture = "TheirForCausalLM"
		n := &Network{Layers: []Layer{{}, c.layer}}
		if err := c.config.computable(n, &c.binder, []kernels.Backend{host}); err != nil {
			t.Errorf("%s on a processor: %v", name, err)
		}
		together := c.config.SharesKV() || c.layer.Input != nil
		if err := c.config.computable(n, &c.binder, []kernels.Backend{host, host}); together != (err != nil) || together && !strings.Contains(err.Error(), "TheirForCausalLM on 2 devices: it has "+c.want) {
			t.Errorf("%s on two processors: %v", name, err)
		}
		devices := []kernels.Backend{host, apart{host}}
		if together {
			devices = devices[1:]
		}
		err := c.config.computable(n, &c.binder, devices)
		if c.want == "" != (err == nil) || err != nil && !(strings.Contains(err.Error(), c.want) && strings.Contains(err.Error(), "TheirForCausalLM on cuda:0")) {
			t.Errorf("%s on a device: %v, want %q", name, err, c.want)
		}
	}
}

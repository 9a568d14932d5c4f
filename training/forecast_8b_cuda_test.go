//go:build gpu && linux && (amd64 || arm64)

package training_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"
)

// llama8B is the shape of Llama 3.1 8B.
const llama8B = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096, "intermediate_size": 14336,
"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "tie_word_embeddings": false, "hidden_act": "silu"}`

// TestCUDAForecastOfLlama8B: by the forecast a training step of Llama 3.1 8B on 16,384 prompt and 512
// response tokens fits in 24 GB, on a device with as many processors as an H100 and that
// much memory. It logs what larger devices take, and prompts.
func TestCUDAForecastOfLlama8B(t *testing.T) {
	modeltest.NeedCUDA(t)
	if !strings.Contains(os.Getenv("GLIMPSE_CUDA_DRIVER"), "hostcuda") {
		t.Skip("the host driver is any device")
	}
	if os.Getenv("HOSTCUDA_MEMORY") == "" { // which devices have from the start
		for _, memory := range []string{"24000000000", "80000000000"} {
			cmd := exec.Command(os.Args[0], "-test.v", "-test.run", "^"+t.Name()+"$")
			cmd.Env = append(os.Environ(), "GLIMPSE_CUDA_EXACT=", "HOSTCUDA_PROCESSORS=132", "HOSTCUDA_MEMORY="+memory)
			out, err := cmd.CombinedOutput()
			if t.Logf("%s bytes:\n%s", memory, out); err != nil {
				t.Error(err)
			}
		}
		return
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(llama8B), 0o666); err != nil {
		t.Fatal(err)
	}
	preset, err := training.Presets.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	for _, dtype := range []string{"bf16", "float32"} {
		m, err := model.OpenShapes(folder, "cuda")
		if err != nil {
			t.Fatal(err)
		}
		if err := m.SetCacheDType(dtype); err != nil {
			t.Fatal(err)
		}
		c := preset.Config
		a := preset.Adapter
		a.Name, a.LearningRate, a.InitToken = "one", 1e-3, -1
		c.Adapters, c.Workers, c.Validation = []training.AdapterConfig{a}, 1, training.ValidationConfig{}
		k, err := training.Forecast(t.Context(), m, c, training.PlanOptions{Prompt: 16384, Response: 512})
		if err != nil {
			t.Fatal(err)
		}
		gb := func(n int64) float64 { return float64(n) / 1e9 }
		t.Logf("%s: a step takes %.1f GB: weights %.1f, keys, values and targets %.1f, activations %.1f, adapter and optimiser %.1f",
			dtype, gb(k.Total), gb(k.Weights), gb(k.Cache), gb(k.Activations), gb(k.Adapters+k.Optimiser))
		if dtype == "bf16" && os.Getenv("HOSTCUDA_MEMORY") == "24000000000" && k.Total > 24e9 {
			t.Errorf("a step takes %.2f GB, want at most 24", gb(k.Total))
		}
		for _, policy := range []string{"full", "snapkv", "h2o"} {
			named, err := eviction.New(policy, 1, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			need, err := eviction.NewFootprint(t.Context(), m, named, eviction.FootprintOptions{Tokens: 32768, Budget: 128, MaxNew: 128})
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s takes %.1f GB for 32,768 tokens at a budget of 128", dtype, policy, gb(m.HeldWeights()+need.Peak))
		}
	}
}

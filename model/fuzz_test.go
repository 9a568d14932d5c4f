package model_test

import (
	"bytes"
	"context"
	"maps"
	"runtime"
	"testing"
	"testing/fstest"

	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// FuzzConfig opens tiny weights under any config.json: a model that runs or an error, in
// bounds of memory.
func FuzzConfig(f *testing.F) {
	folder, err := modeltest.Llama{}.Folder()
	if err != nil {
		f.Fatal(err)
	}
	config := folder["config.json"].Data
	f.Add(config)
	for _, extra := range []string{
		`"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}, `,
		`"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, `,
		`"sliding_window": 2, "use_sliding_window": true, "max_window_layers": 1, `, `"layer_types": ["full_attention", "sliding_attention"], `,
		`"torch_dtype": "bfloat16", "attention_bias": true, `, `"eos_token_id": [1, 2], "partial_rotary_factor": 0.5, `, `"num_hidden_layers": 9223372036854775807, `,
	} {
		f.Add(append([]byte("{"+extra), bytes.TrimSpace(config)[1:]...))
	}
	for _, name := range model.Families.Names() {
		f.Add(bytes.Replace(config, []byte("LlamaForCausalLM"), []byte(name), 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<14 {
			return
		}
		files := fstest.MapFS(maps.Clone(folder))
		files["config.json"] = &fstest.MapFile{Data: data}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		m, err := model.OpenFS(files, "tiny", model.Options{Device: "cpu"})
		if err == nil {
			defer m.Close()
			_, err = runner.New(m).Prefill(context.Background(), kvcache.New(m), []int32{1, 2, 3}, runner.PrefillOptions{})
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 256<<20 {
			t.Fatalf("%d bytes allocated, error %v", n, err)
		}
	})
}

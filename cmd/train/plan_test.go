package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/model"
	"glimpse/training"
)

// randomModel writes a model folder of 25 million random weights.
func randomModel(t *testing.T) string {
	t.Helper()
	const hidden, layers, heads, kvHeads, inner, vocab = 768, 4, 12, 4, 2048, 2048
	dir := t.TempDir()
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d,
"num_key_value_heads": %d, "intermediate_size": %d, "vocab_size": %d, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
"rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "float32", "eos_token_id": 2}`, hidden, layers, heads, kvHeads, inner, vocab)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var tensors []checkpoints.TensorView
	add := func(name string, shape ...int) {
		n := 1
		for _, s := range shape {
			n *= s
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = 1
			if len(shape) > 1 {
				data[i] = (rng.Float32()*2 - 1) / float32(math.Sqrt(float64(shape[1])/3))
			}
		}
		tensors = append(tensors, checkpoints.F32Tensor(name, shape, data))
	}
	add("model.embed_tokens.weight", vocab, hidden)
	add("model.norm.weight", hidden)
	for l := range layers {
		at := fmt.Sprintf("model.layers.%d.", l)
		add(at+"input_layernorm.weight", hidden)
		add(at+"post_attention_layernorm.weight", hidden)
		add(at+"self_attn.q_proj.weight", hidden, hidden)
		add(at+"self_attn.k_proj.weight", hidden*kvHeads/heads, hidden)
		add(at+"self_attn.v_proj.weight", hidden*kvHeads/heads, hidden)
		add(at+"self_attn.o_proj.weight", hidden, hidden)
		add(at+"mlp.gate_proj.weight", inner, hidden)
		add(at+"mlp.up_proj.weight", inner, hidden)
		add(at+"mlp.down_proj.weight", hidden, inner)
	}
	if err := checkpoints.WriteSafetensorsFile(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestPlannedMemoryIsUsed: the memory that "train plan" says is within 10% of the most
// that the run then holds, for the built-in model and for one whose plan is continued
// from a few layers. Both run as processes of their own.
func TestPlannedMemoryIsUsed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell a process's memory in a way that compares")
	}
	if testing.Short() {
		t.Skip("measures memory")
	}
	t.Setenv("GOGC", "") // garbage counts
	t.Setenv("GOMEMLIMIT", "")
	dir := t.TempDir()
	folder := randomModel(t)
	m, err := model.Open(folder, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	hash, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	pairs := filepath.Join(dir, "pairs.jsonl")
	w, err := datasets.CreatePairs(pairs, datasets.PairHeader{Model: "random", WeightsSHA256: hash, Shards: 1, Sampling: datasets.Sampling{TopP: 1, MaxNewTokens: 16}})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range 12 {
		ids := make([]int32, 640)
		for j := range ids {
			ids[j] = rng.Int32N(2048)
		}
		if err := w.Write(datasets.Pair{ID: fmt.Sprint(i), PromptIDs: ids, ResponseIDs: ids[:16]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	peak := regexp.MustCompile(`peak memory ([0-9.]+) MiB`)
	for name, args := range map[string][]string{
		"tiny":           {"--tokens", "128", "--steps", "20", "--batch", "1", "--validate", "10"},
		"built-in model": {"--tokens", "512", "--steps", "2", "--batch", "8"},
		"random model":   {"--model", folder, "--data", pairs, "--steps", "2", "--batch", "1", "--validate", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			// How much of the program's file is resident depends on the page cache: by some megabytes, of which a
			// busy machine may have other ones from run to run. One of three tries has to be right.
			var p training.RunPlan
			var planned, used float64
			for try := range 3 {
				out, err := asCommand(append([]string{"plan", "--preset", "lookaheadkv", "--json"}, args...)...).Output()
				if err != nil {
					t.Fatal(err)
				}
				p = training.RunPlan{}
				if err := json.Unmarshal(out, &p); err != nil {
					t.Fatal(err)
				}
				out, err = asCommand(append([]string{"lookahead", "--preset", "lookaheadkv", "--out", filepath.Join(dir, fmt.Sprint(name, try))}, args...)...).Output()
				if err != nil {
					t.Fatal(err)
				}
				used, err = strconv.ParseFloat(string(peak.FindSubmatch(out)[1]), 64)
				if err != nil {
					t.Fatal(err)
				}
				planned = float64(p.Memory.Total) / (1 << 20)
				t.Logf("planned %.1f MiB, used %.1f MiB: %+.1f%%", planned, used, 100*(planned/used-1))
				if math.Abs(planned/used-1) <= 0.1 {
					return
				}
			}
			t.Errorf("planned %.1f MiB, used %.1f MiB, want within 10%%: %+v", planned, used, p.Memory)
		})
	}
}

// TestPlanOfLargeModels: the plan of a model that no machine here could hold comes at once
// and in little memory, leads with the time, and says what to change.
func TestPlanOfLargeModels(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the system does not tell another process's memory")
	}
	if testing.Short() {
		t.Skip("measures memory")
	}
	if os.Getenv("GLIMPSE_BUSY") != "" {
		t.Skip("GLIMPSE_BUSY: the machine computes other things, and this is a bound on time")
	}
	const enough, most = 5 * time.Second, 500 << 20
	for _, x := range []struct {
		name                                  string
		hidden, layers, heads, kvHeads, inner int
		fits                                  bool // one H100
	}{
		{"8B", 4096, 32, 32, 8, 14336, true}, {"70B", 8192, 80, 64, 8, 28672, false}, {"405B", 16384, 126, 128, 8, 53248, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			folder := t.TempDir()
			config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d,
"num_key_value_heads": %d, "intermediate_size": %d, "vocab_size": 128256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
"rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}`, x.hidden, x.layers, x.heads, x.kvHeads, x.inner)
			if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte(config), 0o644); err != nil {
				t.Fatal(err)
			}
			var took time.Duration
			for try := 0; try == 0 || try < 3 && took > enough; try++ { // other programs may have the machine
				cmd := asCommand("plan", "--preset", "lookaheadkv", "--model", folder)
				start := time.Now()
				time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
				var out bytes.Buffer
				cmd.Stdout = &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				memory, err := watch(cmd.Process.Pid, ended)
				if took = time.Since(start); err != nil {
					t.Fatal(err)
				}
				t.Logf("%.2f s, %d MiB", took.Seconds(), memory>>20)
				if memory == 0 || memory > most {
					t.Errorf("%d MiB, want 1 to %d", memory>>20, most>>20)
				}
				lead, _, _ := strings.Cut(out.String(), "\n")
				if !regexp.MustCompile(`^on this machine [0-9.]+ years; on one H100 about [0-9.]+ (hours|days) \(computed\)$`).MatchString(lead) {
					t.Errorf("leads with %q", lead)
				}
				if fits := !strings.Contains(out.String(), "its 80 GB do not hold"); fits != x.fits {
					t.Errorf("fits one H100: %v, want %v", fits, x.fits)
				}
				for _, want := range []string{"what to change", "--batch 4", "prompts of at most 2048 tokens", "--set adapters.0.rows=8"} {
					if !strings.Contains(out.String(), want) {
						t.Errorf("%q is missing in\n%s", want, &out)
					}
				}
			}
			if took > enough {
				t.Errorf("took %v, want at most %v", took, enough)
			}
		})
	}
}

// watch is the most memory that a process was seen to hold before it ended. What the system
// tells afterwards counts its parent's memory, too.
func watch(pid int, ended <-chan error) (most int64, err error) {
	for {
		select {
		case err := <-ended:
			return most, err
		case <-time.After(10 * time.Millisecond):
		}
		data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if _, rest, ok := strings.Cut(string(data), "VmHWM:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			most = max(most, kib<<10)
		}
	}
}

// TestPlanOfASweep: the plan of a sweep is that of all its passes, with the adapters that the
// sweep trains, also where a preset gives the learning rate.
func TestPlanOfASweep(t *testing.T) {
	type plan struct {
		Passes   int                    `json:"passes"`
		Adapters []training.PlanAdapter `json:"adapters"`
		Memory   training.Memory        `json:"memory_bytes"`
		H100     training.PlanH100      `json:"h100"` // computed, whatever else this machine does
	}
	planned := func(args ...string) (p plan) {
		// In a process of its own: counting collects garbage again and again, which takes long beside the heap of other tests.
		out, err := asCommand(append([]string{"plan", "--json"}, args...)...).Output()
		if err == nil {
			err = json.Unmarshal(out, &p)
		}
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	const example = "../../scripts/examples/sweep.yaml"
	preset := writeFile(t, "preset.yaml", "preset: lookaheadkv\nrun: out\nmodel: ../../training/testdata/published/Llama-3.2-1B-Instruct\ntrain: {steps: 4, validation: {samples: 1, budgets: [8]}}\nsweep: {rows: [4, 64], modules: [none, all], per_pass: 3}\n")
	for name, c := range map[string]struct {
		file             string
		passes, adapters int
		first            string
	}{
		"example":          {example, 2, 8, "lookaheadkv-n8-qv-lr0.001"},
		"rate of a preset": {preset, 2, 4, "lookaheadkv-n4-none-lr0"},
	} {
		if testing.Short() && c.file != example {
			continue
		}
		t.Run(name, func(t *testing.T) {
			p := planned(c.file)
			if p.Passes != c.passes || len(p.Adapters) != c.adapters || p.Adapters[0].Name != c.first {
				t.Errorf("%d passes, adapters %+v, want %d passes of %d, %s first", p.Passes, p.Adapters, c.passes, c.adapters, c.first)
			}
			if c.file != example { // the text is made of the same numbers
				return
			}
			text, _ := mustExecute(t, "plan", c.file)
			if !strings.Contains(text, fmt.Sprintf("%d adapters in %d passes", c.adapters, c.passes)) {
				t.Errorf("the text is silent about the passes:\n%s", text)
			}
		})
	}
	// Passes add up in time and not in memory: each has its own prefill, which is most of the time of a real model.
	if one, eight := planned(example, "--set", "sweep.per_pass=8"), planned(example, "--set", "sweep.per_pass=1"); one.Passes != 1 || eight.Passes != 8 ||
		!(eight.H100.TotalSeconds > one.H100.TotalSeconds) || !(eight.Memory.Optimiser < one.Memory.Optimiser) {
		t.Errorf("8 adapters in a pass: %+v, one: %+v", one, eight)
	}
	if testing.Short() {
		return // of a larger model the same, but for how much it saves
	}
	together, apart := planned(preset, "--set", "sweep.per_pass=4"), planned(preset, "--set", "sweep.per_pass=1")
	if together.Passes != 1 || apart.Passes != 4 || !(apart.H100.TotalSeconds > 1.5*together.H100.TotalSeconds) || !(apart.Memory.Optimiser < together.Memory.Optimiser) {
		t.Errorf("4 adapters in a pass: %+v, one: %+v", together, apart)
	}
}

// TestPlanOfNothing: what is planned without a configuration and a preset is said.
func TestPlanOfNothing(t *testing.T) {
	out, notice := mustExecute(t, "plan", "--tokens", "64")
	if !strings.Contains(notice, "--preset lookaheadkv") || !strings.Contains(out, "lookaheadkv") {
		t.Errorf("notice %q, plan %q", notice, out)
	}
}

package eviction_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/eviction"
	"glimpse/model/modeltest"
)

func patternFolder(heads, config string) fstest.MapFS {
	return fstest.MapFS{
		"full_attention_heads.tsv": {Data: []byte(heads)},
		"config.json":              {Data: []byte(config)},
	}
}

// TestReadPattern: what DuoAttention's own script writes, numbers beyond 0 and 1
// included, and files that are damaged.
func TestReadPattern(t *testing.T) {
	const config = `{"model_name": "models/Llama", "lr": 0.02, "sink_size": 128, "recent_size": 256, "deploy_sink_size": null}`
	p, err := eviction.ReadPattern(patternFolder("8.593750000000000000e-01\t-2.229213714599609375e-05\n1.000976562500000000e+00\t5.000000000000000000e-01\n", config))
	if err != nil {
		t.Fatal(err)
	}
	if want := (&eviction.Pattern{Heads: [][]float64{{0.859375, 0}, {1, 0.5}}, Sink: 128, Recent: 256, Source: "models/Llama"}); !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, want %+v", p, want)
	}
	if p, err = eviction.ReadPattern(patternFolder("1\t0\r\n0.5\t0\r\n", config)); err != nil || p.Heads[1][0] != 0.5 {
		t.Errorf("Windows line ends: %+v, %v", p, err)
	}
	for _, c := range []struct {
		name   string
		folder fs.FS
		want   string
	}{
		{"no config", fstest.MapFS{"full_attention_heads.tsv": {Data: []byte("1")}}, "pattern: open config.json"},
		{"no heads", fstest.MapFS{"config.json": {Data: []byte(config)}}, "pattern: open full_attention_heads.tsv"},
		{"config cut short", patternFolder("1", config[:20]), "pattern: config.json: "},
		{"no sink", patternFolder("1", `{"recent_size": 1}`), "pattern: config.json: sink_size: missing"},
		{"no recent", patternFolder("1", `{"sink_size": 1}`), "pattern: config.json: recent_size: missing"},
		{"negative sink", patternFolder("1", `{"sink_size": -1, "recent_size": 1}`), "pattern: config.json: sink_size: got -1, want at least 0"},
		{"ragged", patternFolder("1\t1\n1\n", config), "pattern: full_attention_heads.tsv: line 2: 1 heads, want 2 as in line 1"},
		{"a word", patternFolder("1\t1\n1\tone\n", config), `pattern: full_attention_heads.tsv: line 2: got "one", want tab-separated numbers`},
		{"NaN", patternFolder("1\tnan\n", config), `pattern: full_attention_heads.tsv: line 1: got "nan"`},
		{"empty", patternFolder("", config), `pattern: full_attention_heads.tsv: line 1: got ""`},
		{"huge", patternFolder(strings.Repeat("1\n", 1<<22), config), "want at most 4194304"},
	} {
		if _, err := eviction.ReadPattern(c.folder); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

func TestWritePattern(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	p := randomPattern(m, 2)
	p.Source = "tiny"
	path := filepath.Join(t.TempDir(), "pattern")
	if err := p.Write(path, false); err != nil {
		t.Fatal(err)
	}
	got, err := eviction.ReadPattern(os.DirFS(path))
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("%+v, %v; want %+v", got, err, p)
	}
	if err := p.Write(path, false); err == nil || !strings.Contains(err.Error(), "exists") {
		t.Errorf("over a folder that is there: %v", err)
	}
	p.Source = "another"
	if err := p.Write(path, true); err != nil {
		t.Fatal(err)
	}
	if got, err := eviction.ReadPattern(os.DirFS(path)); err != nil || got.Source != "another" {
		t.Errorf("replaced: %+v, %v", got, err)
	}
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Write(other, true); err == nil || !strings.Contains(err.Error(), "only a folder with a pattern") {
		t.Errorf("over a folder of something else: %v", err)
	}
}

// TestFindPattern holds the measure against the second forward pass: the attention
// of each row that predicts an answer token on that token's places.
func TestFindPattern(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 9, Vocab: 12}.Open(t, "reference64")
	exact := newNaive(m)
	examples := []eviction.Retrieval{
		{Prompt: modeltest.Tokens(m, 1, 30), Answer: []int32{3, 5, 3}},
		{Prompt: modeltest.Tokens(m, 2, 21), Answer: []int32{7}},
	}
	find := func(examples []eviction.Retrieval) (*eviction.Pattern, error) {
		return eviction.NewRuntime(m).FindPattern(background, len(examples), func(i int) (eviction.Retrieval, error) { return examples[i], nil }, 4, 8)
	}
	got, err := find(examples)
	if err != nil {
		t.Fatal(err)
	}
	if got.Sink != 4 || got.Recent != 8 || got.Source != "tiny" {
		t.Errorf("%+v", got)
	}
	for l := range m.Config.Layers {
		for g := range m.Config.KVHeads {
			want := 0.0
			for _, e := range examples {
				all := append(append([]int32(nil), e.Prompt...), e.Answer...)
				p := exact.run(exact.empty(), exact.embed(all), 0, nil)
				for i, id := range e.Answer {
					most := 0.0
					for h := g * 2; h < g*2+2; h++ {
						sum := 0.0
						for j, other := range e.Prompt {
							if other == id {
								sum += p.attention[l][h][len(e.Prompt)-1+i][j]
							}
						}
						most = max(most, sum)
					}
					want += most / 4
				}
			}
			if d := got.Heads[l][g] - want; d > 1e-6 || d < -1e-6 {
				t.Errorf("layer %d head %d: %v, want %v", l, g, got.Heads[l][g], want)
			}
		}
	}
	for what, examples := range map[string][]eviction.Retrieval{"no examples": nil, "no answer": {{Prompt: []int32{1}}}, "id 99": {{Prompt: []int32{99}, Answer: []int32{1}}}} {
		if _, err := find(examples); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

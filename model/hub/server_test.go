package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/model/hub/hubtest"
)

const commitA, commitB = hubtest.CommitA, hubtest.CommitB

// fakeHub is a hub with checks.
type fakeHub struct {
	*hubtest.Server
	t *testing.T
}

func newFakeHub(t *testing.T, files map[string][]byte) fakeHub {
	return fakeHub{hubtest.New(t, files), t}
}

// wholeModel is a model with all files, and some that are not wanted.
func wholeModel() map[string][]byte {
	weights := make([]byte, 300_000)
	for i := range weights {
		weights[i] = byte(i * i >> 5)
	}
	return map[string][]byte{
		"config.json":                []byte(`{"architectures": ["LlamaForCausalLM"]}`),
		"generation_config.json":     []byte(`{"eos_token_id": 2}`),
		"tokenizer.json":             []byte(`{"version": "1.0"}`),
		"tokenizer_config.json":      []byte(`{}`),
		"chat_template.jinja":        []byte("{{ messages }}"),
		"model.safetensors":          weights,
		"pytorch_model.bin":          []byte("pickle"),
		"README.md":                  []byte("# model"),
		"original/params.json":       []byte("{}"),
		"consolidated.safetensors":   []byte("again"),
		"onnx/model.onnx":            []byte("onnx"),
		"subfolder/config.json":      []byte("{}"),
		"tokenizer.model":            []byte("sentencepiece"),
		"special_tokens_map.json":    []byte(`{"pad_token": "<pad>"}`),
		"vocab.json":                 []byte("{}"),
		"../../../../etc/passwd":     []byte("root"),
		"runs/events.out.tfevents.1": []byte("events"),
	}
}

// shardedModel is one of two shards.
func shardedModel() map[string][]byte {
	m := wholeModel()
	whole := m[singleFile]
	delete(m, singleFile)
	m["model-00001-of-00002.safetensors"], m["model-00002-of-00002.safetensors"] = whole[:100_000], whole[100_000:]
	m[indexFile] = []byte(`{"weight_map": {"b": "model-00002-of-00002.safetensors", "a": "model-00001-of-00002.safetensors", "c": "model-00001-of-00002.safetensors"}}`)
	return m
}

// find resolves with short pauses.
func find(t *testing.T, spec string) (Model, error) {
	t.Helper()
	f, err := newFetcher(spec, testLog{t})
	if err != nil {
		return Model{}, err
	}
	f.client.pause = time.Millisecond
	return f.findModel(t.Context())
}

type testLog struct{ t *testing.T }

func (l testLog) Write(p []byte) (int, error) {
	l.t.Logf("%s", strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// mustFind also checks the files of the folder against those of the commit.
func (h fakeHub) mustFind(spec, sha string) Model {
	h.t.Helper()
	m, err := find(h.t, spec)
	if err != nil {
		h.t.Fatal(err)
	}
	if filepath.Base(m.Path) != sha || m.Name != h.ID {
		h.t.Fatalf("found %+v, want commit %s of %s", m, sha, h.ID)
	}
	entries, err := os.ReadDir(m.Path)
	if err != nil {
		h.t.Fatal(err)
	}
	wanted := 0
	for name, data := range h.Commits[sha] {
		switch name {
		case "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "chat_template.json", "special_tokens_map.json", "added_tokens.json", "glimpse_policies.json", singleFile, indexFile:
		default:
			if !strings.HasPrefix(name, "model-0") {
				continue
			}
		}
		wanted++
		if got, err := os.ReadFile(filepath.Join(m.Path, name)); err != nil || string(got) != string(data) {
			h.t.Errorf("%s: %d bytes (%v), want the %d of the hub", name, len(got), err, len(data))
		}
	}
	if len(entries) != wanted {
		h.t.Errorf("snapshot %v, want %d files", entries, wanted)
	}
	return m
}

func (h fakeHub) cacheDir() string {
	return filepath.Join(os.Getenv("HF_HOME"), "hub", "models--org--tiny")
}

package tasks

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// realTokenizers are those of the folder that GLIMPSE_DATA names, with a chat template each.
var realTokenizers = []struct {
	name, template, bos, eos string
	vocab                    int
}{
	{"llama3", "meta-llama-Llama-3.1-8B-Instruct", "<|begin_of_text|>", "<|eot_id|>", 128256},
	{"mistral_v3", "Mistral-7B-Instruct-v0.3", "<s>", "</s>", 32768},
	{"qwen", "Qwen2.5", "", "<|im_end|>", 151936},
}

// opened are the models of all tests, which they are opened for once.
var opened sync.Map

// textModels are random models with a tokenizer: of bytes, and real ones with GLIMPSE_DATA.
func textModels(t *testing.T) map[string]*model.Model {
	t.Helper()
	out := map[string]*model.Model{"bytes": byteModel(t)}
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Log("GLIMPSE_DATA does not name a data folder: only a tokenizer of bytes is tested")
		return out
	}
	for _, r := range realTokenizers {
		tokenizer, err := os.ReadFile(filepath.Join(root, "tokenizers", r.name+".json"))
		if err != nil {
			t.Fatal(err)
		}
		template, err := os.ReadFile(filepath.Join(root, "chat_templates", r.template+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		config := map[string]any{"chat_template": string(template), "eos_token": r.eos}
		if r.bos != "" {
			config["bos_token"] = r.bos
		}
		out[r.name] = textModel(t, r.name, tokenizer, config, r.vocab)
	}
	return out
}

// byteModel has a token for every byte, and no chat template.
func byteModel(t *testing.T) *model.Model {
	t.Helper()
	golden, err := os.ReadFile(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return textModel(t, "bytes", golden, nil, 256)
}

func textModel(t *testing.T, name string, tokenizer []byte, config map[string]any, vocab int) *model.Model {
	t.Helper()
	if m, ok := opened.Load(name); ok {
		return m.(*model.Model)
	}
	folder, err := modeltest.Llama{Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 8, Vocab: vocab, MaxPositions: 1 << 17, Tied: true, Seed: 1}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	folder["tokenizer.json"] = &fstest.MapFile{Data: tokenizer}
	if config != nil {
		data, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		folder["tokenizer_config.json"] = &fstest.MapFile{Data: data}
	}
	m, err := model.OpenFS(folder, name, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	opened.Store(name, m)
	return m
}

// setting is that of a task with options NAME=VALUE.
func setting(t *testing.T, m *model.Model, task string, options ...string) *evaluation.Setting {
	t.Helper()
	definition, err := evaluation.Tasks.Lookup(task)
	if err != nil {
		t.Fatal(err)
	}
	set, err := definition.SetOptions(options)
	if err != nil {
		t.Fatal(err)
	}
	return &evaluation.Setting{Model: m, Seed: 1, Samples: 2, Split: datasets.Test, Truncate: evaluation.TruncateNone, Options: set}
}

// made is a sample by its ID, or its error.
type made struct {
	id     string
	sample *evaluation.Sample
	err    error
}

// makeAll opens a task and makes its samples.
func makeAll(t *testing.T, task, subtask string, s *evaluation.Setting) (*evaluation.Samples, []made) {
	t.Helper()
	definition, err := evaluation.Tasks.Lookup(task)
	if err != nil {
		t.Fatal(err)
	}
	samples, err := definition.Open(t.Context(), s, subtask)
	if err != nil {
		t.Fatal(err)
	}
	var out []made
	ids := make(map[string]bool)
	for item := range samples.Each {
		sample, err := item.Make(t.Context())
		if ids[item.ID] || item.ID == "" {
			t.Errorf("ID %q twice, or none", item.ID)
		}
		ids[item.ID] = true
		out = append(out, made{item.ID, sample, err})
	}
	return samples, out
}

// promptText is the first prompt of a sample as tokens and as text.
func promptText(t *testing.T, m *model.Model, s *evaluation.Sample) ([]int32, string) {
	t.Helper()
	ids, _, err := s.Turns[0].Prompt(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := m.Tokenizer.Decode(ids, true)
	if err != nil {
		t.Fatal(err)
	}
	return ids, text
}

// scoreOf rates one answer.
func scoreOf(t *testing.T, s *evaluation.Sample, metric, answer string) float64 {
	t.Helper()
	scores, err := s.Score(t.Context(), []evaluation.Output{{Text: answer}})
	if err != nil {
		t.Fatal(err)
	}
	v, ok := scores[metric]
	if !ok {
		t.Fatalf("scores %v, want %s among them", scores, metric)
	}
	return v
}

func openError(t *testing.T, task, subtask string, s *evaluation.Setting, want string) {
	t.Helper()
	definition, err := evaluation.Tasks.Lookup(task)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := definition.Open(t.Context(), s, subtask); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want it to say %q", err, want)
	}
}

func writeFile(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

